"""How Spark finds the format: by itself, and never at the cost of other formats."""

from __future__ import annotations

import importlib
import sys
import types
from pathlib import Path

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


class Context:
    """Of a session of Spark's, as far as it matters here."""

    def __init__(self, master: str, python: str) -> None:
        self.master = master
        self.pythonExec = python


def chosen(master: str, python: str) -> str:
    """Which Python the workers are, once the connector has looked."""
    context = Context(master, python)
    importlib.import_module("gapless_spark")._choose_python(types.SimpleNamespace(_sc=context))
    return context.pythonExec


def test_the_workers_of_a_local_spark_are_this_python(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """Else they are the python3 of the PATH, which has no gapless, and Spark finds no such format."""
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    other = tmp_path / "python3"
    other.write_text("")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert chosen("local[2]", "python3") == sys.executable
    assert f"Spark's workers would be {other}" in caplog.text
    assert chosen("local[2]", "python4") == sys.executable
    assert "would be 'python4', which is not there" in caplog.text


def test_workers_that_are_elsewhere_or_chosen_already_are_left_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert chosen("spark://master:7077", "python3") == "python3"
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    assert chosen("local", "python3") == "python3", "the environment is activated"
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYSPARK_PYTHON", "python3")
    assert chosen("local", "python3") == "python3"
    importlib.import_module("gapless_spark")._choose_python(types.SimpleNamespace())  # a session of Spark Connect
