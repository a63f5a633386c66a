"""Gateways over one model Kafka keep what is promised; and each rule of theirs that is broken is found."""

from __future__ import annotations

import pytest

from gapless_sim.world.gateways import World
from sim.switches.edits import Edit, Replace, applied

_FOLLOWED = "gapless_phb.core.foreign_log.followed:FollowedLog"
_APPENDS = "gapless_phb.core.foreign_log.appends:Appends"
_PUBLISHING = "gapless_phb.core.foreign_log.publishing:NumberedPublishing"
SEEDS = 25
SEARCHED = 400

BROKEN: dict[str, tuple[tuple[Edit | Replace, ...], str]] = {
    "no batch is a duplicate": ((Replace("gapless_phb.core.foreign_log.duplicates:_settles", "return False"),), "KI"),
    "what is uncertain is appended again without reading first": (
        (
            Edit(f"{_APPENDS}._on_answer", "self._when_told(located.tick, 0,", "self._when_told(0, 0,"),
            Edit(f"{_APPENDS}._encode", "self._log.stable,", "self._log.stable + 1,"),
        ),
        "KI6",
    ),
    "what was cut off still counts for duplicates": (
        (Edit(f"{_FOLLOWED}.learn", "self._marks = Marks(self.stable)", "pass"),),
        "KI",
    ),
    "who begins to read inside does not read older marks": (
        (Edit(f"{_FOLLOWED}._needed", "return min(begin, max(window(marks, begin), self.lost))", "return begin"),),
        "KI",
    ),
    "a batch overtakes the first one of its epoch": (
        (
            Edit("gapless_phb.core.foreign_log.duplicates:_settles", "(epoch == mark.epoch or mark.begins)", "True"),
            Edit(f"{_APPENDS}._hand_over", "beginning[batch.publisher] = None", "pass"),
        ),
        "KI",
    ),
    "a batch of an epoch that is over is handed over": (
        (Edit(f"{_PUBLISHING}._meet", "batch is None or batch.epoch < mark.epoch", "batch is None"),),
        "KI6",
    ),
}


@pytest.mark.parametrize("unclean", [False, True])
def test_what_is_promised_is_kept(unclean: bool) -> None:
    for seed in range(SEEDS):
        assert World(seed, unclean=unclean).run(600) == [], seed


@pytest.mark.parametrize("rule", BROKEN)
@pytest.mark.timeout(240)
def test_a_broken_rule_is_found(rule: str) -> None:
    edits, oracle = BROKEN[rule]
    with applied(edits):
        for seed in range(SEARCHED):
            try:
                faults = World(seed, unclean=True).run(600)
            except AssertionError as error:
                faults = [f"{oracle}: {error}"]
            if faults:
                assert any(fault.startswith(oracle) for fault in faults), faults
                return
    raise AssertionError("nobody has noticed")
