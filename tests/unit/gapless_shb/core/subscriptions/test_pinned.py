"""What offline subscriptions of principals hold back: who is asked, what counts, who is told and who is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from gapless.core.alarms import Alarm, AlarmCode
from gapless.core.gauges import values_by
from gapless.core.network import facts as r
from gapless.core.network.bytes_above import BytesAbove, decode_question, encode
from gapless.core.ports import ClientSession, RoleContext, SessionEnded
from gapless.core.principal_limits import Limit, OnPin, PrincipalLimits
from gapless.core.principals import Principal
from gapless.core.stream.ticks import STEP
from gapless.core.wire import messages as m
from gapless_shb.core.broker import SubscriberHostingBroker
from gapless_shb.core.state import gauges
from gapless_shb.core.subscriptions import pinned
from unit.gapless_shb.core.harness import PUBEND, World

SHOP = Principal("shop")
ADA = Principal("ada", frozenset({"billing"}))
SIZE = 100
"""Of each event, as the log's host says."""


class Office(World):
    """A broker with limits, and the host of the log."""

    def __init__(self, *limits: Limit) -> None:
        self.given = PrincipalLimits(limits)
        self.asked: list[r.Post] = []
        self.raised: list[Alarm] = []
        self.answers: dict[int, object] = {}
        self.listed: dict[str, int | None] = {}
        super().__init__()
        self.sync()

    def make_role(self, context: RoleContext) -> SubscriberHostingBroker:
        return super().make_role(replace(context, limits=self.given))

    def on_said(self, effect: object) -> None:
        if isinstance(effect, r.Post):
            self.asked.append(effect)
        elif isinstance(effect, Alarm):
            self.raised.append(effect)
        else:
            super().on_said(effect)

    def client_gets(self, session: int, message: object) -> None:
        if isinstance(message, m.Subscribed | m.RequestFailed):
            self.answers[session] = message
        elif isinstance(message, m.SubscriptionList):
            self.listed |= {row.name: row.pinned_bytes for row in message.rows}

    def subscribe(self, number: int, name: str | None, who: Principal = SHOP, **changes: Any) -> object:
        """Somebody subscribes in a session of his own. Returns the answer."""
        request = m.Subscribe(
            1, name, ("#",), "", m.StartAt.LATEST, 0, None, 0, 0, b"", [], m.InUse.ERROR, 100, 1 << 20
        )
        self.feed(msgspec.structs.replace(request, **changes), self.session(number, who))
        self.sync()
        return self.answers.get(number)

    def session(self, number: int, who: Principal = SHOP) -> ClientSession:
        return ClientSession(number, who.name, f"i{number}", who)

    def leave(self, number: int) -> None:
        self.feed(SessionEnded(self.session(number)))
        self.sync()

    def subscribe_and_leave(self, number: int, name: str | None, who: Principal = SHOP) -> None:
        assert isinstance(self.subscribe(number, name, who), m.Subscribed)
        self.leave(number)

    def grow(self, events: int = 1) -> None:
        """So many events are published, and matched here."""
        for _ in range(events):
            before = self.stable
            self.publish()
            self.deliver(self.knowledge(before, self.stable, raw=True, reply=False))
        for _ in range(3):
            self.pause(300)
            self.sync()

    def beat(self) -> None:
        """So much time passes that everybody is looked at."""
        self.pause(5_000)
        self.sync()
        for _ in range(3):
            self.pause(1)

    def questions(self) -> list[tuple[str, str, tuple[int, ...]]]:
        """What was asked since the last call: node, pubend and ticks."""
        asked, self.asked = self.asked, []
        found = []
        for post in asked:
            assert post.role == "phb"
            question = decode_question(post.data)
            assert question is not None
            found.append((post.to_node, question.pubend, question.ticks))
        return found

    def say_sizes(self, node: str = "node") -> int:
        """The host answers all that it was asked. Returns how much that was."""
        questions = self.questions()
        for _, pubend, ticks in questions:
            above = tuple(SIZE * sum(at > tick for at, *_ in self.log) for tick in ticks)
            self.feed(r.Posted(node, "shb", encode(BytesAbove(pubend, ticks, above))))
            self.pause(1)
        return len(questions)

    def look(self) -> dict[str, int | float]:
        """Everybody is looked at, and the host answers. Returns what the gauges say."""
        self.beat()
        self.say_sizes()
        return self.held_back()

    def listing(self) -> dict[str, int | None]:
        """How much a listing says that each subscription holds back."""
        self.listed = {}
        self.feed(m.ListSubscriptions(8), self.session(99))
        self.read()
        return self.listed

    def held_back(self) -> dict[str, int | float]:
        return values_by(self.role.gauges(), gauges.PINNED, "principal")


