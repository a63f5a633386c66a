"""What bounds any source: Spark's own rows out of nothing, and the same events as Parquet files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

from bench.spark.work import PARTITIONS, WANTED, WORKS, Event, Sizes, Work, events

DDL: Final = (
    "kind string, pubend string, tick bigint, topic string, key string, properties map<string,string>,"
    " payload binary, published_at timestamp"
)


class Rate:
    """`rate-micro-batch`: two columns, made by the JVM."""

    title = "rate-micro-batch"
    works: Sequence[str] = ("narrow", "small")
    filters_in = "–"

    def missing(self) -> str:
        """Spark has it."""
        return ""

    def jars(self) -> Sequence[Path]:
        """None."""
        return ()

    @contextlib.contextmanager
    def serving(self, directory: Path, sizes: Sizes, turns: int) -> Iterator[Rates]:
        """Nothing is to be started."""
        yield Rates(sizes)


class Rates:
    """Numbers without end: a query of it is stopped."""

    def __init__(self, sizes: Sizes) -> None:
        self._sizes = sizes

    def stream(self, spark: Any, work: Work, turn: int) -> Any:
        """The payload is eight bytes."""
        reader = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", self._sizes.batch_of(work))
        frame = reader.option("numPartitions", PARTITIONS).load()
        return frame.selectExpr("timestamp", "value as number", "unhex(lpad(hex(value), 16, '0')) as payload")


class Parquet:
    """The events as files, each a part of a batch."""

    title = "Parquet files"
    works: Sequence[str] = tuple(WORKS)
    filters_in = "Spark"

    def missing(self) -> str:
        """Spark reads it."""
        return ""

    def jars(self) -> Sequence[Path]:
        """None."""
        return ()

    @contextlib.contextmanager
    def serving(self, directory: Path, sizes: Sizes, turns: int) -> Iterator[Files]:
        """Writes the files."""
        large, small = directory / "large", directory / "small"
        _write(large, events(sizes.events), sizes.batch // PARTITIONS)
        _write(small, events(sizes.small_batch * sizes.small_batches), sizes.small_batch // PARTITIONS)
        yield Files(large, small)


class Files:
    """The files, in the page cache."""

    def __init__(self, large: Path, small: Path) -> None:
        self._large = large
        self._small = small

    def stream(self, spark: Any, work: Work, turn: int) -> Any:
        """As many files in a batch as others have tasks."""
        reader = spark.readStream.schema(DDL).option("maxFilesPerTrigger", PARTITIONS)
        frame = reader.parquet(str(self._small if work.small else self._large))
        if work.selective:
            frame = frame.where(frame.properties["tenth"] == str(WANTED))
        wide = "number" in work.columns
        return frame.withColumn("number", frame.properties["number"]) if wide else frame.select("tick", "payload")


def _write(directory: Path, remaining: Iterator[Event], rows: int) -> None:
    from pyarrow import parquet

    directory.mkdir(parents=True)
    number = 0
    while portion := list(islice(remaining, rows)):
        parquet.write_table(_table(portion), directory / f"{number:06}.parquet")
        number += 1


def _table(portion: Sequence[Event]) -> Any:
    import pyarrow as pa

    from gapless_spark.rows import SCHEMA

    columns: Mapping[str, Sequence[Any]] = {
        "kind": ["event"] * len(portion),
        "pubend": ["default@1"] * len(portion),
        "tick": [event.number << 10 for event in portion],
        "topic": ["t"] * len(portion),
        "key": [event.key for event in portion],
        "properties": [{"key": event.key, "number": str(event.number), "tenth": str(event.tenth)} for event in portion],
        "payload": [event.body for event in portion],
        "published_at": [1_700_000_000_000_000 + event.number for event in portion],
    }
    return pa.table({name: pa.array(_pairs(values), SCHEMA.field(name).type) for name, values in columns.items()})


def _pairs(values: Sequence[Any]) -> list[Any]:
    """Maps as Arrow wants them."""
    return [list(value.items()) if isinstance(value, dict) else value for value in values]
