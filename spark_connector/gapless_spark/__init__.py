"""The Spark connector: a durable consumer whose Spark offset is a checkpoint token, and a sink that repeats nothing.

`source` and `sink` are what PySpark calls; they need it, and nothing else here does. `options` is what users may say,
`columns` and `rows` what a row is, `reading` leads from a range to batches of rows, `offsets` from tokens to Spark's
offsets, `planning` says who reads what, `stream` how far a batch goes, `writing` what a task publishes.
"""

from __future__ import annotations

from typing import Any


def register(spark: Any) -> None:
    """Makes the format `gapless` known to a session of Spark's, where it has not found it by itself.

    The package must be installed on the driver and on the executors. Raises ImportError without PySpark 4 and pyarrow.
    """
    from gapless_spark.source import GaplessDataSource

    spark.dataSource.register(GaplessDataSource)
