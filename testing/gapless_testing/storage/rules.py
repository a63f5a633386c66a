"""Which histories hypothesis tries. Apart from `machine`, so that only this needs hypothesis."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gapless_testing.storage.harness import StorageHarness, overrides
from gapless_testing.storage.machine import STREAMS, TABLES, Histories

_streams = st.sampled_from(STREAMS)
_tables = st.sampled_from(TABLES)
_keys = st.sampled_from([b"", b"\x00", b"a", b"ab", b"b", b"\xff", b"\xff\xff"])
_percents = st.integers(0, 130)
_gaps = st.one_of(st.integers(1, 50), st.sampled_from([2**31, 2**32, 2**45]))
_operations = st.one_of(
    st.tuples(st.just("put"), _streams, _gaps, st.sampled_from([0, 10, 3_000, 100_000])),
    st.tuples(st.just("put"), _streams, st.just(1), st.just(10)),
    st.tuples(st.just("chop"), _streams, _percents),
    st.tuples(st.just("set"), _tables, _keys, st.binary(max_size=4)),
    st.tuples(st.just("delete"), _tables, _keys),
)
_ends = st.sampled_from(["write", "write", "sync", "sync", "reclaim", "stage"])


def history_rules(harness: StorageHarness) -> type[RuleBasedStateMachine]:
    """A state machine for `hypothesis.stateful`: each run on a fresh volume of the harness's kind."""
    can_crash = overrides(harness, "crash")

    class HistoryRules(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.history = Histories(harness.fresh())

        @rule(operations=st.lists(_operations, min_size=1, max_size=8), then=_ends)
        def turn(self, operations: list[tuple[Any, ...]], then: str) -> None:
            self.history.turn(operations, then)

        @rule(operations=st.lists(_operations, min_size=1, max_size=8), then=_ends)
        def another_turn(self, operations: list[tuple[Any, ...]], then: str) -> None:
            self.history.turn(operations, then)

        @rule(how=st.sampled_from(["reopen", "crash"] if can_crash else ["reopen"]))
        def start_again(self, how: str) -> None:
            getattr(self.history, how)()

        @rule(name=_streams, percents=st.tuples(_percents, _percents), max_bytes=st.sampled_from([1, 5_000, 1 << 20]))
        def read(self, name: str, percents: tuple[int, int], max_bytes: int) -> None:
            self.history.read(name, percents, max_bytes)

        @rule(name=_tables, prefix=_keys)
        def scan(self, name: str, prefix: bytes) -> None:
            self.history.scan(name, prefix)

        @invariant()
        def agrees(self) -> None:
            self.history.check()

        def teardown(self) -> None:
            self.history.close()

    return HistoryRules
