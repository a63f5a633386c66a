"""I9 and I12: what was silent stays silent, and an event stays the event that it was."""

from __future__ import annotations

import pytest

from gapless.core.network.facts import Interest
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.ticks import SECOND, tick_at
from gapless.selectors import Filter
from gapless_sim.oracles.truth import I9Truth, I12SingleAuthority
from gapless_sim.world.clocks import WALL_BEGIN
from unit.gapless_sim.oracles.model_fixture import NODE, SHB, ModelFixture, P, violates

# I12


def test_i12_a_tick_has_one_event() -> None:
    fixture = ModelFixture(I12SingleAuthority)
    fixture.say(0, 10, (10, 1))
    fixture.say(5, 10, (10, 1), reply=True)

    with violates("I12"):
        fixture.say(5, 10, (10, 2), reply=True)


@pytest.mark.parametrize("tick", [3, 11, 12])
def test_i12_silence_is_for_ever(tick: int) -> None:
    fixture = ModelFixture(I12SingleAuthority)
    fixture.say(0, 10, (10, 1))
    fixture.say(10, 12)

    with violates("I12"):
        fixture.say(tick - 1, tick, (tick, 2))


def test_i12_what_was_not_decided_may_become_an_event() -> None:
    fixture = ModelFixture(I12SingleAuthority)
    fixture.say(0, 10, (10, 1))

    fixture.say(10, 12, (11, 2))


def test_i12_an_event_does_not_become_silence() -> None:
    fixture = ModelFixture(I12SingleAuthority)
    fixture.say(0, 10, (7, 1), (10, 2))

    fixture.say(7, 10, (10, 2), reply=True)
    with violates("I12"):
        fixture.say(6, 10, (10, 2), reply=True)


def test_i12_but_it_may_be_lost() -> None:
    fixture = ModelFixture(I12SingleAuthority)
    fixture.say(0, 10, (7, 1), (10, 2))

    fixture.say(0, 10, (10, 2), lost=8, reply=True)


def test_i12_a_receipt_is_an_event_too() -> None:
    fixture = ModelFixture(I12SingleAuthority)
    fixture.say(0, 5)

    fixture.receipt(1, 10)
    with violates("I12"):
        fixture.say(5, 12)


def test_i12_and_has_no_place_in_silence() -> None:
    fixture = ModelFixture(I12SingleAuthority)
    fixture.say(0, 5)

    with violates("I12"):
        fixture.receipt(1, 3)


def test_i12_a_clock_that_leaps_stamps_nothing() -> None:
    fixture = ModelFixture(I12SingleAuthority)
    at = tick_at(WALL_BEGIN)
    fixture.opens()
    fixture.world.brokers[NODE].node_clock.jump(7_200_000)

    fixture.say(at, at + 5 * SECOND)
    with violates("I12"):
        fixture.say(at + 5 * SECOND, at + 7200 * SECOND)


def test_i12_one_broker_speaks_for_a_pubend() -> None:
    fixture = ModelFixture(I12SingleAuthority, phbs=2, together=False)
    fixture.say(0, 5, broker="phb1")

    with violates("I12"):
        fixture.say(5, 7, broker="phb2")


def test_i12_events_lie_where_the_knowledge_does() -> None:
    fixture = ModelFixture(I12SingleAuthority)

    with violates("I12"):
        fixture.say(5, 9, (5, 1))


def test_i12_an_old_copy_of_the_disk_begins_anew() -> None:
    fixture = ModelFixture(I12SingleAuthority)
    fixture.say(0, 10)
    fixture.oracles[I12SingleAuthority].restored(fixture.world.brokers[NODE])

    fixture.say(5, 10, (7, 1))


# I9


def wants(fixture: ModelFixture, version: int, **filters: str) -> None:
    """The SHB announces its filters at a version."""
    add = {number: Filter(("#",), selector) for number, selector in enumerate(filters.values(), 1)}
    fixture.observe.wanted(NODE, Interest(SHB, 0, version, add, full=True))


def test_i9_nothing_comes_to_light_in_silence_that_honoured_who_wants_it() -> None:
    fixture = ModelFixture(I9Truth)
    wants(fixture, 3, one="k = 1")
    fixture.deliver(0, 20, stamp={SHB: 3})

    with violates("I9"):
        fixture.say(0, 10, (10, 1))


def test_i9_what_nobody_wants_may() -> None:
    fixture = ModelFixture(I9Truth)
    wants(fixture, 3, one="k = 7")
    fixture.deliver(0, 20, stamp={SHB: 3})

    fixture.say(0, 10, (10, 1))


def test_i9_and_what_was_wanted_only_later() -> None:
    fixture = ModelFixture(I9Truth)
    wants(fixture, 3, one="k = 7")
    wants(fixture, 4, one="k = 7", two="k = 1")
    fixture.deliver(0, 20, stamp={SHB: 3})

    fixture.say(0, 10, (10, 1))


def test_i9_a_change_keeps_what_was_there() -> None:
    fixture = ModelFixture(I9Truth)
    wants(fixture, 3, one="k = 1")
    fixture.observe.wanted(NODE, Interest(SHB, 3, 4, {9: Filter(("#",), "k = 7")}))
    fixture.deliver(0, 20, stamp={SHB: 4})

    with violates("I9"):
        fixture.say(0, 10, (10, 1))


def test_i9_raw_silence_is_for_everybody() -> None:
    fixture = ModelFixture(I9Truth)
    fixture.deliver(0, 20)

    with violates("I9"):
        fixture.say(0, 10, (10, 1))


def test_i9_what_was_called_lost_was_not_called_silent() -> None:
    fixture = ModelFixture(I9Truth)
    fixture.deliver(0, 20, lost=12)

    fixture.say(0, 10, (10, 1))


def test_i9_the_application_says_what_a_filter_means() -> None:
    fixture = ModelFixture(I9Truth)
    row = fixture.row(k=1)
    row.matches = lambda event: event.publication.properties["k"] == 2
    fixture.subscribe(row)
    wants(fixture, 3, one="k = 1")
    fixture.deliver(0, 20, stamp={SHB: 3})
    fixture.publication(1, k=1)
    fixture.publication(2, k=2)

    fixture.say(0, 10, (10, 1))
    with violates("I9"):
        fixture.say(10, 12, (12, 2))


def test_damage_is_not_said_of_what_no_operator_has_given_up() -> None:
    fixture = ModelFixture(I12SingleAuthority)
    fixture.opens()
    fixture.log((20, 1), (30, 2))
    fixture.spoil(0, 20, 1)

    with violates("I12"):
        fixture.observe.known(NODE, Knowledge.of_damage(P, 0, 20, 0))
    fixture.repair(0, 20)
    fixture.observe.known(NODE, Knowledge.of_damage(P, 0, 20, 0))
    with violates("I12"):
        fixture.say(0, 20)


def test_what_is_damaged_is_not_told_to_be_silent() -> None:
    fixture = ModelFixture(I9Truth)
    fixture.opens()
    fixture.observe.delivered(NODE, Knowledge.of_damage(P, 0, 20, 0))

    fixture.log((20, 1))
