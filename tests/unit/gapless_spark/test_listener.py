"""The listener, where PySpark is there; no Java is needed."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from gapless.core.stream.ticks import SECOND, tick_at
from gapless.core.wire.tokens import CheckpointToken
from gapless_spark.lag import Lag
from gapless_spark.offsets import offset_of

pytestmark = pytest.mark.filterwarnings("default")  # PySpark's own
pytest.importorskip("pyspark.sql.datasource", reason="PySpark 4 is not installed: tox -e spark")

from gapless_spark import LagListener  # noqa: E402

THEN = tick_at(1_800_000_000_000)


def batch(end: int, latest: int, run: str = "run") -> Any:
    """The event of a batch."""
    offsets = [offset_of(CheckpointToken("0" * 32, {"p@1": tick}, 1, 1, b"")) for tick in (end, latest)]
    source = SimpleNamespace(endOffset=offsets[0], latestOffset=offsets[1])
    return SimpleNamespace(progress=SimpleNamespace(id="id", runId=run, name="etl", batchId=3, sources=[source]))


def test_each_batch_is_reported() -> None:
    heard: list[Sequence[Lag]] = []
    listener = LagListener(heard.append)
    listener.onQueryStarted(None)
    listener.onQueryProgress(batch(THEN, THEN + SECOND))
    assert [lag.seconds for found in heard for lag in found] == [1.0]
    assert '{query="etl",pubend="p@1"} 1.000' in listener.prometheus()

    listener.onQueryIdle(SimpleNamespace(runId="run"))
    listener.onQueryIdle(SimpleNamespace(runId="another's"))
    assert '{query="etl",pubend="p@1"} 0.000' in listener.prometheus()

    listener.onQueryTerminated(SimpleNamespace(runId="run"))
    assert "etl" not in listener.prometheus()


def test_a_batch_of_another_source_is_none_of_its_business() -> None:
    heard: list[Sequence[Lag]] = []
    other = SimpleNamespace(endOffset="17", latestOffset=None)
    progress = SimpleNamespace(id="id", runId="run", name="etl", batchId=3, sources=[other])
    LagListener(heard.append).onQueryProgress(SimpleNamespace(progress=progress))

    assert heard == []


def test_it_writes_to_the_log_unless_told_otherwise(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "gapless_spark"):
        LagListener().onQueryProgress(batch(THEN, THEN + 2 * SECOND))

    assert caplog.messages == ["etl batch 3 p@1: 2.0 s behind"]


def test_a_report_that_fails_does_no_harm(caplog: pytest.LogCaptureFixture) -> None:
    def report(found: Sequence[Lag]) -> None:
        raise ValueError("no room")

    LagListener(report).onQueryProgress(batch(THEN, THEN + SECOND))

    assert caplog.messages == ["lags could not be reported"]
