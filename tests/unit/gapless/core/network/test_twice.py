"""Two processes under one name: the later one counts, and an honest restart is never taken for that."""

from __future__ import annotations

import pytest

from gapless.core.alarms import AlarmCode
from gapless.core.network.facts import RanTwice, ShutOut
from gapless.core.network.incarnations import DRAWN_BITS, MET_MAX, Incarnations, Twice, new_incarnation, started
from unit.gapless.core.network.link_world import LinkNode, World

EARLIER, LATER = 22, 33


def both(first: int, second: int) -> tuple[World, LinkNode, LinkNode, LinkNode]:
    """`a`, with a link to a process of `b`; another process of `b` has begun to dial it."""
    world = World()
    a, b = world.start("a"), world.start("b", first)
    b.dial("a")
    world.advance(2)
    assert [up.incarnation for up in a.up.values()] == [first]
    rival = world.start_beside("b", second)
    rival.dial("a")
    world.run()
    return world, a, b, rival


def test_the_first_process_keeps_its_link_until_it_has_shown_that_it_lives() -> None:
    _, a, b, rival = both(EARLIER, LATER)

    assert [up.incarnation for up in a.up.values()] == [EARLIER]
    assert b.told == rival.told == []
    assert a.alarms == []


@pytest.mark.parametrize(("first", "second"), [(EARLIER, LATER), (LATER, EARLIER)])
def test_the_later_one_counts_whichever_came_first(first: int, second: int) -> None:
    world, a, *processes = both(first, second)
    earlier, later = processes if first == EARLIER else reversed(processes)

    world.advance(20)

    assert [up.incarnation for up in a.up.values()] == [LATER]
    assert ShutOut(LATER, "a") in earlier.told
    assert later.told == [RanTwice(EARLIER)]
    assert earlier.up == {}
    assert {(alarm.code, alarm.about) for alarm in a.alarms} == {(AlarmCode.NODE_TWICE, "b")}


def test_the_earlier_one_has_no_link_any_more_when_the_later_one_gets_its_first() -> None:
    world, a, earlier, later = both(EARLIER, LATER)

    while not later.up:
        world.advance(0.01)

    assert [up.incarnation for up in a.up.values()] == [LATER]
    assert earlier.up == {}
    assert earlier.told == [ShutOut(LATER, "a")]
    assert later.told == [RanTwice(EARLIER)]


def test_the_earlier_one_gets_no_link_when_the_later_one_is_gone_too() -> None:
    world, a, earlier, later = both(EARLIER, LATER)
    world.advance(10)

    del world.nodes[f"b, {LATER}"]
    world.advance(20)

    assert a.up == earlier.up == {}
    assert later.told == [RanTwice(EARLIER)]


def test_a_process_that_stood_still_while_another_one_took_its_place_is_shut_out_when_it_goes_on() -> None:
    world, a, asleep, rival = both(EARLIER, LATER)
    del world.nodes["b"]  # it stands still
    world.advance(5)
    assert [up.incarnation for up in a.up.values()] == [LATER]
    assert rival.told == []

    world.nodes["b"] = asleep
    asleep.dial("a")
    world.advance(10)

    assert [up.incarnation for up in a.up.values()] == [LATER]
    assert ShutOut(LATER, "a") in asleep.told
    assert rival.told == [RanTwice(EARLIER)]


def test_a_process_that_is_started_after_both_is_taken_and_told() -> None:
    world, a, *_ = both(EARLIER, LATER)
    world.advance(10)
    world.kill("b")
    world.kill(f"b, {LATER}")

    third = world.start("b", 44)
    third.dial("a")
    world.advance(5)

    assert [up.incarnation for up in a.up.values()] == [44]
    assert third.told == [RanTwice(EARLIER)]


def test_who_has_not_proven_to_be_a_node_shuts_nobody_out() -> None:
    world = World()
    stranger, b = world.start("a", secret=b"guessed, and wrong"), world.start("b", EARLIER)
    rival = world.start_beside("b", LATER)
    for node in (b, rival):
        node.dial("a")
    world.advance(10)

    assert stranger.up == {}
    assert b.told == rival.told == []


def test_three_answers_in_turn_prove_that_two_processes_run() -> None:
    met = Incarnations()

    assert met.answered(1, asked=1, now=2) == []
    assert met.answered(2, asked=3, now=4) == []
    assert met.later_than(1) == 0
    assert met.answered(1, asked=5, now=6) == [Twice(1, 2)]
    assert (met.later_than(1), met.later_than(2)) == (2, 0)
    assert (met.shut_out_before(1), met.shut_out_before(2)) == (0, 1)
    assert met.answered(2, asked=7, now=8) == [], "it is said once"


@pytest.mark.parametrize("numbers", [(1, 2), (2, 1)])
def test_an_answer_that_was_on_its_way_while_another_process_took_its_place_proves_nothing(
    numbers: tuple[int, int],
) -> None:
    old, new = numbers
    met = Incarnations()

    met.answered(old, asked=1, now=2)
    asked = 3  # the old process answers, and is killed
    met.answered(new, asked=4, now=5)

    assert met.answered(old, asked=asked, now=6) == []
    assert met.answered(new, asked=7, now=8) == []
    assert met.answered(new, asked=9, now=10) == []


def test_a_dial_of_a_dead_process_that_arrives_late_proves_nothing_about_its_successor() -> None:
    met = Incarnations()

    met.answered(2, asked=2, now=3)
    met.answered(1, asked=1, now=4)  # it was on its way since before the second was met

    assert met.answered(2, asked=5, now=6) == []


def test_only_so_many_processes_are_remembered() -> None:
    met = Incarnations()
    for number in range(1, 100):
        met.answered(number, asked=10 * number, now=10 * number + 1)
        met.answered(1000, asked=10 * number + 2, now=10 * number + 3)
        met.answered(number, asked=10 * number + 4, now=10 * number + 5)

    assert sum(met.later_than(number) > 0 for number in range(100)) == MET_MAX
    assert met.later_than(99) == 1000


def test_a_process_has_a_higher_number_than_the_one_before_on_its_volume_whatever_the_clock_says() -> None:
    first = new_incarnation(1_800_000_000_000, 0, 5)
    back = new_incarnation(1_700_000_000_000, first, 4)
    on = new_incarnation(1_900_000_000_000, back, 3)

    assert first < back < on
    assert on >> DRAWN_BITS == 1_900_000_000_000
    assert new_incarnation(1_800_000_000_000, 0, 6) != first
    assert started(first) == "2027-01-15 08:00:00.000 UTC"
    assert started((1 << 63) - 1) == "2248-09-26 15:10:22.207 UTC"
