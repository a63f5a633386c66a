"""The contents of an archive's files, read back after they were written: nothing is taken on trust."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gapless.core.stream.ticks import FIRST_TIME, LAST, MILLISECOND, PubendId, Tick, reads_as_time, time_at
from gapless.errors import ArchiveError
from gapless_spark.pipelines.manifest import DataFile
from gapless_spark.rows import COLUMNS

FIELDS: Final = COLUMNS
"""The columns of a file. `header` is among them, so that nothing of an event is lost."""
UNDATED: Final = "__HIVE_DEFAULT_PARTITION__"
"""Where a day would stand, for rows whose ticks are no times: as Spark writes a date that is null, and reads it."""
DATE: Final = (
    f"CASE WHEN tick >= {FIRST_TIME} AND tick < {LAST} THEN"
    f" date_add(date'2020-01-01', cast(shiftright(tick, {MILLISECOND.bit_length() - 1}) div 86400000 as int)) END"
)
"""The day of a row, in UTC, as Spark computes it from its tick. The session's time zone has no influence.

The records of a Kafka partition stand in the order of their ticks, and not of their times. So they cannot be divided by
days, and have none.
"""
_PLACES: Final = ("kind", "pubend", "tick", "tick_from")

Gap = tuple[PubendId, Tick, Tick]


def day_of(tick: Tick) -> str:
    """Returns the day of a row, in UTC: the name of its directory."""
    return time_at(tick).date().isoformat() if reads_as_time(tick) else UNDATED


def described(archive: Path, directory: Path) -> tuple[list[DataFile], list[Gap]]:
    """Returns the files below a directory of an archive, and the gaps in them, by pubend and tick.

    Raises ArchiveError if a file has rows of several pubends, or out of order, or if files overlap: then something
    would be counted twice.
    """
    files: list[DataFile] = []
    gaps: list[Gap] = []
    for path in sorted(directory.rglob("*.parquet")):
        table = pq.ParquetFile(path).read(columns=list(_PLACES))
        if table.num_rows:
            file, lost = _described(path.relative_to(archive).as_posix(), table)
            files.append(file)
            gaps += lost
    files.sort(key=lambda file: (file.pubend, file.first))
    for one, other in pairwise(files):
        if one.pubend == other.pubend and one.last >= other.first:
            raise ArchiveError(f"{one.path} and {other.path} both have ticks up to {one.last} of {one.pubend}")
    return files, sorted(gaps)


def check_bounds(files: Sequence[DataFile], start: Mapping[PubendId, Tick], end: Mapping[PubendId, Tick]) -> None:
    """Raises ArchiveError if files have anything outside the range between two positions."""
    for file in files:
        if not start.get(file.pubend, 0) < file.first <= file.last <= end.get(file.pubend, 0):
            raise ArchiveError(
                f"{file.path} has ticks {file.first} to {file.last} of {file.pubend}, outside of its batch:"
                f" ({start.get(file.pubend, 0)}, {end.get(file.pubend, 0)}]"
            )


def ticks_of(path: Path) -> Any:
    """Returns the ticks of the events of a file, in order: an Arrow array."""
    table = pq.ParquetFile(path).read(columns=["kind", "tick"])
    return table.filter(pc.equal(table["kind"], "event"))["tick"].combine_chunks()


def times_of(path: Path) -> Any:
    """Returns when the events of a file were logged: an Arrow array of timestamps, in the order of the events."""
    table = pq.ParquetFile(path).read(columns=["kind", "published_at"])
    return table.filter(pc.equal(table["kind"], "event"))["published_at"].combine_chunks()


def newest_time(paths: Iterable[Path]) -> datetime | None:
    """Returns when the newest event of some files was logged; None if there is none."""
    return max((time for path in paths if (time := pc.max(times_of(path)).as_py()) is not None), default=None)


def _described(name: str, table: Any) -> tuple[DataFile, list[Gap]]:
    pubends = pc.unique(table["pubend"]).to_pylist()
    if len(pubends) != 1:
        raise ArchiveError(f"{name} has rows of several pubends: {', '.join(map(str, pubends))}")
    ticks = table["tick"].combine_chunks()
    if not pc.all(pc.less(ticks[:-1], ticks[1:]), min_count=0).as_py():
        raise ArchiveError(f"{name}: its rows are not in the order of their ticks")
    lost = table.filter(pc.equal(table["kind"], "gap"))
    starts = pc.subtract(lost["tick_from"], pa.scalar(1, pa.int64())).to_pylist()
    gaps = [(pubends[0], start, end) for start, end in zip(starts, lost["tick"].to_pylist(), strict=True)]
    rows = table.num_rows
    return DataFile(name, rows, rows - len(gaps), pubends[0], ticks[0].as_py(), ticks[-1].as_py()), gaps
