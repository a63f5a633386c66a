"""What an SHB itself asks the rules: about subscriptions that requests name by id, rows of lists, and guests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from gapless.core.ports import Action, ClientSession, Tell
from gapless.core.principals import Principal
from gapless.core.resources import Durable, Resource
from gapless.core.wire import messages as m
from gapless_shb.core.state.registry import Registry, SubscriptionRecord
from unit.gapless_shb.core.harness import PUBEND, World
from unit.gapless_shb.core.roaming.harness import Pair

ADA, BOB = Principal("ada"), Principal("bob")
TOPICS = ("flights.#", "trains")


class Rules:
    """Forbids what it is told to."""

    asks = True

    def __init__(self) -> None:
        self.forbidden: set[tuple[Principal, Action, Resource]] = set()
        self.asked: list[tuple[Principal, Action, Resource]] = []

    def refusal(self, principal: Principal, action: Action, resource: Resource) -> str:
        self.asked.append((principal, action, resource))
        return (
            f"{principal} may not {action.value} {resource}" if (principal, action, resource) in self.forbidden else ""
        )


class Office(World):
    """An SHB with rules, and a subscription of ada's client."""

    def __init__(self) -> None:
        super().__init__()
        self.rules = self.judge = Rules()
        self.sync()
        self.crash()  # so that it begins with these rules
        self.sync()
        self.see()
        self.sync()
        self.number = 10
        [self.attached] = self.ask(ADA, m.Attach(1, "late", TOPICS, "", m.StartAt.LATEST, 0, None, 0, 0, b""))
        assert isinstance(self.attached, m.AttachedTo)

    def client_gets(self, session: int, message: object) -> None:
        """They are looked at in `said`."""

    def ask(self, principal: Principal, message: Any, client_id: str = "desk") -> list[Any]:
        """A new session of a client asks; returns what it is told."""
        self.number += 1
        self.said.clear()
        self.feed(message, ClientSession(self.number, client_id, f"i{self.number}", principal))
        self.sync()
        self.answer_holds()
        self.sync()
        self.read()
        self.sync()
        told = [effect for effect in self.sent(Tell) if effect.session == self.number]
        return [effect.message for effect in told]

    def requests(self, target: m.Target) -> list[Any]:
        """One of each kind that names a subscription."""
        at = self.attached.positions
        return [
            m.AskHeads(2, target, at, 0),
            m.AskEarliest(3, target),
            m.AskBound(4, target, at, 10, None),
            m.ReadRange(5, target, PUBEND, at[0].tick, at[0].tick + 1, 10, 1000),
            m.AcknowledgeDurably(6, target, self.attached.seal, at),
            m.TakeLease(7, target, "me", m.InUse.ERROR),
        ]


def by_name() -> m.Target:
    return m.Target("late")


def by_id(office: Office, name: str = "") -> m.Target:
    return m.Target(name, office.attached.sid, office.attached.generation, office.attached.home)


def test_every_request_about_a_subscription_is_in_the_list() -> None:
    """So none is forgotten when one is added."""
    named = {kind for kind in m.ClientMessage.__subclasses__() if "target" in kind.__struct_fields__}
    office = Office()

    assert {type(request) for request in office.requests(by_name())} == named


@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize("named", ["by name", "by id", "by both", "by id and another name"])
@pytest.mark.parametrize("lacks", ["consume", "a topic"])
def test_who_names_a_subscription_needs_the_right_to_it_and_to_its_topics(number: int, named: str, lacks: str) -> None:
    """By its id it may be guessed, and a client id is whatever a client says."""
    office = Office()
    target = by_name() if named == "by name" else by_id(office)
    if named == "by both":
        target = by_id(office, "late")
    elif named not in {"by id", "by name"}:
        target = by_id(office, "one that bob has")
    request = office.requests(target)[number]
    need = (Action.CONSUME, Durable("desk", "late")) if lacks == "consume" else (Action.SUBSCRIBE, "trains")
    office.judge.forbidden.add((BOB, *need))

    reason = f"bob may not {need[0].value} {need[1]}"
    if lacks == "consume" and target.name != "late":  # it may have been guessed, and its name is not told
        reason = "principal 'bob' may not consume the subscription that it names by an id: no [[allow]] lets it"
    assert office.ask(BOB, request) == [m.RequestFailed(request.request, m.Code.FORBIDDEN, reason)]
    told = office.ask(ADA, request)
    assert not any(isinstance(message, m.RequestFailed) for message in told), told


