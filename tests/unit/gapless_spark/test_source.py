"""What PySpark is given, where PySpark is there; no Java is needed."""

from __future__ import annotations

import importlib.util
import pickle
from types import SimpleNamespace
from typing import Any

import pytest

from gapless.core.wire.tokens import CheckpointToken
from gapless.errors import ConfigurationError
from gapless_spark.offsets import offset_of

pytestmark = pytest.mark.filterwarnings("default")  # PySpark's own
pytest.importorskip("pyspark.sql.datasource", reason="PySpark 4 is not installed: tox -e spark")

from pyspark.sql import datasource  # noqa: E402

from gapless_spark.pushdown import Pushed  # noqa: E402
from gapless_spark.sink import streaming_keys  # noqa: E402
from gapless_spark.source import GaplessDataSource, GaplessReader, GaplessStreamReader, Task  # noqa: E402
from gapless_spark.writing import Keys  # noqa: E402

LEAST = {"brokers": "nowhere.invalid:1", "subscription": "s"}


def schema(**columns: str) -> Any:
    """As Spark's, as far as it is asked."""
    fields = [
        SimpleNamespace(name=name, dataType=SimpleNamespace(simpleString=lambda kind=kind: kind))
        for name, kind in columns.items()
    ]
    return SimpleNamespace(fields=fields)


def test_the_module_that_spark_looks_for_has_the_source() -> None:
    import pyspark_gapless

    assert vars(pyspark_gapless)["DefaultSource"] is GaplessDataSource
    assert GaplessDataSource.name() == "gapless"


def test_a_reader_connects_nothing_when_it_is_made() -> None:
    source = GaplessDataSource(LEAST)

    assert isinstance(source.streamReader(schema(tick="bigint")), GaplessStreamReader)
    assert isinstance(source.reader(schema(tick="bigint")), GaplessReader)


@pytest.mark.parametrize("made", [None, datasource.InputPartition(None)], ids=["before 4.2", "from 4.2 on"])
def test_the_task_that_spark_makes_where_there_is_none_has_no_rows(made: Any) -> None:
    assert list(GaplessDataSource(LEAST).reader(schema(tick="bigint")).read(made)) == []


def test_filters_are_pushed_down_in_a_batch_that_asks_for_it() -> None:
    source = GaplessDataSource({**LEAST, "pushdown": "true"})
    with pytest.raises(ConfigurationError, match="filters to batch queries only"):
        source.streamReader(schema(tick="bigint"))
    if not hasattr(datasource, "Filter"):  # before 4.1
        with pytest.raises(ConfigurationError, match=r"hands over no filters; 4\.1 does"):
            source.reader(schema(tick="bigint"))
        return

    reader = source.reader(schema(tick="bigint"))
    filters = [datasource.GreaterThan(("tick",), 5), datasource.EqualTo(("topic",), "t"), datasource.IsNull(("key",))]
    assert list(reader.pushFilters(filters)) == [filters[0], filters[2]]
    assert pickle.loads(pickle.dumps(reader))._pushed == reader._pushed != Pushed()


def test_who_does_not_ask_for_it_has_a_reader_that_spark_takes_with_its_setting_off() -> None:
    """Spark refuses one that defines the method while the setting is off, and that is what it is by default."""
    assert "pushFilters" not in vars(GaplessReader)
    assert type(GaplessDataSource(LEAST).reader(schema(tick="bigint"))) is GaplessReader


def test_a_limit_is_warned_of_where_spark_cannot_keep_to_it(caplog: pytest.LogCaptureFixture) -> None:
    GaplessDataSource({**LEAST, "maxEventsPerTrigger": "5"}).streamReader(schema(tick="bigint"))

    assert bool(caplog.messages) == (importlib.util.find_spec("pyspark.sql.streaming.datasource") is None)


def test_a_batch_is_planned_as_often_as_one_likes_without_a_broker() -> None:
    reader = GaplessDataSource({**LEAST, "minPartitions": "2"}).streamReader(schema(tick="bigint"))
    start, end = (offset_of(CheckpointToken("0" * 32, {"p@1": tick}, 1, 1, b"")) for tick in (3, 9))
    tasks = reader.partitions(start, end)

    assert [(task.pubend, task.start, task.end) for task in tasks] == [("p@1", 3, 6), ("p@1", 6, 9)]
    assert reader.partitions(start, end) == tasks
    assert all(isinstance(task, Task) for task in tasks)


def test_a_sink_only_appends() -> None:
    for writer in (GaplessDataSource(LEAST).writer, GaplessDataSource(LEAST).streamWriter):
        with pytest.raises(ConfigurationError, match="events are appended"):
            writer(schema(payload="binary", topic="string"), overwrite=True)


def test_the_keys_of_a_streaming_task() -> None:
    said = {"sql.streaming.queryId": "q", "streaming.sql.batchId": "12"}
    task = SimpleNamespace(getLocalProperty=said.get, partitionId=lambda: 3)

    assert streaming_keys(task) == Keys("q/3", 12)
