"""Merges many small files of an archive into few: `compact`. Needs no Spark, and may run while the archive grows.

After each step the archive reads the same, so it may be killed after any of them:

    1. the rows of batches a to b are written to `events/compacted=a-b`, which no manifest names yet
    2. one manifest, from a to b, takes the place of b's: from now on it counts, and those of a to b - 1 do not
    3. these are removed, and so are the files that no manifest names any more, when nobody reads them any more

What a killed attempt has left is removed, or overwritten, by the next one.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from gapless.core.stream.ticks import PubendId, Tick
from gapless.errors import ArchiveError, ConfigurationError
from gapless_spark.pipelines.contents import FIELDS, check_bounds, day_of, described
from gapless_spark.pipelines.manifest import ArchiveFolder, DataFile, Manifest, sync_tree

ROWS: Final = 1_000_000
"""How many rows fill a file."""
KEEP_SECONDS: Final = 3600.0
"""How many seconds replaced files stay for those who still read them."""
_READ_ROWS: Final = 32_768
_AS_SPARK: Final[Mapping[str, Any]] = {"compression": "zstd", "compression_level": 3}
"""The compression of the archive's own files. With another one the merged files would be larger than these."""
_LOCK: Final = "compaction"


@dataclass(frozen=True)
class Compacted:
    """What a compaction did."""

    batches: int
    """How many manifests were merged."""
    manifests: int
    """How many manifests they became."""
    events: int
    files_before: int
    files_after: int
    files_removed: int
    """Files that this compaction and earlier ones replaced."""
    files_kept: int
    """Replaced files that are still there, for those who read them."""


OnProgress = Callable[[int, int], None]
"""Called with how many rows are written, and how many there are."""


def compact(
    path: str | Path,
    *,
    rows: int = ROWS,
    keep_seconds: float = KEEP_SECONDS,
    on_progress: OnProgress | None = None,
) -> Compacted:
    """Merges the rows of neighbouring batches, up to so many in a file, and removes what earlier compactions replaced.

    Replaced files stay for `keep_seconds`, so that readers which have begun to read them can go on. The next compaction
    after that time removes them. Raises ArchiveError.
    """
    if rows < 1 or keep_seconds < 0:
        raise ConfigurationError("rows is at least 1, and keep_seconds at least 0")
    folder = ArchiveFolder(path)
    folder.described()
    with folder.lock(_LOCK):
        groups = groups_of(folder.manifests(), rows)
        total, done = sum(_rows(group) for group in groups), 0

        def told(count: int) -> None:
            nonlocal done
            done += count
            if on_progress is not None:
                on_progress(done, total)

        after = [_merge(folder, group, rows, told) for group in groups]
        removed, kept = folder.remove_replaced(time.time_ns() / 1e9 - keep_seconds)
    return Compacted(
        batches=sum(map(len, groups)),
        manifests=len(groups),
        events=sum(manifest.events for manifest in after),
        files_before=sum(len(manifest.files) for group in groups for manifest in group),
        files_after=sum(len(manifest.files) for manifest in after),
        files_removed=removed,
        files_kept=kept,
    )


def groups_of(manifests: Sequence[Manifest], rows: int) -> list[list[Manifest]]:
    """Returns neighbours that together have about so many rows. Manifests that have them already are left out."""
    groups: list[list[Manifest]] = [[]]
    held = 0
    for manifest in manifests:
        count = sum(file.rows for file in manifest.files)
        if groups[-1] and held + count > rows:
            groups.append([])
            held = 0
        groups[-1].append(manifest)
        held += count
    return [group for group in groups if len(group) > 1]


def _rows(group: Sequence[Manifest]) -> int:
    return sum(file.rows for manifest in group for file in manifest.files)


def _merge(folder: ArchiveFolder, group: Sequence[Manifest], rows: int, told: Callable[[int], None]) -> Manifest:
    first, last = group[0], group[-1]
    directory = folder.compacted_directory(first.first, last.batch)
    if directory.exists():
        shutil.rmtree(directory)
    directory.mkdir(parents=True)
    sources = [file for manifest in group for file in manifest.files]
    for pubend in sorted({file.pubend for file in sources}):
        own = sorted((file for file in sources if file.pubend == pubend), key=lambda file: file.first)
        _write(folder, directory, own, rows, told)
    sync_tree(directory)
    merged = _merged(folder, group, directory)
    folder.replace(merged)
    return merged


def _merged(folder: ArchiveFolder, group: Sequence[Manifest], directory: Path) -> Manifest:
    """Returns the merged manifest, if the new files have exactly the contents of the old ones. Raises ArchiveError."""
    files, gaps = described(folder.path, directory)
    start: dict[PubendId, Tick] = {}
    end: dict[PubendId, Tick] = {}
    for manifest in group:
        start = manifest.start | start
        end |= manifest.end
    check_bounds(files, start, end)
    lost = sorted(gap for manifest in group for gap in manifest.gaps)
    if sum(file.rows for file in files) != _rows(group) or gaps != lost:
        raise ArchiveError(f"{directory} has not the rows of batches {group[0].first} to {group[-1].batch}")
    return Manifest(
        first=group[0].first,
        batch=group[-1].batch,
        files=files,
        start=start,
        end=end,
        gaps=lost,
        token=group[-1].token,
    )


def _write(
    folder: ArchiveFolder, directory: Path, files: Sequence[DataFile], rows: int, told: Callable[[int], None]
) -> None:
    """Writes the rows of one pubend: a file for each day, and a new one whenever one is full."""
    number = len(list(directory.rglob("*.parquet")))
    for day, batches in groupby(_by_day(folder, files), key=lambda pair: pair[0]):
        with ExitStack() as open_file:
            writer, held = None, 0
            for _, batch in batches:
                if writer is None or held >= rows:
                    open_file.close()
                    target = directory / f"date={day}" / f"{number:06}.parquet"
                    target.parent.mkdir(exist_ok=True)
                    writer = open_file.enter_context(pq.ParquetWriter(target, FIELDS, **_AS_SPARK))
                    number, held = number + 1, 0
                writer.write_batch(batch)
                held += batch.num_rows
                told(batch.num_rows)


def _by_day(folder: ArchiveFolder, files: Sequence[DataFile]) -> Iterator[tuple[str, Any]]:
    """Yields the rows of files, in pieces of one day each."""
    for file in files:
        for batch in pq.ParquetFile(folder.path / file.path).iter_batches(_READ_ROWS, columns=FIELDS.names):
            yield from _days(batch.cast(FIELDS))


def _days(batch: Any) -> Iterator[tuple[str, Any]]:
    """Yields a batch cut at the ends of days; its ticks are in order."""
    ticks = batch.column("tick")
    while batch.num_rows:
        day = day_of(ticks[0].as_py())
        if day_of(ticks[-1].as_py()) == day:
            yield day, batch
            return
        count = next(at for at in range(1, batch.num_rows) if day_of(ticks[at].as_py()) != day)
        yield day, batch.slice(0, count)
        batch = batch.slice(count)
        ticks = batch.column("tick")