@pytest.mark.parametrize("number", range(6))
def test_who_may_not_consume_is_not_told_whether_there_is_such_a_subscription(number: int) -> None:
    office = Office()
    reasons = []
    for name in ("late", "nowhere"):
        office.judge.forbidden.add((BOB, Action.CONSUME, Durable("desk", name)))
        [failed] = office.ask(BOB, office.requests(m.Target(name))[number])
        reasons.append((failed.code, failed.reason.replace(name, "…")))

    assert reasons[0] == reasons[1]


def test_a_subscription_keeps_who_created_it() -> None:
    office = Office()

    office.crash()
    office.sync()

    [record] = office.hosting.registry
    assert record.principal == "ada"


def test_a_list_leaves_out_what_one_may_not_know_of_and_counts_it() -> None:
    office = Office()
    for number in range(3):
        office.ask(BOB, m.Attach(1, f"b{number}", ("x",), "", m.StartAt.LATEST, 0, None, 0, 0, b""))
    for name in ("b0", "b2"):
        office.judge.forbidden.add((ADA, Action.OBSERVE, Durable("desk", name)))

    [listed] = office.ask(ADA, m.ListSubscriptions(9))
    [all_] = office.ask(BOB, m.ListSubscriptions(9))

    assert ([row.name for row in listed.rows], listed.hidden) == (["late", "b1"], 2)
    assert ([row.name for row in all_.rows], all_.hidden) == (["late", "b0", "b1", "b2"], 0)


def test_others_of_a_name_are_told_to_whoever_may_know_of_them() -> None:
    office = Office()
    office.judge.forbidden.add((BOB, Action.OBSERVE, Durable("desk", "late")))

    [hidden] = office.ask(BOB, m.Unsubscribe(8, "late", "bob"), "bob")
    [told] = office.ask(ADA, m.Unsubscribe(8, "late", "bob"), "bob")

    assert hidden.reason == "there is no subscription 'late' of client 'bob'"
    assert (
        told.reason
        == "there is no subscription 'late' of client 'bob'; there is one of client 'desk': give its client id"
    )


@pytest.mark.parametrize("need", [(Action.CONSUME, Durable("c", "s")), (Action.SUBSCRIBE, "#")])
def test_the_home_judges_a_guest_by_its_own_rules(need: tuple[Action, Resource]) -> None:
    """The SHB that serves it has let it pass."""
    pair = Pair()
    rules = pair.home.hosting.authorizer = Rules()
    rules.forbidden.add((BOB, *need))

    bob = replace(pair.session(), principal=BOB)
    request = pair.subscribe(pair.other, bob)
    pair.settle(1000)
    ada = replace(pair.session(), principal=ADA)
    pair.subscribe(pair.other, ada)
    pair.settle(1000)

    [failed] = pair.got(pair.other, bob, m.RequestFailed)
    assert failed == m.RequestFailed(request, m.Code.FORBIDDEN, f"bob may not {need[0].value} {need[1]}")
    assert len(pair.got(pair.other, ada, m.Subscribed)) == 1
    assert [record.principal for record in pair.home.hosting.registry] == ["ada"]


def test_the_home_judges_who_removes_a_guest_s_subscription() -> None:
    pair = Pair()
    guest = replace(pair.session(), principal=ADA)
    pair.subscribe(pair.other, guest)
    pair.settle(1000)
    rules = pair.home.hosting.authorizer = Rules()
    rules.forbidden.add((BOB, Action.MANAGE, Durable("c", "s")))

    bob = ClientSession(77, "another", "i", BOB)
    pair.other.feed(m.Unsubscribe(5, "s", "c"), bob)
    pair.settle(1000)

    assert pair.got(pair.other, bob, m.RequestFailed) == [
        m.RequestFailed(5, m.Code.FORBIDDEN, "bob may not manage 's' of client 'c'")
    ]
    assert len(pair.home.hosting.registry) == 1


def test_a_row_of_an_older_broker_does_not_say_who_created_it() -> None:
    record = SubscriptionRecord(1, "desk", "late", 1, ("t",), "", 0, 0, {}, principal="ada", groups=("ops",))
    fields = msgspec.msgpack.decode(msgspec.msgpack.encode(record))
    later = fields.pop(), fields.pop()
    assert later == (None, 0), "it is not shared, and asked for no time"
    assert (fields.pop(), fields.pop()) == (["ops"], "ada"), "they are the last ones but these"

    registry = Registry.recover(msgspec.msgpack.encode((1, 0)), iter([(b"", msgspec.msgpack.encode(fields))]))

    assert [each.principal for each in registry] == [""]
