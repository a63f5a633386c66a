"""The disk in memory is a model of the RocksDB volume: what that one really does, this one allows.

It fails when a new version of RocksDB, or of what we make of it, behaves in a way that the simulator does
not know. docs/topics/simulated-disk.md says in a table what is claimed here.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from gapless.errors import VolumeFullError
from gapless.spi import VolumeIdentity
from gapless_storage.memory import MemoryDisk, MemoryVolume
from integration.io_shim import compile_shim
from sim.disk_model import Choices, Verdict, judge
from sim.disk_player import Outcome
from sim.disk_real import Processes, RealDisk
from sim.disk_scripts import History, histories, random_history

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(240),  # one test that is run alone plays all histories
    pytest.mark.skipif(sys.platform != "linux", reason="the I/O shim needs LD_PRELOAD and /proc"),
]

DOCUMENT = Path(__file__).parents[2] / "docs" / "topics" / "simulated-disk.md"
MEMORY = Path("/dev/shm")
"""A file system where a sync costs nothing. What a disk loses is cut off by us, on any file system."""

HISTORIES = {**histories(), **{f"random {seed}": random_history(seed) for seed in range(60)}}

NEVER_SEEN = {
    "a write fails, and its batch is there": (
        "RocksDB's write fails before the batch is whole in the log, and behind a torn one nothing is kept. "
        "But the contract leaves it open, and other storages do it"
    ),
}
"""What the model allows though no history shows it, and why."""


class Laboratory:
    """Plays each history once on a real disk, and remembers what happened."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._outcomes: dict[str, list[Outcome]] = {}
        self._verdicts: dict[str, Verdict] = {}

    def outcomes(self, name: str) -> Sequence[Outcome]:
        """What a real disk did, step by step."""
        if name not in self._outcomes:
            history = HISTORIES[name]
            disk = RealDisk(self._processes, f"volume-{len(self._outcomes)}", history.options)
            try:
                self._outcomes[name] = [disk.play(step) for step in history.steps]
            finally:
                disk.close()
        return self._outcomes[name]

    def verdict(self, name: str) -> Verdict:
        """What the model says of it."""
        if name not in self._verdicts:
            self._verdicts[name] = judge(HISTORIES[name].steps, self.outcomes(name))
        return self._verdicts[name]


@pytest.fixture(scope="module")
def laboratory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laboratory]:
    library = compile_shim(tmp_path_factory.mktemp("shim"))
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as scratch:
        processes = Processes(library, Path(scratch))
        yield Laboratory(processes)
        processes.close()


@pytest.mark.parametrize("name", HISTORIES)
def test_the_model_allows_what_a_real_disk_does(laboratory: Laboratory, name: str) -> None:
    verdict = laboratory.verdict(name)

    if not verdict.explanations:
        pytest.fail(_departure(HISTORIES[name], laboratory.outcomes(name), verdict))


def _departure(history: History, outcomes: Sequence[Outcome], verdict: Verdict) -> str:
    """Where a history leaves the model."""
    steps = [*map(repr, history.steps[: verdict.told]), f"then {history.steps[verdict.told]!r}"]
    allowed = "\n".join(map(repr, verdict.instead))
    return "\n".join([*steps, f"the real disk: {outcomes[verdict.told]!r}", f"the model:\n{allowed}"])


def test_what_the_model_claims_was_seen(laboratory: Laboratory) -> None:
    """A claim was seen when a history happened that cannot be told without it."""
    seen: set[str] = set()
    made: set[str] = set()
    for name in HISTORIES:
        explanations = laboratory.verdict(name).explanations
        seen.update(set.intersection(*explanations))
        made.update(*explanations)

    assert made - seen == set(NEVER_SEEN)


def test_the_document_lists_every_claim(laboratory: Laboratory) -> None:
    text = DOCUMENT.read_text("utf-8")
    claims = {claim for name in HISTORIES for verdict in laboratory.verdict(name).explanations for claim in verdict}

    assert sorted(claim for claim in claims if f"`{claim}`" not in text) == []


