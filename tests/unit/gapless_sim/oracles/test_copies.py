"""D1, D5, D6, D7 and D9: copies of events under the router `delta`, and how soon all comes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from gapless.core.network.facts import LINK_HIGH, LinkRoom
from gapless.core.network.frames import Private
from gapless.core.stream.intervals import IntervalSet
from gapless_routing.delta.copies import REPORT, Report, Reports
from gapless_routing.delta.ring import STATUS, Status
from gapless_sim.oracles.copies import (
    PAST_AN_OUTAGE,
    READY_WITHIN,
    D1Copy,
    D5Copies,
    D6Ready,
    D7Delay,
    D9Idle,
    Full,
    WithinDelta,
    is_lossless,
)
from gapless_sim.world.options import SECOND, NetworkFaults, Options
from gapless_sim.world.topology import SINGLES
from unit.gapless_sim.oracles.model_fixture import P, violates
from unit.gapless_sim.oracles.test_delta import CHAIN, Chain

LOSSLESS = Options(1, router="delta", topology=SINGLES, cells=CHAIN, delta=1, network=NetworkFaults(bytewise=0.0))


def test_only_runs_in_which_no_frame_is_lost_above_links_are_judged_by_the_clock() -> None:
    assert is_lossless(LOSSLESS)
    others: Sequence[dict[str, Any]] = (
        {"network": NetworkFaults(loss=0.1)},
        {"window_seconds": 1},
        {"copies_bytes": 1_000},
        {"map_changes": 0.1},
        {"workload": "scenarios"},
        {"router": "knowledge"},
    )
    for fields in others:
        assert not is_lossless(replace(LOSSLESS, **fields)), fields


# ------------------------------------------------------------------------------------------------ D5


class Keeper(Chain):
    """A chain in which the first broker without roles lets go of events."""

    def __init__(self) -> None:
        super().__init__(D5Copies)
        self.let_go: list[tuple[int, int]] = []
        self.copies = SimpleNamespace(_let_go=lambda *said: self.let_go.append(said[1:3]))
        router = SimpleNamespace(_streams=SimpleNamespace(copies=self.copies))
        self.world.seam.started("ib1", router)
        frames = self.world.network.frames
        assert frames is not None
        frames.watchers.append(self.judge)
        self.judge.booted(self.world.brokers["ib1"])

    def reports(self, source: str, target: str, of: str, lo: int, hi: int, *, life: int = 1, number: int = 1) -> None:
        said = Reports((Report(P, of, life, number, lo, hi, lo),))
        self.sends(source, target, Private(REPORT, msgspec.msgpack.encode(said)))

    def status(self, source: str, target: str, life: int) -> None:
        self.sends(source, target, Private(STATUS, msgspec.msgpack.encode(Status(life, 1, True, (), True, b""))))

    def goes(self, upto: int, *safe: tuple[int, int], group: str = "shb1") -> None:
        pubend = SimpleNamespace(meta=SimpleNamespace(pubend=P))
        self.copies._let_go(pubend, 0, upto, {group: IntervalSet(safe)} if safe else None)


def test_what_goes_is_there_at_all_on_the_way() -> None:
    chain = Keeper()
    chain.sends("ib1", "ib2", chain.know(0, 9))
    chain.sends("ib2", "shb1", chain.know(0, 9))
    chain.reports("ib2", "ib1", "ib2", 0, 9)
    chain.reports("ib2", "ib1", "shb1", 0, 5)
    chain.goes(5, (0, 5))
    assert chain.let_go == [(0, 5)]

    with violates("D5"):
        chain.goes(9, (0, 9))


def test_what_a_former_life_had_is_no_copy() -> None:
    chain = Keeper()
    chain.sends("ib1", "ib2", chain.know(0, 9))
    chain.reports("ib2", "ib1", "ib2", 0, 9)
    chain.goes(9, (0, 9), group="ib2")
    chain.status("ib2", "ib1", 2)

    with violates("D5"):
        chain.goes(9, (0, 9), group="ib2")


def test_a_run_begins_above_what_was_let_go_of_for_lack_of_room() -> None:
    chain = Keeper()
    chain.sends("phb1", "ib1", chain.know(0, 9))
    chain.goes(5)
    chain.world.now += SECOND
    chain.reports("ib1", "phb1", "ib1", 5, 9)

    with violates("D5"):
        chain.reports("ib1", "phb1", "ib1", 4, 9, number=2)


def test_nobody_has_what_it_was_not_told() -> None:
    chain = Keeper()
    chain.sends("phb1", "ib1", chain.know(0, 5))
    chain.sends("phb1", "ib1", chain.know(5, 9), lost=True)

    with violates("D5"):
        chain.reports("ib1", "phb1", "ib1", 0, 9)


# ------------------------------------------------------------------------------------------------ D6


def test_whoever_stays_unready_is_found() -> None:
    chain = Chain(D6Ready)
    chain.judge.booted(chain.world.brokers["ib1"])
    chain.world.brokers["ib1"].life.over = False
    said = Private(STATUS, msgspec.msgpack.encode(Status(1, 1, False, (), True, b"")))
    chain.sends("ib1", "ib2", said)
    chain.judge.checkpoint()
    assert chain.judge.unsettled() == "ib1 is not ready"

    chain.world.now += READY_WITHIN + 1

    with violates("D6"):
        chain.judge.checkpoint()


# ------------------------------------------------------------------------------------- D1, D7 and D9


class Timed(Chain):
    """A chain with an SHB that is owed everything."""

    def __init__(self, kind: type[Any], delta: int = 1) -> None:
        super().__init__(delta=delta, network=NetworkFaults(bytewise=0.0))
        self.full = Full(self.world)
        self.timed: Any = kind(self.fixture.model, self.full)
        self.timed._who_want = lambda *_: iter(["shb1"])

    def publish(self, tick: int) -> None:
        said = self.know(tick - 1, tick, tick)
        self.fixture.observe.known("phb1", said)
        self.timed.known("phb1", said)

    def gone(self, *names: str) -> None:
        for name in names:
            self.timed.crashed(self.world.brokers[name])

    def told(self, tick: int, *, reply: bool = False) -> None:
        self.timed.delivered("shb1", self.know(tick - 1, tick, tick, reply=reply))

    def after(self, seconds: float) -> None:
        self.world.now += int(seconds * SECOND)


def test_what_is_pushed_need_not_be_asked_for() -> None:
    chain = Timed(D1Copy)
    chain.publish(5)
    chain.gone("ib1")
    chain.told(5)
    chain.publish(6)

    with violates("D1"):
        chain.told(6, reply=True)


def test_how_often_something_came_past_an_outage_is_counted() -> None:
    """Else the oracle could pass because nobody is ever away."""
    chain = Timed(D1Copy)
    chain.publish(5)
    chain.told(5)
    counts = [chain.world.hits[PAST_AN_OUTAGE]]
    chain.publish(6)
    chain.gone("ib1")
    chain.told(6)

    assert [*counts, chain.world.hits[PAST_AN_OUTAGE]] == [0, 1]


def test_who_was_away_once_is_judged_again_when_that_is_long_over() -> None:
    chain = Timed(D1Copy)
    del chain.timed._who_want
    row = SimpleNamespace(ended=False, matches=lambda _: True)
    account = SimpleNamespace(broker="shb1", shb="s@1", exists=True, row=row, attached_at=0, durable=True)
    chain.fixture.model.accounts[1] = account  # type: ignore[assignment]
    chain.fixture.model.members[P] = {"s@1": 0}
    event: Any = SimpleNamespace(pubend=P)

    who_want = chain.timed._who_want
    chain.after(20)
    assert list(who_want("phb1", event)) == ["shb1"]
    chain.timed.crashed(chain.world.brokers["shb1"])
    chain.timed.booted(chain.world.brokers["shb1"])
    chain.after(3)
    assert list(who_want("phb1", event)) == []
    chain.after(20)
    assert list(who_want("phb1", event)) == ["shb1"]
    account.durable = False  # it may be over
    assert list(who_want("phb1", event)) == []


def test_what_never_comes_is_found() -> None:
    chain = Timed(D1Copy)
    chain.publish(5)
    chain.after(31)

    with violates("D1"):
        chain.timed.checkpoint()


@pytest.mark.parametrize("gone", [("ib1", "ib2"), ("phb1",), ("shb1",)])
@pytest.mark.parametrize("kind", [D1Copy, D7Delay])
def test_where_more_are_away_or_who_says_or_hears_it_nothing_is_promised(
    gone: tuple[str, ...], kind: type[WithinDelta]
) -> None:
    chain = Timed(kind)
    chain.publish(5)
    chain.gone(*gone)
    chain.after(40)

    chain.timed.checkpoint()
    chain.told(5, reply=True)


@pytest.mark.parametrize("kind", [D1Copy, D7Delay])
def test_where_a_link_is_full_nothing_is_promised(kind: type[WithinDelta]) -> None:
    chain = Timed(kind)
    chain.publish(5)
    chain.full.informed("ib1", 0, LinkRoom(1, LINK_HIGH + 1))
    chain.after(40)

    chain.timed.checkpoint()
    chain.told(5, reply=True)


def test_an_event_is_late_where_nobody_is_away() -> None:
    chain = Timed(D7Delay)
    chain.publish(5)
    chain.after(0.9)
    chain.timed.checkpoint()
    chain.after(0.2)

    with violates("D7"):
        chain.told(5)


def test_whoever_is_away_is_noticed_and_bypassed_first() -> None:
    chain = Timed(D7Delay)
    chain.publish(5)
    chain.gone("ib1")
    chain.after(2.7)
    chain.timed.checkpoint()
    chain.after(0.3)

    with violates("D7"):
        chain.timed.checkpoint()


def test_silence_comes_within_a_second_and_the_way() -> None:
    chain = Timed(D9Idle)
    silent = chain.know(0, 9)
    chain.after(20)
    chain.timed.delivered("shb1", silent)
    chain.fixture.observe.known("phb1", chain.know(9, 19))
    chain.timed.known("phb1", chain.know(9, 19))
    chain.after(1.2)
    chain.timed.checkpoint()
    chain.after(0.2)

    with violates("D9"):
        chain.timed.checkpoint()


def test_who_is_away_may_be_the_only_one_who_knows_it() -> None:
    chain = Timed(D9Idle)
    chain.timed.delivered("shb1", chain.know(0, 9))
    chain.timed.known("phb1", chain.know(9, 19))
    chain.gone("phb1")
    chain.world.brokers["phb1"].life.over = True
    chain.after(20)

    chain.timed.checkpoint()


def test_it_may_take_longer_where_somebody_has_just_come() -> None:
    chain = Timed(D9Idle)
    chain.after(20)
    chain.timed.delivered("shb1", chain.know(0, 9))
    chain.timed.known("phb1", chain.know(9, 19))
    chain.timed.booted(chain.world.brokers["ib2"])
    chain.after(5)

    chain.timed.checkpoint()


def test_the_last_that_a_lost_volume_said_may_be_heard_by_nobody() -> None:
    chain = Timed(D9Idle)
    chain.timed.delivered("shb1", chain.know(0, 9))
    chain.fixture.observe.known("phb1", chain.know(9, 19))
    chain.timed.known("phb1", chain.know(9, 19))
    chain.after(20)
    with violates("D9"):
        chain.timed.checkpoint()
    chain.fixture.model.histories[P].gone_at = 1

    chain.timed.checkpoint()
