"""The Spark connector: a durable consumer whose Spark offset is a checkpoint token, and a sink that repeats nothing.

`source`, `sink` and `listener` are what PySpark calls; they need it, and nothing else here does. `options` is what
users may say, `columns`, `rows` and `silences` what a row is, `reading` leads from a range to batches of rows, `parts`
to a range, `offsets` from tokens to Spark's offsets, `planning` says who reads what, `pushdown` what need not be read,
`stream` how far a batch goes, `gaps` whether it would meet one, `writing` what a task publishes, `lag` how far a query
is behind, `telling` and `missing` what a user is told when something fails.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gapless_spark.lag import Lag
    from gapless_spark.listener import LagListener

__all__ = ["Lag", "LagListener", "register"]

log = logging.getLogger("gapless_spark")


def register(spark: Any) -> None:
    """Makes the format `gapless` known to a session of Spark's, where it has not found it by itself.

    A local Spark, whose workers would be another Python, gets this one; where PYSPARK_PYTHON says which they are, that
    holds. The package must be installed on the driver and on the executors. Raises ImportError without PySpark 4 and
    pyarrow.
    """
    try:
        from gapless_spark.source import GaplessDataSource
    except ImportError as error:
        from gapless_spark.missing import told

        raise told(error) from error
    _choose_python(spark)
    spark.dataSource.register(GaplessDataSource)


def _choose_python(spark: Any) -> None:
    """Spark's workers are the `python3` of the PATH: in an environment that is not activated another Python."""
    context = getattr(spark, "_sc", None)  # a session of Spark Connect has none: its workers are the server's affair
    if context is None or "PYSPARK_PYTHON" in os.environ or not context.master.startswith("local"):
        return
    found = shutil.which(context.pythonExec)
    if found is None or Path(found).parent != Path(sys.executable).parent:
        log.warning(
            "Spark's workers would be %s, which is not this Python: they are %s from now on (PYSPARK_PYTHON sets it)",
            found or f"{context.pythonExec!r}, which is not there",
            sys.executable,
        )
        context.pythonExec = sys.executable


def __getattr__(name: str) -> Any:
    """Imports what needs PySpark when it is asked for."""
    if name == "Lag":
        from gapless_spark.lag import Lag

        return Lag
    if name == "LagListener":
        from gapless_spark.listener import LagListener

        return LagListener
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