def limit(*who: str, most: int = 250, on_pin: OnPin = OnPin.ALARM) -> Limit:
    return Limit(who, pinned_bytes=most, on_pin=on_pin)


def test_where_there_is_no_limit_nobody_is_asked() -> None:
    office = Office(Limit(("*",), subscriptions=5))
    office.subscribe_and_leave(1, "job")
    office.grow(3)
    assert office.look() == {}
    assert office.asked == []


def test_the_furthest_behind_counts_of_all_that_nobody_consumes() -> None:
    office = Office(limit("shop"))
    office.subscribe_and_leave(1, "old")
    office.grow(2)
    office.subscribe_and_leave(2, "new")
    office.subscribe_and_leave(3, "other", ADA)
    assert isinstance(office.subscribe(4, None), m.Subscribed)  # is not durable
    office.grow()
    assert office.look() == {"shop": 3 * SIZE}

    assert isinstance(office.subscribe(5, "old"), m.Subscribed)
    assert office.look() == {"shop": SIZE}, "who consumes holds back what he is about to get"
    office.feed(m.Unsubscribe(9, "new", "shop"), office.session(6))
    office.sync()
    assert office.look() == {}


def test_the_operator_is_told_once_until_it_was_below() -> None:
    office = Office(limit("shop"))
    office.subscribe_and_leave(1, "job")
    office.grow(2)
    office.look()
    assert office.raised == [], "so much it may be"

    office.grow()
    office.look()
    office.look()
    (alarm,) = office.raised
    assert (alarm.code, alarm.about, alarm.over) == (AlarmCode.PINNED_BYTES, "shop", False)
    assert alarm.text == (
        "the offline subscriptions of principal 'shop' hold back 300 bytes of logs, which may be 250 (pinned_bytes in"
        " [[limit]] who = [\"shop\"]); 'job' of client 'shop' is furthest behind"
    )

    office.subscribe(2, "job")
    office.look()
    office.leave(2)
    office.look()
    assert [alarm.over for alarm in office.raised] == [False, True, False]


def test_who_is_above_creates_nothing_more_but_goes_on_with_what_there_is() -> None:
    office = Office(limit("shop", on_pin=OnPin.REFUSE_NEW))
    office.subscribe_and_leave(1, "job")
    office.grow(3)
    office.look()

    refused = office.subscribe(2, "another")
    assert isinstance(refused, m.RequestFailed)
    assert refused.code is m.Code.CONFIGURATION
    assert refused.reason == (
        "principal 'shop' may have 250 bytes of logs held back by offline subscriptions, which hold back 300, at this"
        ' broker (pinned_bytes in [[limit]] who = ["shop"]; the broker\'s own limits are in [limits])'
    )
    office.feed(m.Attach(1, "by ranges", ("#",), "", m.StartAt.LATEST, 0, None, 0, 0, b""), office.session(7))
    assert isinstance(office.answers[7], m.RequestFailed)
    assert len(office.hosting.registry) == 1
    assert isinstance(office.subscribe(3, None), m.Subscribed), "it ends with its session"
    assert isinstance(office.subscribe(4, "another", ADA), m.Subscribed), "others are not concerned"
    assert isinstance(office.subscribe(5, "job"), m.Subscribed), "it may catch up"
    office.look()
    assert isinstance(office.subscribe(6, "another"), m.Subscribed)


def test_making_its_own_anew_is_no_other_subscription() -> None:
    """What was there is gone before the new one is made: a refusal in between would lose it."""
    office = Office(limit("shop", "ada", on_pin=OnPin.REFUSE_NEW))
    office.subscribe_and_leave(1, "job")
    office.grow(3)
    office.look()
    anew = office.subscribe(2, "job", on_change=m.OnChange.JMS, selector="n > 1")
    assert isinstance(anew, m.Subscribed)


