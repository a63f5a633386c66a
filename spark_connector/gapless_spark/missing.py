"""What is told where something is missing that the connector needs: PySpark 4, or pyarrow."""

from __future__ import annotations

from typing import Any

NEEDS = (
    'the format gapless needs PySpark 4 and pyarrow, on the driver and on the executors: pip install "gapless[spark]"'
)


def told(error: ImportError) -> ImportError:
    """An error that says what to install, for one that says what was not found."""
    return ImportError(f"GAPLESS_MISSING: {NEEDS} ({error})", name=error.name)


def source_without(error: ImportError) -> type:
    """A data source that says so, where Spark is there and the rest is not. Raises ImportError without PySpark 4."""
    from pyspark.sql.datasource import DataSource

    reason = str(told(error))

    class MissingDataSource(DataSource):  # type: ignore[misc]  # pyspark need not be installed
        """In place of the source: whoever asks it for anything is told what is missing."""

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
