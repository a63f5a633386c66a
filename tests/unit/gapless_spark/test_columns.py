"""Columns in Spark's words: the same as Arrow's, and what a schema may ask for."""

from __future__ import annotations

import pyarrow as pa
import pytest

from gapless.errors import ConfigurationError
from gapless_spark.columns import ALL, COLUMNS, DDL, checked_names
from gapless_spark.rows import COLUMNS as FIELDS
from gapless_spark.rows import SCHEMA

ARROW = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "binary": pa.binary(),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
    "timestamp": pa.timestamp("us", tz="UTC"),
}


def test_spark_and_arrow_are_told_the_same() -> None:
    assert pa.schema([(name, ARROW[kind]) for name, kind in COLUMNS.items()]) == FIELDS
    assert ", ".join(f"{name} {COLUMNS[name]}" for name in SCHEMA.names) == DDL
    assert f"{DDL}, header binary" == ALL


def test_any_of_them_in_any_order() -> None:
    assert checked_names({"tick": "bigint", "kind": "string"}) == ["tick", "kind"]


@pytest.mark.parametrize("columns", [{}, {"n": "int"}, {"tick": "int"}])
def test_no_others(columns: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match="tick_from bigint"):
        checked_names(columns)