def test_what_another_one_has_made_is_not_made_anew_by_who_is_above() -> None:
    office = Office(limit("shop", on_pin=OnPin.REFUSE_NEW))
    office.subscribe_and_leave(1, "job")
    office.subscribe_and_leave(2, "of ada", replace(ADA, name="shop"))
    office.hosting.registry.find("shop", "of ada").principal = "ada"  # type: ignore[union-attr]
    office.grow(3)
    office.look()
    refused = office.subscribe(3, "of ada", on_change=m.OnChange.JMS, selector="n > 1")
    assert isinstance(refused, m.RequestFailed)
    assert office.hosting.registry.find("shop", "of ada") is not None


def test_only_an_alarm_where_the_limit_says_no_more() -> None:
    office = Office(limit("shop"))
    office.subscribe_and_leave(1, "job")
    office.grow(3)
    office.look()
    assert isinstance(office.subscribe(2, "another"), m.Subscribed)


def test_the_groups_are_those_with_which_it_was_created_also_after_a_crash() -> None:
    office = Office(limit("group:billing", most=150))
    office.subscribe_and_leave(1, "job", ADA)
    office.grow(2)
    office.crash()
    office.sync()
    for _ in range(3):
        office.see()
        office.deliver(office.knowledge(office.stable - STEP, office.stable, raw=True, reply=False))
        office.pause(300)
        office.sync()
        office.answer_wants()
    assert office.look() == {"ada": 2 * SIZE}
    assert [alarm.about for alarm in office.raised] == ["ada"]


def test_what_a_host_said_last_counts_while_it_is_silent() -> None:
    office = Office(limit("shop"))
    office.subscribe_and_leave(1, "job")
    office.grow(3)
    office.look()
    office.subscribe_and_leave(2, "job")  # it stands elsewhere, perhaps
    office.grow(2)
    for _ in range(2):
        office.beat()
        assert office.questions()
    assert office.held_back() == {"shop": 3 * SIZE}


def test_it_counts_once_more_where_somebody_has_only_looked_at_the_subscription() -> None:
    """He took his subscription for a moment while the host was away, and had nothing held back from then on."""
    office = Office(limit("shop", on_pin=OnPin.REFUSE_NEW))
    office.subscribe_and_leave(1, "job")
    office.grow(3)
    assert office.look() == {"shop": 300}
    office.subscribe(2, "job")
    office.beat()
    assert office.held_back() == {}

    office.leave(2)
    office.beat()
    office.beat()
    assert office.held_back() == {"shop": 300}
    assert [alarm.over for alarm in office.raised] == [False, True, False]
    assert isinstance(office.subscribe(3, "new"), m.RequestFailed)


def test_it_does_not_count_again_for_who_has_acknowledged_meanwhile() -> None:
    office = Office(limit("shop"))
    office.subscribe_and_leave(1, "job")
    office.grow(3)
    assert office.look() == {"shop": 300}
    answer = office.subscribe(2, "job")
    assert isinstance(answer, m.Subscribed)
    office.beat()
    tick = office.log[0][0]
    office.feed(m.Acknowledge(answer.sid, [m.Acknowledged(PUBEND, tick, tick)]), office.session(2))
    office.leave(2)
    office.beat()
    office.beat()

    assert office.held_back() == {"shop": 0}
    assert office.look() == {"shop": 200}


def test_what_is_kept_of_those_who_hold_nothing_back_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pinned, "LEFT_MAX", 1)
    office = Office(limit("*"))
    names = [Principal("one"), Principal("two")]
    for number, who in enumerate(names):
        office.subscribe_and_leave(1 + number, "job", who)
    office.grow(3)
    assert office.look() == {"one": 300, "two": 300}
    for number, who in enumerate(names):
        office.subscribe(3 + number, "job", who)
    office.beat()
    for number in range(len(names)):
        office.leave(3 + number)
    office.beat()
    office.beat()

    known = [size for size in office.held_back().values() if size]
    assert known == [300], "of the other one its log's host is asked again"


def test_only_the_host_of_a_log_is_believed() -> None:
    office = Office(limit("shop"))
    office.subscribe_and_leave(1, "job")
    office.grow(3)
    office.beat()
    assert office.say_sizes("stranger") == 1
    office.beat()
    assert office.held_back() == {"shop": 0}
    office.feed(r.Posted("node", "shb", encode(BytesAbove("unknown@1", (1,), (5,)))))
    office.feed(r.Posted("node", "shb", encode(BytesAbove(PUBEND, (), ()))))
    office.beat()
    assert office.held_back() == {"shop": 0}


