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
from gapless.core.wire import messages as m
from gapless.core.wire.numbering import HEAD_BYTES
from gapless_testing.fault_proxy import Direction, FaultProxy, Filter, Passing
from integration.nodes_in_process import running_node

pytestmark = pytest.mark.timeout(60)

HEADER = 8
"""Bytes before what a frame says is its length: in the first four."""
LIMITS = {"heartbeat": 0.5}
EVENTS = 12


def begin_of(kind: type[m.ClientMessage | m.ServerMessage]) -> bytes:
    """How a control message of a kind begins, behind the head of its frame: an array, and in it the kind's tag."""
    length, tag = 1 + len(kind.__struct_fields__), kind.__struct_config__.tag
    assert isinstance(tag, int)
    return bytes([0x90 | length, tag]) if length < 16 else struct.pack(">BHB", 0xDC, length, tag)


PUBLISH, DELIVER = b"\x01", b"\x02"
PUBLISHED, ACKNOWLEDGE = begin_of(m.Published), begin_of(m.Acknowledge)
SUBSCRIBED, SUBSCRIBE = begin_of(m.Subscribed), begin_of(m.Subscribe)


class Frames:
    """Lets whole frames pass both ways, each as often as a rule says: not at all, once, or twice."""

    def __init__(self) -> None:
        self.proxy = FaultProxy(filter_of=self._filter_of)
        self.rule: Callable[[str, bytes], int] = lambda _way, _payload: 1

    @property
    def connections(self) -> int:
        """How often somebody has connected."""
        return self.proxy.connections

    def _filter_of(self, direction: Direction) -> Filter:
        way = "up" if direction is self.proxy.inward else "down"
        came = bytearray()

        def judge(data: bytes) -> Passing:
            came.extend(data)
            passes = []
            while len(came) >= HEADER and len(came) >= (end := HEADER + struct.unpack_from("<I", came)[0]):
                frame = bytes(came[:end])
                passes += [frame] * self.rule(way, frame[HEADER:])
                del came[:end]
            return Passing([b"".join(passes)])

        return judge


@contextlib.asynccontextmanager
async def proxied(directory: Path) -> AsyncIterator[tuple[Frames, str]]:
    """A broker, a proxy in front of it that knows frames, and the proxy's URL."""
    frames = Frames()
    async with running_node(directory, limits=LIMITS) as node, frames.proxy:
        frames.proxy.target = node.address
        yield frames, f"gapless://{frames.proxy.address}"


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
