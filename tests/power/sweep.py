"""The sweep: the power is cut after every change of the disk, in every way, and the broker is started again."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import multiprocessing
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

from power.disk import CUTS, Case, Disk, Image, put
from power.examine import Found, be_quick, examine_in_process, examine_process
from power.judge import Judge
from power.promises import Owed
from power.recording import UNSEEN, Recording, open_recording

CHUNK = 8
"""So many moments in a row are one process's: many of them leave the same disk."""
IDLE = (*UNSEEN, "rocksdict-config.json", "seal")
"""Files that nothing depends on: to cut the power after each line of a log for people would be idle."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a case."""

    case: Case
    faults: tuple[str, ...]
    opened: bool
    """False when the same disk was opened for another case before."""


class Sweeper:
    """Rebuilds disks from a recording, moment by moment, and has them opened."""

    def __init__(self, recording: Recording, scratch: Path, *, real: bool = False) -> None:
        """`real`: with a broker process of its own for each, where else a node in this process does."""
        self._recording = recording
        self._judge = Judge(recording.truth)
        self._publishers = sorted({event.publisher for event in recording.truth.events})
        self._scratch = scratch
        self._real = real
        self._disk = Disk(recording.base)
        self._moment = 0
        self._seen: dict[bytes, Found] = {}
        self._count = 0

    def verdict(self, case: Case) -> Verdict:
        """Cuts the power, and starts the broker again."""
        image = self.image(case)
        digest = _digest(image)
        found = self._seen.get(digest)
        if opened := found is None:
            found = self._seen[digest] = asyncio.run(self._open(image))
        assert found is not None
        return Verdict(case, tuple(self._judge.faults(found, self.owed(case))), opened)

    def owed(self, case: Case) -> Owed:
        """What was promised by then."""
        return self._recording.owed(case.moment)

    def image(self, case: Case) -> Image:
        """The disk that a case leaves."""
        if case.moment < self._moment:
            self._disk, self._moment = Disk(self._recording.base), 0
        for call in self._recording.changes[self._moment : case.moment]:
            self._disk.apply(call)
        self._moment = case.moment
        return CUTS[case.cut](self._disk, Random(f"{case.moment} {case.cut} {case.seed}"))

    async def _open(self, image: Image) -> Found:
        self._count += 1
        directory = self._scratch / str(self._count)
        put(image, directory)
        try:
            if self._real:
                return await examine_process(directory / "volume", directory / "broker", self._publishers)
            return await examine_in_process(directory / "volume", self._publishers)
        finally:
            shutil.rmtree(directory, ignore_errors=True)


def moments(recording: Recording, stride: int = 1, offset: int = 0) -> list[int]:
    """The moments of a recording, or one of `stride`."""
    found = [0] + [
        number
        for number, call in enumerate(recording.changes, start=1)
        if not Path(call.target.split("\n")[0]).name.startswith(IDLE)
    ]
    return found[offset % stride :: stride]


def sweep(recording: Recording, cases: Sequence[Case], *, processes: int, real: bool = False) -> Iterator[Verdict]:
    """The verdicts over all cases, in no particular order."""
    chunks = list(_chunks(cases))
    work = partial(_work, recording.directory, real=real)
    # A process that is forked from one in which RocksDB was open waits for ever for its threads.
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        for verdicts in pool.map(work, chunks):
            yield from verdicts


def _chunks(cases: Sequence[Case]) -> Iterator[list[Case]]:
    """Cases of moments in a row."""
    found = sorted({case.moment for case in cases})
    for start in range(0, len(found), CHUNK):
        wanted = set(found[start : start + CHUNK])
        yield [case for case in cases if case.moment in wanted]


def _work(directory: Path, cases: Sequence[Case], *, real: bool) -> list[Verdict]:
    logging.disable(logging.CRITICAL)
    if not real:
        be_quick()
    with tempfile.TemporaryDirectory(prefix="gapless-power-", dir=fast_directory()) as scratch:
        sweeper = Sweeper(open_recording(directory), Path(scratch), real=real)
        return [sweeper.verdict(case) for case in sorted(cases, key=lambda case: case.moment)]


def fast_directory() -> str | None:
    """A directory in memory, where there is one: nothing that is kept there has to survive."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def _digest(image: Image) -> bytes:
    digest = hashlib.sha256()
    for path, content in image.items():
        digest.update(b"%s %d\n" % (path.encode(), -1 if content is None else len(content)))
        digest.update(content or b"")
    return digest.digest()
