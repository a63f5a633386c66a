"""A way between client and broker that breaks its word: it loses whole frames, or brings them twice.

TCP does not, but a proxy that knows frames may, and so may a transport with a bug. Everything here is a real broker
over TCP, an application over the public API, and such a proxy between them.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

import gapless
from gapless.core.wire.numbering import HEAD_BYTES
from integration.nodes_in_process import running_node

pytestmark = pytest.mark.timeout(60)

LIMITS = {"heartbeat": 0.5}
EVENTS = 12

PUBLISH, DELIVER = b"\x01", b"\x02"
PUBLISHED = b"\x94\x0b"
ACKNOWLEDGE = b"\x93\x16"
SUBSCRIBED = b"\x9a\x14"
SUBSCRIBE = b"\xdc\x00\x14\x14"
"""How messages begin, behind the head of their frame."""


class FrameProxy:
    """Carries whole frames both ways, each as often as a rule says: not at all, once, or twice."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self.rule: Callable[[str, bytes], int] = lambda _way, _payload: 1
        self.connections = 0
        self._serving: set[asyncio.Task[None]] = set()

    async def start(self) -> str:
        """The URL under which it listens."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return f"gapless://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        """Ends all connections."""
        self._server.close()
        for task in list(self._serving):
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(*self._target)
        ways = [
            asyncio.ensure_future(self._carry("up", reader, back)),
            asyncio.ensure_future(self._carry("down", there, writer)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            writer.transport.abort()
            back.transport.abort()

    async def _carry(self, way: str, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = await source.readexactly(8)
                payload = await source.readexactly(struct.unpack("<I", head[:4])[0])
                target.write((head + payload) * self.rule(way, payload))
                await target.drain()


@contextlib.asynccontextmanager
async def proxied(directory: Path) -> AsyncIterator[tuple[FrameProxy, str]]:
    """A broker, a proxy in front of it, and the proxy's URL."""
    async with running_node(directory, limits=LIMITS) as node:
        proxy = FrameProxy(node.address)
        try:
            yield proxy, await proxy.start()
        finally:
            await proxy.stop()


def nth(way: str, begin: bytes, number: int, times: int) -> Callable[[str, bytes], int]:
    """The frame of that kind and number goes so many times."""
    seen = 0

    def rule(that_way: str, payload: bytes) -> int:
        nonlocal seen
        if that_way == way and payload[HEAD_BYTES:].startswith(begin):
            seen += 1
            return times if seen == number else 1
        return 1

    return rule


async def within(seconds: float, waiting: Awaitable[object]) -> None:
    """Fails if it takes longer."""
    await asyncio.wait_for(waiting, seconds)


@pytest.mark.parametrize("times", [0, 2], ids=["lost", "doubled"])
@pytest.mark.parametrize(
    ("way", "begin", "number"),
    [
        ("up", PUBLISH, 3),
        ("up", PUBLISH, EVENTS),
        ("up", ACKNOWLEDGE, 1),
        ("up", SUBSCRIBE, 1),
        ("down", DELIVER, 3),
        ("down", DELIVER, EVENTS),
        ("down", PUBLISHED, 3),
        ("down", PUBLISHED, EVENTS),
        ("down", SUBSCRIBED, 1),
    ],
    ids=[
        "a batch",
        "the last batch",
        "an acknowledgement",
        "a request to subscribe",
        "a delivery",
        "the last delivery",
        "a receipt",
        "the last receipt",
        "an answer",
    ],
)
async def test_a_frame_that_is_lost_or_doubled_loses_and_doubles_no_event(
    tmp_path: Path, way: str, begin: bytes, number: int, times: int
) -> None:
    """Every event comes once and in order, every send has its receipt, and closing ends."""
    async with proxied(tmp_path / "volume") as (proxy, url):
        got: list[bytes] = []
        proxy.rule = nth(way, begin, number, times)
        connection = await gapless.connect(url, client_id="reader")
        session = connection.session()
        subscription = await asyncio.wait_for(session.subscribe("work", name="s"), 10)

        async def read() -> None:
            async for event in subscription:
                got.append(event.body)
                await subscription.acknowledge()
                if len(got) == EVENTS:
                    return

        reading = asyncio.ensure_future(read())
        publisher = session.publisher("work", name="p")
        receipts = [await asyncio.wait_for(publisher.send(b"%d" % n), 10) for n in range(EVENTS)]
        await within(10, reading)
        await within(5, publisher.close())
        await within(5, connection.close())

    assert got == [b"%d" % n for n in range(EVENTS)]
    assert len({receipt.tick for receipt in receipts}) == EVENTS
    assert proxy.connections == (2 if times == 0 else 1), "a hole ends the session; what comes twice does not"


async def test_a_way_that_loses_a_hundredth_of_all_frames_costs_time_alone(tmp_path: Path) -> None:
    """Whatever is lost, in both directions and of every kind, from the handshake on."""
    dice = random.Random(4711)
    async with proxied(tmp_path / "volume") as (proxy, url):
        proxy.rule = lambda _way, _payload: int(dice.random() >= 0.01)
        async with gapless.connect(url, client_id="reader", wait=True) as connection, connection.session() as session:
            subscription = await asyncio.wait_for(session.subscribe("work", name="s"), 20)
            publisher = session.publisher("work", name="p")
            sends = []
            for n in range(600):
                sends.append(asyncio.ensure_future(publisher.send(b"%d" % n)))
                await asyncio.sleep(0.002)
            got = [(await asyncio.wait_for(subscription.__anext__(), 20)) for _ in sends]
            receipts = await asyncio.wait_for(asyncio.gather(*sends), 20)
            await within(20, publisher.flush())
            await subscription.acknowledge()

    assert [event.body for event in got] == [b"%d" % n for n in range(600)]
    assert [event.tick for event in got] == [receipt.tick for receipt in receipts]
    assert proxy.connections > 2, "some frame was lost"


async def test_closing_ends_although_no_answer_comes_any_more(tmp_path: Path) -> None:
    """All that the broker says is lost from some moment on: the silence ends the session, and closing gives up."""
    async with proxied(tmp_path / "volume") as (proxy, url):
        connection = await gapless.connect(url)
        publisher = connection.session().publisher("work")
        await publisher.send(b"heard")
        proxy.rule = lambda way, _payload: int(way == "up")
        sending = asyncio.ensure_future(publisher.send(b"unheard"))
        await asyncio.sleep(0)
        began = time.monotonic()
        with contextlib.suppress(gapless.PublishUncertainError):
            await within(10, publisher.close())
        await within(10, connection.close())

        assert time.monotonic() - began < 10
        with pytest.raises(gapless.PublishUncertainError):
            await sending
