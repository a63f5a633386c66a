"""How far a query is behind, by what Spark says of its progress."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from gapless.core.stream.ticks import SECOND, tick_at
from gapless.core.wire.tokens import CheckpointToken
from gapless_spark.lag import Lag, lags, prometheus
from gapless_spark.offsets import offset_of

THEN = tick_at(1_800_000_000_000)


def offset(**ticks: int) -> str:
    return offset_of(CheckpointToken("0" * 32, {f"{name}@1": tick for name, tick in ticks.items()}, 1, 1, b""))


def progress(*sources: tuple[Any, Any], name: str | None = "etl") -> Any:
    """As Spark's, as far as it is asked."""
    return SimpleNamespace(
        id="an-id",
        name=name,
        batchId=7,
        sources=[SimpleNamespace(endOffset=end, latestOffset=latest) for end, latest in sources],
    )


def test_a_lag_is_the_time_between_two_ticks() -> None:
    found = lags(progress((offset(p=THEN, q=THEN), offset(p=THEN + 2300 * SECOND // 1000, q=THEN))))

    assert found == [
        Lag("etl", 7, "p@1", THEN, THEN + 2300 * SECOND // 1000),
        Lag("etl", 7, "q@1", THEN, THEN),
    ]
    assert [lag.seconds for lag in found] == [2.3, 0]
    assert str(found[0]) == "etl batch 7 p@1: 2.3 s behind"


def test_of_a_kafka_partition_it_is_known_in_records(caplog: Any) -> None:
    """Its ticks are no times: the lag of a query that has read nothing is not that of 2020."""
    behind, done = lags(progress((offset(p=41, q=1600), offset(p=1600, q=1600))))

    assert (behind.seconds, done.seconds) == (None, 0.0)
    assert str(behind) == "etl batch 7 p@1: at offset 41, the log is at offset 1600"
    assert not [line for line in prometheus([behind]).splitlines() if not line.startswith("#")]


def test_at_the_beginning_of_a_log_of_times_the_lag_is_unknown() -> None:
    (lag,) = lags(progress((offset(p=0), offset(p=THEN))))

    assert lag.seconds is None
    assert str(lag) == "etl batch 7 p@1: lag unknown"


def test_other_sources_and_those_that_have_not_begun_are_passed_over() -> None:
    foreign = [('{"0":{"topic":5}}', None), ("17", "18"), (None, None), ("null", None), ("{}", None), ("[1]", None)]

    assert lags(progress(*foreign)) == []


def test_before_4_2_spark_does_not_say_how_far_it_could_go() -> None:
    (lag,) = lags(progress((offset(p=THEN), None), name=None))

    assert (lag.query, lag.seconds) == ("an-id", None)
    assert str(lag) == "an-id batch 7 p@1: lag unknown"


def test_one_that_is_further_than_what_was_seen_last_is_not_behind() -> None:
    (lag,) = lags(progress((offset(p=THEN + SECOND), offset(p=THEN))))

    assert lag.seconds == 0


def test_prometheus_reads_it() -> None:
    text = prometheus([Lag('a "b"', 7, "p@1", THEN, THEN + SECOND), Lag("c", 7, "q@1", THEN, None)])

    assert text.splitlines() == [
        "# HELP gapless_spark_lag_seconds How far a query is behind the events that there are for it.",
        "# TYPE gapless_spark_lag_seconds gauge",
        'gapless_spark_lag_seconds{query="a \\"b\\"",pubend="p@1"} 1.000',
        "# HELP gapless_spark_position_seconds The time of what a query has read, in seconds since 1970.",
        "# TYPE gapless_spark_position_seconds gauge",
        'gapless_spark_position_seconds{query="a \\"b\\"",pubend="p@1"} 1800000000.000',
        'gapless_spark_position_seconds{query="c",pubend="q@1"} 1800000000.000',
    ]
