"""The other sweep: one byte of a file at rest is another one, and the broker is started.

It must either serve with nothing missing, or refuse and say why; and say so before anybody loses patience.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from random import Random

from typing_extensions import Self

from power.disk import Case, Image, put
from power.examine import Found, be_quick, examine_in_process
from power.judge import Judge
from power.promises import Owed
from power.recording import Recording
from power.sweep import Sweeper, fast_directory

PATTERNS = ("*.log", "MANIFEST-*", "CURRENT", "fence", "volume.json", "seal", "IDENTITY", "OPTIONS-*")
"""All that is read at an opening, but for the data files: damage in those is told to whoever reads it."""

READ = PATTERNS[:-1]
"""Without what an opening that is given its options does not read."""

SPARSE = {"OPTIONS-*": 16}
"""Of these one byte of so many: an opening that is given its options reads none."""

PATIENCE = 8.0
"""Seconds for an opening and all questions, in a process that inspects the database itself."""
WATCHED = 20.0
"""Seconds when RocksDB hung in the first attempt: now the broker's own watchdog has to see it, after eight."""

WHOLE, REFUSED, WATCHDOG, SILENT, HUNG = "whole", "refused", "refused by the watchdog", "silent loss", "hung"


@dataclass(frozen=True, slots=True)
class Flip:
    """A byte, and which of its bits are turned."""

    base: Case
    path: str
    offset: int
    mask: int

    def __str__(self) -> str:
        return f"{self.base}:{self.path}:{self.offset}:{self.mask}"

    @classmethod
    def parse(cls, text: str) -> Flip:
        """Reads what `str` wrote."""
        moment, cut, seed, path, offset, mask = text.split(":")
        return cls(Case(int(moment), cut, int(seed)), path, int(offset), int(mask))

    def apply(self, image: Image) -> Image:
        """The image with that byte."""
        if not self.mask:
            return image
        content = bytearray(image[self.path] or b"")
        content[self.offset] ^= self.mask
        return {**image, self.path: bytes(content)}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of it."""

    flip: Flip
    what: str
    words: str
    seconds: float

    @property
    def is_right(self) -> bool:
        """Whether nothing was lost in silence, and nobody waited for ever."""
        return self.what not in (SILENT, HUNG)


def bases(recording: Recording, scratch: Path) -> list[Case]:
    """Disks worth damaging: the one with most in its logs, and the one of the orderly end."""
    sweeper = Sweeper(recording, scratch)
    count = len(recording.changes)
    some = [Case(moment, "all") for moment in range(count // 100, count, max(1, count // 100))]
    return [max(some, key=lambda case: _log_bytes(sweeper.image(case))), Case(count, "all")]


def _log_bytes(image: Image) -> int:
    return sum(len(content or b"") for path, content in image.items() if path.endswith(".log"))


def flips(
    base: Case, image: Image, *, stride: int = 1, bits: int = 1, patterns: Sequence[str] = PATTERNS, offset: int = 0
) -> list[Flip]:
    """A flip of so many bits of every byte of the files that match, or of one byte of `stride`."""
    found = []
    for path, content in sorted(image.items()):
        if not any(fnmatch(Path(path).name, pattern) for pattern in patterns):
            continue
        step = stride * next((times for pattern, times in SPARSE.items() if fnmatch(Path(path).name, pattern)), 1)
        for place in range(offset % step, len(content or b""), step):
            turned = Random(f"{path} {place}").sample(range(8), bits)
            found += [Flip(base, path, place, 1 << bit) for bit in turned]
    return found


# ------------------------------------------------------------------------------------------- in processes


def sweep(recording: Recording, wanted: Sequence[Flip], *, processes: int) -> Iterator[Outcome]:
    """The outcomes of all flips. Each is tried in a process that can be killed."""
    parts = [list(wanted[start::processes]) for start in range(processes)]
    results: SimpleQueue[Outcome | None] = SimpleQueue()
    work = partial(_work, recording.directory, results=results)
    with ThreadPoolExecutor(processes) as pool:
        futures = [pool.submit(work, part) for part in parts]
        for _ in parts:
            while (outcome := results.get()) is not None:
                yield outcome
        for future in futures:
            future.result()


def _work(directory: Path, wanted: Sequence[Flip], *, results: SimpleQueue[Outcome | None]) -> None:
    try:
        with tempfile.TemporaryDirectory(prefix="gapless-flips-", dir=fast_directory()) as scratch:
            with Child(directory, Path(scratch), watched=False) as quick:
                for flip in wanted:
                    results.put(quick.outcome(flip) or _watched(directory, Path(scratch), flip))
    finally:
        results.put(None)


def _watched(directory: Path, scratch: Path, flip: Flip) -> Outcome:
    """Another attempt, with a watchdog: a process ends when RocksDB does not come back in it, or crashes."""
    with Child(directory, scratch, watched=True) as child:
        return child.outcome(flip) or Outcome(flip, HUNG, f"no answer within {WATCHED:g} s", WATCHED)


class Child:
    """A process that opens damaged disks, one after the other; a new one when it had to be killed."""

    def __init__(self, directory: Path, scratch: Path, *, watched: bool) -> None:
        self._make = partial(_serve, directory, scratch, watched=watched)
        self._patience = WATCHED if watched else PATIENCE
        self._process: multiprocessing.context.SpawnProcess | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._kill()

    def outcome(self, flip: Flip) -> Outcome | None:
        """The outcome of a flip; None when the process that tried it hung or died."""
        if self._process is None:
            context = multiprocessing.get_context("spawn")
            self._connection, theirs = context.Pipe()
            self._process = context.Process(target=self._make, args=(theirs,), daemon=False)
            self._process.start()
            theirs.close()
            assert self._connection.poll(60), "no process starts"
            self._connection.recv()
        self._connection.send(flip)
        try:
            if self._connection.poll(self._patience):
                outcome: Outcome = self._connection.recv()
                return outcome
        except (EOFError, OSError):
            pass
        self._kill()
        return None

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._connection.close()
            self._process = None


def _serve(directory: Path, scratch: Path, connection: Connection, *, watched: bool) -> None:
    logging.disable(logging.CRITICAL)
    if not watched:
        be_quick()
    flipper = Flipper(Recording(directory), Path(tempfile.mkdtemp(dir=scratch)), watched=watched)
    connection.send("ready")
    while True:
        try:
            flip = connection.recv()
        except EOFError:
            return
        connection.send(flipper.outcome(flip))


class Flipper:
    """Damages disks of a recording, and has them opened in this process."""

    def __init__(self, recording: Recording, scratch: Path, *, watched: bool = True) -> None:
        self._recording = recording
        self._sweeper = Sweeper(recording, scratch)
        self._judge = Judge(recording.truth)
        self._publishers = sorted({event.publisher for event in recording.truth.events})
        self._scratch = scratch
        self._watched = watched
        self._bases: dict[Case, tuple[Image, Owed]] = {}
        self._count = 0

    def outcome(self, flip: Flip) -> Outcome:
        """What comes of a flip."""
        if flip.base not in self._bases:
            self._bases[flip.base] = self._sweeper.image(flip.base), self._sweeper.owed(flip.base)
        image, owed = self._bases[flip.base]
        began = time.monotonic()
        found = asyncio.run(self._open(flip.apply(image)))
        seconds = time.monotonic() - began
        if found.refusal:
            return Outcome(flip, WATCHDOG if self._watched else REFUSED, found.refusal, seconds)
        faults = self._judge.faults(found, owed)
        return Outcome(flip, SILENT if faults else WHOLE, "; ".join(faults), seconds)

    def know(self, base: Case, image: Image, owed: Owed) -> None:
        """Has a case leave another disk, or has promised something else by then."""
        self._bases[base] = image, owed

    async def _open(self, image: Image) -> Found:
        self._count += 1
        directory = self._scratch / str(self._count)
        put(image, directory)
        try:
            return await examine_in_process(directory / "volume", self._publishers)
        finally:
            shutil.rmtree(directory, ignore_errors=True)
