"""Random histories against a slow, obvious model: dictionaries, and a list of all states since the last sync."""

# ruff: noqa: D102 — a test says with its name what it claims
from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from gapless.spi import LogVolume
from gapless_testing.storage.harness import StorageHarness, need_reopening
from gapless_testing.storage.power import PowerFixtures
from gapless_testing.storage.streams import EVERYTHING

STREAMS = ("a", "b")
TABLES = ("t", "u")
STEPS = ["write", "sync", "reclaim"]


@dataclass
class ModelStream:
    """A stream as the contract describes it."""

    first: int = 0
    last: int = 0
    records: dict[int, bytes] = field(default_factory=dict)

    def put(self, index: int, record: bytes) -> None:
        """Adds a record."""
        self.records[index] = record
        self.last = index

    def chop(self, upto: int) -> None:
        """Removes records."""
        self.first = max(self.first, min(upto, self.last))
        self.records = {index: record for index, record in self.records.items() if index > self.first}

    def read(self, after: int, upto: int, max_bytes: int) -> list[tuple[int, bytes]]:
        """What overlaps (after, upto]."""
        found: list[tuple[int, bytes]] = []
        for index in sorted(self.records):
            enough = bool(found) and (found[-1][0] >= upto or sum(len(record) for _, record in found) >= max_bytes)
            if after < index and after < upto and not enough:
                found.append((index, self.records[index]))
        return found


@dataclass
class ModelState:
    """All that a volume holds."""

    streams: dict[str, ModelStream] = field(default_factory=lambda: {name: ModelStream() for name in STREAMS})
    tables: dict[str, dict[bytes, bytes]] = field(default_factory=lambda: {name: {} for name in TABLES})


def _told(state: ModelState) -> str:
    streams = [
        f"stream {name!r} with records {sorted(stream.records)} (first {stream.first}, last {stream.last})"
        for name, stream in state.streams.items()
        if stream.last
    ]
    tables = [f"table {name!r} with {rows}" for name, rows in state.tables.items() if rows]
    return " and ".join([*streams, *tables]) or "nothing"


def state_of(volume: LogVolume) -> ModelState:
    """What a volume shows, all of it."""
    state = ModelState()
    for name in STREAMS:
        stream = volume.stream(name)
        records = dict(stream.read(*EVERYTHING, max_bytes=1 << 60))
        state.streams[name] = ModelStream(stream.first, stream.last, records)
    for name in TABLES:
        state.tables[name] = dict(volume.table(name).scan())
    return state


