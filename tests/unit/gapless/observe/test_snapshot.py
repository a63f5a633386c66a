"""Figures are taken on the node's loop, in slices, and once for all who ask within a second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from itertools import pairwise

import pytest

from gapless.core.alarms import Alarm, AlarmBook, AlarmCode, RaisedAlarm
from gapless.core.gauges import Family, Gauge
from gapless.observe.snapshot import AGE_MAX, Snapshot, Snapshots

COUNT = Family("gapless_count_total", "How many.", ("part",), counter=True)


class Node:
    """A node of some parts; each takes as long as a test likes."""

    def __init__(self, parts: int, seconds: float = 0.0) -> None:
        self.now = 0.0
        self.taken = 0
        """How many snapshots were begun."""
        self._parts = parts
        self._seconds = seconds

    def parts(self) -> Iterator[Iterable[Gauge | RaisedAlarm]]:
        self.taken += 1
        for number in range(self._parts):
            yield self._part(number)
        book = AlarmBook()
        book.note(Alarm(AlarmCode.DISK_LOW, "it is full"), 1)
        yield book.alarms()

    def _part(self, number: int) -> Iterator[Gauge]:
        until = time.perf_counter() + self._seconds
        while time.perf_counter() < until:
            pass
        yield COUNT.gauge(self.taken, number)

    def clock(self) -> float:
        return self.now


async def told(asked: Future[Snapshot]) -> Snapshot:
    return await asyncio.wrap_future(asked)


async def test_a_snapshot_has_all_parts_and_the_alarms() -> None:
    snapshots = Snapshots(asyncio.get_running_loop(), Node(3).parts)

    snapshot = await told(snapshots.ask())

    assert snapshot.gauges == [COUNT.gauge(1, number) for number in range(3)]
    assert [alarm.code for alarm in snapshot.alarms] == ["disk_low"]


async def test_however_many_ask_there_is_one_a_second() -> None:
    node = Node(2)
    snapshots = Snapshots(asyncio.get_running_loop(), node.parts, node.clock)

    everybody = await asyncio.gather(*(told(snapshots.ask()) for _ in range(100)))
    node.now += AGE_MAX - 0.01
    everybody.append(await told(snapshots.ask()))

    assert node.taken == 1
    assert all(each is everybody[0] for each in everybody)
    node.now += 0.02
    assert (await told(snapshots.ask())).gauges[0].value == 2


async def test_other_threads_may_ask() -> None:
    node = Node(2)
    snapshots = Snapshots(asyncio.get_running_loop(), node.parts)

    seen = await asyncio.gather(*(asyncio.to_thread(lambda: snapshots.ask().result(5)) for _ in range(5)))

    assert node.taken == 1
    assert all(each is seen[0] for each in seen)


async def test_the_node_goes_on_between_parts() -> None:
    """Each part takes longer than a slice: so the loop turns after each of them."""
    snapshots = Snapshots(asyncio.get_running_loop(), Node(5, 0.003).parts)
    asked = snapshots.ask()
    turns = 0
    while not asked.done():
        turns += 1
        await asyncio.sleep(0)

    assert turns >= 5


async def test_small_parts_are_taken_together() -> None:
    snapshots = Snapshots(asyncio.get_running_loop(), Node(500).parts)
    asked = snapshots.ask()
    turns: list[float] = []
    while not asked.done():
        turns.append(time.perf_counter())
        await asyncio.sleep(0)

    assert len(turns) < 50, [after - before for before, after in pairwise(turns)]


async def test_a_part_that_fails_is_told_to_who_asked_and_the_next_snapshot_may_succeed() -> None:
    node = Node(1)
    fails = True

    def parts() -> Iterator[Iterable[Gauge | RaisedAlarm]]:
        if fails:
            raise KeyError("what")
        return node.parts()

    snapshots = Snapshots(asyncio.get_running_loop(), parts, node.clock)
    with pytest.raises(KeyError):
        await told(snapshots.ask())
    fails, node.now = False, AGE_MAX

    assert (await told(snapshots.ask())).gauges


def test_a_loop_that_is_over_says_so() -> None:
    loop = asyncio.new_event_loop()
    loop.close()

    with pytest.raises(RuntimeError):
        Snapshots(loop, Node(1).parts).ask().result(1)
