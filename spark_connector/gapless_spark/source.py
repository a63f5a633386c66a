"""The data source `gapless` in PySpark's form, for 4.0 to 4.3 (docs/howto/use-spark.md).

These are thin classes over `stream`, `rows`, `reading` and `writing`, which do not know Spark. All differences between
versions of Spark are handled here: limits, and runs that end by themselves after several batches, came with 4.2.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import datasource
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

import gapless
from gapless.core.stream.ticks import PubendId, Tick
from gapless.errors import ConfigurationError
from gapless_spark.archives import spare_archives
from gapless_spark.batch import bounds, parts_at_home
from gapless_spark.columns import DDL, checked_names
from gapless_spark.offsets import ORIGIN, offset_of, token_of
from gapless_spark.options import SourceOptions, source_options
from gapless_spark.planning import Range, plan
from gapless_spark.pushdown import Pushed, push
from gapless_spark.reading import Silences, record_batches
from gapless_spark.rows import narrowed
from gapless_spark.sink import batch_writer, stream_writer
from gapless_spark.stream import Offset, Stream, ranges, start_of
from gapless_spark.telling import coded

try:
    from pyspark.sql.streaming import datasource as limits
except ImportError:  # before 4.2
    limits = None

AvailableNow: Final[Any] = object if limits is None else limits.SupportsTriggerAvailableNow

log = logging.getLogger("gapless_spark")


@dataclass(frozen=True)
class Task(InputPartition):  # type: ignore[misc]  # pyspark need not be installed
    """The range of one task: (start, end] of a pubend of a subscription."""

    origin: str
    """The subscription, as the text of a token; without a subscription, the position where the batch begins."""
    pubend: PubendId
    start: Tick
    end: Tick
    whole: tuple[Tick, Tick]
    """The range of all tasks of the pubend. Its edges are positions; the edges of the tasks between need not be."""


class GaplessDataSource(DataSource):  # type: ignore[misc]
    """`spark.readStream.format("gapless")`, and `read`, `write`, `writeStream`."""

    @classmethod
    def name(cls) -> str:
        """Returns the name for `format`."""
        return "gapless"

    def schema(self) -> str:
        """Returns all columns; a user's schema may have fewer."""
        return DDL

    def streamReader(self, schema: Any) -> GaplessStreamReader:  # noqa: N802 - Spark's name
        """Returns the source of a streaming query."""
        spare_archives()
        options = _options(self.options, streaming=True)
        if limits is None and (options.max_events or options.max_bytes or options.max_ticks):
            log.warning("before Spark 4.2 a limit ends a run with availableNow after one batch, and no error says so")
        return GaplessStreamReader(options, checked_names(_columns(schema)))

    def reader(self, schema: Any) -> GaplessReader:
        """Returns the source of a batch query."""
        spare_archives()
        options = _options(self.options, streaming=False)
        kind = GaplessPushingReader if options.pushdown else GaplessReader
        return kind(options, checked_names(_columns(schema)))

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802, FBT001 - Spark's
        """Returns the sink of a streaming query."""
        spare_archives()
        return stream_writer(self.options, _columns(schema), overwrite=overwrite)

    def writer(self, schema: Any, overwrite: bool) -> Any:  # noqa: FBT001 - Spark's
        """Returns the sink of a batch query."""
        spare_archives()
        return batch_writer(self.options, _columns(schema), overwrite=overwrite)


