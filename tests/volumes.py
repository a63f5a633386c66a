"""A volume in memory whose writes and syncs do what a test tells them to."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

from gapless.spi import StorageCapabilities, VolumeIdentity


class FakeStream:
    """A log stream in a dict."""

    def __init__(self, volume: FakeVolume, name: str) -> None:
        self.name = name
        self.records: dict[int, bytes] = {}
        self.first = 0
        self.last = 0
        self._volume = volume

    @property
    def size(self) -> int:
        return sum(map(len, self.records.values()))

    def put(self, index: int, record: bytes) -> None:
        def apply() -> None:
            self.records[index] = record
            self.last = index

        self._volume.staged.append((f"put {self.name} {index}", apply))

    def read(self, after: int, upto: int, max_bytes: int = 1 << 20) -> Sequence[tuple[int, bytes]]:
        self._volume.calls.append(f"read {self.name}")
        found: list[tuple[int, bytes]] = []
        size = 0
        for index in sorted(self.records):
            if index > after:
                found.append((index, self.records[index]))
                size += len(self.records[index])
                if index >= upto or size >= max_bytes:
                    break
        return found

    @property
    def given_up(self) -> Sequence[tuple[int, int]]:
        return ()

    def give_up(self, after: int, upto: int) -> None:
        raise AssertionError("nobody gives anything up here")

    def chop(self, upto: int) -> None:
        def apply() -> None:
            self.first = max(self.first, upto)
            self.records = {index: record for index, record in self.records.items() if index > upto}

        self._volume.staged.append((f"chop {self.name} {upto}", apply))


class FakeTable:
    """A table in a dict."""

    def __init__(self, volume: FakeVolume, name: str) -> None:
        self.name = name
        self.rows: dict[bytes, bytes] = {}
        self._volume = volume

    def get(self, key: bytes) -> bytes | None:
        return self.rows.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        self._volume.staged.append((f"set {self.name}", lambda: self.rows.__setitem__(key, value)))

    def delete(self, key: bytes) -> None:
        self._volume.staged.append((f"delete {self.name}", lambda: self.rows.pop(key, None)))

    def scan(self, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        return iter(sorted((key, value) for key, value in self.rows.items() if key.startswith(prefix)))


class FakeVolume:
    """Notes what is called; fails when told to; with `gate` cleared, syncs wait."""

    def __init__(self, *, durable: bool = True) -> None:
        self.identity = VolumeIdentity("", "")
        self.capabilities = StorageCapabilities(durable=durable)
        self.created = True
        self.streams: dict[str, FakeStream] = {}
        self.tables: dict[str, FakeTable] = {}
        self.staged: list[tuple[str, Any]] = []
        self.calls: list[str] = []
        self.gate = threading.Event()
        self.gate.set()
        self.write_error: Exception | None = None
        self.sync_errors: list[Exception | None] = []
        """What the next syncs raise; None for one that succeeds."""
        self.tend_error: Exception | None = None
        self.tended = 0
        self.closed = False
        self.free_bytes: int | None = None
        self.reclaimable = 0
        self.lock = threading.Lock()
        self.syncing = 0
        self.syncing_most = 0

    def stream(self, name: str) -> FakeStream:
        return self.streams.setdefault(name, FakeStream(self, name))

    def table(self, name: str) -> FakeTable:
        return self.tables.setdefault(name, FakeTable(self, name))

    def stream_names(self) -> Sequence[str]:
        return sorted(self.streams)

    def table_names(self) -> Sequence[str]:
        return sorted(self.tables)

    @property
    def damage(self) -> str:
        return ""

    def excise(self) -> str:
        raise AssertionError("nothing is damaged here")

    def write(self) -> None:
        assert not self.closed
        if self.write_error is not None:
            self.staged.clear()
            raise self.write_error
        self.calls.append("write " + ", ".join(name for name, _ in self.staged))
        for _, apply in self.staged:
            apply()
        self.staged.clear()

    def sync(self) -> None:
        assert not self.closed
        with self.lock:
            self.syncing += 1
            self.syncing_most = max(self.syncing_most, self.syncing)
            error = self.sync_errors.pop(0) if self.sync_errors else None
        self.gate.wait(10)
        with self.lock:
            self.syncing -= 1
            self.calls.append("sync")
        if error is not None:
            raise error

    def tend(self) -> None:
        if self.tend_error is not None:
            raise self.tend_error
        self.tended += 1

    def reclaim(self) -> int:
        given, self.reclaimable = self.reclaimable, 0
        self.calls.append("reclaim")
        return given

    def close(self) -> None:
        self.closed = True
