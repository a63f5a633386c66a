"""I9 and I12: what was silent stays silent, and an event stays the event that it was."""

from __future__ import annotations

from gapless.core.network.facts import Interest
from gapless.core.stream.knowledge import Knowledge
from gapless.selectors import Filter
from gapless_sim.oracles.truth import I9Truth, I12SingleAuthority
from unit.gapless_sim.oracles.model_fixture import NODE, SHB, ModelFixture, P, violates

# I12


def test_i12_one_broker_speaks_for_a_pubend() -> None:
    fixture = ModelFixture(I12SingleAuthority, phbs=2, together=False)
    fixture.say(0, 5, broker="phb1")

    with violates("I12"):
        fixture.say(5, 7, broker="phb2")


def test_i12_events_lie_where_the_knowledge_does() -> None:
    fixture = ModelFixture(I12SingleAuthority)

    with violates("I12"):
        fixture.say(5, 9, (5, 1))


# I9


def wants(fixture: ModelFixture, version: int, **filters: str) -> None:
    """The SHB announces its filters at a version."""
    add = {number: Filter(("#",), selector) for number, selector in enumerate(filters.values(), 1)}
    fixture.observe.wanted(NODE, Interest(SHB, 0, version, add, full=True))


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