class GaplessStreamReader(DataSourceStreamReader, AvailableNow):  # type: ignore[misc]
    """The source of a streaming query: the driver's side, and what its tasks do."""

    def __init__(self, options: SourceOptions, names: list[str]) -> None:
        self._options = options
        self._names = names
        self._stream = Stream(options)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Returns where a new query begins."""
        return _offset(self._stream.initial())

    def getDefaultReadLimit(self) -> Any:  # noqa: N802 - Spark's name
        """Returns the options' limit, as far as Spark can express it; Spark calls it from 4.2 on."""
        options = self._options
        if options.max_events is not None:
            return limits.ReadMaxRows(options.max_events)
        if options.max_bytes is not None:
            return limits.ReadMaxBytes(options.max_bytes)
        if options.max_ticks is not None:
            return limits.ReadMaxRows((1 << 62) - 1)  # any limit but ReadAllAvailable, which lifts all limits
        return limits.ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """The query takes what is there now, and ends."""
        self._stream.stop_at_heads()

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Returns how far the next batch goes. Before 4.2, Spark calls it without arguments."""
        return _offset(
            self._stream.latest(
                start,
                capped=type(limit).__name__ != "ReadAllAvailable",
                max_events=getattr(limit, "max_rows", None),
                max_bytes=getattr(limit, "max_bytes", None),
            )
        )

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Returns how far there is something, for the query's progress."""
        return _offset(self._stream.head())

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Returns the tasks of a batch; every call gives the same."""
        planned = ranges(start, end, self._options.min_partitions)
        self._stream.at(end)
        return _tasks(token_of(start), token_of(end), planned)

    def read(self, partition: Task) -> Iterator[Any]:
        """Yields the record batches of one task. It runs on an executor."""
        return _read(partition, self._options, self._names)

    def commit(self, end: Offset) -> None:
        """Spark is done with everything up to here."""
        self._stream.commit(end)

    def stop(self) -> None:
        """The query has failed. Spark does not call it for a query that is stopped."""
        self._stream.stop()


class GaplessReader(DataSourceReader):  # type: ignore[misc]
    """The source of a batch query. It acknowledges nothing."""

    def __init__(self, options: SourceOptions, names: list[str]) -> None:
        self._options = options
        self._names = names

        self._pushed = Pushed()

    def partitions(self) -> list[InputPartition]:
        """Returns the tasks, from what is there now. Raises RangeGapError if the query would meet a gap."""
        start, end, timed = bounds(self._options, ask_timed=self._pushed.has_times)
        planned = self._pushed.cut(plan(start.ticks, end.ticks, {}, self._options.min_partitions), timed)
        return _tasks(start, end, planned, None if self._options.subscription else str(start))

    def read(self, partition: Any) -> Iterator[Any]:
        """Yields the record batches of one task, on an executor. If there are no tasks, Spark makes one of its own."""
        if isinstance(partition, Task):
            yield from self._pushed.filtered(_read(partition, self._options, self._names))


class GaplessPushingReader(GaplessReader):
    """A source that takes filters. It is a class of its own, because Spark refuses one if its setting is off."""

    def pushFilters(self, filters: list[Any]) -> Iterator[Any]:  # noqa: N802 - Spark's name
        """Takes the filters that it can use, and yields those that Spark still has to apply."""
        self._pushed, left = push(filters)
        yield from left


def _options(given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    options = source_options(given, streaming=streaming)
    if options.pushdown and streaming:
        raise ConfigurationError(
            "option pushdown: Spark hands filters to batch queries only; say what a stream selects with the option "
            "selector"
        )
    if options.pushdown and not hasattr(datasource, "Filter"):
        raise ConfigurationError("option pushdown: this Spark hands over no filters; 4.1 does")
    start_of(options)  # raises errors in the options here, and not in a task
    return options


def _columns(schema: Any) -> dict[str, str]:
    """Returns the columns of a Spark schema, with their types as in DDL."""
    return {field.name: field.dataType.simpleString() for field in schema.fields}


def _offset(token: gapless.CheckpointToken) -> dict[str, Any]:
    """Returns an offset in Spark's form: Spark makes the JSON itself, in the order of the keys."""
    offset: dict[str, Any] = json.loads(offset_of(token))
    return offset


def _tasks(
    start: gapless.CheckpointToken, end: gapless.CheckpointToken, planned: list[Range], origin: str | None = None
) -> list[InputPartition]:
    origin = origin or _offset(end)[ORIGIN]
    return [
        Task(origin, each.pubend, each.start, each.end, (start.ticks.get(each.pubend, 0), end.ticks[each.pubend]))
        for each in planned
    ]


def _read(task: Task, options: SourceOptions, names: list[str]) -> Iterator[Any]:
    spare_archives()
    with (
        coded(options.brokers, options.subscription or "", options.broker_timeout),
        closing(parts_at_home(options, task.origin, task.pubend, (task.start, task.end), task.whole)) as parts,
    ):
        yield from record_batches(
            task.pubend,
            parts,
            narrowed(names),
            rows_max=options.arrow_batch_rows,
            fail_on_gap=options.fail_on_gap,
            silences=Silences.within(task.start, task.end, task.whole[1]) if options.include_silence else None,
        )
