"""The writers of the data source `gapless` in PySpark's form: thin classes over `writing`.

The producer of a streaming task is named by its query and partition, and its epoch is the batch: so a repetition of the
task has the same keys. A batch write has keys only if its user gives them. Inside `foreachBatch` Spark would name the
streaming batch, too; but two writes in it would then have the same keys.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage

from gapless.errors import ConfigurationError, GaplessError
from gapless_spark.writing import Keys, SinkOptions, check_columns, publish, sink_options

StreamWriter: Final[Any] = getattr(datasource, "DataSourceStreamArrowWriter", DataSourceStreamWriter)
"""Arrow came with Spark 4.1; before that, a writer gets rows."""

log = logging.getLogger("gapless_spark")


@dataclass(frozen=True)
class Written(WriterCommitMessage):  # type: ignore[misc]  # pyspark need not be installed
    """The result of a task."""

    published: int
    duplicates: int


class GaplessStreamWriter(StreamWriter):  # type: ignore[misc]
    """The sink of a streaming query: the events of a task are durable when it ends, and published once."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> Written:
        """Publishes the rows of a task. It runs on an executor."""
        done = publish(_rows(iterator), self._options, streaming_keys(_task()))
        return Written(done.published, done.duplicates)

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Logs how much was published; everything is published already."""
        _say(f"batch {batchId}", messages)

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        """What was published stays; the batch comes again with the same keys."""
        log.warning("batch %s was given up; it comes again under the same keys", batchId)


class GaplessWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """The sink of a batch query: at least once; exactly once if `txnAppId` and `txnVersion` name it."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> Written:
        """Publishes the rows of a task. It runs on an executor."""
        options = self._options
        keys = None
        if options.app is not None:
            keys = Keys(f"{options.app}/{_task().partitionId()}", options.version)
        done = publish(_rows(iterator), options, keys)
        return Written(done.published, done.duplicates)

    def commit(self, messages: list[Any]) -> None:
        """Logs how much was published; everything is published already."""
        _say("a write", messages)

    def abort(self, messages: list[Any]) -> None:
        """What was published stays."""
        log.warning("a write failed; what it published stays")


def stream_writer(given: Mapping[str, str], columns: Mapping[str, str], *, overwrite: bool) -> GaplessStreamWriter:
    """Returns the sink of a streaming query. Raises ConfigurationError."""
    return GaplessStreamWriter(_checked(given, columns, overwrite=overwrite))


def batch_writer(given: Mapping[str, str], columns: Mapping[str, str], *, overwrite: bool) -> GaplessWriter:
    """Returns the sink of a batch query. Raises ConfigurationError."""
    return GaplessWriter(_checked(given, columns, overwrite=overwrite))


def streaming_keys(task: Any) -> Keys:
    """Returns the keys of a streaming task, from its Spark properties. Raises GaplessError if they are missing."""
    query, batch = task.getLocalProperty("sql.streaming.queryId"), task.getLocalProperty("streaming.sql.batchId")
    if query is None or batch is None:
        raise GaplessError("GAPLESS_NO_KEYS: Spark does not say of which query and batch the task is")
    return Keys(f"{query}/{task.partitionId()}", int(batch))


def _task() -> Any:
    task = TaskContext.get()
    if task is None:
        raise GaplessError("GAPLESS_NO_KEYS: a sink writes in a task of Spark's")
    return task


def _checked(given: Mapping[str, str], columns: Mapping[str, str], *, overwrite: bool) -> SinkOptions:
    if overwrite:
        raise ConfigurationError('events are appended: .mode("append"), or .outputMode("append")')
    options = sink_options(given)
    check_columns(columns, options)
    return options


def _rows(items: Iterable[Any]) -> Iterator[Mapping[str, Any]]:
    """Yields the rows of record batches, or of Spark's rows."""
    for item in items:
        if hasattr(item, "to_pylist"):
            yield from item.to_pylist()
        else:
            yield item.asDict()


def _say(what: str, messages: list[Any]) -> None:
    written = [each for each in messages if each is not None]
    published, duplicates = sum(each.published for each in written), sum(each.duplicates for each in written)
    log.info("%s: %d published, %d were there already", what, published, duplicates)
