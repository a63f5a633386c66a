"""A consumer of a shared subscription: what it holds, takes, settles and resumes (protocol: shared-subscriptions)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from gapless.core.client import SubscribeOptions
from gapless.core.client.consuming.held import HeldDelivery, HeldEvent, HeldGap
from gapless.core.client.consuming.sharing import SharedCore
from gapless.core.client.consuming.subscription import SubscriptionPhase
from gapless.core.client.link import effects as e
from gapless.core.wire import messages as m
from gapless.core.wire.codec import encode
from gapless.core.wire.messages.sharing import UNANSWERED_MAX
from gapless.errors import ConfigurationError, SubscriptionInUseError, SubscriptionNotFoundError
from unit.gapless.core.client.talk import Talk

PUBEND = "p@1"
SID = 5


class Worker:
    """A consumer of a shared subscription, and a broker that says what a test lets it say."""

    def __init__(self, **wanted: Any) -> None:
        self.talk = Talk()
        self.number = self.subscribe(**wanted)
        self.attach()
        self.heard = 0

    def subscribe(self, name: str = "workers", **wanted: Any) -> int:
        sharing = m.Sharing(window=4096, durable=True)
        wanted.setdefault("window_events", 256)
        number = self.talk.core.subscribe(SubscribeOptions(("#",), name, sharing=sharing, **wanted), self.talk.now)
        self.talk.take()
        return number

    def attach(self, sid: int = SID) -> None:
        subscribed = m.Subscribed(self.number, sid, 9, b"", False, [], home_sid=SID, home="home")
        self.talk.hear(m.PubendNumber(0, PUBEND), subscribed)

    @property
    def core(self) -> SharedCore:
        core = self.talk.core.shared_subscription(self.number)
        assert core is not None
        return core

    def deliver(self, first: int, *ticks: int, sid: int = SID, **how: Any) -> None:
        self.talk.hear_held(sid, first, *ticks, **how)

    def take(self, events_max: int = 1, wanted: int | None = None) -> list[HeldEvent] | HeldGap | None:
        item = self.talk.core.take_held(self.number, self.talk.now, events_max, wanted or events_max)
        self.talk.take()
        if isinstance(item, HeldDelivery):
            assert item.count == len(item.numbers)
            return item.events()
        return item

    def numbers(self, events_max: int = 1) -> list[int]:
        """Takes everything; the delivery numbers."""
        found: list[int] = []
        while (item := self.take(events_max)) is not None:
            assert isinstance(item, list)
            found += [event.delivery_number for event in item]
        return found

    def settle(self, *numbers: int, kind: m.Kind = m.Kind.ACKNOWLEDGE, delay_ms: int = 0) -> list[int]:
        settlements, lost = self.talk.core.settle(self.number, kind, numbers, self.talk.now, delay_ms)
        assert not lost
        return settlements

    def said(self, kind: type[Any]) -> list[Any]:
        return self.talk.all_said(kind)

    def answered(self) -> list[tuple[int, set[int], bool]]:
        return [(each.number, set(each.lost), each.uncertain) for each in self.talk.all_told(e.SettlementAnswered)]

    @property
    def failure(self) -> Exception | None:
        return next((each.error for each in self.talk.all_told(e.Failed) if each.request == self.number), None)


def held(*pairs: tuple[int, int]) -> m.Holds:
    ticks, numbers = zip(*pairs, strict=True)
    return m.Holds(PUBEND, ticks, numbers)


def verdicts(*each: tuple[m.Kind, m.Holds] | tuple[m.Kind, m.Holds, int]) -> tuple[m.Verdict, ...]:
    return tuple(m.Verdict(*one) for one in each)


def kinds(settles: Iterable[m.Settle]) -> list[tuple[m.Kind, tuple[int, ...]]]:
    return [(verdict.kind, verdict.holds.numbers) for settle in settles for verdict in settle.verdicts]


ACKNOWLEDGE, RETRY, RELEASE = m.Kind


def test_it_asks_as_a_consumer_without_a_position() -> None:
    worker = Worker(start=m.StartAt.EARLIEST, on_change=m.OnChange.KEEP_POSITION)

    [asked] = worker.said(m.Subscribe)
    assert asked.sharing == m.Sharing(window=4096, durable=True)
    assert (asked.name, asked.start, asked.positions, asked.sid) == ("workers", m.StartAt.EARLIEST, None, 0)
    assert (asked.credit_events, asked.on_change) == (256, m.OnChange.KEEP_POSITION)
    [answered] = worker.talk.all_told(e.Answered)
    assert answered.result == e.Attached(SID, 9, created=False)
    assert worker.core.durable


@pytest.mark.parametrize("events_max", [1, 2, 64])
def test_what_was_never_handed_out_before_is_handed_out_at_once(events_max: int) -> None:
    worker = Worker()
    worker.deliver(10, 100, 200, 300)

    events: list[HeldEvent] = []
    while (item := worker.take(events_max)) is not None:
        assert isinstance(item, list)
        assert len(item) <= events_max
        events += item
    assert [(event.tick, event.pubend, event.body) for event in events] == [
        (100, PUBEND, b"100"),
        (200, PUBEND, b"200"),
        (300, PUBEND, b"300"),
    ]
    assert [event.delivery_number for event in events] == [10, 11, 12]
    assert [(event.redelivered, event.delivery_count) for event in events] == [(False, 1)] * 3
    assert not worker.said(m.Take)


def test_a_batch_goes_over_several_deliveries_of_one_pubend() -> None:
    worker = Worker()
    worker.talk.hear(m.PubendNumber(1, "q@1"))
    worker.deliver(10, 100, 200)
    worker.deliver(20, 300, 400)

    batch = worker.take(3)
    assert isinstance(batch, list)
    assert [event.delivery_number for event in batch] == [10, 11, 20]
    assert worker.numbers(3) == [21]


CAREFUL = {
    "in doubt": (b"", [(10, 11, 12)], [2, 2, 2]),
    "attempted": (b"\x01\x02\x01", [(10,), (11,), (12,)], [2, 3, 2]),
    "mixed": (b"\0\0\x07", [(10, 11), (12,)], [2, 2, 8]),
    "often": (b"\xff\0\0", [(10,), (11, 12)], [256, 2, 2]),
}


@pytest.mark.parametrize(("attempts", "takes", "counts"), CAREFUL.values(), ids=CAREFUL)
def test_what_may_have_been_handed_out_is_taken_first(
    attempts: bytes, takes: list[tuple[int, ...]], counts: list[int]
) -> None:
    """Who takes one at a time says so of a run that was never attempted, and of each of the others; all are marked."""
    worker = Worker()
    worker.deliver(10, 100, 200, 300, careful=True, attempts=attempts)

    events: list[HeldEvent] = []
    for numbers in takes:
        assert worker.take() is None
        assert worker.said(m.Take)[-1].holds.numbers == numbers
        worker.talk.hear(m.Taken(SID, numbers[0]))
        for _ in numbers:
            item = worker.take()
            assert isinstance(item, list)
            events += item
    assert worker.take() is None
    assert [event.delivery_number for event in events] == [10, 11, 12]
    assert [event.delivery_count for event in events] == counts
    assert all(event.redelivered for event in events)
    assert [take.holds.numbers for take in worker.said(m.Take)] == takes


def test_a_run_that_is_taken_has_64_at_most() -> None:
    worker = Worker()
    worker.deliver(1, *range(1, 101), careful=True)
    worker.take()

    [take] = worker.said(m.Take)
    assert take.holds == held(*((i, i) for i in range(1, 65)))
    assert worker.take() is None
    assert len(worker.said(m.Take)) == 1  # nothing is taken further ahead than one asks for


def test_what_one_asks_for_is_taken_ahead() -> None:
    """Whoever takes many at once, or many who take one each, wait once for all of them."""
    worker = Worker()
    worker.deliver(1, *range(1, 11), careful=True, attempts=b"\x01" * 10)

    worker.take(4)
    assert [take.holds.numbers for take in worker.said(m.Take)] == [(1, 2, 3, 4)]
    worker.take(1, wanted=6)
    assert [take.holds.numbers for take in worker.said(m.Take)] == [(1, 2, 3, 4), (5, 6)]


def test_one_take_names_what_has_come_in_several_runs_of_a_pubend() -> None:
    worker = Worker()
    worker.talk.hear(m.PubendNumber(1, "q@1"))
    worker.deliver(20, 300, 400, careful=True, attempts=b"\x01\x01")
    worker.deliver(10, 100, 200, careful=True, attempts=b"\x01\x01")
    worker.deliver(30, 500, careful=True, attempts=b"\x01", pubend=1)

    worker.take(64)
    takes = [take.holds for take in worker.said(m.Take)]
    assert [(take.pubend, take.ticks, take.numbers) for take in takes] == [
        (PUBEND, (100, 200, 300, 400), (10, 11, 20, 21)),
        ("q@1", (500,), (30,)),
    ]
    worker.talk.hear(m.Taken(SID, 10, lost=(21,)), m.Taken(SID, 30))
    assert worker.numbers(64) == [20, 10, 11, 30]


def test_others_are_handed_out_while_something_is_taken() -> None:
    worker = Worker()
    worker.deliver(1, 100, careful=True, attempts=b"\x01")
    worker.deliver(2, 200, 300)

    assert worker.numbers() == [2, 3]
    worker.talk.hear(m.Taken(SID, 1))
    assert worker.numbers() == [1]


def test_what_taken_says_is_lost_is_not_handed_out() -> None:
    worker = Worker()
    worker.deliver(1, 100, 200, 300, 400, careful=True)
    worker.take()
    worker.talk.hear(m.Taken(SID, 1, lost=(2, 4)))

    assert worker.numbers() == [1, 3]
    worker.deliver(9, 900, careful=True)
    worker.take()
    assert worker.said(m.Take)[-1].holds == held((900, 9)), "what is lost is not counted as taken ahead"


def test_a_gap_is_held_like_an_event_by_its_end() -> None:
    worker = Worker()
    worker.deliver(1, 100)
    worker.talk.hear(m.DeliverHeldGap(SID, 0, 2, False, 0, 100, 300, "released early"))
    worker.deliver(3, 400)

    first, gap, last = worker.take(64), worker.take(64), worker.take(64)
    assert isinstance(first, list)
    assert isinstance(last, list)
    assert isinstance(gap, HeldGap)
    assert (gap.pubend, gap.start, gap.end, gap.reason) == (PUBEND, 100, 300, "released early")
    assert (gap.delivery_number, gap.redelivered) == (2, False)
    worker.settle(1, 2, 3)
    [settle] = worker.said(m.Settle)
    assert settle.verdicts == verdicts((ACKNOWLEDGE, held((100, 1), (300, 2), (400, 3))))


def test_a_gap_that_somebody_may_have_been_told_of_is_taken_too() -> None:
    worker = Worker()
    worker.talk.hear(m.DeliverHeldGap(SID, 0, 2, True, 1, 100, 300, "cut"))
    assert worker.take() is None
    worker.talk.hear(m.Taken(SID, 2))

    gap = worker.take()
    assert isinstance(gap, HeldGap)
    assert (gap.delivery_count, gap.redelivered) == (2, True)


def test_the_verdicts_of_a_turn_leave_as_one() -> None:
    worker = Worker()
    worker.talk.hear(m.PubendNumber(1, "q@1"))
    worker.deliver(1, 300, 400, 500)
    worker.deliver(4, 100)
    worker.numbers()

    numbers = [
        worker.settle(2),
        worker.settle(4, 1),
        worker.settle(3, kind=RETRY, delay_ms=1500),
    ]
    assert numbers == [[1], [1], [1]]
    [settle] = worker.said(m.Settle)
    assert settle == m.Settle(
        SID,
        1,
        verdicts((ACKNOWLEDGE, held((100, 4), (300, 1), (400, 2))), (RETRY, held((500, 3)), 1500)),
    )
    assert worker.answered() == []
    worker.talk.hear(m.Settled(SID, 1, lost=(held((400, 2)),)))
    assert worker.answered() == [(1, {2}, False)]
    assert worker.core.is_settled


def test_what_is_not_held_is_said_at_once() -> None:
    worker = Worker()
    worker.deliver(1, 100, 200)
    worker.numbers()
    worker.settle(1)

    settle = worker.talk.core.settle(worker.number, ACKNOWLEDGE, (1, 2, 77), worker.talk.now)
    assert settle == ([1], [1, 77])
    assert [worker.core.place(number) for number in (1, 2, 77)] == [None, None, None]


def test_at_most_64_settlements_are_unanswered() -> None:
    """Those after them wait, and leave together once there is room."""
    worker = Worker()
    count = UNANSWERED_MAX + 3
    worker.deliver(1, *range(1, count + 1))
    for number in worker.numbers():
        worker.settle(number)
        worker.talk.take()

    assert [settle.number for settle in worker.said(m.Settle)] == list(range(1, UNANSWERED_MAX + 1))
    worker.talk.hear(m.Settled(SID, 2))
    assert len(worker.said(m.Settle)) == UNANSWERED_MAX, "the oldest is still without an answer"
    worker.talk.hear(m.Settled(SID, 1))
    last = worker.said(m.Settle)[-1]
    assert (last.number, last.verdicts[0].holds.numbers) == (UNANSWERED_MAX + 1, (65, 66, 67))


def test_a_settlement_fits_into_a_frame() -> None:
    worker = Worker(window_events=4096)
    worker.deliver(1, *range(1, 3001))
    worker.numbers(64)
    worker.talk.frame_bytes = 8192
    worker.talk.reconnect()
    worker.attach()
    numbers = worker.settle(*range(1, 3001))
    settles = worker.said(m.Settle)
    assert [settle.number for settle in settles] == numbers
    assert 10 < len(numbers) < 30
    assert all(len(encode(0, settle)) < 4096 for settle in settles)
    assert sorted(number for _, some in kinds(settles) for number in some) == list(range(1, 3001))


def test_after_a_reconnect_it_goes_on_with_what_it_holds_and_repeats_what_has_no_answer() -> None:
    worker = Worker()
    worker.deliver(1, 100, 200, 300, 400)
    for _ in range(3):
        worker.take()
    worker.settle(1)
    worker.talk.take()
    worker.talk.core.settle(worker.number, RETRY, (2,), worker.talk.now)
    worker.talk.take()
    before = worker.said(m.Settle)
    worker.talk.hear(m.Settled(SID, 1))
    worker.talk.reconnect()

    [again] = worker.said(m.Subscribe)
    assert (again.sid, again.generation, again.home) == (SID, 9, "home")
    assert again.sharing.holds == (held((200, 2), (300, 3), (400, 4)),), "held, without an answer, never handed out"
    assert again.credit_events == 255
    assert not worker.said(m.Settle)

    worker.attach(sid=6)
    assert worker.said(m.Settle) == [m.Settle(6, 2, before[1].verdicts)]
    worker.talk.hear(m.Settled(6, 2))
    assert worker.answered() == [(1, set(), False), (2, set(), False)]


def test_what_was_settled_without_a_session_leaves_in_the_next() -> None:
    worker = Worker()
    worker.deliver(1, 100, 200)
    worker.numbers()
    worker.talk.core.on_link_down(worker.talk.link, "cut", worker.talk.now)
    worker.settle(1)
    worker.settle(2)
    worker.talk.take()
    worker.talk.said.clear()
    worker.talk.wait(1)
    worker.talk.connect()
    assert worker.said(m.Subscribe)[0].sharing.holds == (held((100, 1), (200, 2)),)
    worker.attach()

    [settle] = worker.said(m.Settle)
    assert (settle.number, settle.verdicts[0].holds.numbers) == (1, (1, 2))


def test_nothing_is_handed_out_without_a_session_and_then_only_what_is_still_held() -> None:
    """Only the broker knows whether somebody else has got it. Nobody was handed it here, so it is not marked."""
    worker = Worker()
    worker.deliver(1, 100, 200, 300)
    worker.take()
    worker.talk.core.on_link_down(worker.talk.link, "cut", worker.talk.now)
    worker.talk.take()
    assert worker.take() is None

    worker.talk.wait(1)
    worker.talk.connect()
    worker.attach()
    assert worker.take() is None
    [take] = worker.said(m.Take)
    assert take.holds == held((200, 2), (300, 3))
    worker.talk.hear(m.Taken(SID, 2, lost=(2,)))
    item = worker.take()
    assert isinstance(item, list)
    assert [(event.delivery_number, event.redelivered) for event in item] == [(3, False)]


def test_a_take_without_an_answer_is_repeated() -> None:
    worker = Worker()
    worker.deliver(1, 100, careful=True, attempts=b"\x03")
    worker.take()
    worker.talk.reconnect()
    worker.attach()
    assert worker.take() is None

    [take] = worker.said(m.Take)
    assert take.holds == held((100, 1))
    worker.talk.hear(m.Taken(SID, 1))
    item = worker.take()
    assert isinstance(item, list)
    assert item[0].delivery_count == 4


def test_what_is_lost_is_not_handed_out_and_not_settled() -> None:
    worker = Worker()
    worker.deliver(1, 100, 200, 300)
    worker.deliver(4, 400, 500, careful=True)
    worker.deliver(6, 600, careful=True, attempts=b"\x01")
    worker.take(2)
    worker.take(64)  # 4 and 5 are being taken
    assert worker.said(m.Take)[0].holds.numbers == (4, 5)
    worker.talk.hear(m.HoldLost(SID, (held((100, 1), (300, 3), (400, 4), (600, 6)),)))
    worker.talk.hear(m.Taken(SID, 4))

    assert worker.numbers() == [5]
    assert worker.core.place(1) is None
    assert worker.core.place(2) == (PUBEND, 200)
    _, lost = worker.talk.core.settle(worker.number, ACKNOWLEDGE, (1, 2), worker.talk.now)
    assert lost == [1]


def test_an_answer_that_nobody_waits_for_is_ignored() -> None:
    worker = Worker()
    worker.talk.hear(m.Settled(SID, 7), m.Taken(SID, 7), m.HoldLost(SID, (held((1, 1)),)))

    assert worker.answered() == []
    assert worker.take() is None
    assert not worker.talk.hung_up


def test_the_broker_may_not_know_what_became_of_a_settlement() -> None:
    worker = Worker()
    worker.deliver(1, 100)
    worker.take()
    worker.settle(1)
    worker.talk.take()
    worker.talk.hear(m.Settled(SID, 1, uncertain=True))

    assert worker.answered() == [(1, set(), True)]


def test_the_time_of_what_is_held_begins_anew() -> None:
    worker = Worker()
    worker.deliver(1, 100, 200)
    worker.numbers()

    assert worker.talk.core.extend(worker.number, (2, 1, 9), worker.talk.now) == [9]
    assert worker.said(m.Extend) == [m.Extend(SID, held((100, 1), (200, 2)))]
    worker.talk.core.on_link_down(worker.talk.link, "cut", worker.talk.now)
    assert worker.talk.core.extend(worker.number, (1,), worker.talk.now) == []
    assert len(worker.said(m.Extend)) == 1


def test_the_goodbye_gives_back_what_was_never_handed_out() -> None:
    worker = Worker()
    worker.deliver(1, 100, 200, 300)
    worker.deliver(4, 400, careful=True)
    worker.take()
    worker.settle(1)
    worker.talk.core.detach(worker.number, worker.talk.now)

    settles = worker.said(m.Settle)
    assert kinds(settles) == [(ACKNOWLEDGE, (1,)), (RELEASE, (2, 3, 4))]
    assert worker.talk.said[-2:] == [settles[-1], m.Detach(SID, worker.number)]
    assert worker.talk.core.shared_subscription(worker.number) is None


def test_a_drained_one_gives_back_what_it_has_and_what_still_comes() -> None:
    worker = Worker()
    worker.deliver(1, 100, 200)
    worker.take()
    worker.talk.core.drain(worker.number, worker.talk.now)
    assert kinds(worker.said(m.Settle)) == [(RELEASE, (2,))]
    worker.deliver(3, 300)

    assert kinds(worker.said(m.Settle)) == [(RELEASE, (2,)), (RELEASE, (3,))]
    assert worker.take() is None
    assert not worker.said(m.Credit)
    worker.settle(1)
    assert kinds(worker.said(m.Settle))[-1] == (ACKNOWLEDGE, (1,))
    worker.talk.reconnect()
    assert worker.said(m.Subscribe)[0].credit_events == 0


def test_credit_is_granted_as_events_are_handed_out() -> None:
    worker = Worker(window_events=8)
    worker.deliver(1, *range(1, 9))
    worker.take()
    assert not worker.said(m.Credit)
    worker.take()

    assert [credit.events for credit in worker.said(m.Credit)] == [2]
    worker.talk.reconnect()
    worker.attach()
    [again] = worker.said(m.Subscribe)
    assert again.credit_events == 2
    worker.deliver(9, 9, 10)
    assert not worker.talk.hung_up


def test_no_more_is_held_than_fits_into_a_request() -> None:
    """After a reconnect it has to name all of it at once."""
    worker = Worker(window_events=64)
    worker.talk.frame_bytes = 8192
    worker.talk.reconnect()
    worker.attach()
    granted = worker.said(m.Subscribe)[0].credit_events
    first = 1
    while granted:
        worker.deliver(first, *range(first, first + granted))
        first += granted
        worker.talk.said.clear()
        assert worker.numbers(64)
        granted = sum(credit.events for credit in worker.said(m.Credit))

    assert 150 < first <= 8192 // 2 // 20 + 64
    worker.talk.said.clear()
    settlements = worker.settle(*range(1, 150))
    worker.talk.take()
    worker.talk.hear(*(m.Settled(SID, number) for number in settlements))
    assert worker.said(m.Credit), "what is settled leaves room"


BROKEN = {
    "more than the credit": lambda worker: worker.deliver(1, *range(1, 10)),
    "not in order": lambda worker: worker.deliver(1, 2, 1),
    "an empty gap": lambda worker: worker.talk.hear(m.DeliverHeldGap(SID, 0, 1, False, 0, 5, 5, "r")),
    "as if it were not shared": lambda worker: worker.talk.hear(m.DeliverGap(SID, 0, 5, 6, "r")),
    "a pubend without a name": lambda worker: worker.talk.hear(m.DeliverHeldGap(SID, 7, 1, False, 0, 5, 6, "r")),
}


@pytest.mark.parametrize("breach", BROKEN.values(), ids=BROKEN)
def test_what_breaks_the_protocol_ends_the_link_and_changes_nothing(breach: Any) -> None:
    worker = Worker(window_events=8)
    breach(worker)

    assert worker.talk.hung_up
    assert not worker.core.has_something


def test_a_plain_subscription_gets_nothing_that_is_held() -> None:
    talk = Talk()
    number = talk.core.subscribe(SubscribeOptions(("#",), "plain"), talk.now)
    talk.hear(m.PubendNumber(0, PUBEND), m.Subscribed(number, SID, 9, b"", False, []))
    talk.hear_held(SID, 1, 100)

    assert talk.hung_up


def test_silence_is_not_for_those_without_a_position() -> None:
    worker = Worker()
    worker.talk.hear(m.DeliverSilence(0, 500, None), m.DeliverSilence(0, 600, [SID]))

    assert not worker.talk.hung_up
    assert worker.take() is None


def test_an_older_broker_is_told_by_name() -> None:
    talk = Talk()
    talk.answers = ("AskStatus",)
    talk.reconnect()
    wanted = SubscribeOptions(("#",), "workers", sharing=m.Sharing(1, True))
    number = talk.core.subscribe(wanted, talk.now)
    talk.take()

    [failed] = talk.all_told(e.Failed)
    assert failed.request == number
    assert isinstance(failed.error, ConfigurationError)
    assert "'node' is too old for shared subscriptions: update it" in str(failed.error)
    assert not talk.all_said(m.Subscribe)
    assert talk.core.shared_subscription(number) is None


def test_an_older_broker_after_a_reconnect_too() -> None:
    worker = Worker()
    worker.talk.answers = ()
    worker.talk.reconnect()

    assert isinstance(worker.failure, ConfigurationError)


PHASES: dict[str, tuple[Any, SubscriptionPhase | None]] = {
    "nothing": (lambda _: None, SubscriptionPhase.ATTACHED),
    "the link is cut": (
        lambda worker: worker.talk.core.on_link_down(worker.talk.link, "cut", worker.talk.now),
        SubscriptionPhase.IDLE,
    ),
    "it asks again": (lambda worker: worker.talk.reconnect(), SubscriptionPhase.ASKING),
    "it is put off": (
        lambda worker: (
            worker.talk.reconnect(),
            worker.talk.hear(m.RequestFailed(worker.number, m.Code.RETRY, "not yet")),
        ),
        SubscriptionPhase.IDLE,
    ),
    "it is put off, and asks again": (
        lambda worker: (
            worker.talk.reconnect(),
            worker.talk.hear(m.RequestFailed(worker.number, m.Code.RETRY, "not yet")),
            worker.talk.wait(1),
        ),
        SubscriptionPhase.ASKING,
    ),
    "it attaches again": (lambda worker: (worker.talk.reconnect(), worker.attach()), SubscriptionPhase.ATTACHED),
    "it is refused": (
        lambda worker: (
            worker.talk.reconnect(),
            worker.talk.hear(m.RequestFailed(worker.number, m.Code.NOT_FOUND, "gone")),
        ),
        None,
    ),
    "it is removed": (lambda worker: worker.talk.hear(m.Detached(SID, m.Code.UNSUBSCRIBED, "removed")), None),
    "the application leaves": (lambda worker: worker.talk.core.detach(worker.number, worker.talk.now), None),
}


@pytest.mark.parametrize(("happens", "phase"), PHASES.values(), ids=PHASES)
def test_its_phases(happens: Any, phase: SubscriptionPhase | None) -> None:
    worker = Worker()
    worker.deliver(1, 100)
    happens(worker)

    core = worker.talk.core.shared_subscription(worker.number)
    assert (None if core is None else core.phase) == phase
    assert (worker.take() is not None) == (happens is PHASES["nothing"][0])


def test_whoever_holds_something_of_a_removed_one_is_told() -> None:
    worker = Worker()
    worker.deliver(1, 100)
    worker.take()
    worker.talk.hear(m.Detached(SID, m.Code.UNSUBSCRIBED, "removed"))

    assert isinstance(worker.failure, SubscriptionNotFoundError)


def test_settlements_of_a_connection_are_counted_on_by_the_next_consumer_of_a_name() -> None:
    """Its goodbye may not have arrived: then the broker knows the numbers of the former one."""
    worker = Worker()
    worker.deliver(1, 100)
    worker.take()
    worker.settle(1)
    worker.talk.take()
    worker.talk.core.detach(worker.number, worker.talk.now)
    worker.number = worker.subscribe()
    worker.attach(sid=7)
    worker.deliver(2, 200, sid=7)
    worker.take()

    assert worker.settle(2) == [2]
    other = worker.subscribe("others")
    assert worker.talk.core.shared_subscription(other) is not None


def test_a_connection_consumes_a_shared_subscription_once() -> None:
    worker = Worker()
    second = worker.subscribe()

    [failed] = worker.talk.all_told(e.Failed)
    assert failed.request == second
    assert isinstance(failed.error, SubscriptionInUseError)
    assert worker.core.phase is SubscriptionPhase.ATTACHED


def test_arrived_is_told_once_until_nothing_is_found() -> None:
    worker = Worker()
    worker.deliver(1, 100)
    worker.deliver(2, 200)
    assert len(worker.talk.all_told(e.Arrived)) == 1

    worker.numbers()
    worker.deliver(3, 300, careful=True)
    assert len(worker.talk.all_told(e.Arrived)) == 2
    assert worker.take() is None
    worker.talk.hear(m.Taken(SID, 3))
    assert len(worker.talk.all_told(e.Arrived)) == 3
