"""Lets Spark find the format `gapless`: it imports every module `pyspark_*` and takes its `DefaultSource`.

This import must never raise: if one of these modules raises, every format of every package is "not found". Without
PySpark 4 there is no `DefaultSource`. Without pyarrow there is one that raises the reason when it is used;
`gapless_spark.register` raises it, too.
"""

from __future__ import annotations

from contextlib import suppress

with suppress(Exception):
    try:
        from gapless_spark.source import GaplessDataSource as DefaultSource
    except ImportError as error:
        from gapless_spark.missing import source_without

        DefaultSource = source_without(error)  # type: ignore[assignment,misc]
