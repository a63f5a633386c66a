"""What an SHB has given, when other rules count: who may not have it any more loses it, and nothing else changes."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace as changed

from gapless.core.alarms import Alarm, AlarmCode
from gapless.core.ports import Action, ClientSession, RulesReplaced, SessionEnded
from gapless.core.principals import Principal
from gapless.core.resources import Durable, Resource
from gapless.core.server.authority import Authority
from gapless.core.wire import messages as m
from gapless_shb.core.rights import PORTION
from gapless_shb.core.roaming import mail
from gapless_shb.core.state.refusals import RefusedError
from gapless_shb.core.state.subscription import Phase
from gapless_shb.core.subscriptions.waiting import Reason
from unit.gapless_shb.core.harness import PUBEND, World
from unit.gapless_shb.core.roaming.harness import Node, Pair, begins
from unit.gapless_shb.core.subscriptions.test_claims import Claiming, enlisted
from unit.gapless_shb.core.subscriptions.test_commits import at
from unit.gapless_shb.core.test_asking_rules import ADA, BOB, Rules

CONSUME_S = Action.CONSUME, Durable("c", "s")
SUBSCRIBE_ALL = Action.SUBSCRIBE, "#"
BEAT = 5_000
"""So often the broker looks what has become of subscriptions that were forbidden, in milliseconds."""


def governed(node: World) -> Authority:
    """Rules decide at this broker from now on, as they do in a node. They allow everything yet."""
    node.rules = node.hosting.authorizer = authority = Authority(Rules())
    return authority


def replaced(node: World, *forbidden: tuple[Principal, Action, Resource]) -> Rules:
    """Other rules count there from now on, which forbid this. Nothing is judged by them yet."""
    assert isinstance(node.rules, Authority)
    rules = Rules()
    rules.forbidden = set(forbidden)
    node.rules.replace(rules, [0])
    node.feed(RulesReplaced(node.rules.version))
    return rules


def judged(node: World, *forbidden: tuple[Principal, Action, Resource]) -> Rules:
    """The same, and all is judged."""
    rules = replaced(node, *forbidden)
    node.pause(0)
    assert node.rules_held[-1:] == [node.rules.version], "it was one portion"  # type: ignore[attr-defined]
    return rules


def forbidden_alarms(node: World) -> list[tuple[str, bool]]:
    """What the operator was told of subscriptions without their consumers."""
    alarms = [alarm for alarm in node.sent(Alarm) if alarm.code is AlarmCode.SUBSCRIPTION_FORBIDDEN]
    return [(alarm.text, alarm.over) for alarm in alarms]


class Office(World):
    """An SHB with rules, and sessions of ada and bob."""

    def __init__(self) -> None:
        self.heard: dict[int, list[Any]] = {}
        super().__init__()
        self.authority = governed(self)
        self.sync()

    def client_gets(self, session: int, message: object) -> None:
        self.heard.setdefault(session, []).append(message)

    def session(self, principal: Principal) -> ClientSession:
        self.sessions += 1
        return ClientSession(self.sessions, "c", f"i{self.sessions}", principal)

    def ask(self, session: ClientSession, name: str | None = "s", **more: Any) -> None:
        """A client asks for a subscription."""
        request = m.Subscribe(1, name, ("#",), "", m.StartAt.LATEST, 0, None, 0, 0, b"", [], m.InUse.ERROR, 5, 1 << 20)
        self.feed(changed(request, **more), session)

    def come(self, principal: Principal, name: str | None = "s", **more: Any) -> ClientSession:
        """A client asks in a session of its own, and it is served."""
        session = self.session(principal)
        self.ask(session, name, **more)
        self.sync()
        assert isinstance(self.answer_to(session), m.Subscribed), self.heard[session.number]
        return session

    def answer_to(self, session: ClientSession) -> Any:
        """What a session was answered last to a request for a subscription."""
        heard = self.heard.get(session.number, [])
        answers = [each for each in heard if isinstance(each, m.Subscribed | m.RequestFailed)]
        return answers[-1] if answers else None

    def losses(self, session: ClientSession) -> list[m.Detached]:
        """What it was told that it has lost."""
        return [each for each in self.heard.get(session.number, []) if isinstance(each, m.Detached)]

    def happens(self, count: int = 1) -> list[int]:
        """So many events; returns their ticks."""
        ticks = []
        for _ in range(count):
            self.publish()
            ticks.append(self.stable)
        self.see()
        self.deliver(self.knowledge(self.stable - 1, self.stable, raw=True, reply=False))
        self.answer_wants()
        return ticks

    def ticks(self, session: ClientSession) -> list[int]:
        """The events that it got."""
        heard = self.heard.get(session.number, [])
        return [tick for each in heard if isinstance(each, m.Deliver) for tick in each.columns.ticks()]

    def crowd(self, names: Iterable[str | None]) -> list[ClientSession]:
        """Consumers of ada; each comes in a turn of its own, for one turn has not room for all."""
        sessions = []
        for name in names:
            self.pause(1)
            sessions.append(self.come(ADA, name))
        return sessions

    def phase(self) -> Phase:
        """What the only subscription is doing."""
        [subscription] = self.hosting.registry
        return self.hosting.registry.phase(subscription.sid)


@pytest.fixture
def office() -> Office:
    return Office()


# ------------------------------------------------------------------------------------------- what goes on here


def test_of_those_who_share_a_subscription_each_is_judged_by_himself(office: Office) -> None:
    sharing = m.Sharing(100, durable=True)
    ada, bob = (office.come(who, sharing=sharing) for who in (ADA, BOB))
    sid = office.answer_to(ada).sid

    judged(office, (ADA, *CONSUME_S))
    office.happens()
    office.sync()

    assert office.losses(ada) == [m.Detached(sid, m.Code.FORBIDDEN, "ada may not consume 's' of client 'c'")]
    assert office.losses(bob) == []
    assert not [each for each in office.heard[ada.number] if isinstance(each, m.DeliverHeld)]
    assert [each for each in office.heard[bob.number] if isinstance(each, m.DeliverHeld)]


@pytest.mark.parametrize(("need", "what"), [(CONSUME_S, "consume 's' of client 'c'"), (SUBSCRIBE_ALL, "subscribe #")])
def test_who_may_not_consume_any_more_loses_the_subscription_with_an_error(
    office: Office, need: tuple[Action, Resource], what: str
) -> None:
    ada = office.come(ADA)
    sid = office.answer_to(ada).sid

    judged(office, (ADA, *need))
    office.happens()

    assert office.losses(ada) == [m.Detached(sid, m.Code.FORBIDDEN, f"ada may not {what}")]
    assert office.ticks(ada) == []
    assert (office.phase(), office.hosting.consumers) == (Phase.FREE, {})
    assert office.ended == [], "the session may have other consumers"
    office.feed(m.Credit(sid, 5, 0), ada)
    office.feed(m.Detach(sid), ada)
    assert len(office.losses(ada)) == 1


def test_a_loss_leaves_nothing_for_the_collector_of_cycles(office: Office) -> None:
    """A hundred thousand may lose something at once."""
    ada, bob = office.come(ADA), office.come(BOB, "b")
    gc.collect()
    gc.disable()
    try:
        judged(office, (ADA, *CONSUME_S), (BOB, Action.CONSUME, Durable("c", "b")))
        left = [each for each in gc.get_objects() if isinstance(each, RefusedError)]
    finally:
        gc.enable()

    assert [len(office.losses(session)) for session in (ada, bob)] == [1, 1]
    assert left == []


def test_who_still_may_goes_on_and_keeps_its_credit(office: Office) -> None:
    ada, bob = office.come(ADA, "a"), office.come(BOB, "b")
    before = office.happens(2)

    judged(office, (BOB, Action.CONSUME, Durable("c", "b")), (ADA, Action.CONSUME, Durable("c", "b")))
    after = office.happens(5)

    assert [len(office.losses(session)) for session in (ada, bob)] == [0, 1]
    assert office.ticks(ada) == [*before, *after[:3]], "five in all, as it has granted"
    assert office.ticks(bob) == before


def test_it_holds_although_there_is_nothing_to_judge_and_says_so_once(office: Office) -> None:
    judged(office)
    office.pause(BEAT)

    assert office.rules_held == [2]


def test_a_subscription_without_a_name_is_gone_with_its_consumer(office: Office) -> None:
    """It lives as long as it is consumed, and only what it subscribes to can be forbidden."""
    ada = office.come(ADA, None)
    bob = office.come(BOB, None)

    judged(office, (ADA, *SUBSCRIBE_ALL), (BOB, Action.CONSUME, Durable("c", "")))
    office.sync()

    assert [detached.code for detached in office.losses(ada)] == [m.Code.FORBIDDEN]
    assert [each.sid for each in office.hosting.registry] == [office.answer_to(bob).sid]
    assert list(office.filters) == [office.answer_to(bob).sid], "nobody is to send what it wanted"
    assert forbidden_alarms(office) == []


def test_a_subscription_stays_where_it_stands_and_goes_on_there_when_it_is_allowed_again(office: Office) -> None:
    ada = office.come(ADA)
    first, second = office.happens(2)
    office.feed(m.Acknowledge(office.answer_to(ada).sid, [m.Acknowledged(PUBEND, first, first)]), ada)
    judged(office, (ADA, *CONSUME_S))
    office.pause(1)  # what it was done with becomes durable at once
    office.sync()
    missed = office.happens(2)
    office.crash()
    office.sync()
    office.see()

    refused = office.session(ADA)
    office.ask(refused)
    judged(office)
    again = office.come(ADA)
    office.read()
    office.answer_wants()

    assert office.answer_to(refused) == m.RequestFailed(1, m.Code.FORBIDDEN, "ada may not consume 's' of client 'c'")
    assert at(office.answer_to(again)) == first
    assert office.ticks(again) == [second, *missed]


def test_who_has_gone_meanwhile_and_who_has_come_in_its_place_are_none_of_it(office: Office) -> None:
    """Whoever comes is judged by the rules that count then."""
    ada = office.come(ADA)
    rules = replaced(office, (ADA, *CONSUME_S))
    office.feed(SessionEnded(ada))
    bob = office.come(BOB)
    office.pause(0)

    assert (office.losses(ada), office.losses(bob)) == ([], [])
    assert office.rules_held == [2]
    assert {who for who, *_ in rules.asked} == {BOB}


def test_rules_that_ask_nothing_let_everything_go_on(office: Office) -> None:
    office.come(ADA)
    rules = replaced(office, (ADA, *CONSUME_S))
    office.authority.asks = False
    office.pause(0)

    assert (office.phase(), office.rules_held, rules.asked) == (Phase.CONSUMED, [2], [])


# ------------------------------------------------------------------------------------------------ by ranges


def attach(office: Office, principal: Principal = ADA) -> tuple[ClientSession, m.AttachedTo]:
    """A subscription that is read by ranges."""
    session = office.session(principal)
    office.feed(m.Attach(1, "s", ("#",), "", m.StartAt.LATEST, 0, None, 0, 0, b""), session)
    office.sync()
    [attached] = office.heard[session.number]
    assert isinstance(attached, m.AttachedTo)
    return session, attached


def lease(office: Office, session: ClientSession, in_use: m.InUse = m.InUse.ERROR, number: int = 7) -> None:
    who = str(session.principal)
    office.feed(m.TakeLease(number, m.Target("s"), f"of {who}", in_use, process=f"process of {who}"), session)


def read_on(office: Office, session: ClientSession, start: int) -> None:
    """It reads a range of the subscription that goes on: its end is not known yet."""
    office.feed(m.ReadRange(5, m.Target("s"), PUBEND, start, start + 1000, 2, 1 << 20), session)


def test_who_may_not_have_a_lease_any_more_loses_it(office: Office) -> None:
    ada, _ = attach(office)
    lease(office, ada)
    assert office.phase() is Phase.LOCKED

    judged(office, (ADA, *SUBSCRIBE_ALL))

    assert office.heard[ada.number][-1] == m.LeaseLost(7, m.Code.FORBIDDEN, "ada may not subscribe #")
    assert office.phase() is Phase.FREE
    assert [over for _, over in forbidden_alarms(office)] == [False]
    lease(office, office.session(BOB))
    assert office.phase() is Phase.LOCKED


def test_a_lease_that_is_allowed_stays_and_one_that_has_ended_is_not_judged(office: Office) -> None:
    ada, _ = attach(office)
    lease(office, ada)
    judged(office, (BOB, *CONSUME_S))
    assert office.phase() is Phase.LOCKED

    replaced(office, (ADA, *CONSUME_S))
    office.feed(m.EndLease(7), ada)
    office.pause(0)

    assert not any(isinstance(each, m.LeaseLost) for each in office.heard[ada.number])
    assert office.rules_held == [2, 3]


def test_a_read_that_is_under_way_ends_with_an_error_and_gives_nothing_more(office: Office) -> None:
    ada, attached = attach(office)
    bob = office.session(BOB)
    [start] = [position.tick for position in attached.positions]
    ticks = office.happens(4)
    for session in (ada, bob):
        office.feed(m.ReadRange(5, m.Target("s"), PUBEND, start, ticks[-1], 2, 1 << 20), session)
    office.read()

    judged(office, (ADA, *CONSUME_S))
    for session in (ada, bob):
        office.feed(m.ReadOn(5, 10, 1 << 20), session)
    office.read()

    told = [[type(each) for each in office.heard[session.number]] for session in (ada, bob)]
    assert told == [
        [m.AttachedTo, m.RangeEvents, m.RequestFailed],
        [m.RangeEvents, m.RangeEvents, m.RangeRead],
    ]
    failed = m.RequestFailed(5, m.Code.FORBIDDEN, "ada may not consume 's' of client 'c'")
    assert office.heard[ada.number][-1] == failed


def test_a_read_that_has_ended_is_not_judged(office: Office) -> None:
    ada, attached = attach(office)
    [start] = [position.tick for position in attached.positions]
    read_on(office, ada, start)
    replaced(office, (ADA, *CONSUME_S))
    office.feed(m.EndRead(5), ada)
    office.pause(0)

    assert [type(each) for each in office.heard[ada.number]] == [m.AttachedTo]
    assert office.rules_held == [2]


def test_the_audit_is_told_of_each_right_that_was_lost(office: Office) -> None:
    office.audited = True
    office.crash()
    office.sync()
    office.see()
    ada, bob = office.come(ADA), office.come(BOB, None)
    reader = office.session(ADA)
    read_on(office, reader, at(office.answer_to(ada)))
    office.audit.clear()
    judged(office, (ADA, *CONSUME_S), (BOB, *SUBSCRIBE_ALL))

    lines = [(line.principal, line.session, line.client_id, line.action, line.name) for line in office.audit]
    assert lines == [
        (ADA, ada.number, "c", "consume", "s"),
        (BOB, bob.number, "c", "subscribe", ""),
        (ADA, reader.number, "c", "consume", "s"),
    ]
    assert {(line.kind, line.outcome) for line in office.audit} == {("rules", "refused")}
    assert office.audit[0].reason == "ada may not consume 's' of client 'c'"


# ----------------------------------------------------------------------------------------------- who waits


def test_who_waits_for_a_subscription_is_judged_when_it_is_free(office: Office) -> None:
    ada = office.come(ADA)
    waiting = [office.session(principal) for principal in (BOB, ADA)]
    for session in waiting:
        office.ask(session, in_use=m.InUse.WAIT)

    judged(office, (BOB, *CONSUME_S))
    assert [office.answer_to(session) for session in waiting] == [None, None]
    office.feed(SessionEnded(ada))
    office.sync()

    refused, attached = map(office.answer_to, waiting)
    assert refused == m.RequestFailed(1, m.Code.FORBIDDEN, "bob may not consume 's' of client 'c'")
    assert isinstance(attached, m.Subscribed)


def test_who_waited_gets_what_the_rules_have_taken_from_somebody_else(office: Office) -> None:
    ada = office.come(ADA)
    bob = office.session(BOB)
    office.ask(bob, in_use=m.InUse.WAIT)

    judged(office, (ADA, *CONSUME_S))
    office.sync()

    assert len(office.losses(ada)) == 1
    assert isinstance(office.answer_to(bob), m.Subscribed)


def test_who_waits_for_a_lease_is_judged_when_its_turn_comes(office: Office) -> None:
    ada, _ = attach(office)
    lease(office, ada)
    bob = office.session(BOB)
    lease(office, bob, m.InUse.WAIT)

    judged(office, (BOB, *CONSUME_S))
    assert office.heard.get(bob.number) is None
    office.feed(m.EndLease(7), ada)

    assert office.heard[bob.number] == [m.RequestFailed(7, m.Code.FORBIDDEN, "bob may not consume 's' of client 'c'")]
    assert office.phase() is Phase.FREE


def test_who_was_asked_whether_it_still_wants_to_take_it_over_takes_it_from_nobody(office: Office) -> None:
    ada = office.come(ADA, process="one")
    bob = office.session(BOB)
    office.ask(bob, in_use=m.InUse.TAKEOVER, process="two")
    confirm = office.answer_to(bob).confirm
    assert confirm

    judged(office, (BOB, *CONSUME_S))
    office.ask(bob, in_use=m.InUse.TAKEOVER, process="two", confirms=confirm)

    assert office.answer_to(bob).code is m.Code.FORBIDDEN
    assert (office.losses(ada), office.phase()) == ([], Phase.CONSUMED)


@pytest.mark.parametrize("name", ["s", None])
def test_who_waits_for_a_creation_is_judged_when_that_is_complete(office: Office, name: str | None) -> None:
    """What has a name is there then, and somebody else may have it."""
    ada = office.session(ADA)
    office.ask(ada, name)
    assert office.reasons == [Reason.PREPARING]
    judged(office, (ADA, *SUBSCRIBE_ALL))
    assert office.answer_to(ada) is None

    office.sync()

    assert office.answer_to(ada) == m.RequestFailed(1, m.Code.FORBIDDEN, "ada may not subscribe #")
    assert (office.hosting.consumers, office.reasons) == ({}, [])
    assert [each.name for each in office.hosting.registry] == ([name] if name else [])
    if name:  # so the operator is told that nobody has it
        office.pause(BEAT)
        assert [over for _, over in forbidden_alarms(office)] == [False]
        office.come(BOB)
        office.pause(BEAT)
    assert [over for _, over in forbidden_alarms(office)] == [False, True] * bool(name)


def test_who_waits_for_another_filter_is_judged_when_that_is_durable(office: Office) -> None:
    office.feed(SessionEnded(office.come(ADA)))
    bob = office.session(BOB)
    office.ask(bob, selector="w = 1", on_change=m.OnChange.KEEP_POSITION)
    assert office.phase() is Phase.CHANGING

    judged(office, (BOB, *CONSUME_S))
    office.sync()

    assert office.answer_to(bob).code is m.Code.FORBIDDEN
    assert office.phase() is Phase.FREE


def bobs(world: Claiming) -> ClientSession:
    return replace(world.session("b"), principal=BOB)


def test_who_is_being_attached_is_judged_before_that_is_answered() -> None:
    """Its commit record is on its way to the disk: nobody knows yet that it has the subscription."""
    world = Claiming()
    governed(world)
    first = world.session("a")
    world.come(first)
    world.feed(SessionEnded(first))
    bob = bobs(world)
    world.ask(bob)
    assert world.reasons == [Reason.RECORD]

    judged(world, (BOB, *CONSUME_S))
    assert world.heard.get(bob.number) is None
    assert world.rules_held == [2], "nothing that is forbidden goes on: it was given nothing"
    world.sync()

    assert world.heard[bob.number] == [m.RequestFailed(1, m.Code.FORBIDDEN, "bob may not consume 's' of client 'c'")]
    assert (world.hosting.consumers, world.reasons) == ({}, [])


def test_who_waits_for_what_transactions_have_stored_is_judged_when_that_is_known() -> None:
    world = Claiming()
    governed(world)
    session, _ = enlisted(world)
    world.feed(SessionEnded(session))
    bob = bobs(world)
    world.ask(bob)
    world.sync()
    world.sync()
    assert world.reasons == [Reason.CLAIM]

    judged(world, (BOB, *CONSUME_S))
    assert world.answer_to(bob) is None
    world.answer_claims()

    assert world.answer_to(bob).code is m.Code.FORBIDDEN
    assert (world.hosting.consumers, world.reasons) == ({}, [])


# ------------------------------------------------------------------------------------------------- portions


def test_many_are_judged_in_portions_and_it_holds_after_the_last(office: Office) -> None:
    sessions = office.crowd([None] * (2 * PORTION + 1))
    rules = replaced(office, (ADA, *SUBSCRIBE_ALL))
    assert rules.asked == [], "the turn in which they were replaced has enough to do"

    lost = []
    for _ in range(4):
        office.pause(0)
        lost.append((sum(len(office.losses(session)) for session in sessions), list(office.rules_held)))

    assert lost == [(PORTION, []), (2 * PORTION, []), (2 * PORTION + 1, [2]), (2 * PORTION + 1, [2])]


def test_other_rules_in_the_middle_begin_anew_and_only_they_hold(office: Office) -> None:
    """Who was judged by the ones before may have what these forbid."""
    sessions = office.crowd(f"s{number}" for number in range(PORTION + 1))
    replaced(office)
    office.pause(0)
    assert office.rules_held == []

    first = ADA, Action.CONSUME, Durable("c", "s0")
    rules = replaced(office, first)
    office.pause(0)
    assert office.rules_held == []
    office.pause(0)

    assert office.rules_held == [3]
    assert len(rules.asked) == 2 * (PORTION + 1) - 1, "each once about its name and its topic, but for the first"
    assert [len(office.losses(session)) for session in sessions] == [1] + [0] * PORTION


# ------------------------------------------------------------------------------------------------ the alarm


def test_the_operator_is_told_what_is_left_without_its_consumer_and_when_that_is_over(office: Office) -> None:
    names = [f"s{number}" for number in range(5)]
    for name in names:
        office.come(ADA, name)
    forbidden = [(ADA, Action.CONSUME, Durable("c", name)) for name in names]
    judged(office, *forbidden)

    def told(first: str, second: str, third: str, more: str = "") -> list[tuple[str, bool]]:
        named = ", ".join(f"'{name}' of client 'c'" for name in (first, second, third))
        kept = "they keep their positions"
        return [(f"the rules do not let be consumed any more: {named}{more}; {kept}", False)]

    assert forbidden_alarms(office) == told("s0", "s1", "s2", " and 2 more")
    office.said.clear()
    office.pause(BEAT)
    assert forbidden_alarms(office) == [], "nothing has changed"
    office.come(BOB, "s1")
    office.feed(m.Unsubscribe(8, "s3", "c"), office.session(BOB))
    office.pause(BEAT)
    assert forbidden_alarms(office) == told("s0", "s2", "s4")
    office.said.clear()
    for name in ("s0", "s2", "s4"):
        office.come(BOB, name)
    office.pause(BEAT)

    over = "no subscription is without its consumer any more because the rules forbid it"
    assert forbidden_alarms(office) == [(over, True)]
    office.pause(BEAT)
    assert len(forbidden_alarms(office)) == 1


def test_the_alarm_names_what_earlier_rules_have_taken_as_well(office: Office) -> None:
    for name in ("a", "b"):
        office.come(ADA, name)
    judged(office, (ADA, Action.CONSUME, Durable("c", "a")))
    judged(office, (ADA, Action.CONSUME, Durable("c", "b")))

    first, second = "'a' of client 'c'", "'b' of client 'c'"
    named = [text.partition(": ")[2].partition(";")[0] for text, _ in forbidden_alarms(office)]
    assert named == [first, f"{first}, {second}"]


# ---------------------------------------------------------------------------------------- consumers elsewhere


@pytest.fixture
def pair() -> Pair:
    pair = Pair()
    for node in (pair.home, pair.other):
        governed(node)
    return pair


def come(pair: Pair, node: Node, principal: Principal = BOB, wait: int = 1000, **how: Any) -> ClientSession:
    """A session of the principal asks at a broker for the subscription."""
    session = replace(pair.session(how.pop("instance", "i")), principal=principal)
    pair.subscribe(node, session, **how)
    pair.settle(wait)
    return session


def test_the_home_ends_what_it_has_given_to_a_guest(pair: Pair) -> None:
    """The SHB that serves it may have other rules, and ends its consumer all the same."""
    guest = come(pair, pair.other)
    sid = pair.attached(pair.other, guest).sid

    judged(pair.home, (BOB, *CONSUME_S))
    assert pair.home.hosting.consumers == {}
    pair.settle(1000)

    reason = "bob may not consume 's' of client 'c'"
    assert pair.got(pair.other, guest, m.Detached) == [m.Detached(sid, m.Code.FORBIDDEN, reason)]
    assert pair.other.hosting.consumers == {}
    assert len(pair.other.hosting.registry) == 0, "nothing of it is kept there"
    assert [[over for _, over in forbidden_alarms(node)] for node in (pair.home, pair.other)] == [[False], []]
    pair.attached(pair.home, come(pair, pair.home, ADA))


@pytest.mark.parametrize("need", [CONSUME_S, SUBSCRIBE_ALL])
def test_the_shb_that_serves_a_guest_ends_it_by_its_own_rules(pair: Pair, need: tuple[Action, Resource]) -> None:
    guest = come(pair, pair.other)
    events = pair.publish(2)
    pair.acknowledge(pair.other, guest, events[0])

    judged(pair.other, (BOB, *need))
    pair.settle(1000)

    [detached] = pair.got(pair.other, guest, m.Detached)
    assert isinstance(detached, m.Detached)
    assert detached.code is m.Code.FORBIDDEN
    assert pair.home.hosting.consumers == {}, "it was given back"
    other = come(pair, pair.home, ADA)
    pair.settle(1000)
    assert begins(pair.attached(pair.home, other)) == events[0], "with what it was done with"


def test_a_guest_that_still_may_goes_on_at_both(pair: Pair) -> None:
    guest = come(pair, pair.other)
    for node in (pair.home, pair.other):
        judged(node, (ADA, *CONSUME_S))

    events = pair.publish(2)
    pair.settle(7000)

    assert pair.ticks(pair.other, guest) == events
    assert not pair.got(pair.other, guest, m.Detached)


@pytest.mark.parametrize("at_home", [True, False])
def test_who_has_asked_a_home_is_judged_when_it_has_answered(pair: Pair, at_home: bool) -> None:
    """By the rules of the home when the question comes, and by those of its own SHB when the answer does."""
    bob = come(pair, pair.other, wait=0) if not at_home else None
    pair.leave(pair.other, bob) if bob else None
    pair.settle(1000)
    bob = replace(pair.session("b"), principal=BOB)
    pair.subscribe(pair.other, bob)
    assert pair.other.reasons == [Reason.HOME]
    judged(pair.home if at_home else pair.other, (BOB, *CONSUME_S))
    assert pair.answer(pair.other, bob) is None
    pair.settle(1000)

    refused = pair.refused(pair.other, bob)
    assert (refused.code, refused.reason) == (m.Code.FORBIDDEN, "bob may not consume 's' of client 'c'")
    assert (pair.home.hosting.consumers, pair.other.hosting.consumers) == ({}, {})
    assert len(pair.other.hosting.registry) == 0
    assert len(pair.home.hosting.registry) == int(not at_home), "created, and given back"


def test_a_question_that_waits_at_the_home_takes_the_subscription_from_nobody(pair: Pair) -> None:
    ada = come(pair, pair.home, ADA)
    bob = come(pair, pair.other, in_use=m.InUse.WAIT, instance="b")
    assert pair.answer(pair.other, bob) is None

    judged(pair.home, (BOB, *CONSUME_S))
    pair.leave(pair.home, ada)
    pair.settle(1000)

    assert pair.refused(pair.other, bob).code is m.Code.FORBIDDEN
    assert pair.home.hosting.consumers == {}


# -------------------------------------------------------------------------------- a home that has begun anew


def begins_anew(pair: Pair, *forbidden: tuple[Principal, Action, Resource], older: bool = False) -> None:
    """The home restarts with other rules, and hears the renewals of its guests; `older`: without their principals."""
    assert isinstance(pair.home.rules, Authority)
    rules = Rules()
    rules.forbidden = set(forbidden)
    pair.home.rules.replace(rules, ())
    pair.home.crash()
    pair.home.sync()
    for _ in range(28):
        pair.other.pause(250)
        pair.other.sync()
        if older:
            pair.posted[:] = [(source, target, of_older(data)) for source, target, data in pair.posted]
        pair.exchange()


def of_older(data: bytes) -> bytes:
    """Mail as an SHB sends it that says nothing of principals in renewals."""
    renew = mail.decode(data)
    if not isinstance(renew, mail.Renew):
        return data
    fields = msgspec.msgpack.decode(data)
    assert fields[-1] == "bob", "it is the last one"
    return msgspec.msgpack.encode(fields[:-1])


@pytest.mark.parametrize("who", [BOB, Principal("bob", frozenset({"g"}))], ids=["name", "group"])
def test_a_home_that_begins_anew_takes_a_guest_back_as_the_principal_that_it_is(pair: Pair, who: Principal) -> None:
    """And judges it as that when other rules count; the row says who has created the subscription."""
    pair.leave(pair.home, come(pair, pair.home, ADA))
    pair.settle(1000)
    guest = come(pair, pair.other, who)
    pair.attached(pair.other, guest)

    begins_anew(pair, (ADA, *CONSUME_S))
    assert [consumer.principal for consumer in pair.home.hosting.consumers.values()] == [who]
    judged(pair.home, (who, *CONSUME_S))
    pair.settle(1000)

    [detached] = pair.got(pair.other, guest, m.Detached)
    assert isinstance(detached, m.Detached)
    assert detached.code is m.Code.FORBIDDEN


@pytest.mark.parametrize("who", [BOB, Principal("bob", frozenset({"g"}))], ids=["name", "group"])
def test_a_home_that_begins_anew_does_not_take_back_who_is_forbidden_there(pair: Pair, who: Principal) -> None:
    guest = come(pair, pair.other, who)
    sid = pair.attached(pair.other, guest).sid

    begins_anew(pair, (who, *CONSUME_S))

    reason = "bob may not consume 's' of client 'c'"
    assert pair.got(pair.other, guest, m.Detached) == [m.Detached(sid, m.Code.FORBIDDEN, reason)]
    assert (pair.home.hosting.consumers, pair.other.hosting.consumers) == ({}, {})
    assert len(pair.home.hosting.registry) == 1


@pytest.mark.parametrize("forbidden", [ADA, BOB])
def test_a_guest_of_an_older_shb_is_taken_back_as_whoever_has_created_the_subscription(
    pair: Pair, forbidden: Principal
) -> None:
    pair.leave(pair.home, come(pair, pair.home, ADA))
    pair.settle(1000)
    guest = come(pair, pair.other)
    pair.attached(pair.other, guest)

    begins_anew(pair, (forbidden, *CONSUME_S), older=True)

    assert bool(pair.got(pair.other, guest, m.Detached)) is (forbidden is ADA)
    assert [each.principal for each in pair.home.hosting.consumers.values()] == [ADA] * (forbidden is BOB)


def test_what_a_forbidden_guest_was_done_with_counts_when_it_leaves(pair: Pair) -> None:
    """It was allowed when it was done, and asks for nothing any more."""
    guest = come(pair, pair.other)
    [event] = pair.publish(1)
    pair.cut = True
    pair.acknowledge(pair.other, guest, event)
    pair.leave(pair.other, guest)
    pair.settle(500)
    pair.cut = False

    begins_anew(pair, (BOB, *CONSUME_S))

    [stream] = pair.home.hosting.streams.values()
    [position] = stream.positions.values()
    assert position.acked == event
    assert pair.home.hosting.consumers == {}
