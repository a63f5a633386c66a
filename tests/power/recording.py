"""A recording: the journal of a broker at work, what its clients know, and the disk at the end of it."""

from __future__ import annotations

import asyncio
import shutil
from functools import cached_property
from pathlib import Path
from random import Random

from integration.io_shim import Call, Shim, compile_shim, read_calls
from power import workload
from power.disk import Disk, Image, changes, cut_all, take
from power.promises import Promises
from power.workload import Truth

ATTEMPTS = 5
UNSEEN = ("LOG", "LOCK", "lock")
"""What the shim does not see whole, and nothing depends on: logs for people, and locks."""


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

    @property
    def end(self) -> Image:
        """The disk at the end."""
        return seen(take(self.directory / "disk"))

    def rebuilt(self) -> Image:
        """The same, from the journal."""
        disk = Disk()
        for call in self.changes:
            disk.apply(call)
        return seen(cut_all(disk, Random(0)))


def seen(image: Image) -> Image:
    """An image without what the shim does not see."""
    return {path: content for path, content in image.items() if not Path(path).name.startswith(UNSEEN)}


def record(directory: Path, *, events: int, seed: int) -> Recording:
    """Records the reference workload into a directory.

    A kill may fall between a write and its note; then the disk that is rebuilt is not the one that there is, and
    it is recorded again.
    """
    for _ in range(ATTEMPTS):
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        (directory / "disk").mkdir()
        library = compile_shim(directory)
        shim = Shim(library, directory / "disk", directory)
        try:
            truth = asyncio.run(workload.run(shim, directory, directory / "disk", events, seed))
        finally:
            shim.close()
        truth.save(directory / "truth.json")
        recording = Recording(directory)
        if recording.rebuilt() == recording.end:
            return recording
    raise AssertionError("the journal does not lead to the disk that there is")
