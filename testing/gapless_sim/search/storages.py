"""The simulator on a storage plugin: the brokers' volumes are real files of its making, in a directory of the run.

    memory         the simulated disk: fails, stalls, fills up, is damaged, and loses any part of what is not synced
    any other one  a `DirectoryDisk`: the end of a process and of the power, and nothing else

What happens still follows from the seed: the storage is called in one thread, and is heard when virtual time says so.
No determinism guards stand around a run, for a real storage touches files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from gapless import plugins
from gapless.errors import ConfigurationError
from gapless.spi import VolumeIdentity
from gapless_sim.search.run import run_seed
from gapless_sim.world.disk import DirectoryDisk, Disk

if TYPE_CHECKING:
    from gapless_sim.search.result import Result
    from gapless_sim.world.choices import ChoiceSequences
    from gapless_sim.world.options import Options

SIMULATED = "memory"
"""The storage of which the disk is simulated, too."""
NOT_SIMULATED = (
    "faults of the disk: writes and syncs that fail, stall or are torn, a full disk, damaged records",
    "an old copy of a disk that an operator puts back",
    "whether a sync reaches the disk: a loss of power leaves the files as they were when the last sync returned",
)
"""What there is not on any other storage."""


def not_simulated_on(storage: str) -> tuple[str, ...]:
    """What runs on a storage do not try, for people."""
    return () if storage == SIMULATED else NOT_SIMULATED


def faults_on(storage: str, faults: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the classes of faults that there can be on a storage."""
    return faults if storage == SIMULATED else tuple(kind for kind in faults if kind != "disk")


def options_on(storage: str, options: Options) -> Options:
    """The options of a run without what cannot be on a storage."""
    return options if storage == SIMULATED else replace(options, disk=replace(options.disk, restore=0.0))


@contextmanager
def disks_on(storage: str) -> Iterator[Callable[[], Disk] | None]:
    """What makes the brokers' disks in a run, for `run_seed`. None: the simulated ones. At the end they are gone."""
    if storage == SIMULATED:
        yield None
        return
    open_storage = plugins.load("storage", storage)
    made: list[DirectoryDisk] = []
    with TemporaryDirectory(prefix="gapless-simulate-") as directory:

        def new_disk() -> Disk:
            made.append(DirectoryDisk(open_storage, Path(directory) / f"disk{len(made)}"))
            return made[-1]

        try:
            yield new_disk
        finally:
            for disk in made:
                disk.close()


def run_on(
    storage: str,
    options: Options,
    choice_sequences: ChoiceSequences | None = None,
    *,
    keep: bool = False,
    steps_max: int | None = None,
) -> Result:
    """`run_seed`, with the brokers' volumes on a storage."""
    with disks_on(storage) as new_disk:
        return run_seed(options, choice_sequences, keep=keep, steps_max=steps_max, new_disk=new_disk)


def check_storage(storage: str) -> None:
    """Makes a volume on the storage, without options, and throws it away.

    Raises what the plugin raises, and ConfigurationError when it keeps nothing beyond the end of a process.
    """
    with disks_on(storage) as new_disk:
        if new_disk is None:
            return
        volume = new_disk().open(VolumeIdentity("simulated", "node1"))
        if not volume.capabilities.durable:
            raise ConfigurationError(
                f"--storage: {storage!r} keeps nothing beyond the end of a process: every crash would lose everything"
            )
