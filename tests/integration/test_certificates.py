"""A broker whose certificate and authorities are replaced while clients work: nobody who may stay notices."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import trustme

import gapless
from certificates import Directory, der_of
from gapless.node.node import Node
from gapless_transport import tls_files
from integration.broker_process import bounded, until
from integration.nodes_in_process import running_node

CLIENTS = 20
EXPIRES, UNUSABLE = "certificate_expires", "certificate_unusable"


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    (tmp_path / "certificates").mkdir()
    return Directory(tmp_path / "certificates")


@pytest.fixture
async def broker(directory: Directory, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Node]:
    """It asks its clients for certificates, and looks often whether its own files have changed."""
    monkeypatch.setattr(tls_files, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr("gapless.node.upkeep.INTERVAL", 0.05)
    files = {name: str(path) for name, path in directory.listening.items()}
    sections: dict[str, Any] = {"listen": [{"address": "127.0.0.1:0", **files}]}
    async with running_node(**sections) as node:
        yield node


class Badge:
    """What a client shows, and whom it trusts; never replaced."""

    def __init__(self, directory: Directory, authority: trustme.CA, name: str) -> None:
        self._ca = directory.path / f"ca-of-{name}.pem"
        self._ca.write_bytes(directory.authority.cert_pem.bytes())
        self._own = directory.path / f"{name}.pem"
        issued = authority.issue_cert("client.example", common_name=name)
        self._own.write_bytes(issued.private_key_and_cert_chain_pem.bytes())

    def url(self, broker: Node) -> str:
        """What a client dials."""
        return f"{broker.url}?ca={self._ca}&certificate={self._own}"

    async def sees(self, broker: Node) -> bytes:
        """The certificate that the broker shows to who comes now."""
        context = ssl.create_default_context(cafile=self._ca)
        context.load_cert_chain(self._own)
        host, _, port = broker.url.removeprefix("gapless+tls://").rpartition(":")
        _, writer = await asyncio.open_connection(host, int(port), ssl=context)
        shown: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        return shown


class Consumer:
    """A subscription that must get everything, over one connection."""

    def __init__(self, connection: gapless.Connection, subscription: gapless.Subscription[gapless.Event, Any]) -> None:
        self.connection = connection
        self.got: list[bytes] = []
        self._task = asyncio.create_task(self._consume(subscription))

    async def _consume(self, subscription: gapless.Subscription[gapless.Event, Any]) -> None:
        async for event in subscription:
            self.got.append(event.body)

    async def leave(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


class Publishing:
    """Publishes numbers without a pause, until it is ended."""

    def __init__(self, publisher: gapless.Publisher) -> None:
        self.sent: list[bytes] = []
        self._over = False
        self._task = asyncio.create_task(self._publish(publisher))

    async def _publish(self, publisher: gapless.Publisher) -> None:
        while not self._over:
            body = b"%d" % len(self.sent)
            await publisher.send(body)
            self.sent.append(body)
            await asyncio.sleep(0.005)

    async def end(self) -> list[bytes]:
        self._over = True
        await bounded(self._task)
        return self.sent


async def alarms_of(connection: gapless.Connection) -> set[str]:
    """The codes of what is wrong now."""
    return {alarm.code for alarm in (await connection.status()).alarms if not alarm.over and alarm.lasts}


async def until_alarms(connection: gapless.Connection, expected: set[str]) -> None:
    """Waits until just that is wrong."""
    for _ in range(200):
        if await alarms_of(connection) == expected:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"expected {expected}, and found {await alarms_of(connection)}")


async def until_seen(badge: Badge, broker: Node, certificate: bytes) -> None:
    """Waits until who comes sees that certificate."""
    for _ in range(100):
        if await badge.sees(broker) == certificate:
            return
        await asyncio.sleep(0.05)
    raise AssertionError("new connections still see the old certificate")


async def test_certificates_and_authorities_are_replaced_while_clients_work(
    broker: Node, directory: Directory, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    former = trustme.CA()
    directory.trust(directory.authority, former)
    ours = Badge(directory, directory.authority, "ours")
    theirs = Badge(directory, former, "theirs")
    await until_let_in(theirs, broker)
    async with AsyncExitStack() as stack:
        consumers = []
        for number in range(CLIENTS):
            badge = theirs if number % 2 else ours
            connection = await stack.enter_async_context(gapless.connect(badge.url(broker), client_id=f"c{number}"))
            session = await stack.enter_async_context(connection.session())
            subscription = await stack.enter_async_context(session.subscribe("t", name="all"))
            consumers.append(Consumer(connection, subscription))
        publishing = Publishing(session.publisher("t", name="loader"))
        operator = consumers[0].connection

        # Another certificate, in two steps that leave a pair that does not fit between them.
        old = await ours.sees(broker)
        renewed = directory.issue()
        directory.put(directory.certificate, renewed.cert_chain_pems[0].bytes())
        await until_alarms(operator, {UNUSABLE})
        assert await ours.sees(broker) == old
        directory.put(directory.key, renewed.private_key_pem.bytes())
        await until_alarms(operator, set())
        await until_seen(ours, broker, der_of(renewed))
        # One that ends soon, and one that has ended.
        await until_seen(ours, broker, ends_soon := directory.renew(end=5))
        await until_alarms(operator, {EXPIRES})
        directory.renew(begin=-5, end=-1)
        await until_alarms(operator, {EXPIRES, UNUSABLE})
        assert await ours.sees(broker) == ends_soon
        await until_seen(ours, broker, directory.renew())
        await until_alarms(operator, set())
        # An authority that is taken away.
        directory.trust(directory.authority)
        await until_let_in(theirs, broker, let_in=False)
        with pytest.raises(gapless.ConnectionClosedError):
            await bounded(gapless.connect(theirs.url(broker), client_id="late"))
        async with gapless.connect(ours.url(broker), client_id="newcomer") as newcomer:
            assert await newcomer.pubends() != []

        sent = await publishing.end()
        for consumer in consumers:
            await until(lambda: len(consumer.got) >= len(sent), "everything to arrive")  # noqa: B023 - waited for here
            assert consumer.got == sent
            await consumer.leave()

    came = [f"client 'c{number}' has connected" for number in range(CLIENTS)]
    assert [caplog.text.count(line) for line in came] == [1] * CLIENTS, "nobody had to connect again"
    assert "Traceback" not in caplog.text
    assert caplog.text.count(f"({EXPIRES})") == 2, "it is told when it begins, and when it is over"


async def until_let_in(badge: Badge, broker: Node, *, let_in: bool = True) -> None:
    """Waits until who shows that is let in, or is not: in TLS 1.3 that is known when something comes, or the end."""
    for _ in range(100):
        try:
            probe = await bounded(gapless.connect(badge.url(broker), client_id="probe"))
            await probe.close()
        except gapless.GaplessError:
            came = False
        else:
            came = True
        if came is let_in:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"who came was {'not ' if let_in else ''}let in")
