"""Where Spark finds the format `gapless` by itself: it imports every module `pyspark_*` and takes its `DefaultSource`.

This must never raise: one that does makes every format of every package "not found". Without PySpark 4
there is no `DefaultSource`, and without pyarrow one that says so; `gapless_spark.register` says it as well.
"""

from __future__ import annotations

from contextlib import suppress

with suppress(Exception):
    try:
        from gapless_spark.source import GaplessDataSource as DefaultSource
    except ImportError as error:
        from gapless_spark.missing import source_without

        DefaultSource = source_without(error)  # type: ignore[assignment,misc]
