"""Scenarios that are sweeps: the moments and the cuts that each is about (protocol: storage-scenarios).

`tests/integration/test_scenarios_storage.py` and `…_process.py` say which tests cover the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from integration.io_shim import Call, Kind
from power import flips, sweep
from power.disk import CUTS, Case
from power.recording import Recording

pytestmark = pytest.mark.timeout(180)

CASES_MOST = 32


def around(recording: Recording, kinds: set[Kind], ends: tuple[str, ...], near: int = 2) -> list[int]:
    """The moments before and after calls of some kinds on some files."""
    wanted = [
        number
        for number, call in enumerate(recording.changes, start=1)
        if call.kind in kinds and any(_is_named(call, end) for end in ends)
    ]
    close = {moment for number in wanted for moment in range(number - near, number + near + 1)}
    return sorted(moment for moment in close if 0 <= moment <= len(recording.changes))


def _is_named(call: Call, end: str) -> bool:
    return any(Path(target).match(end) for target in call.target.split("\n"))


def faults(recording: Recording, moments: Sequence[int], cuts: Iterable[str] = CUTS) -> list[tuple[str, object]]:
    """What is wrong after the power was cut then; of many moments some are taken."""
    cases = [Case(moment, cut) for moment in moments for cut in cuts]
    assert cases
    some = cases[:: -(-len(cases) // CASES_MOST)]
    verdicts = list(sweep.sweep(recording, some, processes=2))
    assert len(verdicts) == len(some)
    return [(str(verdict.case), verdict.faults) for verdict in verdicts if verdict.faults]


def test_s01_a_power_cut_right_after_a_receipt_takes_nothing(recording: Recording) -> None:
    """The receipt leaves after the fence was synced: at that moment everything that is not synced is dropped."""
    moments = around(recording, {Kind.SYNC}, ("fence",), near=0)

    assert faults(recording, moments, ["least", "contents"]) == []


def test_s03_a_turned_bit_of_the_log_is_seen(recording: Recording, tmp_path: Path) -> None:
    assert wrong_flips(recording, tmp_path, "*.log") == []


def test_s07_a_turned_bit_of_what_rocksdb_opens_with_is_harmless_or_seen(recording: Recording, tmp_path: Path) -> None:
    assert wrong_flips(recording, tmp_path, "MANIFEST-*", "CURRENT", "IDENTITY", "OPTIONS-*") == []


def wrong_flips(recording: Recording, scratch: Path, *patterns: str) -> list[tuple[str, str, str]]:
    """Some bits of those files, turned one at a time; which of them went wrong."""
    base, _ = flips.bases(recording, scratch)
    image = sweep.Sweeper(recording, scratch).image(base)
    some: list[flips.Flip] = []
    for pattern in patterns:
        wanted = flips.flips(base, image, patterns=[pattern])
        some += wanted[:: -(-len(wanted) // 10)]
    assert len(some) >= 10 * len(patterns) - 5
    outcomes = list(flips.sweep(recording, some, processes=2))
    assert len(outcomes) == len(some)
    return [(str(outcome.flip), outcome.what, outcome.words) for outcome in outcomes if not outcome.is_right]


def test_s19_a_power_cut_at_any_step_of_giving_space_back_loses_nothing(recording: Recording) -> None:
    """Nothing that is not released is gone, and nothing that was released comes back as new (INV8)."""
    removed = [call for call in recording.changes if call.kind is Kind.UNLINK and call.target.endswith(".sst")]

    assert removed, "nothing was given back"
    assert faults(recording, around(recording, {Kind.UNLINK}, ("*.sst",), near=4)) == []


def test_s20_a_power_cut_while_one_column_family_is_flushed_leaves_both_in_step(recording: Recording) -> None:
    flushes = around(recording, {Kind.OPEN, Kind.SYNC}, ("*.sst",))
    manifests = around(recording, {Kind.WRITE, Kind.SYNC}, ("MANIFEST-*",), near=1)

    assert faults(recording, sorted({*flushes, *manifests})) == []


def test_s21_a_name_that_a_power_cut_takes_is_missed_by_nobody(recording: Recording) -> None:
    """The fence, CURRENT, volume.json: written aside, synced, renamed, and the directory synced."""
    moments = around(recording, {Kind.RENAME, Kind.OPEN, Kind.MKDIR}, ("*",), near=1)

    assert faults(recording, moments, ["least", "names", "contents", "prefix"]) == []


def test_p01_a_kill_after_any_change_of_the_disk_takes_nothing(recording: Recording) -> None:
    assert faults(recording, sweep.moments(recording), ["all"]) == []
