"""A recording: the journal of a broker at work, what its clients know, and the disk at the end of it."""

from __future__ import annotations

import asyncio
import json
import shutil
from functools import cached_property, lru_cache
from pathlib import Path
from random import Random

from integration.io_shim import NEVER, Call, Shim, compile_shim, read_calls
from power import workload
from power.disk import Case, Disk, Image, changes, cut_all, put, take
from power.promises import Owed, Promises
from power.workload import Truth

ATTEMPTS = 5
UNSEEN = ("LOG", "LOCK", "lock", "reserve")
"""What the shim does not see whole, and nothing depends on: logs for people, locks, and room that is kept aside."""


class Recording:
    """A recording in a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @cached_property
    def calls(self) -> list[Call]:
        """All calls."""
        return read_calls(self.directory / "journal")

    @cached_property
    def changes(self) -> list[Call]:
        """Those after each of which the power may be cut."""
        return changes(self.calls)

    @cached_property
    def truth(self) -> Truth:
        """What the clients know."""
        return Truth.load(self.directory / "truth.json")

    @cached_property
    def promises(self) -> Promises:
        """What the clients were told, and when."""
        return Promises(self.calls, self.truth)

    @cached_property
    def base(self) -> Image:
        """The disk at the beginning: empty, or what a power cut has left."""
        base = self.directory / "base"
        return take(base) if base.is_dir() else {}

    def owed(self, moment: int) -> Owed:
        """What was promised after so many changes: until the next one has ended, all was sent with that disk."""
        origin = self.directory / "origin.json"
        if origin.exists():
            directory, case = json.loads(origin.read_text("utf-8"))
            return open_recording(Path(directory)).owed(Case.parse(case).moment)
        place = self.changes[moment].ended if moment < len(self.changes) else NEVER
        return self.promises.at(place)

    @property
    def end(self) -> Image:
        """The disk at the end."""
        return seen(take(self.directory / "disk"))

    def rebuilt(self) -> Image:
        """The same, from the journal."""
        disk = Disk(self.base)
        for call in self.changes:
            disk.apply(call)
        return seen(cut_all(disk, Random(0)))


@lru_cache(maxsize=4)
def open_recording(directory: Path) -> Recording:
    """The recording in a directory, read once in a process."""
    return Recording(directory)


def seen(image: Image) -> Image:
    """An image without what the shim does not see."""
    return {path: content for path, content in image.items() if not Path(path).name.startswith(UNSEEN)}


def record_opening(recording: Recording, case: Case, image: Image, directory: Path) -> Recording:
    """Records how a broker starts on the disk that a case leaves, until it serves and is killed."""
    for _ in range(ATTEMPTS):
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        put(image, directory / "base")
        put(image, directory / "disk")
        shim = Shim(compile_shim(directory), directory / "disk", directory, whole=True)
        try:
            asyncio.run(workload.only_open(shim, directory, directory / "disk"))
        finally:
            shim.close()
        recording.truth.save(directory / "truth.json")
        (directory / "origin.json").write_text(json.dumps([str(recording.directory), str(case)]), "utf-8")
        opening = Recording(directory)
        if opening.rebuilt() == opening.end:
            return opening
    raise AssertionError("the journal does not lead to the disk that there is")


def record(directory: Path, *, events: int, seed: int, fence: str) -> Recording:
    """Records the reference workload into a directory; `fence`: the option of that name of its storage.

    A kill may fall between a write and its note; then the disk that is rebuilt is not the one that there is, and
    it is recorded again.
    """
    for _ in range(ATTEMPTS):
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        (directory / "disk").mkdir()
        library = compile_shim(directory)
        shim = Shim(library, directory / "disk", directory, whole=True)
        try:
            truth = asyncio.run(workload.run(shim, directory, directory / "disk", events, seed, fence))
        finally:
            shim.close()
        truth.save(directory / "truth.json")
        recording = Recording(directory)
        if recording.rebuilt() == recording.end:
            return recording
    raise AssertionError("the journal does not lead to the disk that there is")
