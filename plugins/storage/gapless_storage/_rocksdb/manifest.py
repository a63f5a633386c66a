"""A MANIFEST whose last record a power cut has spoilt, and what is tried then.

RocksDB drops a last record that is too short, but refuses one that has its length and not its content,
which a power cut leaves as well. Then the last change to the set of data files is undone, on trial: in a
copy, made of links. Whether anything durable is missing without it, the log and the fence decide, as ever.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gapless_storage._rocksdb.files import sync_file
from gapless_storage._rocksdb.logformat import intact_records


@dataclass(frozen=True, slots=True)
class TornManifest:
    """A MANIFEST that is intact only in its first bytes."""

    path: Path
    keep_bytes: int

    @contextmanager
    def without_tail(self) -> Iterator[Path]:
        """A copy of the database, but for its logs, in which the damaged end of the MANIFEST is cut off."""
        database = self.path.parent
        trial = database.with_name("trial")
        shutil.rmtree(trial, ignore_errors=True)
        trial.mkdir()
        try:
            for path in database.glob("*.sst"):
                os.link(path, trial / path.name)
            shutil.copy(database / "CURRENT", trial)
            (trial / self.path.name).write_bytes(self.path.read_bytes()[: self.keep_bytes])
            yield trial
        finally:
            shutil.rmtree(trial, ignore_errors=True)

    def cut_off(self) -> None:
        """Cuts the damaged end off, durably."""
        with self.path.open("r+b") as file:
            file.truncate(self.keep_bytes)
            sync_file(file.fileno())


def torn_manifest(database: Path) -> TornManifest | None:
    """The MANIFEST of a database if it ends in damage, and None if it is intact or has no beginning."""
    try:
        path = database / (database / "CURRENT").read_text("ascii").strip()
        keep = max((end for _, end in intact_records(path, 0)), default=0)
        size = path.stat().st_size
    except (OSError, ValueError):
        return None
    return TornManifest(path, keep) if 0 < keep < size else None
