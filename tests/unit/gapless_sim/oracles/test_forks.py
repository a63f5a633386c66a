"""N2: what two processes of a PHB have logged is delivered, or told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gapless.core.network.facts import Know, Progress, PubendMeta, Seen
from gapless.core.stream.ticks import tick_at
from gapless.core.wire.messages import GapReason
from gapless_shb.core.state.gauges import HEAD
from gapless_sim.oracles.delivery import I1Match, I3Gapless
from gapless_sim.oracles.forks import N2Again, N2Told
from gapless_sim.world.clocks import WALL_BEGIN
from gapless_sim.world.world import Life
from unit.gapless_sim.oracles.model_fixture import NODE, SHB, ModelFixture, P, violates

AT = tick_at(WALL_BEGIN)
HOST = SimpleNamespace(name="phb9", roles=frozenset({"phb"}))
"""A PHB, and nothing else; subscriptions are at another node."""
TWICE = GapReason.TWICE.value


def forked() -> tuple[ModelFixture, N2Told]:
    fixture = ModelFixture(I1Match, I3Gapless, N2Told)
    fixture.say(AT, AT + 20, (AT + 10, 1), (AT + 20, 2), broker=HOST.name)
    fixture.observe.copied(HOST)
    judge = fixture.oracles[N2Told]
    assert isinstance(judge, N2Told)
    return fixture, judge


def test_what_comes_to_light_below_a_gap_that_was_told_is_told() -> None:
    fixture, judge = forked()
    reader = fixture.attach(fixture.row(), p=AT + 20)
    fixture.gap(reader, AT + 20, AT + 50, reason=TWICE)
    fixture.receipt(3, AT + 30)
    assert judge.settled()

    fixture.silence(reader, AT + 50, AT + 70)
    fixture.receipt(4, AT + 60)
    assert not judge.settled()


def test_a_gap_for_another_reason_tells_nothing() -> None:
    fixture, judge = forked()
    reader = fixture.attach(fixture.row(), p=AT + 5)
    fixture.silence(reader, AT + 5, AT + 40)
    fixture.gap(reader, AT + 40, AT + 50, reason="damaged")

    assert not judge.settled()


def ahead(*, stays: str, is_told: bool = True) -> tuple[ModelFixture, N2Told, Any]:
    """Each of two processes has logged something far above the fork, and a subscription has passed that."""
    fixture = ModelFixture(I1Match, I3Gapless, N2Told, second_hosts=0.1)
    world: Any = fixture.world
    first, second = (SimpleNamespace(name=HOST.name, roles=HOST.roles, disk=object()) for _ in range(2))
    world.brokers[HOST.name] = first
    world.second_processes.append(second)
    fixture.say(AT, AT + 10, (AT + 10, 1), broker=HOST.name)
    fixture.observe.copied(HOST)
    judge = fixture.oracles[N2Told]
    assert isinstance(judge, N2Told)
    reader = fixture.attach(fixture.row(), p=AT + 10)
    fixture.gap(reader, AT + 10, AT + 20, reason=TWICE)
    if stays == "first":
        fixture.observe.known_beside(HOST.name, fixture.knowledge(AT + 40, AT + 60, [(AT + 60, 2)]))
    else:
        fixture.say(AT + 40, AT + 60, (AT + 60, 2), broker=HOST.name)
        first.disk = second.disk
    world.now += 1
    if is_told:
        judge.opened(HOST.name, fork(20), {})
    return fixture, judge, reader


def fork(upto: int) -> PubendMeta:
    return PubendMeta(P, HOST.name, forks=((AT + 10, AT + upto),))


@pytest.mark.parametrize("stays", ["first", "second"])
def test_what_nobody_can_know_who_is_left_is_told_to_nobody(stays: str) -> None:
    """Found by the simulator (1670): the clock of the process that is gone was ahead, and all SHBs had begun anew."""
    fixture, judge, reader = ahead(stays=stays)
    judge.delivered(NODE, fixture.knowledge(AT + 40, AT + 60))
    judge.vanished(NODE)
    judge.said(NODE, 0, Seen(fork(20), AT))

    fixture.silence(reader, AT + 20, AT + 70)
    assert judge.settled()


def test_what_an_shb_was_told_that_hears_of_both_is_told_to_all() -> None:
    fixture, judge, reader = ahead(stays="first")
    judge.delivered(NODE, fixture.knowledge(AT + 40, AT + 60))
    judge.said(NODE, 0, Seen(fork(20), AT))

    fixture.silence(reader, AT + 20, AT + 70)
    assert not judge.settled()


def test_without_a_fork_nobody_is_excused() -> None:
    fixture, judge, reader = ahead(stays="first", is_told=False)

    fixture.silence(reader, AT + 20, AT + 70)
    assert not judge.settled()


def test_a_fork_of_before_it_was_logged_excuses_nobody() -> None:
    fixture, judge, reader = ahead(stays="first")
    fixture.world.now += 1
    fixture.observe.known_beside(HOST.name, fixture.knowledge(AT + 60, AT + 65, [(AT + 65, 3)]))
    judge.opened(HOST.name, fork(20), {})

    fixture.silence(reader, AT + 20, AT + 70)
    assert not judge.settled()


@pytest.mark.parametrize("who", ["nobody", "the neighbour", "the process that counts", "one of before"])
def test_a_process_of_which_nobody_is_left_who_has_shut_it_out_cannot_be_told_of(who: str) -> None:
    """Knowledge 425: the only neighbour that knew both lost its power before the other process had a link to it."""
    fixture, judge, reader = ahead(stays="second", is_told=False)
    first, world = fixture.world.brokers[HOST.name], fixture.world
    gone: Any = SimpleNamespace(name=HOST.name, disk=judge._disks[P, AT + 60][0], incarnation=1)
    life = world.brokers[NODE].life = Life()
    if who == "one of before":
        world.now -= 2
    judge.shut_out(gone, 2, NODE)
    if who == "the process that counts":
        judge.ran_twice(first, 1)
    if who != "the neighbour":
        life.over = True

    fixture.silence(reader, AT + 20, AT + 70)
    assert judge.settled() == (who == "nobody")


def test_what_the_fork_covers_is_told_to_all() -> None:
    fixture, judge, reader = ahead(stays="first")
    judge.opened(HOST.name, fork(61), {})

    fixture.silence(reader, AT + 20, AT + 70)
    assert not judge.settled()


def test_what_the_process_that_goes_on_has_logged_is_never_excused() -> None:
    fixture, judge, reader = ahead(stays="first")
    fixture.say(AT + 60, AT + 80, (AT + 80, 3), broker=HOST.name)

    fixture.silence(reader, AT + 20, AT + 90)
    assert not judge.settled()


def test_at_a_tick_at_which_both_have_logged_something_either_is_right() -> None:
    fixture, _ = forked()
    fixture.observe.known_beside(HOST.name, fixture.knowledge(AT + 10, AT + 20, [(AT + 20, 3)]))
    fixture.hand_out(fixture.attach(fixture.row(), p=AT + 10), (AT + 20, 2))
    fixture.hand_out(fixture.attach(fixture.row(), sid=2, p=AT + 10), (AT + 20, 3))

    with violates("I1"):
        fixture.hand_out(fixture.attach(fixture.row(), sid=3, p=AT + 10), (AT + 20, 4))


class Again:
    """An SHB at a node of its own, which stands at AT + 10 and hears of a fork there."""

    def __init__(self) -> None:
        self.fixture = ModelFixture(N2Again, second_hosts=0.1)
        self.fixture.say(AT, AT + 20, broker=HOST.name)
        judge = self.fixture.oracles[N2Again]
        assert isinstance(judge, N2Again)
        self.judge = judge
        self.head = AT + 10
        self.node = SimpleNamespace(name="node2", gauges=lambda: [HEAD.gauge(self.head, P)])
        self.fixture.world.brokers[self.node.name] = self.node  # type: ignore[assignment]
        self.see()
        self.see((AT + 5, AT + 40))

    def see(self, *forks: tuple[int, int]) -> None:
        """It is told what its pubend is."""
        self.judge.said(self.node.name, 0, Seen(PubendMeta(P, HOST.name, forks=forks), AT))

    def passes(self, upto: int) -> None:
        """It has passed everything up to there."""
        self.fixture.world.now += 1
        self.judge.informed(self.node.name, 0, Progress(SHB, P, AT, upto))


def test_what_an_shb_was_told_before_it_heard_of_a_fork_is_told_again_before_it_passes_it() -> None:
    again = Again()
    again.passes(AT + 10)
    again.judge.said(again.node.name, 1, Know(again.fixture.knowledge(AT + 10, AT + 30)))
    again.passes(AT + 30)

    with violates("N2"):
        again.passes(AT + 31)


def test_what_an_shb_passed_by_what_it_was_told_in_the_instant_before_it_heard_of_a_fork_is_passed() -> None:
    """Knowledge 1799: an answer filled the hole below what it knew already, and the fork came right behind that."""
    again = Again()
    again.head = AT + 30
    again.judge.said(again.node.name, 1, Know(again.fixture.knowledge(AT + 40, AT + 50)))
    again.passes(AT + 30)

    with violates("N2"):
        again.passes(AT + 31)


def test_another_shb_on_an_empty_disk_passes_what_lies_below_the_tick_from_which_it_counts() -> None:
    again = Again()
    again.judge.wiped(again.node)  # type: ignore[arg-type]
    again.see((AT + 5, AT + 40))
    again.passes(AT + 60)
