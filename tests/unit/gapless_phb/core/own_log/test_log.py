"""The log's growing end and its vanishing beginning, apart from publishers and SHBs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any

import pytest

from gapless.core.network.facts import Know, Pub
from gapless.core.outbox import Outbox
from gapless.core.ports import VOLUME_LOG, Append, Appended, Chop, LogFacts, Set, Write
from gapless.core.stream.columns import EventColumns
from gapless.core.stream.ticks import EPOCH_MS, SECOND
from gapless.errors import ConfigurationError
from gapless_phb.core import rows
from gapless_phb.core.damage import Damage
from gapless_phb.core.own_log.byte_index import ByteIndex
from gapless_phb.core.own_log.clock import TickClock
from gapless_phb.core.own_log.log import Log, check_log
from gapless_phb.core.publishers.table import PendingBatch, PublisherState
from gapless_phb.core.records import checksum, decode_record
from gapless_phb.core.rows import AgeRow
from unit.gapless_phb.harness import TABLES, at, columns, lines
from unit.rig import NANOSECONDS

PUBEND = "default@1"


class LogWorld:
    """A log, its clock and its outbox."""

    def __init__(self) -> None:
        self.outbox = Outbox()
        clock = TickClock(0, at(1000), AgeRow(at(1000)), "", 0, 0, EPOCH_MS + 1000)
        self.log = Log("network", PUBEND, TABLES, 0, clock, self.outbox, 2 * SECOND, durable=True)
        self.log.recover(0, 0, 0, ByteIndex(), Damage(PUBEND))
        self.publisher = PublisherState("ann")
        self.ms = 1000
        self.writes: list[Write] = []

    def begin(self) -> None:
        self.log.begin(at(1000), at(1000), lambda _now, _wall: None)
        self.take()
        self.durable()

    @property
    def now(self) -> int:
        return (self.ms - 1000) * NANOSECONDS

    @property
    def wall(self) -> int:
        return EPOCH_MS + self.ms

    def append(self, count: int = 1) -> PendingBatch:
        events = columns([b"x"] * count)
        pub = Pub("ann", 1, self.publisher.assigned + 1, events, PUBEND, b"", principal="anonymous")
        events.check()
        crc = checksum(events, b"")
        return self.log.append(self.publisher, pub, (), crc, "reply", self.now, self.wall, self.appended)

    def appended(self, indices: Sequence[int], now: int, _wall: int) -> None:
        self.log.appended(indices, now)

    def take(self) -> list[object]:
        said = []
        for effect in self.outbox.take():
            if isinstance(effect, Write):
                self.writes.append(effect)
            else:
                said.append(effect)
        return said

    def durable(self) -> list[PendingBatch]:
        """The oldest write is durable; what it decides is told."""
        write = self.writes.pop(0)
        for append in appends(write):
            self.outbox.on_appended(Appended(append.cookie, append.indices or ()), self.now, self.wall)
        self.outbox.on_durable(write.cookie, self.now, self.wall)
        return self.log.announce()


def appends(write: Write) -> list[Append]:
    return [one for one in write.operations if isinstance(one, Append)]


def test_nothing_is_said_before_the_first_reservation_is_durable() -> None:
    world = LogWorld()
    world.log.begin(at(1000), at(1000), lambda _now, _wall: None)
    world.take()
    world.log.promise(0, world.wall)

    assert world.take() == []
    states = [(world.log.ready, world.log.stable, world.log.reserved)]
    world.durable()
    states.append((world.log.ready, world.log.stable, world.log.reserved))

    assert states == [(False, 0, 0), (True, at(1000), at(3000))]


def test_a_record_is_linked_to_the_one_before() -> None:
    world = LogWorld()
    world.begin()
    world.append(2)
    world.append()
    world.take()

    (append,) = appends(world.writes[0])
    assert append.indices is not None
    records = list(map(decode_record, repeat(world.log.tag), append.indices, append.records))

    assert [(record.previous, record.first_tick) for record in records] == [
        (0, at(1000, 1)),
        (at(1000, 2), at(1000, 3)),
    ]


def test_a_group_is_told_as_one_piece_with_the_silence_between() -> None:
    world = LogWorld()
    world.begin()
    first = world.append(2)
    world.ms += 5
    second = world.append()
    world.take()

    told = world.durable()
    (know,) = world.take()

    assert told == [first, second]
    assert lines([know]) == ["know (1000, 1005] 1000.1=x 1000.2=x 1005=x"]
    assert world.log.newest == world.log.stable == at(1005)


def test_what_the_check_found_travels_along(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SHB of the same process need not check again."""
    world = LogWorld()
    world.begin()
    batch = world.append(2)
    world.take()
    world.durable()
    (know,) = world.take()

    assert isinstance(know, Know)
    monkeypatch.setattr(EventColumns, "check", None)
    assert list(know.knowledge.data.topics) == ["topic"] * batch.count
    assert not know.knowledge.data.has_extras