class Histories:
    """A volume and its model, side by side; the steps of a random history are its methods."""

    def __init__(self, harness: StorageHarness) -> None:
        self.harness = harness
        self.volume = harness.open()
        self.staged = ModelState()
        self.written = [ModelState()]
        """What was durable at the last sync, and the state after each batch since."""

    def put(self, name: str, gap: int, size: int) -> None:
        """Stages a record of `size` bytes, `gap` above the last one."""
        stream = self.volume.stream(name)
        index = stream.last + gap
        record = b"%d " % index * (size // 4)
        stream.put(index, record)
        self.staged.streams[name].put(index, record)

    def chop(self, name: str, percent: int) -> None:
        """Stages a chop somewhere between nothing and more than all."""
        stream = self.volume.stream(name)
        upto = stream.last * percent // 100
        stream.chop(upto)
        self.staged.streams[name].chop(upto)

    def set(self, name: str, key: bytes, value: bytes) -> None:
        """Stages a row."""
        self.volume.table(name).put(key, value)
        self.staged.tables[name][key] = value

    def delete(self, name: str, key: bytes) -> None:
        """Stages the removal of a row."""
        self.volume.table(name).delete(key)
        self.staged.tables[name].pop(key, None)

    def turn(self, operations: Sequence[tuple[Any, ...]], then: str) -> None:
        """What an owner does in one turn: stages some operations, then maybe writes, syncs or reclaims."""
        for name, *arguments in operations:
            getattr(self, name)(*arguments)
        for step in {"stage": [], "write": ["write"], "sync": ["write", "sync"], "reclaim": STEPS}[then]:
            getattr(self, step)()

    def write(self) -> None:
        """Writes what is staged."""
        self.volume.write()
        self.written.append(copy.deepcopy(self.staged))

    def sync(self) -> None:
        """Syncs."""
        self.volume.sync()
        self.written = self.written[-1:]

    def reclaim(self) -> None:
        """Reclaims, which nobody may see."""
        self.volume.reclaim()

    def reopen(self) -> None:
        """Closes and opens: all that was written is there, nothing that was only staged."""
        self.volume.close()
        self.volume = self.harness.open()
        self.written = self.written[-1:]
        self.staged = copy.deepcopy(self.written[-1])
        self.check()

    def crash(self) -> None:
        """Crashes and opens: one of the states since the last sync is there."""
        self.harness.crash(self.volume)
        self.volume = self.harness.open()
        found = state_of(self.volume)
        assert found in self.written, (
            f"after the crash the volume shows a state that it never had since the last sync: {_told(found)}; it had "
            f"{', then '.join(_told(state) for state in self.written[-3:])}"
        )
        self.written = [found]
        self.staged = copy.deepcopy(found)

    def read(self, name: str, percents: tuple[int, int], max_bytes: int) -> None:
        """Reads a part of a stream."""
        model = self.written[-1].streams[name]
        after, upto = (model.last * percent // 100 for percent in percents)
        assert list(self.volume.stream(name).read(after, upto, max_bytes)) == model.read(after, upto, max_bytes)

    def scan(self, name: str, prefix: bytes) -> None:
        """Reads a part of a table."""
        rows = self.written[-1].tables[name]
        assert list(self.volume.table(name).scan(prefix)) == sorted(
            row for row in rows.items() if row[0].startswith(prefix)
        )

    def check(self) -> None:
        """Compares all that is written."""
        found, expected = state_of(self.volume), copy.deepcopy(self.written[-1])
        for name in STREAMS:  # counts what is staged
            expected.streams[name].last = self.staged.streams[name].last
        assert found == expected, f"the volume shows {_told(found)}, expected {_told(expected)}"

    def close(self) -> None:
        """Ends the history."""
        self.volume.close()


class PropertyTests(PowerFixtures):
    """Needs hypothesis. Override `history_examples` for a longer or shorter search."""

    history_examples = 20
    history_shrinks = True
    """Whether a history that fails is made as short as can be, which may take minutes."""

    def test_any_history_agrees_with_the_model(self, starting: StorageHarness) -> None:
        harness = starting
        hypothesis = pytest.importorskip("hypothesis", reason="the random histories need hypothesis")
        need_reopening(harness)
        from hypothesis.stateful import run_state_machine_as_test

        from gapless_testing.storage.rules import history_rules

        phases = [hypothesis.Phase.generate, *([hypothesis.Phase.shrink] if self.history_shrinks else [])]
        settings = hypothesis.settings(
            phases=phases,
            max_examples=self.history_examples,
            stateful_step_count=30,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(hypothesis.HealthCheck),
        )
        run_state_machine_as_test(history_rules(harness), settings=settings)

    def test_one_long_history(self, harness: StorageHarness) -> None:
        """What a broker does all day: append, chop, reclaim, now and then a restart."""
        need_reopening(harness)
        history = Histories(harness)
        for turn in range(120):
            for name in STREAMS:
                history.put(name, 1 + turn % 3, 400 * (turn % 7))
            history.set("t", b"%d" % (turn % 11), b"%d" % turn)
            history.write()
            if turn % 5 == 0:
                history.sync()
            if turn % 10 == 9:
                history.chop("a", 70)
                history.delete("t", b"%d" % (turn % 11))
            if turn % 20 == 19:
                history.reclaim()
            if turn % 30 == 29:
                history.reopen()
            history.read("a", (50, 90), 1000)
        history.check()
        history.close()
