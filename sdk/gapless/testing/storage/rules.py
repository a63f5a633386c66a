"""Which histories hypothesis tries. Apart from `machine`, so that only this needs hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from gapless.testing.storage.harness import StorageHarness
from gapless.testing.storage.machine import STREAMS, TABLES, Histories

_streams = st.sampled_from(STREAMS)
_tables = st.sampled_from(TABLES)
_keys = st.sampled_from([b"", b"\x00", b"a", b"ab", b"b", b"\xff", b"\xff\xff"])
_percents = st.integers(0, 130)


def history_rules(harness: StorageHarness) -> type[RuleBasedStateMachine]:
    """A state machine for `hypothesis.stateful`: each run on a fresh volume of the harness's kind."""
    can_crash = type(harness).crash is not StorageHarness.crash

    class HistoryRules(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.history = Histories(harness.fresh())

        @rule(name=_streams, gap=st.integers(1, 50), size=st.sampled_from([0, 10, 3_000, 300_000]))
        def put(self, name: str, gap: int, size: int) -> None:
            self.history.put(name, gap, size)

        @rule(name=_streams, percent=_percents)
        def chop(self, name: str, percent: int) -> None:
            self.history.chop(name, percent)

        @rule(name=_tables, key=_keys, value=st.binary(max_size=4))
        def set(self, name: str, key: bytes, value: bytes) -> None:
            self.history.set(name, key, value)

        @rule(name=_tables, key=_keys)
        def delete(self, name: str, key: bytes) -> None:
            self.history.delete(name, key)

        @rule()
        def write(self) -> None:
            self.history.write()

        @rule()
        def write_and_sync(self) -> None:
            self.history.write()
            self.history.sync()

        @rule()
        def reclaim(self) -> None:
            self.history.reclaim()

        @rule()
        def reopen(self) -> None:
            self.history.reopen()

        @precondition(lambda _: can_crash)
        @rule()
        def crash(self) -> None:
            self.history.crash()

        @rule(name=_streams, percents=st.tuples(_percents, _percents), max_bytes=st.sampled_from([1, 5_000, 1 << 20]))
        def read(self, name: str, percents: tuple[int, int], max_bytes: int) -> None:
            self.history.read(name, percents, max_bytes)

        @rule(name=_tables, prefix=_keys)
        def scan(self, name: str, prefix: bytes) -> None:
            self.history.scan(name, prefix)

        def teardown(self) -> None:
            self.history.check()
            self.history.close()

    return HistoryRules
