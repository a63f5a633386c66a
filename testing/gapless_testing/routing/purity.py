"""The same calls have the same effects, everywhere, and nothing outside is touched (C6)."""

from __future__ import annotations

from gapless_testing.routing.breaches import Clause, ContractError
from gapless_testing.routing.harness import RouterFixtures, RouterHarness, of_any_shape
from gapless_testing.routing.isolation import DIGESTS, GUARDED, difference, live, live_elsewhere, steps

HASH_SEEDS = {1: GUARDED, 2: DIGESTS}
"""The order of a set of two is the same in half of all processes; so there are a few. What it touches shows in one."""


class PurityTests(RouterFixtures):
    """C6."""

    def test_the_same_calls_have_the_same_effects(self, harness: RouterHarness) -> None:
        """Twice in one process."""
        for topology in of_any_shape(harness):
            if live(harness, topology) != live(harness, topology):
                where = difference(steps(harness, topology), steps(harness, topology))
                raise ContractError(Clause.PURE, f"two equal runs differ in {topology}: {where}")

    def test_another_process_sees_the_same_and_nothing_is_touched(self, harness: RouterHarness) -> None:
        """No order of a set gets out; no clock, file, socket or thread is touched."""
        here = {topology.name: live(harness, topology) for topology in of_any_shape(harness)}
        for hash_seed, mode in HASH_SEEDS.items():
            found = live_elsewhere(harness, hash_seed, mode)
            if found["touched"]:
                raise ContractError(Clause.PURE, f"a router touches {', '.join(found['touched'])}")
            for topology in of_any_shape(harness):
                if found["digests"][topology.name] != here[topology.name]:
                    where = difference(steps(harness, topology), live_elsewhere(harness, hash_seed, topology.name))
                    what = f"with PYTHONHASHSEED={hash_seed} a run differs in {topology}: {where}"
                    raise ContractError(Clause.PURE, what)
