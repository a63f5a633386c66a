"""The stories of the router `delta`: each holds; with a switch on, some find what is wrong, and else a seed does."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from gapless_sim.oracles.copies import PAST_AN_OUTAGE
from gapless_sim.oracles.piles import KEPT
from gapless_sim.search.campaign import Plan
from gapless_sim.search.result import Failure
from gapless_sim.search.run import run_seed
from sim.delta_stories import STORIES, failure_of, played
from sim.switches.catalogue import switch_named

FOUND: Mapping[str, str] = {
    "gone_is_silence_for_all": "a server is evicted below the run of its child",
    "body_dropped_at_push": "dies with the push in its queue",
    "root_keeps_no_copy": "dies with the push in its queue",
    "dead_life_counts": "an SHB is wiped again and again",
    "evicted_is_a_copy": "a server is evicted below the run of its child",
    "break_before_make": "returns without a way",
    "silence_waits_at_each_hop": "events turn off on the way",
    "wish_is_kept": "is bypassed in a row",
    "sides_never_forget": "an SHB is wiped again and again",
    "all_keep_for_who_is_away": "an SHB is away for long",
}
"""By the switch: the story that finds it."""
SEEDS: Mapping[str, int] = {
    "ib_stamps_raw": 2,
    "purge_inside_window": 3,
    "complete_from_all": 16,
    "served_twice_unserves": 9,
    "gone_is_asked_for_ever": 25,
    "lost_changes_stay_lost": 0,
    "serve_unnumbered": 0,
}
"""By the switch: a seed that finds it, which holds without it."""


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", STORIES)
def test_a_story_holds(name: str) -> None:
    assert failure_of(name) is None


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("name", "assertion"), [("is bypassed in a row", PAST_AN_OUTAGE), ("an SHB is away for long", KEPT)]
)
def test_a_story_shows_what_its_oracle_is_about(name: str, assertion: str) -> None:
    _, hits = played(name)

    assert hits[assertion]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", FOUND)
def test_a_story_finds_what_is_wrong(name: str) -> None:
    switch = switch_named(name)
    with switch.applied():
        found = failure_of(FOUND[name])

    assert found is not None
    assert any(found.oracle.startswith(oracle) for oracle in switch.oracle), found


@pytest.mark.timeout(240)
@pytest.mark.parametrize(("name", "seed"), SEEDS.items())
def test_a_seed_finds_what_is_wrong(name: str, seed: int) -> None:
    switch, options = switch_named(name), Plan(("delta",)).options(seed, "delta")
    as_it_is: Failure | None = run_seed(options).violation
    with switch.applied():
        found = run_seed(options, steps_max=300_000).violation

    assert as_it_is is None
    assert found is not None
    assert any(found.oracle.startswith(oracle) for oracle in switch.oracle), found
