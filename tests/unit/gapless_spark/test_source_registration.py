"""How Spark finds the format: by itself, and never at the cost of other formats."""

from __future__ import annotations

import importlib
import sys
import types

import pytest


@pytest.fixture
def no_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where PySpark is not installed, whether it is or not."""
    for name in [name for name in sys.modules if name.partition(".")[0] in {"pyspark", "pyspark_gapless"}]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("gapless_spark.source", "gapless_spark.sink", "gapless_spark.listener"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "pyspark", None)


@pytest.mark.usefixtures("no_pyspark")
def test_the_module_that_spark_looks_for_can_be_imported_without_spark() -> None:
    module = importlib.import_module("pyspark_gapless")

    assert not hasattr(module, "DefaultSource"), "where Spark looks for it, there is one or none, and no error"


@pytest.mark.usefixtures("no_pyspark")
def test_registering_without_spark_says_what_is_missing() -> None:
    gapless_spark = importlib.import_module("gapless_spark")

    with pytest.raises(ImportError, match=r'^GAPLESS_MISSING: .*pip install "gapless\[spark\]" .*pyspark'):
        gapless_spark.register(None)


@pytest.mark.usefixtures("no_pyspark")
def test_the_parts_that_need_no_spark_are_there_without_it() -> None:
    gapless_spark = importlib.import_module("gapless_spark")

    assert gapless_spark.Lag.__name__ == "Lag"
    with pytest.raises(ImportError, match="pyspark"):
        gapless_spark.LagListener  # noqa: B018 - asking for it imports it
    with pytest.raises(AttributeError, match="no attribute 'Listener'"):
        gapless_spark.Listener  # noqa: B018 - as above


class FakeDataSource:
    """As PySpark's, as far as it matters here."""


@pytest.fixture
def no_pyarrow(no_pyspark: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where PySpark is installed, and pyarrow is not."""
    for name in [name for name in sys.modules if name.partition(".")[0] in {"pyarrow", "gapless_spark"}]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for name in ("pyspark", "pyspark.sql", "pyspark.sql.datasource"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    for name in ("DataSource", "DataSourceReader", "DataSourceStreamReader", "InputPartition"):
        setattr(sys.modules["pyspark.sql.datasource"], name, FakeDataSource)
    vars(sys.modules["pyspark.sql"])["datasource"] = sys.modules["pyspark.sql.datasource"]


@pytest.mark.usefixtures("no_pyarrow")
def test_without_pyarrow_there_is_a_source_that_says_so() -> None:
    source = importlib.import_module("pyspark_gapless").DefaultSource()

    assert source.name() == "gapless"
    for asked in (source.schema, lambda: source.writer(None, False), lambda: source.streamWriter(None, False)):
        with pytest.raises(ImportError, match=r"^GAPLESS_MISSING: .*pyarrow"):
            asked()
    with pytest.raises(ImportError, match=r"^GAPLESS_MISSING: .*pyarrow"):
        importlib.import_module("gapless_spark").register(None)
