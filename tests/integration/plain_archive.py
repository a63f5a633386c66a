"""Archives a subscription as `gapless pipeline archive` does, without Spark: real Parquet files, and manifests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import gapless
from gapless.core.client import Gap
from gapless_spark.pipelines.contents import day_of, described
from gapless_spark.pipelines.manifest import VERSION, ArchiveFolder, Description, Manifest
from gapless_spark.rows import COLUMNS, events_batch, gap_batch


class PlainArchive:
    """An archive that grows by `batch`."""

    def __init__(self, path: Path, connection: gapless.Connection, name: str) -> None:
        self.folder = ArchiveFolder(path)
        self._connection = connection
        self._name = name

    async def begin(self, *topics: str, selector: str = "") -> None:
        """Creates the subscription, and the archive."""
        token = await self._connection.attach(self._name, *topics, selector=selector, start="earliest")
        self.folder.describe(
            Description(
                version=VERSION,
                network=self._connection.network,
                client_id=self._connection.client_id,
                subscription=self._name,
                topics=topics,
                selector=selector,
                start=dict(token.ticks),
                token=str(token),
            )
        )

    async def batch(self) -> Manifest:
        """Archives what is there, and acknowledges it."""
        last = self.folder.last()
        number = 0 if last is None else last.batch + 1
        start = gapless.CheckpointToken.parse(self.folder.described().token if last is None else last.token)
        end = await self._connection.heads(self._name, after=start, wait=5)
        directory = self.folder.batch_directory(number)
        for pubend, tick in end.ticks.items():
            rows = [*await self._rows(pubend, start.ticks.get(pubend, 0), tick)]
            if rows:
                _write(directory, pa.Table.from_batches(rows, COLUMNS))
        files, gaps = described(self.folder.path, directory)
        manifest = Manifest(
            first=number,
            batch=number,
            files=files,
            start=dict(start.ticks),
            end=dict(end.ticks),
            gaps=gaps,
            token=str(end),
        )
        self.folder.commit(manifest)
        await self._connection.ack(self._name, end)
        return manifest

    async def _rows(self, pubend: str, start: int, end: int) -> list[Any]:
        rows = []
        async with self._connection.read_range(self._name, pubend, start, end, on_gap="deliver") as reader:
            async for part in reader.parts():
                if isinstance(part, Gap):
                    rows.append(gap_batch(part, COLUMNS))
                else:
                    rows.append(events_batch(pubend, part.columns, COLUMNS))
        return rows


def _write(directory: Path, table: Any) -> None:
    """Rows of a pubend, in a directory for each of their days."""
    days = [day_of(tick) for tick in table["tick"].to_pylist()]
    for day in sorted(set(days)):
        target = directory / f"date={day}"
        target.mkdir(parents=True, exist_ok=True)
        name = f"part-{len(list(target.iterdir()))}.parquet"
        pq.write_table(table.filter(pa.array([each == day for each in days])), target / name, row_group_size=100)