def test_many_principals_are_asked_about_in_several_mails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pinned, "TICKS_MAX", 2)
    monkeypatch.setattr(pinned, "PORTION", 3)
    office = Office(limit("*"))
    for number in range(1, 6):
        office.subscribe_and_leave(number, "job", Principal(f"p{number}"))
        office.grow()
    office.beat()
    for _ in range(10):
        office.pause(1)
    questions = office.questions()
    assert [len(ticks) for _, _, ticks in questions] == [2, 2, 1]
    for _, pubend, ticks in questions:
        above = tuple(SIZE * sum(at > tick for at, *_ in office.log) for tick in ticks)
        office.feed(r.Posted("node", "shb", encode(BytesAbove(pubend, ticks, above))))
    for _ in range(10):
        office.pause(1)
    assert office.held_back() == {f"p{number}": (6 - number) * SIZE for number in range(1, 6)}


def test_a_listing_says_how_much_each_one_holds_back() -> None:
    office = Office(limit("shop"))
    office.subscribe_and_leave(1, "old")
    office.grow(2)
    office.subscribe_and_leave(2, "new")
    office.subscribe_and_leave(3, "of ada", ADA)
    assert isinstance(office.subscribe(4, "consumed"), m.Subscribed)
    office.grow()
    assert office.listing() == {"old": None, "new": None, "of ada": None, "consumed": None}, "it was not looked at yet"

    office.look()
    assert office.listing() == {"old": 3 * SIZE, "new": SIZE, "of ada": None, "consumed": None}
    office.subscribe_and_leave(5, "later")
    office.grow()
    assert office.listing() == {"old": 3 * SIZE, "new": SIZE, "later": None, "of ada": None, "consumed": None}
    office.look()
    assert office.listing() == {"old": 4 * SIZE, "new": 2 * SIZE, "later": SIZE, "of ada": None, "consumed": None}


def test_where_there_is_no_limit_a_listing_says_nothing_of_it() -> None:
    office = Office(Limit(("*",), subscriptions=5))
    office.subscribe_and_leave(1, "job")
    office.grow()
    office.look()
    assert office.listing() == {"job": None}


def test_a_listing_tells_what_a_host_has_said_last() -> None:
    office = Office(limit("shop"))
    office.subscribe_and_leave(1, "job")
    office.grow(3)
    office.look()
    office.grow(2)
    for _ in range(2):
        office.beat()
        assert office.questions(), "nobody answers"
        assert office.listing() == {"job": 3 * SIZE}
    office.feed(m.Unsubscribe(9, "job", "shop"), office.session(6))
    office.subscribe_and_leave(2, "another")
    office.beat()
    office.grow()
    assert office.listing() == {"another": None}


def test_of_very_many_positions_the_next_lower_one_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pinned, "POSITIONS_MAX", 4)
    office = Office(limit("shop"))
    for number in range(1, 6):
        office.subscribe_and_leave(number, f"job {number}")
        office.grow()
    office.beat()
    [(_, _, ticks)] = office.questions()
    assert len(ticks) == 3
    above = tuple(SIZE * sum(at > tick for at, *_ in office.log) for tick in ticks)
    office.feed(r.Posted("node", "shb", encode(BytesAbove(PUBEND, ticks, above))))
    office.pause(1)
    assert list(office.listing().values()) == [5 * SIZE, 5 * SIZE, 3 * SIZE, 3 * SIZE, SIZE]


def test_positions_are_thinned_to_a_bounded_number_with_the_first_and_the_last() -> None:
    positions = pinned.Positions()
    for tick in range(10_000):
        positions.add(tick)
        assert len(positions.ticks) <= pinned.POSITIONS_MAX
    assert pinned.POSITIONS_MAX % 2 == 0
    assert (min(positions.ticks), max(positions.ticks)) == (0, 9_999)


def test_outside_of_the_ticks_that_were_asked_about_nothing_is_known() -> None:
    sizes = pinned.Sizes({10: 300, 20: 100, 30: 50}, [20, 10])
    assert [sizes.above(tick) for tick in (9, 10, 19, 20, 21)] == [None, 300, 300, 100, None]
    assert pinned.Sizes({}, []).above(1) is None
