"""Ranges, blocking: the same names, and timeouts."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any, cast

import pytest

import gapless
from gapless import sync
from gapless.sync import ranges
from gapless.sync.runner import Runner


@pytest.fixture
def connection() -> Iterator[sync.Connection]:
    """A client of a broker in memory, whose subscription has two events to read."""
    with sync.connect("embedded:", client_id="c") as connection:
        connection.attach("s", "t", timeout=10)
        connection.publish("p", 0, 0, [gapless.Message(b"a"), gapless.Message(b"b")], topic="t", timeout=10)
        yield connection


def whole(connection: sync.Connection) -> tuple[str, int]:
    """The pubend, and up to where there is something to read."""
    ((pubend, tick),) = connection.heads("s", after=connection.attach("s", "t"), wait=10, timeout=20).ticks.items()
    return pubend, tick


def test_a_range_is_read(connection: sync.Connection) -> None:
    pubend, end = whole(connection)
    with connection.read_range("s", pubend, 0, end) as reader:
        first = next(reader)
        assert reader.position == first.tick
        assert [event.body for event in (first, *reader)] == [b"a", b"b"]
        assert reader.position == end
    reader.close()
    with pytest.raises(gapless.SubscriptionError):
        next(reader)


def test_a_range_is_read_in_parts(connection: sync.Connection) -> None:
    pubend, end = whole(connection)
    (part,) = connection.read_range("s", pubend, 0, end, on_gap="deliver").parts()

    assert not isinstance(part, gapless.Gap)
    assert part.count == 2


class NeverRead:
    """A reader to which nothing comes, and whose broker is there or not."""

    def __init__(self, *connected: bool) -> None:
        self.states = iter(connected)
        self.cancelled = threading.Event()

    @property
    def connected(self) -> bool:
        return next(self.states)

    async def parts(self) -> AsyncIterator[Any]:
        try:
            await asyncio.sleep(60)
            yield None
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


def test_a_broker_that_is_away_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that comes back in time is; and one that is there may take as long as it likes."""
    monkeypatch.setattr(ranges, "LOOK_EVERY", 0.01)
    runner = Runner()
    away = NeverRead(*[False] * 3, *[True] * 50, *[False] * 1000)
    reader: Any = ranges.RangeReader(runner, cast("Any", away))
    with pytest.raises(TimeoutError, match=r"^no broker for 0\.2 s$"):
        next(reader.parts(0.2))

    assert 50 <= 1053 - sum(1 for _ in away.states) - 3 < 1000, "it was looked at all along"
    assert away.cancelled.wait(5), "nobody waits any more"
    runner.stop()


def test_what_is_read_is_acknowledged(connection: sync.Connection) -> None:
    position = connection.attach("s", "t")
    head = connection.heads("s", after=position, wait=10, timeout=20)
    assert position < connection.bound("s", position, max_events=1, timeout=10) <= head
    connection.ack("s", head, timeout=10)

    assert connection.attach("s", "t") == head
    assert connection.earliest(timeout=10) <= head


def test_a_lease(connection: sync.Connection) -> None:
    with connection.lease("s", "me", timeout=10) as lease:
        assert lease.owner == "me"
        lease.check()
    with pytest.raises(gapless.SubscriptionError):
        lease.check()
    lease.release()
    assert "over" in repr(lease)


def test_a_timeout_ends_the_waiting(connection: sync.Connection) -> None:
    head = connection.heads("s", after=connection.attach("s", "t"), wait=10, timeout=20)
    with pytest.raises(TimeoutError):
        connection.heads("s", after=head, wait=30, timeout=0.05)
