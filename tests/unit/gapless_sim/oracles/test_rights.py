"""A1 with something that breaks it and something that nearly does."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gapless.core.server.authority import Authority
from gapless.core.wire.messages import Code, DeliverGap, DeliverSilence, Detached, Leased, Position, Subscribed
from gapless_sim.oracles.rights import A1Held
from gapless_sim.world.rules import ALL_MAY, SimRules
from unit.gapless_sim.oracles.model_fixture import NODE, ModelFixture, violates

SESSION = 7
GIVEN = [
    Subscribed(1, 1, 1, b"", True, [Position("p", 1)]),
    DeliverGap(1, 0, 10, 20, "lost"),
    Leased(1, 1),
]


class Ruled:
    """A session of `ada` at an SHB with rules."""

    def __init__(self) -> None:
        self.fixture = ModelFixture(A1Held)
        self.authority = Authority(ALL_MAY)
        loaded: Any = SimpleNamespace(authorizer=self.authority)
        self.fixture.world.brokers[NODE].loaded = loaded
        self.fixture.observe.came(NODE, SESSION, "ada")

    def take_away(self, client: str) -> None:
        """Other rules count, and do not hold yet."""
        self.authority.replace(SimRules(1, frozenset({client})), (1,))

    def hold(self) -> None:
        self.authority.on_held(1, self.authority.version)

    def say(self, message: object) -> None:
        self.fixture.observe.sent(NODE, SESSION, message)


@pytest.mark.parametrize("given", GIVEN, ids=lambda given: type(given).__name__)
def test_nothing_is_given_to_whom_rules_forbid_it_once_they_hold(given: object) -> None:
    ruled = Ruled()
    ruled.say(given)
    ruled.take_away("ada")
    ruled.say(given)
    ruled.hold()

    with violates("A1"):
        ruled.say(given)


def test_he_is_told_so_and_others_get_on() -> None:
    ruled = Ruled()
    ruled.take_away("ada")
    ruled.say(Detached(1, Code.FORBIDDEN, "rules 1 forbid it"))
    ruled.hold()
    ruled.say(DeliverSilence(0, 20, None))
    ruled.fixture.observe.came(NODE, SESSION, "bob")
    ruled.say(GIVEN[0])

    assert ruled.fixture.world.hits["rules.somebody lost what he had"] == 1


def test_who_may_again_gets_it_at_once() -> None:
    ruled = Ruled()
    ruled.take_away("ada")
    ruled.hold()
    ruled.authority.replace(ALL_MAY, (1,))

    ruled.say(GIVEN[0])
