"""The stories: each holds, and with its switch on the invariant that is meant finds what is wrong."""

from __future__ import annotations

import pytest

from sim.stories import STORIES, failure_of
from sim.switches.catalogue import switch_named


@pytest.mark.parametrize("name", STORIES)
def test_a_story_holds_and_breaks_with_its_switch(name: str) -> None:
    switch = switch_named(name)
    as_it_is = failure_of(STORIES[name])
    with switch.applied():
        broken = failure_of(STORIES[name])

    assert as_it_is is None
    assert broken is not None
    assert broken.oracle in switch.oracle, broken
