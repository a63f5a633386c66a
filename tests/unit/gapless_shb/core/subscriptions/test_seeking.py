"""Who asked for a time begins there on a numbered log that is found later, too (protocol: late-pubends).

Only the pubend knows where that is. Until it has said so, it is as if the pubend were not found yet.
"""

from __future__ import annotations

from typing import Any

import pytest

from gapless.core.network.facts import Hold
from gapless.core.ports import SessionEnded
from gapless.core.wire import messages as m
from gapless_shb.core.broker import Timing
from unit.gapless_shb.core.harness import BASE, PUBEND, World
from unit.gapless_shb.core.ranges.harness import RangeWorld
from unit.gapless_shb.core.roaming.harness import Node, Pair
from unit.gapless_shb.core.subscriptions.test_attach import AttachRig

MINUTE = 60_000


class NumberedLog(World):
    """A world whose pubend has a log that numbers its records. A gateway has found it behind ten of them."""

    grain = 1
    hidden = True

    def found(self) -> None:
        """Of ten events the last three are of the time asked for; the pubend has them all when it is found."""
        for _ in range(10):
            self.publish()
        self.located = self.log[6][0]
        self.created = self.stable
        self.hidden = False
        self.see()
        self.sync()

    @property
    def of_the_time(self) -> list[int]:
        """The ticks of the events of the time asked for."""
        return [tick for tick, _, _ in self.log if tick > self.located]

    def rest_here(self) -> None:
        """Everything is answered, and the pubend says how far it is."""
        for _ in range(6):
            self.see()
            self.deliver(self.knowledge(self.stable - 1, self.stable, raw=True, reply=False))
            self.sync()
            self.answer_holds()
            self.sync()
            self.read()
            self.answer_wants()
            self.pause(300)


class Office(AttachRig):
    """Sessions at such a world."""

    world: NumberedWorld

    def __init__(self, **timing: Any) -> None:
        self.world = NumberedWorld(timing)
        self.said = self.world.said
        self.world.sync()

    def begin(self, number: int = 1, name: str | None = "s", **changes: Any) -> None:
        """A subscription is made that asks for five minutes ago."""
        asked: dict[str, Any] = {"start": m.StartAt.TIME, "start_wall": self.world.wall - 5 * MINUTE} | changes
        self.ask(number, name, **asked)
        self.world.sync()

    def leave(self, number: int) -> None:
        """A session ends."""
        self.world.feed(SessionEnded(self.session(number)))
        self.world.sync()

    def got(self, number: int) -> list[int]:
        """The events that a session got, by their ticks."""
        return [
            tick
            for session, message in self.world.heard
            if session == number and isinstance(message, m.Deliver)
            for tick in message.columns.ticks()
        ]

    def held(self, number: int) -> list[int]:
        """The events that a session shares, by their ticks."""
        return [
            tick
            for session, message in self.world.heard
            if session == number and isinstance(message, m.DeliverHeld)
            for tick in message.columns.ticks()
        ]

    def holds(self) -> list[Hold]:
        return [effect for effect in self.said if isinstance(effect, Hold)]


class NumberedWorld(NumberedLog):
    """The same, for sessions that are handled by hand."""

    def __init__(self, timing: dict[str, Any]) -> None:
        self.timing = Timing(**timing)
        self.heard: list[tuple[int, object]] = []
        super().__init__()

    def client_gets(self, session: int, message: object) -> None:
        self.heard.append((session, message))


def test_the_pubend_is_asked_for_the_time_and_nothing_is_served_before_it_has_answered() -> None:
    """It began where the gateway had found the log, and what lay between was lost without a word."""
    office = Office()
    office.begin()
    asked = office.world.wall - 5 * MINUTE
    office.world.found()

    office.world.answer_wants()
    office.world.deliver(office.world.knowledge(BASE, office.world.stable, raw=True, reply=False))
    assert (office.holds()[-1].at, office.holds()[-1].times) == ({1: 0}, {1: asked})
    assert office.got(1) == []
    assert not [message for _, message in office.world.heard if isinstance(message, m.DeliverSilence)]

    office.world.rest_here()
    assert office.got(1) == office.world.of_the_time
    assert office.world.stream.holds.times == {}


def test_its_consumer_is_told_where_it_begins() -> None:
    office = Office()
    office.begin()
    office.world.found()
    office.world.answer_holds()
    said = [message for _, message in office.world.heard if isinstance(message, m.DeliverSilence)]
    assert said == [], "a crash would ask anew, and may find another place"

    office.world.sync()

    said = [message for _, message in office.world.heard if isinstance(message, m.DeliverSilence)]
    assert [(silence.upto, silence.sids) for silence in said] == [(office.world.located, [1])]


