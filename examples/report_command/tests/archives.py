"""Archives made by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import gapless
from gapless.core.client import Gap
from gapless.core.stream.columns import EventColumns
from gapless.core.stream.events import Extras, encode_event
from gapless.core.stream.ticks import STEP, PubendId, Tick, tick_at
from gapless.core.wire.delivered import DeliveredColumns
from gapless_spark.pipelines.contents import day_of, described
from gapless_spark.pipelines.manifest import VERSION, ArchiveFolder, Description, Manifest
from gapless_spark.rows import COLUMNS, events_batch, gap_batch

NETWORK = "net"
P, Q = "p@1", "q@1"
K = "orders.0@id"
"""A partition of a Kafka topic."""
BASE = tick_at(1_800_000_000_000)
"""2027-01-15, 08:00 UTC."""


def tick(number: int) -> Tick:
    """The tick of an event with this number."""
    return BASE + STEP * number


def events_table(pubend: PubendId, numbers: Iterable[int], gaps: Iterable[tuple[int, int]] = ()) -> Any:
    """The rows of events with these numbers, and of gaps behind one number and up to another."""
    batches = []
    for number in numbers:
        body = b"%d" % number
        event = encode_event("t.a", {"n": number, "late": True, "f": 1.0}, Extras(priority=7, type="x"), body)
        columns = EventColumns.of([event], [len(body)]).batch([tick(number)])
        batches.append(events_batch(pubend, [DeliveredColumns.parse(columns.payload(1), 0)], COLUMNS))
    batches += [gap_batch(Gap(pubend, tick(start), tick(end), "released"), COLUMNS) for start, end in gaps]
    return pa.Table.from_batches(batches, COLUMNS).sort_by("tick")


def kafka_table(pubend: PubendId, times: Mapping[Tick, datetime], gaps: Iterable[tuple[Tick, Tick]] = ()) -> Any:
    """The rows of records of a Kafka partition, by their ticks, and of gaps."""
    batches = []
    for at, time in times.items():
        event = encode_event("t.a", {"n": at}, Extras(timestamp=round(1000 * time.timestamp())), b"x")
        columns = EventColumns.of([event], [1]).batch([at])
        batches.append(events_batch(pubend, [DeliveredColumns.parse(columns.payload(1), 0)], COLUMNS))
    batches += [gap_batch(Gap(pubend, start, end, "released"), COLUMNS) for start, end in gaps]
    return pa.Table.from_batches(batches, COLUMNS).sort_by("tick")


def write_rows(directory: Path, table: Any, name: str = "part-0") -> None:
    """Rows in a directory for each of their days."""
    days = [day_of(at) for at in table["tick"].to_pylist()]
    for day in sorted(set(days)):
        target = directory / f"date={day}"
        target.mkdir(parents=True, exist_ok=True)
        pq.write_table(table.filter(pa.array([each == day for each in days])), target / f"{name}.parquet")


def token(ticks: Mapping[PubendId, Tick]) -> gapless.CheckpointToken:
    """A position of the archive's subscription."""
    return gapless.CheckpointToken(NETWORK, ticks, 7, 1, b"sealed!!")


def make_archive(
    path: Path, topics: tuple[str, ...] = ("t.#",), start: Mapping[PubendId, Tick] | None = None
) -> ArchiveFolder:
    """An archive without a batch."""
    folder = ArchiveFolder(path)
    begin = {P: tick(0)} if start is None else dict(start)
    folder.describe(
        Description(
            version=VERSION,
            network=NETWORK,
            client_id="",
            subscription="sub",
            topics=topics,
            selector="",
            start=begin,
            token=str(token(begin)),
        )
    )
    return folder


def add_batch(
    folder: ArchiveFolder,
    ends: Mapping[PubendId, int],
    numbers: Mapping[PubendId, Iterable[int]],
    gaps: Mapping[PubendId, Sequence[tuple[int, int]]] | None = None,
) -> Manifest:
    """One more batch, which ends at these numbers."""
    tables = [events_table(pubend, wanted, (gaps or {}).get(pubend, ())) for pubend, wanted in numbers.items()]
    begins = {pubend: tick(0) for pubend in ends}
    return add_rows(folder, {pubend: tick(at) for pubend, at in ends.items()}, begins, *tables)


def add_rows(
    folder: ArchiveFolder, ends: Mapping[PubendId, Tick], begins: Mapping[PubendId, Tick], *tables: Any
) -> Manifest:
    """One more batch of these rows, each table of one pubend, which begins at `begins` if it was in no batch before."""
    last = folder.last()
    number = 0 if last is None else last.batch + 1
    start = folder.described().start if last is None else last.end
    directory = folder.batch_directory(number)
    directory.mkdir(parents=True)
    for at, table in enumerate(tables):
        write_rows(directory, table, f"part-{at}")
    files, lost = described(folder.path, directory)
    end = {**start, **ends}
    manifest = Manifest(
        first=number,
        batch=number,
        files=files,
        start={**begins, **start},
        end=end,
        gaps=lost,
        token=str(token(end)),
    )
    folder.commit(manifest)
    return manifest
