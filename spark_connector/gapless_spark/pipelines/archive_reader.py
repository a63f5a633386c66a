"""Reads an archive without Spark, and only as much of its files as is needed.

The manifests record which file has which ticks, and so do the row groups of a file. So a range is read from the
row groups with a part of it, in small batches; nothing else is read. Every call sees the archive as it is then. Files
may vanish while they are read, because of a compaction; then the reading continues in the files that replaced them.
Several threads may use an archive.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gapless.core.stream.batch_bytes import ROW
from gapless.core.stream.events import Event
from gapless.core.stream.intervals import IntervalSet
from gapless.core.stream.ticks import FOREVER, PubendId, Tick
from gapless.core.wire.delivered import DeliveredColumns
from gapless.errors import ArchiveError
from gapless_spark.pipelines.manifest import ArchiveFolder, DataFile

BATCH_ROWS: Final = 1024
"""How many rows are in memory at once, besides what pyarrow needs for their pages."""
_BUFFER_BYTES: Final = 1 << 20
"""The buffer of each column: a row group, however large, is not in memory as a whole."""
_NEEDED: Final = ("tick", "header", "payload")


class Archive:
    """An archive written by `gapless pipeline archive`: for `gapless.connect(…, archive=…)`, or for your own code."""

    def __init__(self, path: str | PathLike[str]) -> None:
        """Raises ArchiveError if there is no archive, or one of another version."""
        self._folder = ArchiveFolder(Path(path))
        self._about = self._folder.described()

    def __repr__(self) -> str:
        return f"<Archive {str(self.path)!r} of {self.subscription!r}, network {self.network!r}>"

    # Its origin.

    @property
    def path(self) -> Path:
        """The directory of the archive."""
        return self._folder.path

    @property
    def network(self) -> str:
        """The id of the network from which its events come."""
        return self._about.network

    @property
    def topics(self) -> tuple[str, ...]:
        """The topic patterns of the subscription from which it is written."""
        return self._about.topics

    @property
    def selector(self) -> str:
        """The selector of that subscription; blank selects every event."""
        return self._about.selector

    @property
    def subscription(self) -> str:
        """The name of that subscription."""
        return self._about.subscription

    @property
    def client_id(self) -> str:
        """The client id of that subscription."""
        return self._about.client_id

    # Its contents, as of now. All methods raise ArchiveError if the archive is not whole.

    def files(self) -> list[Path]:
        """Returns its files, in the order of their batches."""
        return [self.path / file.path for manifest in self._folder.manifests() for file in manifest.files]

    def pubends(self) -> list[PubendId]:
        """Returns the pubends for which it has anything, be it silence."""
        return sorted({pubend for manifest in self._folder.manifests() for pubend in manifest.end})

    def covered(self, pubend: PubendId) -> list[tuple[Tick, Tick]]:
        """Returns the intervals `(start, end]` of a pubend in which it has every event, in order."""
        return list(self._covered(pubend))

    def covers(self, pubend: PubendId, start: Tick, end: Tick) -> bool:
        """Whether it has every event of (start, end]."""
        return self._covered(pubend).covers(start, end)

    def events(self, pubend: PubendId, start: Tick, end: Tick) -> Iterator[Event]:
        """Yields the events of (start, end] in tick order, as their publisher sent them. They are read lazily.

        It has nothing for ticks that it does not cover.
        """
        gone = ""
        while True:
            try:
                for file in self._files(pubend, start, end):
                    for event in _events(self.path / file.path, pubend, start, end):
                        start = event.tick
                        yield event
                return
            except FileNotFoundError as error:  # compacted meanwhile; if the same file is missed twice, it is an error
                if gone == str(error):
                    raise ArchiveError(f"a manifest of {self.path} names a file that is not there: {error}") from error
                gone = str(error)

    # How it is done.

    def _covered(self, pubend: PubendId) -> IntervalSet:
        known = IntervalSet()
        for manifest in self._folder.manifests():
            if pubend in manifest.end:
                known.add(manifest.start.get(pubend, 0), manifest.end[pubend])
            for where, start, end in manifest.gaps:
                if where == pubend:
                    known.remove(start, end)
        return known

    def _files(self, pubend: PubendId, start: Tick, end: Tick) -> list[DataFile]:
        """Returns the files with rows of the range, in the order of their ticks."""
        found = [file for manifest in self._folder.manifests() for file in manifest.files if file.pubend == pubend]
        return sorted((file for file in found if file.last > start and file.first <= end), key=lambda file: file.first)


def _events(path: Path, pubend: PubendId, start: Tick, end: Tick) -> Iterator[Event]:
    """Yields the events of a file in the range. Raises FileNotFoundError if it is gone, and ArchiveError."""
    try:
        with pq.ParquetFile(path, buffer_size=_BUFFER_BYTES, pre_buffer=False) as file:
            lacking = [name for name in (*_NEEDED, "kind") if name not in file.schema_arrow.names]
            if lacking:
                raise ArchiveError(f"{path} has no column {', '.join(lacking)}: no archive's pipeline has written it")
            groups = [number for number in range(file.num_row_groups) if _has_any(file, number, start, end)]
            for rows in file.iter_batches(BATCH_ROWS, row_groups=groups, columns=[*_NEEDED, "kind"]) if groups else ():
                yield from _decoded(_chosen(rows, start, end), pubend)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ArchiveError(f"{path} cannot be read: {error}") from error


def _has_any(file: Any, group: int, start: Tick, end: Tick) -> bool:
    """Whether a row group may have ticks of a range, according to its statistics if it has any."""
    columns = file.metadata.row_group(group)
    leaves = map(columns.column, range(columns.num_columns))
    known = next(leaf.statistics for leaf in leaves if leaf.path_in_schema == "tick")
    low, high = (known.min, known.max) if known is not None and known.has_min_max else (0, FOREVER)
    return bool(low <= end and high > start)


def _chosen(rows: Any, start: Tick, end: Tick) -> Any:
    """Returns the events of the range among the rows."""
    within = pc.and_(pc.greater(rows["tick"], start), pc.less_equal(rows["tick"], end))
    return rows.filter(pc.and_(within, pc.equal(rows["kind"], "event")))


def _decoded(rows: Any, pubend: PubendId) -> list[Event]:
    """Returns events as their publisher sent them: a header and the payload after it are one. Raises ValueError."""
    ticks, headers, bodies = (rows[name].to_pylist() for name in _NEEDED)
    if None in headers or None in bodies:
        raise ValueError("it has an event without header or payload")
    table = b"".join(
        ROW.pack(tick, len(header) + len(body), len(body))
        for tick, header, body in zip(ticks, headers, bodies, strict=True)
    )
    encoded = b"".join(chain.from_iterable(zip(headers, bodies, strict=True)))
    return DeliveredColumns(len(ticks), memoryview(table), memoryview(encoded)).events(pubend)
