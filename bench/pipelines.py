"""The pipelines on all flights: archive, compact, replay, each beside a plain computation, and the archiving killed.

The flights are published to a broker of its own, archived by `gapless pipeline archive`, which is killed with SIGKILL a
number of times on the way, compacted, replayed to another topic (killed, too), and read back. Then what is in the
archive and under the other topic is compared with the lines of the file: not one may be missing, doubled, changed or
moved.

    python -m bench pipelines [--rows N] [--kills N] [--json]
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gapless
from bench.processes import running_broker, table
from gapless_flights.data import ROWS, flights, properties_of, topic_of

BATCH = 25_000
"""Events of a batch: small enough that there is something to be killed."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """What it takes beside --json."""
    parser.add_argument("--rows", type=int, default=ROWS, help="only the first flights of the year")
    parser.add_argument("--kills", type=int, default=6, help="how often archiving and replaying are killed")
    parser.add_argument("--seed", type=int, default=1, help="decides when")


def run(*, json: bool, rows: int = ROWS, kills: int = 6, seed: int = 1) -> dict[str, float]:
    """Runs all of it once. Raises AssertionError if an event is missing, doubled, changed or moved."""
    lines = flights(rows)
    figures: dict[str, float] = {"flights": len(lines)}
    work = Path(tempfile.mkdtemp(prefix="gapless-bench-"))
    generator = random.Random(seed)  # noqa: S311 - when to kill
    try:
        with running_broker() as broker:
            figures["publish_s"] = _timed(lambda: _publish(broker.url, lines))
            archive = work / "archive"
            common = ["--url", broker.url, "--json"]
            archiving = ["archive", str(archive), "--subscription", "a", "--topic", "flights.#", *common]
            archiving += ["--max-events", str(BATCH)]
            killed = _killed(archiving, kills, generator, archive / "_gapless" / "batches", 4.0)
            began = time.perf_counter()
            done = _pipeline(archiving)
            figures |= {"archive_kills": killed, "archived_by_the_last_run": done["events"]}
            figures["archive_last_run_s"] = time.perf_counter() - began
            figures |= _checked_archive(archive, lines)
            if killed:
                figures |= _uninterrupted(broker.url, work / "whole", lines)
            figures |= _compacted(archive, lines)
            replaying = ["replay", str(archive), "--topic", "again", *common]
            figures["replay_kills"] = _killed(replaying, kills // 2, generator, archive / "_gapless" / "replays", 1.0)
            figures |= _replayed(broker.url, replaying, lines)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    if not json:
        table("the pipelines, on the flights", figures)
    return figures


def _uninterrupted(url: str, archive: Path, lines: Sequence[str]) -> dict[str, float]:
    """One archiving that nobody kills, with batches as they are by default."""
    command = ["archive", str(archive), "--subscription", "whole", "--topic", "flights.#", "--url", url, "--json"]
    seconds = _timed(lambda: _pipeline(command))
    _checked_archive(archive, lines)
    return {"archive_s": seconds, "archive_events_per_s": len(lines) / seconds}


def _publish(url: str, lines: Sequence[str]) -> None:
    with gapless.sync.connect(url) as connection, connection.session() as session:
        messages = (gapless.Message(line.encode(), properties_of(line), topic_of(line)) for line in lines)
        for _ in session.publisher().send_all(messages):
            pass


def _checked_archive(archive: Path, lines: Sequence[str]) -> dict[str, float]:
    """Reads it as its readers do. Raises AssertionError if it is not the flights, in order, with their properties."""
    from gapless_spark.pipelines.archive_reader import Archive
    from gapless_spark.pipelines.manifest import ArchiveFolder

    began = time.perf_counter()
    found = Archive(archive)
    [pubend] = found.pubends()
    expected = iter(lines)
    count = 0
    for event in found.events(pubend, 0, 1 << 62):
        line = next(expected)
        assert event.body == line.encode(), f"flight {count} is another one"
        assert (event.topic, event.properties) == (topic_of(line), properties_of(line)), f"flight {count} has changed"
        count += 1
    assert count == len(lines), f"{count} of {len(lines)} flights are in the archive"
    manifests = ArchiveFolder(archive).manifests()
    return {
        "archived_events": count,
        "archive_batches": sum(each.batch - each.first + 1 for each in manifests),
        "archive_files": len(found.files()),
        "archive_MiB": sum(path.stat().st_size for path in found.files()) / 2**20,
        "archive_read_events_per_s": count / (time.perf_counter() - began),
    }


def _compacted(archive: Path, lines: Sequence[str]) -> dict[str, float]:
    seconds = _timed(lambda: _pipeline(["compact", str(archive), "--keep", "0", "--json"]))
    after = _checked_archive(archive, lines)
    return {
        "compact_s": seconds,
        "compacted_files": after["archive_files"],
        "compacted_MiB": after["archive_MiB"],
        "compacted_read_events_per_s": after["archive_read_events_per_s"],
    }


def _replayed(url: str, replaying: list[str], lines: Sequence[str]) -> dict[str, float]:
    """The rest of a replay, and the whole of it again, of which nothing is published."""
    began = time.perf_counter()
    last = _pipeline(replaying)
    seconds = time.perf_counter() - began
    again = _pipeline([*replaying, "--no-resume"])
    assert (again["published"], again["duplicates"]) == (0, len(lines)), "a replay that is repeated publishes nothing"
    began = time.perf_counter()
    _pipeline([*replaying, "--run", "timed", "--topic", "timed"])
    whole = time.perf_counter() - began
    for topic in ("again", "timed"):
        assert _bodies(url, topic) == [line.encode() for line in lines], f"{topic} has not just the flights, in order"
    return {
        "replayed_by_the_last_run": last["published"],
        "replay_last_run_s": seconds,
        "replay_events_per_s": len(lines) / whole,
    }


def _bodies(url: str, topic: str) -> list[bytes]:
    with gapless.sync.connect(url, client_id="check") as connection:
        position = connection.attach(topic, topic, start="earliest")
        head = connection.heads(topic, after=position, wait=10)
        found: list[bytes] = []
        for pubend, tick in head.ticks.items():
            with connection.read_range(topic, pubend, position.ticks.get(pubend, 0), tick) as reader:
                found += [bytes(event.body) for event in reader]
    return found


def _killed(arguments: list[str], times: int, generator: random.Random, watched: Path, seconds: float) -> int:
    """Begins it so many times and kills it: while it starts, or soon after it has changed a directory once or more.

    So it has done something on a machine of any speed. Returns how often it was killed before it ended by itself.
    """
    killed = 0
    for _ in range(times):
        wanted, later = generator.choice((0, 1, 2, 5)), generator.uniform(0.0, seconds)
        process = subprocess.Popen(_command(arguments), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        changes, last = 0, _changed(watched)
        while changes < wanted and process.poll() is None:
            time.sleep(0.01)
            if (now := _changed(watched)) != last:
                changes, last = changes + 1, now
        try:
            process.wait(later)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            killed += 1
    return killed


def _changed(directory: Path) -> int:
    """When something was last added to it, replaced or removed."""
    return directory.stat().st_mtime_ns if directory.exists() else 0


def _pipeline(arguments: list[str]) -> dict[str, Any]:
    done = subprocess.run(_command(arguments), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _command(arguments: list[str]) -> list[str]:
    return [sys.executable, "-m", "gapless.cli", "pipeline", *arguments]


def _timed(work: Any) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
