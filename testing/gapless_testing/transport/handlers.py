"""What a handler breaks is its own."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence

import pytest

from gapless.spi import Link, LinkHandler
from gapless_testing.running import bounded, settle, within
from gapless_testing.transport.connections import clogged, connected, dial, listening
from gapless_testing.transport.ends import End, SuitePart
from gapless_testing.transport.harness import TransportHarness


class HandlerTests(SuitePart):
    """An exception in a handler costs its own link, and nothing else."""

    @bounded
    async def test_a_handler_that_raises_loses_its_link(self, harness: TransportHarness) -> None:
        """Another link and the listener go on."""

        def fail(_: Sequence[bytes]) -> None:
            raise RuntimeError("on purpose")

        async with connected(harness) as connection:
            near, far = await connection.another()
            far.on_frames_do = fail
            with logged() as lines:
                near.link.send([b"boom", b"more"])
                assert await far.end() != "", "the handler failed, and on_closed was given no reason"
                await near.end()
            assert lines, "the handler raised, and nothing was logged"

            connection.near.link.send([b"well"])
            await connection.far.gets([b"well"])
            third, _ = await connection.another()
            third.link.close()

    @bounded
    async def test_a_handler_that_raises_when_drained_loses_its_link(self, harness: TransportHarness) -> None:
        """As in `on_frames`."""

        def fail() -> None:
            raise RuntimeError("on purpose")

        async with clogged(harness) as (connection, _):
            connection.near.on_drained_do = fail
            connection.far.link.resume()

            assert await connection.near.end() != "", "the handler failed, and on_closed was given no reason"

    @bounded
    async def test_a_handler_that_raises_when_closed_harms_nobody(self, harness: TransportHarness) -> None:
        """The link is over anyway."""

        def fail() -> None:
            raise RuntimeError("on purpose")

        async with connected(harness) as connection:
            near, far = await connection.another()
            far.on_closed_do = fail
            near.link.close()
            await far.end()

            connection.near.link.send([b"well"])
            await connection.far.gets([b"well"])

    @bounded
    async def test_an_accept_that_raises_refuses_one_link(self, harness: TransportHarness) -> None:
        """The listener goes on."""
        refusals = [RuntimeError("on purpose")]
        ends = []

        def accept(link: Link) -> LinkHandler:
            if refusals:
                raise refusals.pop()
            ends.append(End().accept(link))
            return ends[-1]

        transport = harness.transport()
        listener = await transport.listen(harness.address, accept)
        refused, welcome = End(), End()
        with logged() as lines:
            # The dialer may or may not be told before dial returns; either way its link is over.
            with contextlib.suppress(OSError):
                await dial(transport, listener.address, refused.accept)
                await refused.end()
            await dial(transport, listener.address, welcome.accept)
        assert lines, "accept raised, and nothing was logged"
        welcome.link.send([b"hello"])
        welcome.link.close()
        await welcome.end()
        await within(listener.close(), "the listener's close did not return")

        await ends[0].end()
        await ends[0].gets([b"hello"])

    @bounded
    async def test_an_accept_that_raises_makes_dial_raise(self, harness: TransportHarness) -> None:
        """The dialer gets its own error back; the other end hears of a closed link."""

        def accept(_: Link) -> LinkHandler:
            raise LookupError("on purpose")

        async with listening(harness) as (transport, listener, ends):
            with pytest.raises(LookupError, match="on purpose"):
                await dial(transport, listener.address, accept)

            await settle()
            for end in ends.all:
                await end.end()


@contextlib.contextmanager
def logged() -> Iterator[list[str]]:
    """What is logged meanwhile, from warnings on."""
    lines: list[str] = []

    class Keeper(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    keeper = Keeper(logging.WARNING)
    logging.getLogger().addHandler(keeper)
    try:
        yield lines
    finally:
        logging.getLogger().removeHandler(keeper)
