"""What links say of certificates, and what a transport says that is wrong with them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from gapless.core.alarms import Alarm
from gapless.spi import Certificate, Link, TellsTroubles, Transport
from gapless_testing import running
from gapless_testing.running import bounded
from gapless_testing.transport.connections import connected
from gapless_testing.transport.ends import End, SuitePart
from gapless_testing.transport.harness import TransportHarness

LOOK_SECONDS = 0.02


class CertificateTests(SuitePart):
    """Certificates of links, where there are any, and troubles with them."""

    @bounded
    async def test_what_links_say_of_certificates(self, harness: TransportHarness) -> None:
        """Both ends name the one that the listener shows, from the beginning; without TLS there is none."""
        told: list[tuple[Certificate, bytes]] = []

        def note(end: End) -> None:
            told.append(certificates_of(end.link.bare))

        async with connected(harness, note) as connection:
            near, far = connection.near.link.bare, connection.far.link.bare
            assert isinstance(near.certificate, Certificate), f"a link's certificate is {near.certificate!r}"
            assert near.shown == far.shown, "the two ends of a link do not name the same certificate as shown"
            assert near.shown == harness.shown(), f"a link says that the listener has shown {near.shown!r}"
            if not connection.transport.encrypts:
                expected = Certificate(), b""
                assert certificates_of(near) == certificates_of(far) == expected, "a link without TLS has a certificate"
            near.send([b"something"])
            await connection.far.gets([b"something"])
            assert told[0] == certificates_of(far), "what a link says of certificates has changed since its `accept`"

    @bounded
    async def test_troubles_are_told_apart(self, harness: TransportHarness) -> None:
        """Whatever is wrong, and whenever the node asks."""
        transport = harness.transport()
        if not isinstance(transport, TellsTroubles):
            pytest.skip("nothing to test: the transport tells no troubles")
        check_troubles(transport.troubles())
        async with connected(harness) as connection:
            check_troubles(troubles_of(connection.transport))

    @bounded
    async def test_files_that_cannot_be_used_disturb_nobody(self, harness: TransportHarness) -> None:
        """Links go on, others come, the operator is told; and is told no more when the files are right again."""
        if not harness.follows_files:
            pytest.skip("nothing to test: the harness names no files that the transport reads again")
        async with connected(harness) as connection:
            before = troubles_of(connection.transport)
            harness.spoil()
            try:
                await until_told(connection.transport, lambda now: len(now) > len(before), "spoilt, and it told nobody")
                check_troubles(troubles_of(connection.transport))
                near, far = await connection.another()
                near.link.send([b"a newcomer"])
                await far.gets([b"a newcomer"])
                near.link.close()
                await near.end()
            finally:
                harness.mend()
            await until_told(connection.transport, lambda now: now == before, "mended, and it tells of it still")
            connection.near.link.send([b"undisturbed"])
            await connection.far.gets([b"undisturbed"])


def certificates_of(link: Link) -> tuple[Certificate, bytes]:
    """All that a link says of certificates."""
    return link.certificate, link.shown


def troubles_of(transport: Transport) -> Sequence[Alarm]:
    """What a transport finds wrong now."""
    assert isinstance(transport, TellsTroubles), "the transport follows files, and has no way to tell of troubles"
    return transport.troubles()


def check_troubles(troubles: Sequence[Alarm]) -> None:
    """Fails unless each can be told from the others."""
    assert all(isinstance(alarm, Alarm) for alarm in troubles), f"not everything is an Alarm: {troubles!r}"
    (most, count), *_ = [*Counter((alarm.code, alarm.about) for alarm in troubles).most_common(1), (None, 0)]
    assert count <= 1, f"{count} troubles at a time are {most}"
    assert not any(alarm.over for alarm in troubles), "what is over is no trouble any more"


async def until_told(transport: Transport, holds: Callable[[Sequence[Alarm]], bool], otherwise: str) -> None:
    """Waits until what the transport finds wrong is as it should be."""
    for _ in range(int(running.WAIT_SECONDS_MAX / LOOK_SECONDS)):
        if holds(troubles_of(transport)):
            return
        await asyncio.sleep(LOOK_SECONDS)
    raise AssertionError(f"the transport's files were {otherwise} within {running.WAIT_SECONDS_MAX:g} s")
