"""Where Spark finds the format `gapless` by itself: it imports every module `pyspark_*` and takes its `DefaultSource`.

This must never raise: one that does makes every format of every package "not found" (spark.md 6.1). Without PySpark 4
or pyarrow there is no `DefaultSource`; `gapless_spark.register` then says what is missing.
"""

from __future__ import annotations

from contextlib import suppress

with suppress(Exception):
    from gapless_spark.source import GaplessDataSource as DefaultSource  # noqa: F401 - Spark looks for it
