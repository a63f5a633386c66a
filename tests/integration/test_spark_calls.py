"""What Spark calls, and when, version by version: the contract that the source leans on.

Each version of Spark has a file of its own in `spark_calls`. Where Spark calls otherwise, the difference is shown, and
it is to be found out whether the source still does the right thing; then `GAPLESS_WRITE_CALLS=1` writes the file anew.
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from integration.spark_kit import LocalBroker, publish, source, spark_version, until

pytestmark = [
    pytest.mark.timeout(900),  # a Java machine starts, and each query starts processes: minutes on a busy machine
    pytest.mark.filterwarnings("default"),  # PySpark's own
]

GOLDEN = Path(__file__).parent / "spark_calls"
IDLE = 4
"""So many questions without news are a quiet stream."""


class Script:
    """Makes queries do things, and keeps what was called meanwhile."""

    def __init__(self, spark: Any, broker: LocalBroker, directory: Path) -> None:
        from pyspark import cloudpickle

        from integration import spark_recorder

        # Spark's processes cannot import what lies among the tests.
        cloudpickle.register_pickle_by_value(spark_recorder)
        spark.dataSource.register(spark_recorder.RecordingDataSource)
        self._spark = spark
        self._url = broker.url
        self._directory = directory
        self._trace = directory / "trace"
        self._fail = directory / "fail"
        self._describing = Describing()
        self._read = 0
        self._since = 0
        self._published = 0
        self.text = ""

    def checkpoint(self, name: str) -> Path:
        return self._directory / name

    def publish(self) -> None:
        """Two events, at once."""
        self._since = len(self._lines())
        publish(self._url, range(self._published, self._published + 2))
        self._published += 2

    def start(self, name: str, **trigger: Any) -> Any:
        """Starts a query with a subscription and a checkpoint of its own."""
        self._since = len(self._lines())
        reader = source(self._spark.readStream, self._url, name, startingOffsets="earliest", pollTimeout="50ms")
        frame = reader.format("recorded").options(trace=self._trace, fail=self._fail).load()
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(self.checkpoint(name)))
        return (writer.trigger(**trigger) if trigger else writer).start()

    def until_idle(self, *, after_a_batch: bool = True) -> None:
        """Waits until there was nothing new for a while, since the last start or publishing."""

        def holds() -> bool:
            calls = self._lines()[self._since :]
            had_a_batch = any(call["call"] == "read" for call in calls)
            return _idle(calls) >= IDLE and (had_a_batch or not after_a_batch)

        until(holds, "a quiet stream")

    def fail(self, query: Any) -> None:
        self._fail.touch()
        with pytest.raises(Exception, match="as it was told to"):
            query.awaitTermination(240)
        self._fail.unlink()

    def forget_commit(self, name: str, batch: int) -> None:
        """As if the query had died before the batch was committed."""
        commits = self.checkpoint(name) / "commits"
        (commits / str(batch)).unlink()
        (commits / f".{batch}.crc").unlink(missing_ok=True)

    def say(self, title: str) -> None:
        """What was called since the last time, under a title."""
        lines = self._lines()
        calls, self._read = lines[self._read :], len(lines)
        self.text += "\n".join([f"== {title}", *self._describing.lines(calls)]) + "\n\n"

    def _lines(self) -> list[dict[str, Any]]:
        if not self._trace.exists():
            return []
        return [json.loads(line) for line in self._trace.read_text("utf-8").splitlines()]


class Describing:
    """Calls as lines: offsets by letters, in the order of their ticks. What a quiet stream repeats is there once."""

    def __init__(self) -> None:
        self._quiet: set[str] = set()
        self._before: Any = None

    def lines(self, calls: list[dict[str, Any]]) -> list[str]:
        letters, roles = _letters(calls), _roles(calls)
        lines: list[str] = []
        for call in calls:
            if self._is_repeated(call):
                continue
            arguments = ", ".join(_text(value, letters) for value in call["arguments"])
            result = "" if call["result"] is None else f" -> {_text(call['result'], letters)}"
            lines.append(f"{roles[call['process']]}: {call['call']}({arguments}){result}")
        return lines

    def _is_repeated(self, call: dict[str, Any]) -> bool:
        name, result, same = call["call"], call["result"], json.dumps(call)
        news = name == "latestOffset" and result not in (self._before, *call["arguments"][:1])
        if name == "latestOffset":
            self._before = result
        if name not in {"latestOffset", "reportLatestOffset"} or news:
            self._quiet.clear()
            return False
        repeated = same in self._quiet
        self._quiet.add(same)
        return repeated


def _offsets(value: Any) -> Iterator[str]:
    if isinstance(value, dict) and "$token" in value:
        yield json.dumps(value, sort_keys=True)
    elif isinstance(value, str) and value.startswith("{"):
        yield from _offsets(json.loads(value))


def _letters(calls: list[dict[str, Any]]) -> dict[str, str]:
    """The letter of each offset: of two, the later one is further."""
    found = {offset for call in calls for value in (*call["arguments"], call["result"]) for offset in _offsets(value)}

    def furthest(offset: str) -> int:
        return max((tick for name, tick in json.loads(offset).items() if name != "$token"), default=0)

    return {offset: chr(ord("A") + number) for number, offset in enumerate(sorted(found, key=furthest))}


def _text(value: Any, letters: dict[str, str]) -> str:
    for offset in _offsets(value):
        return letters[offset]
    return f"{len(value)} task" + "s" * (len(value) != 1) if isinstance(value, list) else str(value)


def _roles(calls: list[dict[str, Any]]) -> dict[int, str]:
    """Which process is which: the reader that lives as long as its query, those that read, those that plan."""
    roles: dict[int, str] = {}
    for call in calls:
        process, name = call["process"], call["call"]
        roles.setdefault(process, "planner")
        if name == "read":
            roles[process] = "executor"
        elif name not in {"__init__", "schema"}:
            roles[process] = "runner"
    return roles


def _idle(calls: list[dict[str, Any]]) -> int:
    """How often there was nothing new, at the end."""
    count, last = 0, None
    for call in reversed(calls):
        if call["call"] not in {"latestOffset", "reportLatestOffset"}:
            break
        if call["call"] == "latestOffset":
            if last not in (None, call["result"]):
                break
            last = call["result"]
            count += 1
    return count - 1


def play(script: Script) -> str:
    """All that Spark can be asked to do with a source."""
    script.publish()
    query = script.start("s")
    script.until_idle()
    script.say("fresh")
    script.publish()
    script.until_idle()
    script.say("next")
    query.stop()
    script.say("stop")

    query = script.start("s")
    script.until_idle(after_a_batch=False)
    script.publish()
    script.until_idle()
    query.stop()
    script.say("restart, the last batch was committed")
    script.forget_commit("s", 2)
    query = script.start("s")
    script.until_idle()
    script.publish()
    script.until_idle()
    query.stop()
    script.say("restart, the last batch was not committed")

    query = script.start("first")
    script.until_idle()
    query.stop()
    script.say("fresh, in another checkpoint")
    script.forget_commit("first", 0)
    query = script.start("first")
    script.until_idle()
    script.say("restart, batch 0 was not committed")
    script.fail(query)
    script.say("failure in latestOffset")

    for trigger in ({"availableNow": True}, {"once": True}):
        (name,) = trigger
        assert script.start(name, **trigger).awaitTermination(240)
        script.say(f"{name}, fresh")
        script.publish()
        assert script.start(name, **trigger).awaitTermination(240)
        script.say(f"{name}, again")
    return script.text


def test_spark_calls_as_it_did_when_this_was_written(spark: Any, broker: LocalBroker, tmp_path: Path) -> None:
    seen = play(Script(spark, broker, tmp_path))
    version = "{}.{}".format(*spark_version())
    golden = GOLDEN / f"{version}.txt"
    if os.environ.get("GAPLESS_WRITE_CALLS"):
        golden.write_text(seen, "utf-8")
    assert golden.exists(), f"nobody has looked at Spark {version} yet; it calls:\n{seen}"
    known = golden.read_text("utf-8")
    difference = difflib.unified_diff(
        known.splitlines(), seen.splitlines(), str(golden.name), f"Spark {version} now", lineterm="", n=100
    )
    assert seen == known, "\n" + "\n".join(difference)
