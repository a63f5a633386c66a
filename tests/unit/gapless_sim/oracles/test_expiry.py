"""I8: no lease runs out while somebody has the subscription, or too early."""

from __future__ import annotations

from gapless.core.wire.messages import Subscribed
from gapless_sim.oracles.expiry import I8Expiry
from gapless_sim.world.options import SECOND
from unit.gapless_sim.oracles.model_fixture import NODE, ModelFixture, violates


def served(lease: float | None = 2.0) -> ModelFixture:
    """Session 5 has subscription 1, of client1 and called `one`."""
    fixture = ModelFixture(I8Expiry, subscription_expiry_seconds=lease)
    fixture.observe.sent(NODE, 5, Subscribed(1, 1, 1, b"", True, []))
    fixture.world.now = 10 * SECOND
    return fixture


def lapse(fixture: ModelFixture, after: float = 0.0) -> None:
    fixture.world.now += int(after * SECOND)
    fixture.lapse(fixture.row(name="one"))


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


def test_what_is_given_to_a_session_that_is_over_is_left() -> None:
    fixture = served()
    fixture.observe.left(NODE, 6)
    fixture.observe.sent(NODE, 6, Subscribed(1, 1, 1, b"", False, []))

    lapse(fixture, 2)
