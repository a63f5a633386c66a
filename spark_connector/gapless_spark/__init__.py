"""The Spark connector: a durable consumer whose Spark offset is a checkpoint token, and a sink that repeats nothing.

PySpark calls `source`, `sink` and `listener`; only these need it. The other modules:

- `options`: the users' options; `columns`, `rows` and `properties`: what a row is;
- `reading`: record batches of a range; `parts`: the parts of a range;
- `offsets`: tokens as Spark's offsets; `planning`: the tasks; `pushdown`: what need not be read;
- `stream`: how far a batch of a stream goes; `batch`: what a batch query reads; `connections`: where the home is;
- `gaps`: whether a range would meet a gap; `writing`: what a task publishes;
- `lag`: how far a query is behind; `telling` and `missing`: the errors for users.
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
    """Registers the format `gapless` with a Spark session that has not found it by itself.

    In a local Spark whose workers would be another Python, this also makes this Python the one of the workers, unless
    PYSPARK_PYTHON is set. The package must be installed on the driver and on the executors. Raises ImportError without
    PySpark 4 and pyarrow.
    """
    try:
        from gapless_spark.source import GaplessDataSource
    except ImportError as error:
        from gapless_spark.missing import told

        raise told(error) from error
    _choose_python(spark)
    spark.dataSource.register(GaplessDataSource)


def _choose_python(spark: Any) -> None:
    """Chooses this Python for a local Spark's workers. Otherwise they are the `python3` in PATH, perhaps another."""
    context = getattr(spark, "_sc", None)  # a session of Spark Connect has none: its workers belong to the server
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
    """Imports the classes that need PySpark when they are first used."""
    if name == "Lag":
        from gapless_spark.lag import Lag

        return Lag
    if name == "LagListener":
        from gapless_spark.listener import LagListener

        return LagListener
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
