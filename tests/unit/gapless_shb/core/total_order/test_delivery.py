"""Delivery in total order at an SHB: what waits, how much of it, and what becomes of groups that change (T14, I11)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from gapless.core.gauges import values_by
from gapless.core.network import facts as r
from gapless.core.network.facts import OrderedGroup
from gapless.core.ports import ClientSession, EndSession, RoleContext, SessionEnded, Tell, Transmit
from gapless.core.principals import NOBODY
from gapless.core.stream.columns import EventBatch
from gapless.core.stream.events import encode_event
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.stamps import RAW
from gapless.core.stream.ticks import MILLISECOND, tick_at
from gapless.core.wire import messages as m
from gapless.core.wire.codec import decode_server
from gapless_shb.core.broker import SubscriberHostingBroker, Timing
from gapless_shb.core.state import gauges
from unit.rig import Rig

WALL = 1_800_000_000_000
BASE = tick_at(WALL)
LEFT, RIGHT, ALONE = "default@l", "default@r", "alone@1"
BROKERS = {LEFT: "left", RIGHT: "right", ALONE: "left"}
SESSION = ClientSession(1, "client", "instance", NOBODY)


def at(ms: int) -> int:
    """The tick of a millisecond of the world."""
    return BASE + ms * MILLISECOND


class Bench(Rig[SubscriberHostingBroker]):
    """An SHB that has heard of two pubends, which are a group, and a client."""

    def __init__(self, *members: str, seen: tuple[str, ...] = (LEFT, RIGHT)) -> None:
        self.inbox: list[Any] = []
        self.numbers: dict[int, str] = {}
        self.known: dict[str, int] = {}
        self.wants: list[r.Want] = []
        super().__init__(self.make_role, role="shb", now=1_000_000_000, wall=WALL)
        self.groups = (OrderedGroup("book", members or ("left/default", "right/default")),)
        self.crash()
        for pubend in seen:
            self.see(pubend)
        self.sync()

    def make_role(self, context: RoleContext) -> SubscriberHostingBroker:
        return SubscriberHostingBroker(context, Timing())

    def see(self, pubend: str, *topics: str, broker: str = "", created: int = BASE, volume: str = "old") -> None:
        """The router tells of a pubend."""
        self.known.setdefault(pubend, created)
        node, stable = broker or BROKERS[pubend], self.known[pubend]
        meta = r.PubendMeta(pubend, node, topics or ("t",), "book", created, stable=stable, volume=volume)
        self.feed(r.Seen(meta, created))

    def on_said(self, effect: object) -> None:
        if isinstance(effect, Tell):
            self._take(effect.message)
        elif isinstance(effect, Transmit):
            for head, body in effect.payloads:
                self._take(decode_server(head + body))
        elif isinstance(effect, r.Want):
            self.wants.append(effect)

    def _take(self, message: Any) -> None:
        if isinstance(message, m.PubendNumber):
            self.numbers[message.number] = message.pubend
        else:
            self.inbox.append(message)

    def subscribe(
        self,
        name: str | None = "s",
        *,
        order: m.Order = m.Order.TOTAL,
        credit: int = 100,
        acknowledged: Sequence[m.Acknowledged] = (),
    ) -> Any:
        """The client asks for a subscription; returns the answer."""
        said = list(acknowledged)
        request = m.Subscribe(
            1, name, ("t",), "", m.StartAt.LATEST, 0, None, 0, 0, b"", said, m.InUse.ERROR, credit, 1 << 20, order=order
        )
        self.feed(request, SESSION)
        self.sync()
        answer = [each for each in self.inbox if isinstance(each, m.Subscribed | m.RequestFailed)][-1]
        self.inbox.remove(answer)
        return answer

    def tell(self, pubend: str, upto: int, *ticks: int) -> None:
        """Knowledge of a pubend, from where it was known: events at these milliseconds, and silence."""
        events = [encode_event("t", {"n": tick}, None, b"x") for tick in ticks]
        batch = EventBatch([at(tick) for tick in ticks], events, [1] * len(ticks))
        self.feed(r.Know(Knowledge(pubend, self.known[pubend], at(upto), batch, stamp=RAW)))
        self.known[pubend] = at(upto)
        self.read()

    def answer_with(self, pubend: str, *ticks: int) -> None:
        """The pubend answers with these events, RAW, all that was asked of it."""
        wants, self.wants = self.wants, []
        for want in wants:
            for lo, hi in want.ranges if want.pubend == pubend else ():
                inside = [tick for tick in ticks if lo < at(tick) <= hi]
                events = [encode_event("t", {"n": tick}, None, b"x") for tick in inside]
                batch = EventBatch([at(tick) for tick in inside], events, [1] * len(inside))
                known = min(hi, self.known[pubend])
                self.feed(r.Know(Knowledge(pubend, lo, known, batch, stamp=RAW, reply=True)))

    def got(self) -> list[tuple[str, int]]:
        """The events that the client got since the last call."""
        taken, self.inbox = self.inbox, []
        delivered = [each for each in taken if isinstance(each, m.Deliver)]
        return [
            (self.numbers[each.number], (tick - BASE) // MILLISECOND)
            for each in delivered
            for tick in each.columns.ticks()
        ]


def test_live_events_wait_for_each_other_and_leave_in_order() -> None:
    bench = Bench()
    assert bench.subscribe().group == "book"
    bench.tell(LEFT, 30, 10, 20, 30)
    early = bench.got()
    bench.tell(RIGHT, 20, 15, 20)

    assert (early, bench.got()) == ([], [(LEFT, 10), (RIGHT, 15), (LEFT, 20), (RIGHT, 20)])


def test_what_waits_for_a_dead_member_is_bounded_by_the_credit_and_is_read_when_its_turn_comes() -> None:
    bench = Bench()
    answer = bench.subscribe(credit=5)
    for first in range(1, 100, 3):
        bench.tell(LEFT, first + 2, first, first + 1, first + 2)
    (delivery,) = bench.role._hosting.ordering._deliveries.values()
    waiting = delivery._merge.events
    bench.tell(RIGHT, 200, 50)
    received: list[tuple[str, int]] = []
    for _ in range(60):
        bench.answer_with(LEFT, *range(1, 100))
        bench.read()
        received += (new := bench.got())
        if new:
            bench.feed(m.Credit(answer.sid, len(new), 0), SESSION)

    assert 0 < waiting <= 6
    assert received == [(LEFT, tick) for tick in range(1, 51)] + [(RIGHT, 50)] + [
        (LEFT, tick) for tick in range(51, 100)
    ]


def test_silence_moves_the_position_only_as_far_as_the_merge_has_come() -> None:
    bench = Bench()
    bench.subscribe()
    bench.tell(LEFT, 500)
    bench.tell(RIGHT, 100)
    bench.got()
    bench.advance(1_000)

    told = {bench.numbers[each.number]: each.upto for each in bench.inbox if isinstance(each, m.DeliverSilence)}
    assert told == {LEFT: at(100) + 1, RIGHT: at(100)}


def test_a_subscription_waits_for_members_that_were_never_heard_of() -> None:
    bench = Bench(seen=(LEFT,))
    refused = bench.subscribe()
    bench.see(RIGHT)

    assert (refused.code, "nothing is known yet of right/default" in refused.reason) == (m.Code.RETRY, True)
    assert bench.subscribe().group == "book"


def test_a_crash_forgets_no_member_and_no_order() -> None:
    bench = Bench()
    first = bench.subscribe()
    bench.tell(LEFT, 30, 10)
    bench.advance(300)
    bench.sync()
    bench.crash()
    bench.wants.clear()

    again = bench.subscribe()  # nothing was heard of any pubend in this life
    assert (again.sid, again.group) == (first.sid, "book")
    assert bench.subscribe("s", order=m.Order.PUBEND).code is m.Code.MISMATCH


def test_a_pubend_outside_the_group_that_begins_to_carry_the_topics_ends_the_consumption() -> None:
    bench = Bench()
    bench.see(ALONE, "other")
    answer = bench.subscribe()
    bench.see(ALONE, "other", "t")

    (detached,) = [each for each in bench.inbox if isinstance(each, m.Detached)]
    assert (detached.sid, detached.code) == (answer.sid, m.Code.CONFIGURATION)
    assert "left/alone, which is in no group" in detached.reason
    assert bench.subscribe().code is m.Code.CONFIGURATION


def test_a_member_that_begins_anew_takes_the_place_of_the_old_one() -> None:
    bench = Bench()
    bench.subscribe()
    bench.tell(LEFT, 100)
    bench.tell(RIGHT, 90)
    bench.see("default@r2", broker="right", created=at(95))

    assert [effect.session for effect in bench.said if isinstance(effect, EndSession)] == [1]
    assert list(values_by(bench.role.gauges(), gauges.GROUP, "member")) == ["left/default", "right/default"]


def test_all_that_the_pubend_in_place_of_a_lost_member_has_comes_in_the_order() -> None:
    """The merge has waited for the lost one: nothing behind that place has left, however far the others are."""
    bench = Bench()
    bench.subscribe()
    bench.tell(RIGHT, 90)
    bench.tell(LEFT, 200, 80, 150)
    early = bench.got()
    bench.see("default@r2", broker="right", created=at(95))
    bench.feed(SessionEnded(SESSION))
    bench.tell("default@r2", 200, 100, 160)
    positions = {position.pubend: position.tick for position in bench.subscribe().positions}

    assert early == [(LEFT, 80)]
    assert positions["default@r2"] <= at(100) - 1


@pytest.mark.parametrize("is_back", [True, False], ids=["at once", "once more"])
def test_what_the_pubend_in_place_of_a_lost_member_has_before_the_place_of_the_order_is_a_gap(is_back: bool) -> None:
    """The clock of its node was set back. Who stands before that place gets the events, at theirs."""
    bench = Bench()
    for name in ("ahead", "behind"):
        bench.subscribe(name)
    bench.tell(LEFT, 200, 40, 80, 150)
    bench.tell(RIGHT, 90)
    bench.feed(SessionEnded(SESSION))
    bench.advance(4_000)
    bench.see("default@r2", broker="right", created=at(20))
    bench.tell("default@r2", 200, 30, 60, 100)
    bench.got()
    anew = []
    if not is_back:
        bench.subscribe("ahead", acknowledged=[m.Acknowledged(LEFT, at(80), at(80))])
        bench.feed(SessionEnded(SESSION))
        bench.got()
        anew = [m.Acknowledged("default@r2", at(30), at(30))]
    bench.subscribe("ahead", acknowledged=[m.Acknowledged(LEFT, at(80), at(80)), *anew])
    gaps = [
        (bench.numbers[each.number], each.start, each.end, each.reason)
        for each in bench.inbox
        if isinstance(each, m.DeliverGap) and bench.numbers[each.number] == "default@r2"
    ]
    ahead = bench.got()
    bench.feed(SessionEnded(SESSION))
    bench.subscribe("behind")

    first = at(30) if is_back else at(60)
    assert gaps == [("default@r2", first - 1, at(60), "too late for the total order")]
    assert ahead == [("default@r2", 100), (LEFT, 150)]
    both = [("default@r2", 30), (LEFT, 40), ("default@r2", 60), (LEFT, 80), ("default@r2", 100), (LEFT, 150)]
    assert bench.got() == both


def test_while_a_member_is_lost_and_no_other_stands_for_it_consumers_are_told_to_try_again() -> None:
    bench = Bench()
    bench.subscribe()
    bench.see("other@r2", "elsewhere", broker="right", created=at(95), volume="new")
    refused = bench.subscribe()
    bench.see("default@r2", broker="right", created=at(96), volume="new")

    assert (refused.code, "nothing is known yet of right/default" in refused.reason) == (m.Code.RETRY, True)
    assert bench.subscribe().group == "book"


def test_a_late_member_begins_behind_what_the_merge_has_come_to() -> None:
    bench = Bench("left/default", "right/default")
    bench.subscribe()
    bench.tell(LEFT, 100, 60)
    bench.tell(RIGHT, 80, 70)
    bench.got()
    bench.groups = (OrderedGroup("book", ("left/default", "right/default", "left/alone")),)
    bench.advance(300)
    bench.sync()
    bench.crash()
    bench.see(ALONE)
    late = {position.pubend: position.tick for position in bench.subscribe().positions}[ALONE]

    assert late == at(80)
