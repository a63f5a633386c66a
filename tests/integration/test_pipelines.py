"""The pipelines on a real broker and in a real local Spark, with a part of the flights: `tox -e pipelines`.

All 336,776 of them: `python -m bench pipelines`.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import gapless
from gapless_flights.data import made_up_flights, properties_of, topic_of
from gapless_spark.pipelines.manifest import ArchiveFolder
from integration.broker_process import CLI, clean_environment
from integration.spark_kit import LocalBroker, require_spark

pytest.importorskip("pyarrow", reason="pyarrow is not installed: tox -e pipelines")

from gapless_spark.pipelines.archive import archive
from gapless_spark.pipelines.archive_reader import Archive
from gapless_spark.pipelines.compaction import compact
from gapless_spark.pipelines.replay import replay

pytestmark = [
    pytest.mark.timeout(900),  # a Java machine starts, and each query starts processes: minutes on a busy machine
    pytest.mark.filterwarnings("default"),  # PySpark's own
]

PATIENCE = 300.0
"""Seconds that one command may take, on a busy machine, too."""
FLIGHTS = made_up_flights(6000, seed=6)
FORGETFUL = {"phb": {"release_seconds": 0.1, "pubends": [{"name": "default", "max_retain_seconds": 1.0}]}}


def publish(url: str, flights: list[str]) -> None:
    with gapless.sync.connect(url) as connection, connection.session() as session:
        messages = (gapless.Message(line.encode(), properties_of(line), topic_of(line)) for line in flights)
        for _ in session.publisher().send_all(messages):
            pass


def consumed(url: str, topic: str, name: str) -> list[gapless.Event]:
    """All that was ever published to a topic."""
    with gapless.sync.connect(url, client_id="reader") as connection:
        position = connection.attach(name, topic, start="earliest")
        head = connection.heads(name, after=position, wait=5)
        found: list[gapless.Event] = []
        for pubend, tick in head.ticks.items():
            with connection.read_range(name, pubend, position.ticks.get(pubend, 0), tick) as reader:
                found += list(reader)
        return found


def archived(path: Path) -> list[gapless.Event]:
    """All events of an archive, as its readers get them."""
    found = Archive(path)
    return [event for pubend in found.pubends() for event in found.events(pubend, 0, 1 << 62)]


def lines(events: list[gapless.Event]) -> list[str]:
    return [bytes(event.body).decode() for event in events]


@contextmanager
def pipeline(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A process of its own, which does not outlive the block."""
    command = [sys.executable, *CLI, "pipeline", *map(str, arguments)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_environment()
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_flights_are_archived_compacted_and_replayed(spark: Any, url: str, tmp_path: Path) -> None:
    """In two runs with new flights between them; the archive is what a plain reader reads, to the byte."""
    path = tmp_path / "archive"
    publish(url, FLIGHTS[:4000])
    first = archive(spark, path, url, subscription="a", topics=["flights.#"], max_events=1500)
    publish(url, FLIGHTS[4000:])
    second = archive(spark, path, url, max_events=1500)
    third = archive(spark, path, url)

    assert [(run.events, run.gaps) for run in (first, second, third)] == [(4000, 0), (2000, 0), (0, 0)]
    assert first.batches >= 3
    assert archived(path) == consumed(url, "flights.#", "plain"), "tick by tick, with all headers"
    assert lines(archived(path)) == FLIGHTS
    with gapless.sync.connect(url) as connection:
        [own] = [info for info in connection.subscriptions() if info.name == "a"]
    assert own.lag_events == 0, "all of it is acknowledged"
    assert not (path / "_gapless" / "checkpoint").exists()

    before = archived(path)
    done = compact(path, keep_seconds=0)
    assert (done.batches, done.files_after, done.events) == (first.batches + second.batches, 1, 6000)
    assert archived(path) == before

    again = replay(path, url, topic="again")
    assert (again.published, again.duplicates, again.gaps) == (6000, 0, ())
    assert replay(path, url, topic="again").published == 0
    assert replay(path, url, topic="again", resume=False).duplicates == 6000
    copies = consumed(url, "again", "copies")
    assert lines(copies) == FLIGHTS
    assert [event.properties for event in copies] == [properties_of(line) for line in FLIGHTS]


def test_spark_reads_the_files_of_an_archive(spark: Any, url: str, tmp_path: Path) -> None:
    """Compacted files and new ones alike, and counts what a plain computation counts."""
    path = tmp_path / "archive"
    publish(url, FLIGHTS[:3000])
    archive(spark, path, url, subscription="a", selector="dep_delay > 60", max_events=200)
    compact(path, rows=500)
    publish(url, FLIGHTS[3000:])
    archive(spark, path, url)
    rows = spark.read.parquet(*map(str, Archive(path).files()))
    late = [line for line in FLIGHTS if int(properties_of(line).get("dep_delay", 0)) > 60]

    assert rows.columns == [
        "kind", "pubend", "tick", "tick_from", "topic", "key", "properties", "payload", "published_at", "header",
    ]  # fmt: skip
    assert [row.payload.decode() for row in rows.orderBy("tick").select("payload").collect()] == late
    per_topic = {row.topic: row["count"] for row in rows.groupBy("topic").count().collect()}
    assert per_topic == {topic: sum(topic_of(line) == topic for line in late) for topic in set(map(topic_of, late))}
    assert rows.where("published_at IS NULL OR properties['origin'] IS NULL").count() == 0


def test_an_archiving_process_that_is_killed_loses_nothing(url: str, tmp_path: Path) -> None:
    """SIGKILL behind its first batch and behind its second, and wherever it was then; the same command goes on."""
    require_spark()
    path = tmp_path / "archive"
    publish(url, FLIGHTS)
    command = ("archive", path, "--subscription", "a", "--url", url, "--max-events", 1000, "--json")
    folder = ArchiveFolder(path)
    for behind in (1, 2):
        target = behind + _batches(folder)
        with pipeline(*command) as process:
            _until(process, lambda: _batches(folder), target)
            process.kill()
        assert lines(archived(path)) == FLIGHTS[: len(archived(path))], "each event once, in order, so far"
    with pipeline(*command) as process:
        out, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    assert json.loads(out)["events"] > 0
    assert archived(path) == consumed(url, "flights.#", "plain")


def _until(process: subprocess.Popen[str], progress: Callable[[], int], least: int) -> None:
    """Waits until a process has come so far; how long that takes is up to the machine and the test's own timeout."""
    while progress() < least:
        assert process.poll() is None, process.stderr and process.stderr.read()
        time.sleep(0.05)


def _batches(folder: ArchiveFolder) -> int:
    """How many there are by now."""
    last = folder.last() if folder.private.is_dir() else None
    return 0 if last is None else last.batch + 1


def test_one_that_goes_on_takes_what_comes_and_ends_with_an_interrupt(url: str, tmp_path: Path) -> None:
    require_spark()
    path = tmp_path / "archive"
    folder = ArchiveFolder(path)
    publish(url, FLIGHTS[:100])
    command = ("archive", path, "--subscription", "a", "--url", url, "--follow", "--every", 0.2, "--json")
    with pipeline(*command) as process:
        for count in (100, 250, 300):
            publish(url, FLIGHTS[max(100, count - 150) : count] if count > 100 else [])
            _until(process, lambda: len(archived(path)) if _batches(folder) else 0, count)
        with pipeline(*command) as other:
            _, errors = other.communicate(timeout=PATIENCE)
        assert other.returncode == 1
        assert "another process is busy with it" in errors
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    assert json.loads(out)["events"] == len(archived(path))
    assert archived(path) == consumed(url, "flights.#", "plain")


def test_a_gap_is_a_row_and_is_not_replayed(spark: Any, tmp_path: Path) -> None:
    """The broker forgets only while it runs with that policy, so Spark may take its time to read the rest."""
    path, broker = tmp_path / "archive", LocalBroker(tmp_path)
    with broker:
        publish(broker.url, FLIGHTS[:50])
        archive(spark, path, broker.url, subscription="a", topics=["flights.#"])
        publish(broker.url, FLIGHTS[50:100])
    broker.sections.update(FORGETFUL)
    with broker:
        _until_lost(broker.url)
    broker.sections.clear()
    with broker:
        url = broker.url
        publish(url, FLIGHTS[100:150])
        done = archive(spark, path, url)
        repeated = replay(path, url, topic="again")

    assert (done.events, done.gaps) == (50, 1)
    [gap] = ArchiveFolder(path).manifests()[-1].gaps
    assert lines(archived(path)) == FLIGHTS[:50] + FLIGHTS[100:150]
    assert (repeated.published, repeated.gaps) == (100, (gap,))
    rows = spark.read.parquet(*map(str, Archive(path).files())).where("kind = 'gap'").collect()
    assert [(row.pubend, row.tick_from - 1, row.tick) for row in rows] == [gap]


def _until_lost(url: str) -> None:
    """Waits until the log has forgotten what there is just now."""
    with gapless.sync.connect(url) as connection:
        newest = max(info.newest for info in connection.pubends())
        for _ in range(200):
            if all(info.lost >= newest for info in connection.pubends()):
                return
            time.sleep(0.1)
    raise AssertionError("it is still there")


def test_what_is_wrong_is_a_sentence(tmp_path: Path) -> None:
    nowhere = ("--url", "gapless://127.0.0.1:1", "--wait", 2)
    for arguments, status, text in (
        (("archive", tmp_path / "a", "--subscription", "a", *nowhere), 1, "cannot connect to gapless://127.0.0.1:1"),
        (("archive", tmp_path / "a", *nowhere), 2, "name the durable subscription"),
        (("compact", tmp_path), 1, "is no archive"),
        (("replay", tmp_path, "--topic", "x", *nowhere), 1, "is no archive"),
        (("replay", tmp_path, "--topic", "x.*", *nowhere), 2, "has a wildcard"),
    ):
        with pipeline(*arguments) as process:
            out, errors = process.communicate(timeout=PATIENCE)
        assert (process.returncode, out) == (status, ""), errors
        assert text in errors
        assert errors.startswith("gapless: ")
        assert errors.count("\n") == 1
