"""I8: no lease runs out while somebody has the subscription, or too early."""

from __future__ import annotations

from types import SimpleNamespace

from gapless.core.wire.messages import Code, Detach, Detached, Subscribed
from gapless_sim.oracles.leases import I8Leases
from gapless_sim.world.options import SECOND
from unit.gapless_sim.oracles.model_fixture import NODE, ModelFixture, violates


def served(lease: float | None = 2.0) -> ModelFixture:
    """Session 5 has subscription 1, of client1 and called `one`."""
    fixture = ModelFixture(I8Leases, subscription_lease_seconds=lease)
    fixture.observe.sent(NODE, 5, Subscribed(1, 1, 1, b"", True, []))
    fixture.world.now = 10 * SECOND
    return fixture


def lapse(fixture: ModelFixture, after: float = 0.0) -> None:
    fixture.world.now += int(after * SECOND)
    fixture.lapse(fixture.row(name="one"))


def test_somebody_has_it() -> None:
    fixture = served()

    with violates("I8"):
        lapse(fixture, 100)


def test_it_was_left_for_as_long() -> None:
    fixture = served()
    fixture.observe.left(NODE, 5)

    lapse(fixture, 2)
    assert fixture.world.hits["oracle.lease ran out"] == 1


def test_it_was_not() -> None:
    fixture = served()
    fixture.observe.left(NODE, 5)

    with violates("I8"):
        lapse(fixture, 1.8)


def test_there_are_no_leases() -> None:
    fixture = served(None)
    fixture.observe.left(NODE, 5)

    with violates("I8"):
        lapse(fixture, 100)


def test_it_can_be_left_in_other_ways() -> None:
    for leave in (
        lambda fixture: fixture.observe.received(NODE, 5, Detach(1)),
        lambda fixture: fixture.observe.sent(NODE, 5, Detached(1, Code.TAKEN_OVER, "")),
        lambda fixture: fixture.observe.crashed(SimpleNamespace(name=NODE)),
    ):
        fixture = served()
        leave(fixture)  # type: ignore[no-untyped-call]

        lapse(fixture, 2)


def test_who_has_it_now_is_what_counts() -> None:
    fixture = served()
    fixture.observe.sent(NODE, 6, Subscribed(1, 1, 1, b"", False, []))
    fixture.observe.left(NODE, 5)

    with violates("I8"):
        lapse(fixture, 100)


def test_what_is_given_to_a_session_that_is_over_is_left() -> None:
    fixture = served()
    fixture.observe.left(NODE, 6)
    fixture.observe.sent(NODE, 6, Subscribed(1, 1, 1, b"", False, []))

    lapse(fixture, 2)
