"""The stories of the router `delta`: each holds, and some find what is wrong with a switch on."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from sim.delta_stories import STORIES, failure_of
from sim.switches.catalogue import switch_named

FOUND: Mapping[str, str] = {}
"""By the switch: the story that finds it."""


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", STORIES)
def test_a_story_holds(name: str) -> None:
    assert failure_of(name) is None


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", FOUND)
def test_a_story_finds_what_is_wrong(name: str) -> None:
    switch = switch_named(name)
    with switch.applied():
        found = failure_of(FOUND[name])

    assert found is not None
    assert any(found.oracle.startswith(oracle) for oracle in switch.oracle), found
