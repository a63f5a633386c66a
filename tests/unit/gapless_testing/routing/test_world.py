"""A world says what is missing, and where it happened."""

from __future__ import annotations

import pytest

from conformance.broken_routers import BrokenHarness
from gapless.core.network.facts import Know
from gapless.core.stream.knowledge import Knowledge
from gapless_testing.routing import ALONE, Clause, ContractError
from gapless_testing.routing.faults import SECOND, RoutingFaults
from gapless_testing.routing.world import RouterWorld, live_through, naming
from unit.gapless_testing.routing.seam import breaks


@pytest.fixture
def world() -> RouterWorld:
    """A busy world of one broker, that is served well."""
    made = RouterWorld(BrokenHarness(), ALONE, 1)
    made.start()
    made.run(12)
    return made


def test_interest_changes_when_it_should() -> None:
    changing = live_through(BrokenHarness(), ALONE, 1, RoutingFaults(change_every=SECOND))
    assert changing.shbs[0].version > 5
    assert live_through(BrokenHarness(), ALONE, 1, RoutingFaults()).shbs[0].version == 1


def test_an_event_that_is_missing_at_the_end(world: RouterWorld) -> None:
    """Whatever the observer saw: the application's events are counted too."""
    following = world.shbs[0].streams["a-events@1"]
    count = len(following.received)
    gone = following.received.pop(3)

    with breaks(
        Clause.TRUTH, rf"has {count - 1} of the {count}.* events of a-events@1 .*without \[{gone}\], and with \[\]"
    ):
        world.settle()


def test_an_event_too_many_at_the_end(world: RouterWorld) -> None:
    following = world.shbs[0].streams["a-events@1"]
    following.received.insert(0, following.received[0] - 1)

    with breaks(Clause.TRUTH, r"without \[\], and with \["):
        world.settle()


def test_events_that_were_given_up_too_soon(world: RouterWorld) -> None:
    shb, pubend = world.shbs[0], world.pubends[0].pubend
    head = shb.streams[pubend].head

    with breaks(Clause.MINIMA, "gave up"):
        shb.attend(Know(Knowledge(pubend, head, head + 100, lost=head + 100)))


def test_a_batch_that_never_gets_logged(world: RouterWorld) -> None:
    world.clients[0]._ask = lambda *_: None  # type: ignore[method-assign]
    world.run(1)

    with breaks(Clause.PLACE, "has not got its batch logged"):
        world.settle()


def test_a_breach_says_in_which_world_it_happened() -> None:
    with (
        pytest.raises(ContractError, match=r"what \(topology 'alone', seed 3, RoutingFaults\(loss=0.1") as breach,
        naming(ALONE, 3, RoutingFaults(loss=0.1)),
    ):
        raise ContractError(Clause.PUSH, "what", "a", 7)
    assert (breach.value.clause, breach.value.broker, breach.value.now) == (Clause.PUSH, "a", 7)
