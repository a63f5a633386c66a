"""The errors if PySpark 4 or pyarrow is missing."""

from __future__ import annotations

from typing import Any

NEEDS = (
    'the format gapless needs PySpark 4 and pyarrow, on the driver and on the executors: pip install "gapless[spark]"'
)


def told(error: ImportError) -> ImportError:
    """Returns an error with what to install, for an error with what was not found."""
    return ImportError(f"GAPLESS_MISSING: {NEEDS} ({error})", name=error.name)


def source_without(error: ImportError) -> type:
    """Returns a data source that raises the reason, if Spark is there and the rest is not.

    Raises ImportError without PySpark 4.
    """
    from pyspark.sql.datasource import DataSource

    reason = str(told(error))

    class MissingDataSource(DataSource):  # type: ignore[misc]  # pyspark need not be installed
        """Takes the place of the source; any use of it raises the reason."""

        @classmethod
        def name(cls) -> str:
            return "gapless"

        def schema(self) -> str:
            raise ImportError(reason)

        def writer(self, schema: Any, overwrite: bool) -> Any:  # noqa: FBT001 - Spark's
            raise ImportError(reason)

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802, FBT001 - Spark's
            raise ImportError(reason)

    return MissingDataSource