@pytest.mark.parametrize("answered", [False, True])
def test_who_comes_back_gets_it_whether_it_is_found_by_then_or_not(answered: bool) -> None:
    office = Office()
    office.begin()
    office.leave(1)
    office.world.found()
    if answered:
        office.world.rest_here()
    office.ask(2)
    office.world.sync()

    told = [(each.pubend, each.tick) for each in office.subscribed(2).positions]
    assert told == ([(PUBEND, office.world.located)] if answered else [])
    office.world.rest_here()
    assert office.got(2) == office.world.of_the_time


@pytest.mark.parametrize("stays", [True, False])
@pytest.mark.parametrize("answered", [False, True])
def test_those_who_share_a_subscription_get_it_too(*, stays: bool, answered: bool) -> None:
    office = Office()
    office.begin(sharing=m.Sharing(100, durable=True))
    if not stays:
        office.leave(1)
    office.world.found()
    if answered:
        office.world.rest_here()
    office.ask(2, sharing=m.Sharing(100, durable=True))
    office.world.sync()
    if not answered:
        assert office.held(1) == office.held(2) == []

    office.world.rest_here()
    office.world.rest_here()
    assert sorted(office.held(1) + office.held(2)) == office.world.of_the_time
    assert not [message for _, message in office.world.heard if isinstance(message, m.DeliverSilence)]


def test_a_token_that_names_the_pubend_counts_at_once() -> None:
    office = Office()
    office.begin()
    answer = office.subscribed(1)
    office.leave(1)
    office.world.found()
    at = office.world.log[8][0]
    named: dict[str, Any] = {"positions": [m.Position(PUBEND, at)], "token_sid": answer.sid, "token_seal": answer.seal}
    office.ask(2, start=m.StartAt.TOKEN, token_generation=answer.generation, **named)
    office.world.sync()
    assert office.subscribed(2).positions == [m.Position(PUBEND, at)]

    office.world.rest_here()
    assert office.got(2) == [office.world.log[9][0]]


@pytest.mark.parametrize("lost", ["the discovery", "the answer"])
def test_after_a_crash_the_pubend_is_asked_once_more(lost: str) -> None:
    """The times of a row are in memory alone."""
    office = Office()
    office.begin()
    asked = office.world.wall - 5 * MINUTE
    office.world.found()
    if lost == "the answer":
        office.world.answer_holds()
    office.said.clear()
    office.world.held_answers.clear()
    office.world.crash()
    office.world.sync()
    assert office.holds()[-1].times == {1: asked}

    office.ask(2)
    office.world.rest_here()
    assert office.got(2) == office.world.of_the_time


def test_what_a_pubend_has_found_outlives_a_crash() -> None:
    office = Office()
    office.begin()
    office.world.found()
    office.world.rest_here()
    office.said.clear()
    office.world.located = 0
    office.world.crash()
    office.world.sync()

    position = office.world.stream.positions[1]
    assert (position.start, position.sought) == (office.world.log[6][0], False)
    assert all(not row.times for row in office.holds())


def test_a_creation_that_a_crash_has_interrupted_asks_for_its_time_once_more() -> None:
    """It began with the earliest."""
    office = Office()
    office.world.found()
    office.begin()
    asked = office.world.wall - 5 * MINUTE
    office.said.clear()
    office.world.held_answers.clear()
    office.world.crash()
    office.world.sync()

    assert office.holds()[-1].times == {1: asked}


def test_all_is_owed_that_came_since_the_pubend_counted_this_broker() -> None:
    """Whatever times its records bear."""
    office = Office()
    office.begin()
    office.world.found()
    office.world.publish()
    office.world.located = office.world.stable
    office.world.hold(office.holds()[-1])
    office.world.held_answers = office.world.held_answers[-1:]

    office.world.rest_here()
    assert office.got(1) == [office.world.stable]


@pytest.mark.parametrize("asked", [{}, {"start": m.StartAt.EARLIEST}], ids=["latest", "earliest"])
def test_who_asked_for_no_time_waits_for_nobody(asked: dict[str, Any]) -> None:
    office = Office()
    office.ask(1, **asked)
    office.world.sync()
    office.world.found()

    position = office.world.stream.positions[1]
    assert (position.start, position.sought) == (0 if asked else office.world.created, False)


def test_one_that_is_not_durable_begins_at_its_time() -> None:
    office = Office()
    office.begin(name=None)
    office.world.found()
    office.world.rest_here()

    assert office.got(1) == office.world.of_the_time


@pytest.mark.parametrize("found", ["while it was gone", "when it was back"])
def test_one_that_has_lapsed_begins_at_its_time_all_the_same(found: str) -> None:
    office = Office(expiry_ms=64_000)
    office.begin()
    asked = office.world.wall - 5 * MINUTE
    office.leave(1)
    for _ in range(40):
        office.world.advance(4_000, wall=False)
    assert not list(office.world.hosting.registry)
    if found == "while it was gone":
        office.world.found()
    office.said.clear()
    office.ask(2)
    office.world.sync()
    if found == "when it was back":
        office.world.found()
    office.world.sync()

    assert list(office.holds()[-1].times.values()) == [asked]
    office.world.rest_here()
    assert office.got(2) == office.world.of_the_time