def test_a_reservation_is_written_with_events_only_when_the_last_one_grows_old() -> None:
    world = LogWorld()
    world.begin()
    reservations = []
    for ms in (1000, 1999, 2000, 2001, 2500, 3001, 3002):
        world.ms = ms
        world.append()
        world.take()
        operations = world.writes.pop().operations
        reservations += [ms for one in operations if isinstance(one, Set) and one.table == TABLES.reservations]

    assert reservations == [2001, 3002]


def test_bytes_are_pending_until_they_are_durable() -> None:
    world = LogWorld()
    world.begin()
    batch = world.append(3)
    world.take()

    assert world.log.pending_bytes == batch.columns.size
    assert list(world.log.pending) == [batch]
    world.durable()
    assert world.log.pending_bytes == 0
    assert list(world.log.pending) == []


def test_silence_is_said_up_to_the_present_and_never_beyond_the_reservation() -> None:
    world = LogWorld()
    world.begin()

    world.ms = 1700
    world.log.promise(world.now, world.wall)
    world.ms = 9000
    world.log.promise(world.now, world.wall)
    said = world.take()
    world.durable()
    world.log.promise(world.now, world.wall)

    assert lines(said) == ["know (1000, 1700] silence", "know (1700, 3000] silence"]
    assert lines(world.take()) == ["know (3000, 9000] silence"]


def test_a_chop_and_what_is_lost_are_one_write() -> None:
    world = LogWorld()
    world.begin()
    batch = world.append()
    world.take()
    world.durable()
    world.log.announce()
    world.ms = 1500
    world.log.promise(world.now, world.wall)
    world.take()

    world.log.chop(at(1500))
    world.take()

    assert world.writes[0].operations == [
        Set(TABLES.lost, rows.key(0), rows.encode(at(1500))),
        Chop(f"phb.{PUBEND}", batch.last_tick),
    ]
    assert (world.log.lost, world.log.lost_asked) == (0, at(1500))
    world.durable()
    assert world.log.lost == at(1500)
    assert world.log.index.size == 0


def test_a_log_that_takes_another_index_than_was_proposed_is_noticed() -> None:
    world = LogWorld()
    world.begin()
    batch = world.append()
    world.take()
    (append,) = appends(world.writes[0])

    with pytest.raises(AssertionError, match="proposed"):
        world.outbox.on_appended(Appended(append.cookie, [batch.last_tick + 1]), world.now, world.wall)


@pytest.mark.parametrize("lacks", [{"numbers": "log"}, {"alone": False}, {"atomic": False}, {"timed": False}])
def test_a_log_that_cannot_keep_our_own_ticks_is_refused(lacks: dict[str, Any]) -> None:
    check_log(LogFacts("orders", 0, 0, VOLUME_LOG))
    with pytest.raises(ConfigurationError, match="'orders' cannot take"):
        check_log(LogFacts("orders", 0, 0, replace(VOLUME_LOG, **lacks)))


def test_a_tick_that_is_not_above_the_last_one_is_noticed() -> None:
    world = LogWorld()
    world.begin()
    world.log.last_assigned = at(9000)

    with pytest.raises(AssertionError, match="ticks ascend"):
        world.append()


def test_giving_up_less_than_before_is_noticed() -> None:
    world = LogWorld()
    world.begin()
    world.log.chop(at(900))

    with pytest.raises(AssertionError, match="never falls"):
        world.log.chop(at(900))
