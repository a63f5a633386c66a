"""I8: no lease runs out while somebody has the subscription, or too early."""

from __future__ import annotations

from types import SimpleNamespace

from gapless.core.wire.messages import Code, Detach, Detached, Subscribed
from gapless_sim.options import SECOND
from gapless_sim.oracles.leasing import I8Leases
from unit.gapless_sim.oracles.hands import NODE, Hands, violates


def served(lease: float | None = 2.0) -> Hands:
    """Session 5 has subscription 1, of client1 and called `one`."""
    hands = Hands(I8Leases, subscription_lease_seconds=lease)
    hands.observe.served(NODE, 5, Subscribed(1, 1, 1, b"", True, []))
    hands.world.now = 10 * SECOND
    return hands


def lapse(hands: Hands, after: float = 0.0) -> None:
    hands.world.now += int(after * SECOND)
    hands.lapse(hands.row(name="one"))


def test_somebody_has_it() -> None:
    hands = served()

    with violates("I8"):
        lapse(hands, 100)


def test_it_was_left_for_as_long() -> None:
    hands = served()
    hands.observe.left(NODE, 5)

    lapse(hands, 2)
    assert hands.world.probes["oracle.lease ran out"] == 1


def test_it_was_not() -> None:
    hands = served()
    hands.observe.left(NODE, 5)

    with violates("I8"):
        lapse(hands, 1.8)


def test_there_are_no_leases() -> None:
    hands = served(None)
    hands.observe.left(NODE, 5)

    with violates("I8"):
        lapse(hands, 100)


def test_it_can_be_left_in_other_ways() -> None:
    for leave in (
        lambda hands: hands.observe.heard(NODE, 5, Detach(1)),
        lambda hands: hands.observe.served(NODE, 5, Detached(1, Code.TAKEN_OVER, "")),
        lambda hands: hands.observe.crashed(SimpleNamespace(name=NODE)),
    ):
        hands = served()
        leave(hands)  # type: ignore[no-untyped-call]

        lapse(hands, 2)


def test_who_has_it_now_is_what_counts() -> None:
    hands = served()
    hands.observe.served(NODE, 6, Subscribed(1, 1, 1, b"", False, []))
    hands.observe.left(NODE, 5)

    with violates("I8"):
        lapse(hands, 100)


def test_what_is_given_to_a_session_that_is_over_is_left() -> None:
    hands = served()
    hands.observe.left(NODE, 6)
    hands.observe.served(NODE, 6, Subscribed(1, 1, 1, b"", False, []))

    lapse(hands, 2)
