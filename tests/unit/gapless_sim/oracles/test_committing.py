"""J1 and J10: what comes again to whom a broker keeps the position for, and what its home keeps for that."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from gapless.core.client import Delivery, Gap
from gapless.core.ports import Set
from gapless.core.stream.events import Event
from gapless.core.wire.messages import OnChange, StartAt, Unit
from gapless_shb.core.subscriptions.commits import COMMIT_RECORDS, Attempt, CommitRecord
from gapless_sim.oracles.committing import J1Marked, J2Acknowledged, J10Desks
from gapless_sim.recording.observation import Violation
from unit.gapless_sim.oracles.model_fixture import violates

P = "p@1"


class Handing:
    """A model of no world, and applications of one subscription."""

    def __init__(self, oracle: type[J1Marked] = J1Marked) -> None:
        self.history = SimpleNamespace(ticks=[])
        model = SimpleNamespace(
            world=None,
            has_lost_disks=False,
            histories={P: self.history},
            events=lambda item: item.said,
            creator_of=lambda consumer: consumer,
        )
        self.oracle = oracle(cast("Any", model))
        self.row = SimpleNamespace(number=1, owner=None, former=None)

    def consumer(self) -> Any:
        self.row.owner = Committer(self.row, gathers=self.oracle.gathering)
        return self.row.owner

    def hand(self, consumer: Any, *events: tuple[int, int]) -> None:
        """Hands out events, by tick and delivery count."""
        delivery: Any = Said([Event.make("t", tick=tick, delivery_count=count) for tick, count in events])
        self.oracle.handed_out(consumer, delivery)

    def attach(self, consumer: Any, *, created: bool = False, sid: int = 1, at: int = 0) -> None:
        self.oracle.attached(consumer, cast("Any", SimpleNamespace(created=created, sid=sid)), {P: at})

    def attempt(self, consumer: Any, tick: int) -> None:
        self.oracle.attempting(consumer, Unit(P, tick, tick, counted=True))


class Committer:
    """A consumer."""

    commits = True
    is_marked = True
    by_ranges = False
    recoveries = 0
    lane = "a:s"
    wanted = SimpleNamespace(start=StartAt.LATEST)

    def __init__(self, row: Any, *, gathers: bool) -> None:
        self.row = row
        self.gathers = gathers
        self.first: Any = self


class Said(Delivery):
    """A delivery of events that are decoded already."""

    def __init__(self, events: list[Event]) -> None:
        super().__init__(P, [], [event.tick for event in events])
        self.said = events


def test_attempts_are_forgotten_with_what_was_told_to_be_lost() -> None:
    """Found by the simulator (knowledge 7026): one SHB told a gap, and another one had the event still."""
    handing = Handing()
    for count in (2, 3):
        consumer = handing.consumer()
        handing.attempt(consumer, 10)
        handing.hand(consumer, (10, count))
    handing.oracle.handed_out(handing.consumer(), Gap(P, 5, 10, ""))
    third = handing.consumer()
    handing.attempt(third, 10)

    handing.hand(third, (10, 2))


def test_attempts_are_counted_of_the_first_event_alone() -> None:
    """Found by the simulator (local 9003): with another filter an earlier event was the first."""
    handing = Handing()
    for count, ticks in ((2, (20,)), (3, (20,)), (2, (10, 20))):
        consumer = handing.consumer()
        handing.attempt(consumer, ticks[0])
        handing.hand(consumer, (ticks[0], count))

    handing.hand(handing.consumer(), (20, 2))


def recovering(handing: Handing, former: Any) -> Any:
    """Goes on for another consumer in its process."""
    consumer = handing.consumer()
    consumer.first, consumer.recoveries = former.first, former.recoveries + 1
    return consumer


def test_what_is_recovered_counts_each_time() -> None:
    handing = Handing(J2Acknowledged)
    first = handing.consumer()
    handing.hand(first, (10, 1), (20, 1))
    second = recovering(handing, first)
    handing.hand(second, (10, 2), (20, 2))
    third = recovering(handing, second)
    handing.hand(third, (10, 3))

    with pytest.raises(Violation, match="was handed it 2 times"):
        handing.hand(third, (20, 2))


def test_what_nobody_else_could_have_had_counts_no_more_than_that() -> None:
    """10 was there before its process: another one may have announced it. 20 and 30 were not, and 30 was attempted."""
    handing = Handing(J2Acknowledged)
    handing.history.ticks.append(10)
    first = handing.consumer()
    handing.attach(first)
    handing.history.ticks += [20, 30]
    handing.hand(first, (10, 1), (20, 1), (30, 1))
    second = recovering(handing, first)
    handing.attach(second)
    handing.attempt(second, 30)
    handing.hand(second, (10, 3), (30, 3))

    with pytest.raises(Violation, match="nobody else could have had it: 2"):
        handing.hand(second, (20, 3))


def test_a_commit_record_of_a_pubend_that_is_none_is_found() -> None:
    oracle = J10Desks(Handing().oracle.model)
    broker: Any = SimpleNamespace(name="b")

    def row(pubend: str) -> Set:
        return Set(COMMIT_RECORDS, b"1", msgspec.msgpack.encode(CommitRecord(1, "x", {pubend: Attempt(1, 1, "x")})))

    oracle.written(broker, [row(P)])
    with pytest.raises(Violation, match="of no pubend"):
        oracle.written(broker, [row("q@1")])


def test_what_has_got_another_filter_and_keeps_its_position_is_the_same_still() -> None:
    handing = Handing()
    handing.hand(handing.consumer(), (10, 1))
    handing.row = SimpleNamespace(number=2, owner=None, former=handing.row, on_change=OnChange.KEEP_POSITION)

    with pytest.raises(Violation, match="not marked"):
        handing.hand(handing.consumer(), (10, 1))


@pytest.mark.parametrize("sid", [1, 2])
def test_what_was_made_anew_for_one_whose_answer_was_lost_may_hand_out_as_if_for_the_first_time(sid: int) -> None:
    """Knowledge 14: the subscription had lapsed, and the application is given the new one as one that is there."""
    handing = Handing(J2Acknowledged)
    first = handing.consumer()
    handing.attach(first, created=True)
    handing.hand(first, (5, 1))
    second = handing.consumer()
    handing.attach(second, sid=sid)

    with violates("J2") if sid == 1 else nullcontext():
        handing.hand(second, (5, 1))


@pytest.mark.parametrize("start", [StartAt.TOKEN, StartAt.LATEST])
def test_what_has_lapsed_and_is_made_anew_at_a_token_begins_there(start: StartAt) -> None:
    """Found by the simulator (delta 102701). Without a token nothing that was committed comes again."""
    handing = Handing()
    first = handing.consumer()
    handing.attach(first)
    handing.oracle.durably_committed(first, {P: 20})
    second = handing.consumer()
    second.wanted = SimpleNamespace(start=start)
    handing.attach(second, created=True, sid=2, at=10)

    with nullcontext() if start is StartAt.TOKEN else pytest.raises(Violation, match="again, after its commit"):
        handing.hand(second, (15, 1))
    with pytest.raises(Violation, match="again, after its commit"):
        handing.hand(second, (10, 1))