# ----------------------------------------------------------------------------- wrong models are found wrong

_crash, _open, _sync = MemoryDisk.crash, MemoryDisk.open, MemoryVolume.sync


def crash_out_of_order(disk: MemoryDisk, keep: int = 0, *, fence: bool = False) -> None:
    """The newest batches stay, the oldest go."""
    newest = disk._batches[disk.unsynced - keep :]
    del disk._batches[disk.unsynced - keep :]
    _crash(disk, 0, fence=fence)
    disk._batches += newest


def crash_keeping_rows(disk: MemoryDisk, keep: int = 0, *, fence: bool = False) -> None:
    """Half of a batch stays."""
    for batch in disk._batches[keep:]:
        batch.undos = [undo for undo in batch.undos if undo[0].__name__ != "_set"]
    _crash(disk, keep, fence=fence)


def crash_keeping_nothing(disk: MemoryDisk, keep: int = 0, *, fence: bool = False) -> None:
    _crash(disk, 0, fence=fence)


def crash_keeping_everything(disk: MemoryDisk, keep: int = 0, *, fence: bool = False) -> None:
    _crash(disk, disk.unsynced, fence=fence)


def kill_like_a_power_cut(disk: MemoryDisk) -> None:
    _crash(disk)


def write_before_failing(disk: MemoryDisk, changes: Any) -> None:
    """A full disk takes the batch all the same."""
    disk._apply(changes)
    if disk.faults.full:
        raise VolumeFullError("the disk is full")


def sync_to_the_end(volume: MemoryVolume, upto: int | None = None) -> None:
    """A sync covers what was written while it ran."""
    _sync(volume, None)


def open_without_lock(disk: MemoryDisk, identity: VolumeIdentity) -> MemoryVolume:
    disk._volume = None
    return _open(disk, identity)


def anything(*_: object) -> None:
    """Raises nothing, does nothing."""


MISTAKES: list[tuple[type, str, Callable[..., Any], str]] = [
    (MemoryDisk, "crash", crash_out_of_order, "power is cut, batches 1"),
    (MemoryDisk, "crash", crash_keeping_rows, "power is cut, batches 1"),
    (MemoryDisk, "crash", crash_keeping_rows, "power is cut, least 0"),
    (MemoryDisk, "crash", crash_keeping_nothing, "power is cut, most 0"),
    (MemoryDisk, "crash", crash_keeping_everything, "power is cut in a sync of the .log, least"),
    (MemoryDisk, "kill", kill_like_a_power_cut, "killed"),
    (MemoryDisk, "write", write_before_failing, "the disk is full, close"),
    (MemoryDisk, "open", open_without_lock, "another process"),
    (MemoryDisk, "_raise_if_incomplete", anything, "an old copy, database"),
    (MemoryDisk, "_raise_if_incomplete", anything, "wiped, fence"),
    (MemoryDisk, "_try_syncing", anything, "a sync of the .log fails"),
    (MemoryVolume, "sync", sync_to_the_end, "two syncs, fence waits, .log fails, power"),
    (MemoryVolume, "_raise_if_failed", anything, "a sync of the fence fails"),
    (MemoryVolume, "_raise_if_failed", anything, "a write fails, close"),
]


@pytest.mark.parametrize(
    ("owner", "name", "mistake", "history"),
    MISTAKES,
    ids=[f"{mistake.__name__}, {history}" for _, _, mistake, history in MISTAKES],
)
def test_a_wrong_model_does_not_allow_it(
    laboratory: Laboratory,
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    name: str,
    mistake: Callable[..., Any],
    history: str,
) -> None:
    assert laboratory.verdict(history).explanations
    monkeypatch.setattr(owner, name, mistake)

    assert judge(HISTORIES[history].steps, laboratory.outcomes(history)).explanations == []


def test_all_choices_are_tried() -> None:
    choices, tried = Choices(), []
    while True:
        tried.append((choices.pick(2), choices.pick(3)) if choices.pick(2) else (choices.pick(2),))
        if not choices.next():
            break

    assert tried == [(0,), (1,), (0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
