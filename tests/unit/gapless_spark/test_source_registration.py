"""How Spark finds the format: by itself, and never at the cost of other formats."""

from __future__ import annotations

import importlib
import sys

import pytest


@pytest.fixture
def no_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where PySpark is not installed, whether it is or not."""
    for name in [name for name in sys.modules if name.partition(".")[0] in {"pyspark", "pyspark_gapless"}]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("gapless_spark.source", "gapless_spark.sink"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "pyspark", None)


@pytest.mark.usefixtures("no_pyspark")
def test_the_module_that_spark_looks_for_can_be_imported_without_spark() -> None:
    module = importlib.import_module("pyspark_gapless")

    assert not hasattr(module, "DefaultSource"), "where Spark looks for it, there is one or none, and no error"


@pytest.mark.usefixtures("no_pyspark")
def test_registering_without_spark_says_what_is_missing() -> None:
    gapless_spark = importlib.import_module("gapless_spark")

    with pytest.raises(ImportError, match="pyspark"):
        gapless_spark.register(None)