class NumberedRanges(NumberedLog, RangeWorld):
    """Such a world, and an application that reads by ranges."""

    def __init__(self) -> None:
        self.ticks: list[int] = []
        super().__init__(selector="")

    def client_gets(self, session: int, message: object) -> None:
        if isinstance(message, m.RangeEvents):
            self.ticks += message.columns.ticks()
        elif not isinstance(message, m.RangeRead):
            super().client_gets(session, message)

    def attached_before(self) -> NumberedRanges:
        """It asks for five minutes ago, before the pubend is found."""
        self.sync()
        asked = m.StartAt.TIME, self.wall - 5 * MINUTE
        self.say(m.Attach(self.number(), "ranges", ("#",), "", *asked, None, 0, 0, b""))
        self.sync()
        assert self.attached is not None
        assert self.attached.positions == []
        return self

    def heads(self) -> int:
        """The number of a question for what is behind its position."""
        return self.say(m.AskHeads(self.number(), self.target, [], 0))


def test_heads_wait_for_where_it_begins_and_its_range_has_what_is_behind_that() -> None:
    """A batch of Spark's was empty: its heads were answered before its broker had found the pubend."""
    world = NumberedRanges().attached_before()
    world.found()
    number = world.heads()
    reading = world.read_range(0, world.stable)
    assert number not in world.answers
    assert reading not in world.readings, "it is asked for once more"

    world.rest_here()
    assert world.answers[number].positions == [m.Position(PUBEND, world.stable)]
    world.say(m.ReadRange(world.number(), world.target, PUBEND, 0, world.stable, 100, 1 << 20))
    world.rest_here()
    assert world.ticks == world.of_the_time


def test_heads_wait_for_a_pubend_that_is_known_and_does_not_count_this_broker_yet() -> None:
    world = NumberedRanges().attached_before()
    world.hidden = False
    world.enrolled, version, world.known_version = None, world.known_version, 0
    world.see()
    number = world.heads()
    assert number not in world.answers
    world.known_version, world.hidden = version, True

    world.found()
    world.rest_here()
    assert world.answers[number].positions == [m.Position(PUBEND, world.stable)]


def test_a_pubend_that_cannot_be_reached_is_not_waited_for_long() -> None:
    world = NumberedRanges().attached_before()
    world.found()
    number = world.heads()
    world.held_answers.clear()
    world.pause(5000)

    assert world.answers[number].positions == []


class NumberedPair(Pair):
    """Two SHBs of such a pubend."""

    class kind(NumberedLog, Node):  # noqa: N801 - in the place of Pair's
        """One of them."""

    def found(self, *nodes: Node) -> None:
        """Some of them find the pubend."""
        if not self.home.log:
            for _ in range(10):
                self.home.publish()
        for node in nodes:
            node.located, node.created = self.home.log[6][0], self.home.log[9][0]
            node.stable, node.hidden = self.home.stable, False

    @property
    def of_the_time(self) -> list[int]:
        return [tick for tick, _, _ in self.home.log[7:]]


@pytest.mark.parametrize("first", ["home", "other", "both"])
def test_a_guest_waits_for_what_its_home_has_found(first: str) -> None:
    pair = NumberedPair()
    guest = pair.come(pair.other, start=m.StartAt.TIME, start_wall=pair.home.wall - 5 * MINUTE)
    assert pair.attached(pair.other, guest).positions == []

    pair.found(*{"home": [pair.home], "other": [pair.other], "both": [pair.home, pair.other]}[first])
    pair.settle(1000)
    if first != "both":
        assert pair.ticks(pair.other, guest) == []
    pair.found(pair.home, pair.other)
    pair.settle(12_000)

    assert pair.ticks(pair.other, guest) == pair.of_the_time


def test_a_guest_that_comes_while_its_home_seeks_is_served_when_that_has_found_it() -> None:
    pair = NumberedPair()
    first = pair.come(pair.home, start=m.StartAt.TIME, start_wall=pair.home.wall - 5 * MINUTE)
    pair.leave(pair.home, first)
    pair.found(pair.other)
    pair.settle(1000)
    pair.found(pair.home)
    pair.home.see()
    pair.home.sync()
    held, pair.home.held_answers = pair.home.held_answers, []
    guest = pair.session()
    pair.subscribe(pair.other, guest)
    pair.deliver_mail()
    assert pair.attached(pair.other, guest).positions == []
    pair.home.held_answers = held
    pair.settle(12_000)

    assert pair.ticks(pair.other, guest) == pair.of_the_time
