"""The proxy that breaks connections, before somebody who sends back what comes."""

from __future__ import annotations

import asyncio

import pytest

from gapless_testing.fault_proxy import BUFFER, Direction, FaultProxy, Filter, Passing

PATIENCE = 10.0


class Caller:
    """A connection through a proxy."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def of(cls, proxy: FaultProxy) -> Caller:
        host, _, port = proxy.address.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    async def hears(self, count: int) -> bytes:
        """What comes back: so many bytes, or all until the connection is over."""
        try:
            return await asyncio.wait_for(self.reader.readexactly(count), PATIENCE)
        except asyncio.IncompleteReadError as error:
            return error.partial
        except ConnectionError:
            return b""
        finally:
            if self.reader.at_eof():
                self.writer.close()

    async def asks(self, said: bytes) -> bytes:
        """What comes back for it."""
        self.writer.write(said)
        return await self.hears(len(said))


async def test_it_passes_on_what_comes_and_counts_it(echo: str) -> None:
    async with FaultProxy(echo) as proxy:
        caller = await Caller.of(proxy)
        said = bytes(range(256)) * 1000
        assert await caller.asks(said) == said
        assert (proxy.inward.passed, proxy.outward.passed) == (len(said), len(said))
        assert (proxy.connections, proxy.is_used) == (1, True)
        caller.writer.close()


async def test_a_cut_connection_is_over_and_the_next_one_gets_through(echo: str) -> None:
    async with FaultProxy(echo) as proxy:
        caller = await Caller.of(proxy)
        assert await caller.asks(b"one") == b"one"
        proxy.cut()
        assert await caller.hears(1) == b""
        again = await Caller.of(proxy)
        assert await again.asks(b"two") == b"two"
        again.writer.close()


@pytest.mark.parametrize("how", ["refuses", "no target", "target down"])
async def test_nobody_gets_through_until_it_is_healed(echo: str, how: str) -> None:
    async with FaultProxy(echo) as proxy:
        proxy.refuses = how == "refuses"
        if how == "no target":
            proxy.target = ""
        if how == "target down":
            async with FaultProxy() as nobody:
                proxy.target = nobody.address
        assert await (await Caller.of(proxy)).asks(b"one") == b""
        proxy.heal()
        proxy.target = echo
        again = await Caller.of(proxy)
        assert await again.asks(b"two") == b"two"
        again.writer.close()


@pytest.mark.parametrize("way", ["inward", "outward", "both"])
async def test_what_is_stalled_comes_when_it_goes_on(echo: str, way: str) -> None:
    async with FaultProxy(echo) as proxy:
        caller = await Caller.of(proxy)
        if way == "both":
            proxy.stall()
        else:
            getattr(proxy, way).is_open.clear()
        hearing = asyncio.ensure_future(caller.asks(b"one"))
        done, _ = await asyncio.wait([hearing], timeout=0.05)
        assert not done
        proxy.go_on()
        assert await hearing == b"one"
        caller.writer.close()


@pytest.mark.parametrize("way", ["inward", "outward"])
async def test_what_is_swallowed_never_comes(echo: str, way: str) -> None:
    async with FaultProxy(echo) as proxy:
        caller = await Caller.of(proxy)
        direction: Direction = getattr(proxy, way)
        direction.swallows = True
        caller.writer.write(b"one")
        while direction.passed < len(b"one"):  # noqa: ASYNC110 - a count has no event to wait for
            await asyncio.sleep(0)
        proxy.heal()
        assert await caller.asks(b"two") == b"two"
        caller.writer.close()


async def test_a_slow_direction_passes_everything_in_small_portions(echo: str) -> None:
    async with FaultProxy(echo) as proxy:
        proxy.outward.rate = 1e6
        assert proxy.outward.portion == BUFFER
        proxy.outward.rate = 40_000
        assert proxy.outward.portion == 2000
        caller = await Caller.of(proxy)
        said = bytes(range(250)) * 20
        assert await caller.asks(said) == said
        caller.writer.close()


async def test_a_filter_says_what_passes_in_which_pieces_and_when_it_ends(echo: str) -> None:
    def filter_of(direction: Direction) -> Filter:
        if direction is not proxy.inward:
            return lambda data: Passing([data])
        return lambda data: Passing([data[:1], data[2:]], is_end=data.startswith(b"end"))

    async with FaultProxy(echo, filter_of) as proxy:
        caller = await Caller.of(proxy)
        caller.writer.write(b"one")
        assert await caller.hears(2) == b"oe"
        caller.writer.write(b"end")
        await caller.hears(3)
        assert caller.reader.at_eof()
