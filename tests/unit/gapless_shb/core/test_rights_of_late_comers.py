"""Whoever waits, or comes late, is judged when his turn comes; and what ends in the turn in which it is judged."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gapless.core.network.facts import Held, Hold
from gapless.core.ports import Action, SessionEnded
from gapless.core.principals import Principal
from gapless.core.resources import Durable
from gapless.core.stream.ticks import SECOND, STEP
from gapless.core.wire import messages as m
from gapless.core.wire.messages.users import NOBODY_IN_PARTICULAR
from gapless_shb.core.subscriptions.waiting import Reason
from unit.gapless_shb.core.harness import BASE, PUBEND
from unit.gapless_shb.core.ranges.test_acknowledging import attached as attached_to
from unit.gapless_shb.core.roaming.harness import Pair, Token, begins
from unit.gapless_shb.core.subscriptions.test_claims import Claiming, enlisted
from unit.gapless_shb.core.test_asking_rules import ADA, BOB
from unit.gapless_shb.core.test_rights import (
    BEAT,
    CONSUME_S,
    SUBSCRIBE_ALL,
    Office,
    attach,
    begins_anew,
    come,
    forbidden_alarms,
    governed,
    judged,
    lease,
    office,
    pair,
    replaced,
)

__all__ = ["office", "pair"]


def test_a_forbidden_guest_takes_it_from_nobody(pair: Pair) -> None:
    """A guest that attached while its home was silent, with in_use=takeover, and that the home forbids."""
    first = come(pair, pair.other, BOB)
    answer = pair.attached(pair.other, first)
    pair.leave(pair.other, first)
    pair.settle(1000)
    pair.cut = True
    token = Token(answer, begins(answer))
    guest = come(pair, pair.other, BOB, 5000, instance="b", token=token, in_use=m.InUse.TAKEOVER)
    pair.attached(pair.other, guest)
    ada = come(pair, pair.home, ADA, 500, instance="a")
    pair.attached(pair.home, ada)
    judged(pair.home, (BOB, *CONSUME_S))
    pair.cut = False
    pair.settle(8000)

    assert [getattr(each, "code", None) for each in pair.got(pair.other, guest, m.Detached)] == [m.Code.FORBIDDEN]
    assert pair.got(pair.home, ada, m.Detached) == [], "it takes the subscription from nobody"
    assert len(pair.home.hosting.consumers) == 1


def test_a_creation_that_waited_for_a_position_is_judged_before_it_begins(office: Office) -> None:
    """Otherwise a durable subscription is made for somebody who may not have it, and holds events back."""
    far = BASE + 3600 * SECOND + 5 * STEP
    ada = office.session(ADA)
    office.ask(ada, "new", start=m.StartAt.TOKEN, positions=[m.Position(PUBEND, far)])
    assert office.reasons == [Reason.POSITION]
    office.sync()
    version = [effect for effect in office.said if isinstance(effect, Hold)][-1].version
    judged(office, (ADA, Action.CONSUME, Durable("c", "new")))
    office.held_answers.clear()
    office.feed(Held(office.shb, PUBEND, version, {}, far))
    office.sync()
    office.answer_holds()
    office.sync()

    assert office.answer_to(ada).code is m.Code.FORBIDDEN
    assert len(office.hosting.registry) == 0, "nothing was created"


def test_an_attach_that_waits_is_judged_when_its_turn_comes() -> None:
    world = Claiming()
    governed(world)
    session, _ = enlisted(world)
    world.feed(SessionEnded(session))
    reader = replace(world.session("b"), principal=BOB)
    world.feed(m.Attach(1, "s", ("#",), "", m.StartAt.LATEST, 0, None, 0, 0, b""), reader)
    world.sync()
    world.sync()
    assert world.reasons == [Reason.CLAIM]
    judged(world, (BOB, *CONSUME_S))
    world.answer_claims()

    assert [type(message) for message in world.heard[reader.number]] == [m.RequestFailed]


def test_an_attach_that_waits_for_its_creation_is_judged(office: Office) -> None:
    reader = office.session(BOB)
    office.feed(m.Attach(1, "s", ("#",), "", m.StartAt.LATEST, 0, None, 0, 0, b""), reader)
    assert office.reasons == [Reason.PREPARING]
    judged(office, (BOB, *CONSUME_S))
    office.sync()

    assert [type(message) for message in office.heard[reader.number]] == [m.RequestFailed]
    office.pause(BEAT)
    ((told, _),) = forbidden_alarms(office)
    assert "'s' of client 'c'; they keep" in told


@pytest.mark.parametrize("on_change", [m.OnChange.KEEP_POSITION, m.OnChange.JMS])
def test_who_gives_it_other_topics_needs_no_right_to_those_that_it_had(office: Office, on_change: m.OnChange) -> None:
    """A subscription that the rules have taken from its consumer can be made narrower."""
    come_and_go(office)
    judged(office, (ADA, *SUBSCRIBE_ALL))
    ada = office.session(ADA)
    office.ask(ada, topics=("flights",), on_change=on_change)
    office.sync()

    assert isinstance(office.answer_to(ada), m.Subscribed)
    assert [each.topics for each in office.hosting.registry] == [("flights",)]


@pytest.mark.parametrize("on_change", list(m.OnChange))
def test_who_may_not_have_what_it_asks_for_gives_it_no_other_topics(office: Office, on_change: m.OnChange) -> None:
    come_and_go(office)
    judged(office, (ADA, Action.SUBSCRIBE, "flights"), (ADA, *SUBSCRIBE_ALL))
    ada = office.session(ADA)
    office.ask(ada, topics=("flights",), on_change=on_change)
    office.sync()

    assert office.answer_to(ada).code is m.Code.FORBIDDEN
    assert [each.topics for each in office.hosting.registry] == [("#",)]


def test_who_asks_for_other_topics_is_not_told_those_that_he_may_not_have(office: Office) -> None:
    come_and_go(office)
    judged(office, (ADA, *SUBSCRIBE_ALL))
    ada, reader = office.session(ADA), office.session(ADA)
    office.ask(ada, topics=("flights",))
    office.feed(m.Attach(1, "s", ("flights",), "", m.StartAt.LATEST, 0, None, 0, 0, b""), reader)
    office.sync()

    assert [office.answer_to(each).code for each in (ada, reader)] == [m.Code.FORBIDDEN] * 2


def come_and_go(office: Office) -> None:
    """The subscription is there, for `#`, and nobody consumes it."""
    office.feed(SessionEnded(office.come(ADA)))
    office.sync()


def test_the_alarm_is_over_when_it_is_leased_again(office: Office) -> None:
    ada, _ = attach(office)
    lease(office, ada)
    judged(office, (ADA, *CONSUME_S))
    lease(office, office.session(BOB))
    office.pause(BEAT)

    assert [over for _, over in forbidden_alarms(office)] == [False, True]


def test_the_operator_hears_of_a_guest_that_its_own_shb_has_ended(pair: Pair) -> None:
    """Both nodes have the same rules, and the one that serves the guest is first to judge."""
    come(pair, pair.other)
    judged(pair.other, (BOB, *CONSUME_S))
    pair.settle(500)
    judged(pair.home, (BOB, *CONSUME_S))
    pair.settle(1000)

    assert forbidden_alarms(pair.other) + forbidden_alarms(pair.home) != []


def test_a_guest_of_whom_nobody_says_who_he_is_is_not_the_process_itself(pair: Pair) -> None:
    """Neither says who it is: as NOBODY it is allowed everything."""
    pair.leave(pair.home, come(pair, pair.home, Principal("")))
    pair.settle(1000)
    guest = come(pair, pair.other)
    pair.attached(pair.other, guest)
    anonymous = Principal(NOBODY_IN_PARTICULAR)
    everybody = [(who, *CONSUME_S) for who in (ADA, BOB, anonymous)]
    begins_anew(pair, *everybody, older=True)

    assert pair.home.hosting.consumers == {}


def test_a_read_of_a_subscription_that_is_removed_in_the_turn_in_which_it_is_judged(office: Office) -> None:
    ada, attached = attach(office)
    [start] = [position.tick for position in attached.positions]
    office.feed(m.ReadRange(5, m.Target("s"), PUBEND, start, start + 1000, 2, 1 << 20), ada)
    replaced(office, (ADA, *CONSUME_S))
    with office.one_turn():
        office.feed(m.Unsubscribe(8, "s", "c"), office.session(BOB))
        office.role.on_deadline(office.now, office.wall)

    assert office.rules_held == [2]
    assert [type(each) for each in office.heard[ada.number]] == [m.AttachedTo, m.RequestFailed]


def test_a_read_of_one_that_is_made_anew_by_whoever_waited_for_it(office: Office) -> None:
    ada = office.come(ADA)
    reader = office.session(ADA)
    [start] = [position.tick for position in office.answer_to(ada).positions]
    office.feed(m.ReadRange(5, m.Target("s"), PUBEND, start, start + 1000, 2, 1 << 20), reader)
    bob = office.session(BOB)
    office.ask(bob, selector="w = 1", on_change=m.OnChange.JMS, in_use=m.InUse.WAIT)
    judged(office, (ADA, *CONSUME_S))
    office.sync()

    assert isinstance(office.answer_to(bob), m.Subscribed)
    assert [type(each) for each in office.heard[reader.number]] == [m.RequestFailed]


def test_who_waits_for_something_to_read_is_judged_when_there_is_something(office: Office) -> None:
    """Otherwise he hears of each event that there is one, as long as he likes to wait."""
    ada, attached = attach(office)
    office.feed(m.AskHeads(5, m.Target("s"), attached.positions, 60_000), ada)
    assert [type(each) for each in office.heard[ada.number]] == [m.AttachedTo]
    judged(office, (ADA, *CONSUME_S))
    office.happens()
    office.sync()

    answer = office.heard[ada.number][-1]
    assert answer == m.RequestFailed(5, m.Code.FORBIDDEN, "ada may not consume 's' of client 'c'")


@pytest.mark.parametrize("kind", [m.AskEarliest, m.AskBound])
def test_who_waits_for_a_pubend_that_does_not_answer_is_judged_when_he_is_answered(kind: type) -> None:
    world = attached_to()
    governed(world)
    ada = replace(world.client, principal=ADA)
    earliest = m.AskEarliest(world.number(), world.target)
    bound = m.AskBound(earliest.request, world.target, [m.Position(PUBEND, world.start)], None, 1 << 20)
    number = world.say(earliest if kind is m.AskEarliest else bound, ada)
    replaced(world, (ADA, Action.CONSUME, Durable("c", world.target.name)))
    world.pause(5_000)

    assert world.answers[number].code is m.Code.FORBIDDEN


def test_who_still_may_hears_of_it(office: Office) -> None:
    ada, attached = attach(office)
    office.feed(m.AskHeads(5, m.Target("s"), attached.positions, 60_000), ada)
    judged(office, (BOB, *CONSUME_S))
    office.happens()
    office.sync()

    assert [type(each) for each in office.heard[ada.number]] == [m.AttachedTo, m.Ticks]
