"""What goes wrong, and what the user of a query sees of it: docs/howto/use-spark.md has the same list."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import gapless
from gapless_spark.offsets import token_of
from gapless_spark.options import source_options
from gapless_spark.stream import Stream
from integration.broker_process import clean_environment
from integration.spark_kit import (
    OVER_BOTH_LOGS,
    LocalBroker,
    acknowledged,
    begin,
    failure,
    numbers,
    publish,
    run,
    source,
    spark_version,
    until,
    written,
)

pytestmark = [
    pytest.mark.timeout(900),  # a Java machine starts, and each query starts processes: minutes on a busy machine
    pytest.mark.filterwarnings("default"),  # PySpark's own
]

AWAY = float(os.environ.get("GAPLESS_BROKER_AWAY", "6"))
"""Seconds for which a broker is away that comes back; 30 in the full run."""
EARLY: dict[str, Any] = {
    "phb": {"pubends": [{"name": "default", "max_retain_seconds": 1.0}]},
    "shb": {"catchup_bytes": 0},  # else it has in memory what its PHB has given up, and nothing is missing
}
AT_ONCE: dict[str, Any] = {
    "phb": {"pubends": [{"name": "default", "min_retain_seconds": 0.0, "min_retain_bytes": 0}]},
    "shb": {"catchup_bytes": 0},
}


def until_forgotten(url: str, tick: int) -> None:
    """Waits until the log has nothing up to a tick."""
    with gapless.sync.connect(url) as connection:
        until(lambda: all(pubend.lost >= tick for pubend in connection.pubends()), f"{tick} to be forgotten")


def stream(spark: Any, broker: LocalBroker, **options: object) -> Any:
    return source(spark.readStream, broker.url, "etl", startingOffsets="earliest", **options).load()


def started(spark: Any, broker: LocalBroker, directory: Path, name: str = "checkpoint", **options: object) -> Any:
    """A query that goes on."""
    return begin(stream(spark, broker, **options), directory / name, directory / f"rows-{name}")


def acknowledge_the_last_batch(broker: LocalBroker, checkpoint: Path, **options: str) -> None:
    """Before 4.2 Spark does not ask again at the end of a run (`spark_calls`), and nobody else does it.

    What is acknowledged is what the checkpoint says, and no later position: however slow the machine, the next run must
    not find that what it begins with is done with.
    """
    if spark_version() >= (4, 2):
        return
    last = max((checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    offset = last.read_text("utf-8").splitlines()[-1]
    given = {"brokers": broker.url, "subscription": "etl", "topics": "t", "startingOffsets": "earliest", **options}

    def is_acknowledged() -> bool:
        side = Stream(source_options(given, streaming=True))
        side.commit(offset)  # says nothing of what the next one makes good
        side.stop()
        done = acknowledged(broker.url, "etl")
        return all(done.get(pubend, 0) >= tick for pubend, tick in token_of(offset).ticks.items())

    until(is_acknowledged, "the acknowledgement")


def rolled_back(directory: Path, *, to: Path) -> None:
    shutil.rmtree(directory)
    shutil.copytree(to, directory)


def test_a_gap(spark: Any, tmp_path: Path) -> None:
    """A query that was away longer than its events were kept: it fails once, before a task runs, or has a row of it."""
    with LocalBroker(tmp_path, **EARLY) as broker:
        publish(broker.url, [100])
        run(stream(spark, broker), tmp_path, path=str(tmp_path / "before"))
        lost = publish(broker.url, range(5))
        until_forgotten(broker.url, lost[-1].tick)
        broker.stop()
        broker.sections = {"shb": EARLY["shb"]}  # what follows is kept, however slow the machine
        broker.start()
        publish(broker.url, range(5, 8))

        said = failure(started(spark, broker, tmp_path))
        assert f"GAPLESS_GAP pubend={lost[0].pubend} ticks=(" in said
        assert "With failOnGap=false it is a row." in said
        assert "perform latestOffset" in said, "the driver says so, and no task was tried"

        frame = stream(spark, broker, failOnGap="false")
        run(frame, tmp_path, path=str(tmp_path / "rows"))
        rows = spark.read.parquet(str(tmp_path / "rows" / "*.parquet")).orderBy("tick").collect()
        assert [int(row.payload) for row in rows if row.kind == "event"] == [5, 6, 7]
        gaps = [row for row in rows if row.kind == "gap"]
        assert gaps[0].tick_from <= lost[0].tick
        assert gaps[-1].tick >= lost[-1].tick


def test_a_quiet_subscription_is_no_gap(spark: Any, tmp_path: Path) -> None:
    """The log has forgotten all that was published meanwhile: but nothing of it was for the query."""
    with LocalBroker(tmp_path, **AT_ONCE) as broker:
        frame = stream(spark, broker, selector="n >= 1000")
        run(frame, tmp_path, path=str(tmp_path / "rows"))
        acknowledge_the_last_batch(broker, tmp_path / "checkpoint", selector="n >= 1000")
        others = publish(broker.url, range(50))
        until_forgotten(broker.url, others[-1].tick)
        publish(broker.url, [1000])
        run(frame, tmp_path, path=str(tmp_path / "rows"))

        assert numbers(spark, tmp_path / "rows") == [1000]


def test_a_lost_checkpoint(spark: Any, broker: LocalBroker, tmp_path: Path) -> None:
    """A new one goes on where the subscription stands; what was not acknowledged comes again."""
    for part in range(2):
        publish(broker.url, range(10 * part, 10 * part + 10))
        run(stream(spark, broker), tmp_path, path=str(tmp_path / "rows"))
    shutil.rmtree(tmp_path / "checkpoint")
    publish(broker.url, range(20, 30))
    run(stream(spark, broker), tmp_path, path=str(tmp_path / "again"))

    assert numbers(spark, tmp_path / "rows") == list(range(20))
    found = numbers(spark, tmp_path / "again")
    assert found == list(range(found[0], 30))
    assert found[0] in {10, 20}, "it began at a batch: the last one, or behind it"


def test_a_rolled_back_checkpoint(spark: Any, tmp_path: Path) -> None:
    """It meets a gap where the log has let go of what was acknowledged since; with `ackLag` it reads that again."""
    with LocalBroker(tmp_path, **AT_ONCE) as broker:
        checkpoint, saved = tmp_path / "checkpoint", tmp_path / "saved"

        def take(*parts: int, **options: object) -> None:
            for part in parts:
                publish(broker.url, range(10 * part, 10 * part + 10))
                run(stream(spark, broker, **options), tmp_path, path=str(tmp_path / f"rows-{part}"))

        take(0)
        shutil.copytree(checkpoint, saved)
        take(1, 2, ackLag="5")
        rolled_back(checkpoint, to=saved)
        run(stream(spark, broker), tmp_path, path=str(tmp_path / "rows-1-2"))
        assert numbers(spark, tmp_path / "rows-1-2") == list(range(10, 30))

        last = publish(broker.url, range(30, 40))
        for _ in range(2):
            run(stream(spark, broker), tmp_path, path=str(tmp_path / "rows-3"))
        acknowledge_the_last_batch(broker, checkpoint)
        until(lambda: max(acknowledged(broker.url, "etl").values()) >= last[-1].tick, "the acknowledgement")
        until_forgotten(broker.url, last[0].tick - 1)
        rolled_back(checkpoint, to=saved)
        said = failure(started(spark, broker, tmp_path))
        assert "GAPLESS_GAP" in said


def test_a_new_pubend(spark: Any, tmp_path: Path) -> None:
    """A query that runs takes in what a pubend has that was not there when it began."""
    with LocalBroker(tmp_path) as broker:
        publish(broker.url, range(5))
        query = started(spark, broker, tmp_path)
        rows = tmp_path / "rows-checkpoint"
        until(lambda: numbers(spark, rows) == list(range(5)), "the first events")
        broker.stop()
        broker.sections = {
            "phb": {"pubends": [{"name": "late", "topics": ["t"]}, {"name": "default"}]},
        }
        broker.start()
        publish(broker.url, range(5, 10))
        until(lambda: numbers(spark, rows) == list(range(10)), "those of the new pubend")
        assert len(set(written(spark, rows, "pubend"))) == 2
        query.stop()


@OVER_BOTH_LOGS
def test_the_broker_is_away_for_a_while(spark: Any, broker: LocalBroker, tmp_path: Path) -> None:
    """The query waits for it, with nothing lost and nothing twice; and no longer than it was told."""
    publish(broker.url, range(5))
    rows = tmp_path / "rows-checkpoint"
    query = started(spark, broker, tmp_path)
    until(lambda: numbers(spark, rows) == list(range(5)), "the first events")
    broker.stop(signal.SIGKILL)
    time.sleep(AWAY)
    assert query.isActive
    broker.start()
    publish(broker.url, range(5, 10))
    until(lambda: numbers(spark, rows) == list(range(10)), "what was published since")
    assert query.exception() is None
    query.stop()

    query = started(spark, broker, tmp_path, brokerTimeout="2s")
    publish(broker.url, [10])
    until(lambda: numbers(spark, rows) == list(range(11)), "the query to run")
    broker.stop(signal.SIGKILL)
    said = failure(query)
    assert f"GAPLESS_UNREACHABLE {broker.url}: not within 2 s (brokerTimeout)" in said


def test_two_queries_on_one_subscription(spark: Any, broker: LocalBroker, tmp_path: Path) -> None:
    """The second is told, and does the first no harm."""
    publish(broker.url, range(5))
    first = started(spark, broker, tmp_path, "first")
    until(lambda: numbers(spark, tmp_path / "rows-first") == list(range(5)), "the first events")
    said = failure(started(spark, broker, tmp_path, "second"))
    assert "GAPLESS_IN_USE subscription=etl: each query needs a subscription of its own" in said

    publish(broker.url, range(5, 10))
    until(lambda: numbers(spark, tmp_path / "rows-first") == list(range(10)), "the first query to go on")
    first.stop()


def test_another_selector_for_a_subscription_that_exists(spark: Any, broker: LocalBroker, tmp_path: Path) -> None:
    """Of a query that goes on, and of a new one."""
    publish(broker.url, range(5))
    run(stream(spark, broker), tmp_path, path=str(tmp_path / "rows"))
    for checkpoint in ("checkpoint", "another"):
        said = failure(started(spark, broker, tmp_path, checkpoint, selector="n > 3"))
        assert "GAPLESS_MISMATCH subscription=etl: " in said
        assert "Topics and selector are fixed for its life" in said


def test_a_subscription_that_was_removed(spark: Any, broker: LocalBroker, tmp_path: Path) -> None:
    publish(broker.url, range(5))
    run(stream(spark, broker), tmp_path, path=str(tmp_path / "rows"))
    with gapless.sync.connect(broker.url) as connection:
        connection.unsubscribe("etl")
    said = failure(started(spark, broker, tmp_path))
    assert "GAPLESS_NOT_FOUND subscription=etl: " in said


def test_a_checkpoint_of_another_subscription(spark: Any, broker: LocalBroker, tmp_path: Path) -> None:
    """It is neither read, nor is the one that is named created by mistake."""
    publish(broker.url, range(5))
    run(stream(spark, broker), tmp_path, path=str(tmp_path / "rows"))
    other = source(spark.readStream, broker.url, "other", startingOffsets="earliest").load()
    said = failure(begin(other, tmp_path / "checkpoint", tmp_path / "rows-other"))
    assert "GAPLESS_NOT_FOUND subscription=other: " in said

    run(other, tmp_path / "own", path=str(tmp_path / "rows-other"))
    said = failure(begin(other, tmp_path / "checkpoint", tmp_path / "rows-other"))
    assert "GAPLESS_WRONG_CHECKPOINT subscription=other: " in said


WITHOUT = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
try:
    spark.readStream.format("gapless").option("brokers", "h:1").option("subscription", "s").load()
except Exception as error:
    print("SAID", str(error).replace(chr(10), " "))
"""


REGISTERING = """
import gapless_spark
try:
    gapless_spark.register(None)
except ImportError as error:
    print("SAID", error)
"""


def without(directory: Path, module: str, program: str) -> str:
    """What a program says where a module is not installed."""
    (directory / f"{module}.py").write_text(f'raise ModuleNotFoundError("no {module} here", name="{module}")')
    environment = clean_environment()
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(directory), environment.get("PYTHONPATH")]))
    environment["PYSPARK_PYTHON"] = sys.executable
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("SAID")] or [done.stderr[-2000:]]
    return line


def test_pyarrow_is_absent(spark: Any, tmp_path: Path) -> None:
    """Spark finds the format, and that says what is missing."""
    said = without(tmp_path, "pyarrow", WITHOUT)

    assert "GAPLESS_MISSING: the format gapless needs PySpark 4 and pyarrow" in said
    assert 'pip install "gapless[spark]"' in said


def test_pyspark_is_absent(tmp_path: Path) -> None:
    said = without(tmp_path, "pyspark", REGISTERING)

    assert "GAPLESS_MISSING: the format gapless needs PySpark 4 and pyarrow" in said
