"""A sample of the sweeps that `python3 dev.py power` does whole, and that they find what there is to be found."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from integration.io_shim import Call, Kind
from power import flips, sweep
from power.disk import CUTS, Case
from power.recording import Recording, record_opening

pytestmark = pytest.mark.timeout(180)

MOMENTS = 18
FLIPS = 60


def some(recording: Recording, count: int) -> list[Case]:
    """All that may be left at some moments, spread over the recording."""
    moments = sweep.moments(recording)
    return [Case(moment, cut) for moment in moments[3 :: len(moments) // count] for cut in CUTS]


def test_the_recording_is_of_a_broker_at_work(recording: Recording) -> None:
    """What is worth being cut is in it: files of all kinds, names that come and go, and promises of all kinds."""
    targets = {Path(call.target).suffix for call in recording.changes if call.kind is Kind.WRITE}
    owed = recording.owed(len(recording.changes))
    flushed = [call for call in recording.changes if call.kind is Kind.OPEN and call.target.endswith(".sst")]

    assert {".log", ".sst"} <= targets
    assert {call.kind for call in recording.changes} >= {Kind.RENAME, Kind.UNLINK, Kind.MKDIR, Kind.TRUNCATE}
    assert len(flushed) >= 4
    assert recording.promises.unknown() == set()
    assert len(owed.events) == len(recording.truth.events)
    assert set(owed.subscriptions) == {"all", "even", "slow", "late", "early"}
    assert owed.sequences["a"] == 24
    assert all(tick > owed.subscriptions[name] for name, tick in owed.acknowledged.items() if name != "gone")


def test_no_power_cut_takes_what_was_promised(recording: Recording) -> None:
    cases = some(recording, MOMENTS)

    verdicts = list(sweep.sweep(recording, cases, processes=2))

    assert len(verdicts) == len(cases)
    assert [(str(verdict.case), verdict.faults) for verdict in verdicts if verdict.faults] == []
    assert sum(verdict.opened for verdict in verdicts) > len(cases) / 2


def test_none_takes_it_with_a_fence_that_follows_the_receipts(recording_behind: Recording) -> None:
    """A receipt waits for the log alone; what was receipted is in it, wherever the fence stands."""
    cases = some(recording_behind, MOMENTS // 2)

    verdicts = list(sweep.sweep(recording_behind, cases, processes=2))

    assert len(verdicts) == len(cases)
    assert [(str(verdict.case), verdict.faults) for verdict in verdicts if verdict.faults] == []


def test_a_broker_process_agrees(recording: Recording) -> None:
    cases = [Case(moment, "tails") for moment in sweep.moments(recording)[100::200]]

    verdicts = list(sweep.sweep(recording, cases, processes=2, real=True))

    assert [(str(verdict.case), verdict.faults) for verdict in verdicts if verdict.faults] == []
    assert len(verdicts) == len(cases) >= 2


def test_no_power_cut_during_an_opening_takes_it(recording: Recording, tmp_path: Path) -> None:
    """P05: what a power cut has left is opened, and the power is cut again in the middle of that."""
    moments = sweep.moments(recording)
    case = Case(moments[len(moments) // 2], "tails")
    sweeper = sweep.Sweeper(recording, tmp_path)
    opening = record_opening(recording, case, sweeper.image(case), tmp_path / "opening")
    cases = some(opening, 5)

    verdicts = list(sweep.sweep(opening, cases, processes=2))

    assert [(str(verdict.case), verdict.faults) for verdict in verdicts if verdict.faults] == []


def test_no_turned_bit_loses_anything_in_silence(recording: Recording, tmp_path: Path) -> None:
    """S03, S07: nothing is missing, or the volume is refused; and nothing hangs."""
    sweeper = sweep.Sweeper(recording, tmp_path)
    wanted = [
        flip
        for base in flips.bases(recording, tmp_path)
        for flip in flips.flips(base, sweeper.image(base), patterns=flips.READ)
    ]
    wanted = wanted[7 :: len(wanted) // FLIPS]

    outcomes = list(flips.sweep(recording, wanted, processes=2))

    assert [(str(outcome.flip), outcome.what, outcome.words) for outcome in outcomes if not outcome.is_right] == []
    assert len(outcomes) == len(wanted)
    assert {outcome.what for outcome in outcomes} >= {flips.WHOLE, flips.REFUSED}
    assert all(outcome.words for outcome in outcomes if outcome.what == flips.REFUSED)


# ------------------------------------------------------------------------------ what would be found


def without_syncs(recording: Recording, *ends: str) -> Recording:
    """The same broker, on a disk that does nothing when those files are synced."""
    lying = Recording(recording.directory)
    lying.changes = [call for call in recording.changes if not _is_sync_of(call, ends)]
    return lying


def _is_sync_of(call: Call, ends: tuple[str, ...]) -> bool:
    return call.kind is Kind.SYNC and call.target.endswith(ends)


@pytest.mark.parametrize(
    ("ends", "words"),
    [((".log",), "were durable"), ((".log", "fence"), "is lost"), (("volume", "."), "lost"), (("rocksdb",), "")],
    ids=["log", "log and fence", "directory", "directory of the database"],
)
def test_a_broker_that_forgot_a_sync_would_be_convicted(
    recording: Recording, tmp_path: Path, ends: tuple[str, ...], words: str
) -> None:
    lying = without_syncs(recording, *ends)
    sweeper = sweep.Sweeper(lying, tmp_path)
    moments = sweep.moments(lying)

    # What is lost at one moment is flushed at the next: so few are looked at only where they do.
    verdicts = (sweeper.verdict(Case(moment, "least")) for moment in moments[60 :: len(moments) // 48])

    assert any(words in fault for verdict in verdicts for fault in verdict.faults)


def test_an_outcome_that_lost_something_is_called_so(recording: Recording, tmp_path: Path) -> None:
    """The whole volume gone is a new volume, in which nothing is missing that it knows of."""
    flipper = flips.Flipper(recording, tmp_path)
    end = Case(len(recording.changes), "all")
    flipper.know(end, {"volume": None}, recording.owed(end.moment))

    outcome = flipper.outcome(flips.Flip(end, "volume/any", 0, 0))

    assert outcome.what == flips.SILENT
    assert "lost" in outcome.words


def test_the_command_says_what_it_found(recording: Recording) -> None:
    """With so great a stride it does little; what it does it says."""
    options = ["--recording", str(recording.directory), "--stride", "400", "--openings", "0", "--real", "0", "--json"]
    command = [sys.executable, str(Path(__file__).parent), "cuts", *options, "--cut", "torn"]

    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    said = json.loads(done.stdout)
    assert said["right"] is True
    assert said["cuts"]["at work"]["cases"] >= 1


def test_the_command_replays_a_case(recording: Recording) -> None:
    command = [sys.executable, str(Path(__file__).parent), "replay", str(recording.directory), "200:torn:0"]

    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "all that was promised is there" in done.stderr
