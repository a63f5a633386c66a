"""Shared subscriptions at a broker: who gets what, and what is durable before anything is answered (J5, J10)."""

from __future__ import annotations

from typing import Any

import pytest

from gapless.core.ports import ClientSession, SessionEnded
from gapless.core.principals import NOBODY
from gapless.core.wire import messages as m
from gapless.core.wire.messages import Holds, Kind, Settle, Sharing, Take, Verdict
from gapless.node.recovery import VolumeReader
from gapless_shb.core.broker import Timing
from gapless_shb.core.shared.consumers import GATHERED
from gapless_shb.core.shared.settling import ROSTER, SHARED
from gapless_shb.core.shared.window import CHUNKS, WINDOWS
from unit.gapless_shb.core.harness import FORGETFUL, PUBEND, World

SECOND = 1000


class SharingRig(World):
    """A broker, and sessions of consumers that share the subscription `jobs`."""

    def __init__(self, **more: Any) -> None:
        self.heard: dict[int, list[Any]] = {}
        super().__init__(**more)
        self.sync()

    def client_gets(self, session: int, message: object) -> None:
        self.heard.setdefault(session, []).append(message)

    def session(self, instance: str) -> ClientSession:
        self.sessions += 1
        return ClientSession(self.sessions, "c", instance, NOBODY)

    def ask(self, session: ClientSession, **more: Any) -> None:
        """A consumer asks to take part."""
        sharing = {"window": 4096, "durable": True} | more.pop("sharing", {})
        known = more.pop("known", None)
        request = m.Subscribe(
            more.pop("request", 1),
            more.pop("name", "jobs"),
            ("#",),
            more.pop("selector", ""),
            more.pop("start", m.StartAt.EARLIEST),
            0,
            more.pop("positions", None),
            0,
            0,
            b"",
            [],
            m.InUse.ERROR,
            more.pop("credit", 100),
            1 << 20,
            sid=known.sid if known else 0,
            generation=known.generation if known else 0,
            on_change=more.pop("on_change", m.OnChange.ERROR),
            order=more.pop("order", m.Order.PUBEND),
            sharing=Sharing(**sharing) if sharing.get("window") else None,
        )
        assert not more
        self.feed(request, session)

    def come(self, instance: str, **more: Any) -> Consumer:
        """The same, and everything is durable."""
        session = self.session(instance)
        self.ask(session, **more)
        self.settle_down()
        answer = self.got(session, m.Subscribed)
        assert answer, self.heard.get(session.number)
        assert answer[-1].positions == []
        return Consumer(self, session, answer[-1])

    def refused(self, instance: str, **more: Any) -> m.RequestFailed:
        session = self.session(instance)
        self.ask(session, **more)
        self.settle_down()
        [failed] = self.got(session, m.RequestFailed)
        assert isinstance(failed, m.RequestFailed)
        return failed

    def got(self, session: ClientSession, kind: type) -> list[Any]:
        return [each for each in self.heard.get(session.number, []) if isinstance(each, kind)]

    def listed(self, session: ClientSession) -> list[Any]:
        """The rows of a list of all subscriptions."""
        self.feed(m.ListSubscriptions(77), session)
        self.settle_down()
        return list(self.got(session, m.SubscriptionList)[-1].rows)

    def settle_down(self) -> None:
        """All that is on its way arrives, and is durable."""
        for _ in range(8):
            self.sync()
            self.answer_holds()
            self.read()
            self.answer_wants()

    def publish_all(self, count: int) -> None:
        """So many events, and everybody hears of them."""
        for _ in range(count):
            before = self.stable
            self.publish()
            self.deliver(self.knowledge(before, self.stable, raw=False, reply=False))

    def end(self, consumer: Consumer) -> None:
        """A link is lost."""
        self.feed(SessionEnded(consumer.session))

    def restart(self, keep: int = 0) -> None:
        """The broker crashes, and comes back."""
        self.crash(keep)
        self.settle_down()

    def wait(self, milliseconds: int) -> None:
        for _ in range(4):
            self.pause(milliseconds // 4)
            self.settle_down()


class Consumer:
    """One consumer, in one session."""

    def __init__(self, rig: SharingRig, session: ClientSession, answer: m.Subscribed) -> None:
        self.rig, self.session, self.answer = rig, session, answer
        self.judged: set[int] = set()
        """What it has given verdicts on."""
        self.number = 0

    @property
    def deliveries(self) -> list[m.DeliverHeld]:
        return self.rig.got(self.session, m.DeliverHeld)

    def events(self) -> dict[int, int]:
        """Tick → delivery number of everything that it was given."""
        return {
            tick: delivery.first + at
            for delivery in self.deliveries
            for at, tick in enumerate(delivery.columns.ticks())
        }

    def holds(self, *ticks: int) -> Holds:
        events = self.events()
        return Holds(PUBEND, tuple(sorted(ticks)), tuple(events[tick] for tick in sorted(ticks)))

    def settle(self, *ticks: int, kind: Kind = Kind.ACKNOWLEDGE, delay: int = 0, number: int = 0) -> None:
        """It says what became of these events. Nothing is durable yet."""
        self.number = number or self.number + 1
        self.judged.update(ticks)
        verdict = Verdict(kind, self.holds(*ticks), delay)
        self.rig.feed(Settle(self.answer.sid, self.number, (verdict,)), self.session)

    def settled(self) -> list[m.Settled]:
        return self.rig.got(self.session, m.Settled)

    def take(self, *ticks: int) -> None:
        self.rig.feed(Take(self.answer.sid, self.holds(*ticks)), self.session)

    def leave(self) -> None:
        self.rig.feed(m.Detach(self.answer.sid), self.session)

    def come_back(self, *ticks: int, **more: Any) -> Consumer:
        """It attaches again in another session, and says that it holds these."""
        sharing = more.pop("sharing", {}) | {"holds": (self.holds(*ticks),) if ticks else ()}
        back = self.rig.come(self.session.instance, known=self.answer, sharing=sharing, **more)
        back.number = self.number
        return back


def ticks_of(rig: SharingRig) -> list[int]:
    return [tick for tick, _, _ in rig.log]


def test_each_event_goes_to_one_consumer_and_is_settled() -> None:
    rig = SharingRig()
    one, two = rig.come("one"), rig.come("two")

    rig.publish_all(200)
    rig.settle_down()

    assert sorted([*one.events(), *two.events()]) == ticks_of(rig)
    assert one.events()
    assert two.events()
    for consumer in (one, two):
        consumer.settle(*consumer.events())
        assert consumer.settled() == [], "it is not durable yet"
    rig.settle_down()
    assert one.settled() == two.settled() == [m.Settled(one.answer.sid, 1)]
    assert rig.hosting.streams[PUBEND].positions[one.answer.sid].acked == ticks_of(rig)[-1]


def test_a_consumer_is_given_no_more_than_it_has_credit_for() -> None:
    rig = SharingRig()
    one = rig.come("one", credit=10)
    rig.publish_all(50)
    rig.settle_down()

    assert len(one.events()) == 10
    rig.feed(m.Credit(one.answer.sid, 5, 0), one.session)
    rig.settle_down()
    assert len(one.events()) == 15


def test_the_window_bounds_what_is_not_settled() -> None:
    """One event that is stuck does not stop what comes behind it (TS24)."""
    rig = SharingRig()
    one = rig.come("one", credit=10_000, sharing={"window": 8})
    rig.publish_all(100)
    rig.settle_down()
    first = ticks_of(rig)[0]
    assert len(one.events()) == 8

    for _ in range(40):
        left = [tick for tick in one.events() if tick != first and tick not in one.judged]
        if not left:
            break
        one.settle(*left)
        rig.settle_down()

    assert sorted(one.events()) == ticks_of(rig)
    [listed] = rig.listed(one.session)
    assert listed.sharing == m.ListedSharing(1, 1, 1, "one/1", listed.sharing.held_seconds)
    assert rig.hosting.streams[PUBEND].positions[one.answer.sid].acked < first


def test_what_was_retried_comes_again_marked_and_after_its_delay() -> None:
    rig = SharingRig()
    one = rig.come("one")
    rig.publish_all(3)
    rig.settle_down()
    tick = ticks_of(rig)[1]
    one.settle(tick, kind=Kind.RETRY, delay=2 * SECOND)
    rig.settle_down()
    assert len(one.deliveries) == sum(len(one.events()) > at for at in range(len(one.deliveries)))
    count = len(one.deliveries)

    rig.wait(4 * SECOND)

    [again] = one.deliveries[count:]
    assert (again.columns.ticks(), again.careful, again.attempts) == ([tick], True, b"\x01")
    assert again.first > 3


def test_what_is_retried_one_after_the_other_comes_again_together() -> None:
    rig = SharingRig()
    one = rig.come("one")
    rig.publish_all(5)
    rig.settle_down()
    count = len(one.deliveries)
    rig.pause(1 + (-rig.now % GATHERED) // 1_000_000)
    for tick in ticks_of(rig)[::2]:
        one.settle(tick, kind=Kind.RETRY)
        rig.pause(2)
    assert not one.deliveries[count:]

    rig.wait(12)

    [again] = one.deliveries[count:]
    assert again.columns.ticks() == ticks_of(rig)[::2]


def test_what_was_never_handed_out_is_as_it_was_before() -> None:
    rig = SharingRig()
    one = rig.come("one")
    rig.publish_all(3)
    rig.settle_down()
    one.settle(*one.events(), kind=Kind.RELEASE)
    one.leave()
    rig.settle_down()

    two = rig.come("two")

    assert sorted(two.events()) == ticks_of(rig)
    assert not any(each.careful or each.attempts for each in two.deliveries)


def test_whoever_leaves_with_events_in_hand_has_attempted_them() -> None:
    rig = SharingRig()
    one = rig.come("one")
    rig.publish_all(3)
    rig.settle_down()
    one.leave()
    rig.settle_down()

    two = rig.come("two")

    assert [each.careful for each in two.deliveries] == [True]
    assert two.deliveries[0].attempts == b"\x01\x01\x01"


def test_a_lost_link_is_no_death() -> None:
    """What its consumer holds is kept for it for a while (TS27)."""
    rig = SharingRig()
    one, two = rig.come("one"), rig.come("two", credit=0)
    rig.publish_all(4)
    rig.settle_down()
    assert len(one.events()) == 4
    rig.end(one)
    rig.feed(m.Credit(two.answer.sid, 100, 1 << 20), two.session)
    rig.wait(2 * SECOND)
    assert not two.deliveries

    back = one.come_back(*one.events())
    assert not back.deliveries
    back.rig.feed(Settle(back.answer.sid, 1, (Verdict(Kind.ACKNOWLEDGE, one.holds(*one.events())),)), back.session)
    rig.settle_down()

    assert back.settled() == [m.Settled(back.answer.sid, 1)]
    rig.wait(10 * SECOND)
    assert not two.deliveries


def test_who_stays_away_has_died_and_what_comes_again_is_marked() -> None:
    rig = SharingRig()
    one, two = rig.come("one"), rig.come("two", credit=0)
    rig.publish_all(4)
    rig.settle_down()
    rig.end(one)
    rig.feed(m.Credit(two.answer.sid, 100, 1 << 20), two.session)
    rig.wait(8 * SECOND)

    assert sorted(two.events()) == ticks_of(rig)
    assert all(each.careful for each in two.deliveries)

    back = one.come_back(*one.events())

    [lost] = rig.got(back.session, m.HoldLost)
    assert lost.holds == (one.holds(*one.events()),)


def test_what_did_not_reach_whoever_comes_back_is_as_it_was() -> None:
    rig = SharingRig()
    one = rig.come("one")
    rig.publish_all(4)
    rig.settle_down()
    rig.end(one)
    kept = ticks_of(rig)[:2]

    back = one.come_back(*kept)

    assert sorted(back.events()) == ticks_of(rig)[2:]
    assert not any(each.careful for each in back.deliveries)


def test_a_verdict_that_took_effect_is_answered_as_it_was() -> None:
    """The broker crashes when it is durable, and before it is answered (TS22)."""
    rig = SharingRig()
    one = rig.come("one")
    rig.publish_all(4)
    rig.settle_down()
    one.settle(*one.events())
    rig.crash(keep=100)
    rig.settle_down()

    back = one.come_back()
    back.rig.feed(Settle(back.answer.sid, 1, (Verdict(Kind.ACKNOWLEDGE, one.holds(*one.events())),)), back.session)
    rig.settle_down()

    assert back.settled() == [m.Settled(back.answer.sid, 1)]
    assert not back.deliveries


def test_a_verdict_that_did_not_take_effect_takes_effect_when_it_is_repeated() -> None:
    rig = SharingRig()
    one, two = rig.come("one"), rig.come("two", credit=0)
    rig.publish_all(4)
    rig.settle_down()
    one.settle(*one.events())
    rig.restart()

    back, other = one.come_back(), two.come_back(credit=100)
    back.rig.feed(Settle(back.answer.sid, 1, (Verdict(Kind.ACKNOWLEDGE, one.holds(*one.events())),)), back.session)
    rig.settle_down()

    taken = sorted(set(one.events()) - set(back.events()) - set(other.events()))
    assert back.settled()[0].lost == () if len(taken) == 4 else True
    for consumer in (back, other):
        assert all(each.careful for each in consumer.deliveries)


def test_after_a_crash_nothing_of_doubt_goes_to_others_before_all_have_come_back() -> None:
    """Nor for longer than the quarantine (TS26)."""
    rig = SharingRig()
    one, two = rig.come("one"), rig.come("two", credit=0)
    rig.publish_all(4)
    rig.settle_down()
    rig.restart()
    other = two.come_back(credit=100)
    rig.wait(4 * SECOND)
    assert not other.deliveries

    back = one.come_back(*ticks_of(rig)[:2])

    rest = {*back.events(), *other.events()}
    assert sorted(rest) == ticks_of(rig)[2:]
    assert all(each.careful for consumer in (back, other) for each in consumer.deliveries)


def test_the_quarantine_ends() -> None:
    rig = SharingRig()
    one, two = rig.come("one"), rig.come("two", credit=0)
    rig.publish_all(4)
    rig.settle_down()
    rig.restart()
    other = two.come_back(credit=100)

    rig.wait(20 * SECOND)

    assert sorted(other.events()) == ticks_of(rig)
    assert all(each.careful for each in other.deliveries)
    rig.restart()
    third = other.come_back()
    assert len(third.events()) == 4, "nobody waits for one whose unclean end was counted"
    assert one.answer.sid == third.answer.sid


def test_what_is_careful_is_taken_durably() -> None:
    """TS4."""
    rig = SharingRig()
    one = rig.come("one")
    rig.publish_all(2)
    rig.settle_down()
    one.leave()
    rig.settle_down()
    two = rig.come("two")

    two.take(*two.events())
    assert not rig.got(two.session, m.Taken)
    rig.settle_down()

    [taken] = rig.got(two.session, m.Taken)
    assert (taken.first, taken.lost) == (min(two.events().values()), ())
    rig.restart()
    three = two.come_back()
    assert three.deliveries, "it has lost what it held"
    assert {count for each in three.deliveries for count in each.attempts} == {2}


def test_what_a_consumer_died_with_goes_alone() -> None:
    rig = SharingRig()
    one = rig.come("one")
    rig.publish_all(3)
    rig.settle_down()
    one.leave()
    rig.settle_down()
    two = rig.come("two")
    suspect = ticks_of(rig)[1]
    two.take(suspect)
    rig.settle_down()
    rig.end(two)
    rig.wait(8 * SECOND)

    three = rig.come("three")
    rig.publish_all(3)
    rig.settle_down()

    assert suspect not in three.events() or len(three.events()) == 1
    others = [tick for tick in three.events() if tick != suspect]
    if others:
        three.settle(*others)
        rig.settle_down()
    assert suspect in three.events()
    count = len(three.events())
    rig.publish_all(2)
    rig.settle_down()
    assert len(three.events()) == count, "it gets nothing beside it"
    three.settle(suspect)
    rig.settle_down()
    assert sorted(three.events()) == ticks_of(rig)


def test_a_hold_runs_out() -> None:
    rig = SharingRig()
    one = rig.come("one", credit=1, sharing={"hold_ms": SECOND})
    two = rig.come("two", credit=0)
    rig.publish_all(1)
    rig.settle_down()
    assert one.events()
    [tick] = ticks_of(rig)
    for _ in range(4):
        rig.pause(500)
        rig.feed(m.Extend(one.answer.sid, one.holds(tick)), one.session)
        rig.settle_down()
    assert not rig.got(one.session, m.HoldLost)
    held = one.holds(tick)
    rig.feed(m.Credit(two.answer.sid, 100, 1 << 20), two.session)

    rig.pause(1500)
    rig.settle_down()

    assert rig.got(one.session, m.HoldLost)[0].holds == (held,)
    assert list(two.events()) == [tick]
    assert two.deliveries[0].careful
    rig.feed(Settle(one.answer.sid, 1, (Verdict(Kind.ACKNOWLEDGE, held),)), one.session)
    rig.settle_down()
    assert one.settled()[0].lost == (held,), "another one has it (TS16)"


def test_a_gap_is_held_and_settled() -> None:
    rig = SharingRig(catch_up=FORGETFUL, retain=0)
    one = rig.come("one", credit=0)
    one.leave()
    rig.publish_all(20)
    rig.settle_down()
    rig.wait(6 * SECOND)
    rig.release()
    assert rig.lost > rig.log[0][0]

    two = rig.come("two")

    gaps = rig.got(two.session, m.DeliverHeldGap)
    assert gaps
    held = Holds(PUBEND, (gaps[0].end,), (gaps[0].held,))
    rig.feed(Settle(two.answer.sid, 1, (Verdict(Kind.ACKNOWLEDGE, held),)), two.session)
    rig.settle_down()
    assert two.settled() == [m.Settled(two.answer.sid, 1)]


def test_it_is_removed_with_its_rows() -> None:
    rig = SharingRig()
    one = rig.come("one")
    rig.publish_all(4)
    rig.settle_down()
    one.settle(ticks_of(rig)[1])
    rig.settle_down()
    assert {table for table, _ in rows(rig)} == {WINDOWS, CHUNKS, ROSTER, SHARED}

    rig.feed(m.Unsubscribe(5, "jobs", "c"), one.session)
    rig.settle_down()

    assert [each.code for each in rig.got(one.session, m.Detached)] == [m.Code.UNSUBSCRIBED]
    assert not rows(rig)


def rows(rig: SharingRig) -> list[tuple[str, bytes]]:
    """All rows of shared subscriptions."""
    reader = VolumeReader(rig.volume)
    return [(table, key) for table in (WINDOWS, CHUNKS, ROSTER, SHARED) for key, _ in reader.scan(table)]


def test_one_that_is_not_durable_lives_as_long_as_it_has_consumers() -> None:
    rig = SharingRig()
    one, two = (rig.come(name, sharing={"durable": False}) for name in ("one", "two"))
    one.leave()
    rig.settle_down()
    assert rig.hosting.registry.find("c", "jobs") is not None
    rig.end(two)
    rig.wait(2 * SECOND)
    assert rig.hosting.registry.find("c", "jobs") is not None

    rig.wait(8 * SECOND)

    assert rig.hosting.registry.find("c", "jobs") is None


@pytest.mark.parametrize(
    ("more", "code", "reason"),
    [
        ({"name": None}, m.Code.CONFIGURATION, "no name"),
        ({"positions": [m.Position(PUBEND, 5)], "start": m.StartAt.TOKEN}, m.Code.CONFIGURATION, "token"),
        ({"order": m.Order.TOTAL}, m.Code.CONFIGURATION, "order"),
        ({"sharing": {"window": 0}}, m.Code.MISMATCH, "is shared"),
        ({"selector": "n = 1"}, m.Code.MISMATCH, "exists with"),
        ({"selector": "n = 1", "on_change": m.OnChange.KEEP_POSITION}, m.Code.IN_USE, "has consumers"),
    ],
)
def test_what_it_does_not_have_is_refused(more: dict[str, Any], code: m.Code, reason: str) -> None:
    rig = SharingRig()
    rig.come("one")

    failed = rig.refused("two", **more)

    assert failed.code is code
    assert reason in failed.reason


def test_one_that_is_not_shared_stays_so() -> None:
    rig = SharingRig()
    session = rig.session("one")
    rig.ask(session, sharing={"window": 0})
    rig.settle_down()
    assert rig.got(session, m.Subscribed)

    assert rig.refused("two").code is m.Code.MISMATCH


def test_with_another_filter_what_is_not_settled_stays() -> None:
    """The new filter begins behind what was read (TS34)."""
    rig = SharingRig()
    one = rig.come("one")
    rig.publish_all(8)
    rig.settle_down()
    ticks = ticks_of(rig)
    one.settle(*ticks[4:])
    one.leave()
    rig.settle_down()

    two = rig.come("two", selector="n > 5", on_change=m.OnChange.KEEP_POSITION)
    rig.publish_all(2)
    rig.settle_down()

    assert sorted(two.events()) == [*ticks[:4], *ticks_of(rig)[8:]]


def test_after_everybody_left_in_order_nothing_is_marked_by_a_restart() -> None:
    rig = SharingRig()
    one = rig.come("one")
    rig.publish_all(8)
    rig.settle_down()
    one.settle(*one.events(), kind=Kind.RELEASE)
    one.leave()
    rig.settle_down()
    rig.restart()

    two = rig.come("two")

    assert sorted(two.events()) == ticks_of(rig)
    assert not any(each.careful for each in two.deliveries)


def test_a_restart_in_order_marks_nothing_of_whoever_comes_back() -> None:
    """All links are lost before the broker ends: what their consumers hold is known."""
    rig = SharingRig()
    one, two = rig.come("one", credit=4), rig.come("two", credit=4)
    rig.publish_all(12)
    rig.settle_down()
    rig.end(one)
    rig.end(two)
    rig.settle_down()
    rig.restart()

    back, other = one.come_back(*one.events()), two.come_back(*two.events())

    assert sorted([*back.events(), *other.events()]) == ticks_of(rig)[8:]
    assert not any(each.careful for consumer in (back, other) for each in consumer.deliveries)


def test_what_is_not_settled_lapses_with_it_and_comes_back() -> None:
    """And nothing that was settled above the floor (TS34)."""
    rig = SharingRig()
    rig.timing = Timing(expiry_ms=60 * SECOND)
    rig.restart()
    one = rig.come("one")
    rig.publish_all(8)
    rig.settle_down()
    ticks = ticks_of(rig)
    one.settle(*ticks[1:4], ticks[6])
    one.settle(ticks[0], kind=Kind.RETRY)
    rig.settle_down()
    one.settle(*ticks[4:6], ticks[7], kind=Kind.RELEASE)
    rig.settle_down()
    one.leave()
    rig.settle_down()
    for _ in range(20):
        rig.wait(6 * SECOND)
    assert rig.hosting.registry.find("c", "jobs") is None
    assert not rows(rig)

    two = rig.come("two")

    assert sorted(two.events()) == [ticks[0], *ticks[4:6], ticks[7]]
    assert {tick for each in two.deliveries if each.careful for tick in each.columns.ticks()} == {ticks[0]}


@pytest.mark.parametrize("in_order", [False, True])
def test_one_that_is_not_durable_goes_if_nobody_comes_back_to_it(*, in_order: bool) -> None:
    rig = SharingRig()
    one = rig.come("one", sharing={"durable": False})
    if in_order:
        rig.end(one)
        rig.settle_down()
    rig.restart()
    rig.wait(8 * SECOND)
    assert rig.hosting.registry.find("c", "jobs") is not None

    rig.wait(12 * SECOND)
    rig.settle_down()

    assert rig.hosting.registry.find("c", "jobs") is None
    assert not rows(rig)


def test_who_dies_with_the_broker_is_not_waited_for_and_what_it_had_is_marked() -> None:
    """TS3, and nothing of it is in the roster."""
    rig = SharingRig()
    one = rig.come("one", sharing={"embedded": True})
    rig.publish_all(3)
    rig.settle_down()
    assert len(one.events()) == 3
    assert not [table for table, _ in rows(rig) if table == ROSTER]
    rig.restart()

    two = rig.come("two", sharing={"embedded": True})

    assert sorted(two.events()) == ticks_of(rig)
    assert all(each.careful for each in two.deliveries)


def test_several_that_come_at_once_all_take_part() -> None:
    rig = SharingRig()
    sessions = [rig.session(f"i{at}") for at in range(3)]
    for session in sessions:
        rig.ask(session)
    rig.settle_down()

    assert [len(rig.got(session, m.Subscribed)) for session in sessions] == [1, 1, 1]
    [listed] = rig.listed(sessions[0])
    assert listed.sharing.consumers == 3


def test_a_connection_takes_part_once() -> None:
    rig = SharingRig()
    one = rig.come("one")
    rig.ask(one.session, request=2)
    rig.settle_down()

    [failed] = rig.got(one.session, m.RequestFailed)
    assert failed.code is m.Code.IN_USE
    assert "this very connection" in failed.reason


def test_it_is_read_by_no_range_and_leased_to_nobody() -> None:
    rig = SharingRig()
    one = rig.come("one")
    for request in (
        m.TakeLease(5, m.Target("jobs"), "spark", m.InUse.TAKEOVER),
        m.ReadRange(6, m.Target("jobs"), PUBEND, 0, 5, 10, 1000),
        m.AcknowledgeDurably(7, m.Target("jobs"), b"", []),
    ):
        rig.feed(request, one.session)
    rig.settle_down()

    assert {each.code for each in rig.got(one.session, m.RequestFailed)} == {m.Code.MISMATCH}
    assert len(rig.got(one.session, m.RequestFailed)) == 3


def test_a_settlement_is_uncertain_when_nothing_is_known_of_it_any_more() -> None:
    """Its row in the roster has gone: nobody knows whether it took effect."""
    rig = SharingRig()
    one = rig.come("one")
    rig.publish_all(3)
    rig.settle_down()
    one.settle(*one.events())
    rig.settle_down()
    rig.end(one)
    rig.settle_down()
    rig.wait(8 * SECOND)
    rig.wall += 25 * 3600 * SECOND
    others = [rig.come(f"i{at}") for at in range(65)]
    assert others

    back = one.come_back()
    held = one.holds(*one.events())
    rig.feed(Settle(back.answer.sid, 1, (Verdict(Kind.ACKNOWLEDGE, held),)), back.session)
    rig.settle_down()

    assert back.settled() == [m.Settled(back.answer.sid, 1, uncertain=True)]


def test_nothing_is_delivered_before_who_gets_it_stands_in_the_roster() -> None:
    rig = SharingRig()
    one = rig.come("one", credit=0)
    rig.publish_all(3)
    rig.settle_down()
    session = rig.session("two")
    rig.ask(session)
    assert rig.got(session, m.Subscribed)
    assert not rig.got(session, m.DeliverHeld)

    rig.settle_down()

    assert rig.got(session, m.DeliverHeld)
    assert not one.deliveries


def test_nobody_listens_to_who_names_more_than_anybody_can_hold() -> None:
    rig = SharingRig()
    one = rig.come("one", sharing={"window": 10})
    many = Holds(PUBEND, tuple(range(1000)), tuple(range(1000)))

    rig.feed(Settle(one.answer.sid, 1, (Verdict(Kind.ACKNOWLEDGE, many),)), one.session)
    rig.feed(Take(one.answer.sid, many), one.session)
    rig.settle_down()

    assert not one.settled()
    assert not rig.got(one.session, m.Taken)
