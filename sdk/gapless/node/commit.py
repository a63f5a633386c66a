"""SyncGroup commit: what is written and not yet durable, in groups that one sync covers.

    commit ──▶ stage, write() ──▶ cookies gather ──▶ a sync covers them ──▶ on_durable(cookies), in order

While a sync runs, the commits that follow are written and gather: the sync itself is the window in which a
group gathers, so load makes groups and an idle broker has no delay. A sync that ends before an earlier one
releases nothing: after a failure, what a later sync says cannot be trusted. How a sync is run, and where,
is the business of whoever is asked to begin it.

Rules of this module: as for the cores (`gapless.core`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from gapless.core.gauges import Histogram
from gapless.core.ports import Append, Chop, Delete, Operation, Put, Read, ReadResult, Set
from gapless.errors import RecordsDamagedError, StorageError
from gapless.node.gauges import COMMIT_SECONDS

if TYPE_CHECKING:
    from gapless.node.machine import Cookie
    from gapless.spi import LogStream, LogVolume, Table

SYNCS_MAX = 2
"""Two syncs may run at a time, so that the second one's log is on its way while the first one's fence is."""


class VolumeWriter:
    """Carries out operations on a volume."""

    def __init__(self, volume: LogVolume) -> None:
        self._volume = volume
        self._streams: dict[str, LogStream] = {}
        self._tables: dict[str, Table] = {}

    def write(self, operations: Sequence[Operation]) -> None:
        """Writes them as one atomic batch, which a sync makes durable. Raises what the volume's `write` raises."""
        for operation in operations:
            kind = type(operation)
            if type(operation) is Set:
                self._table(operation.table).put(operation.key, operation.value)
            elif type(operation) is Append:
                put = self._stream(operation.log).put
                for index, record in zip(operation.indices or (), operation.records, strict=True):
                    put(index, record)
            elif kind is Put:
                self._stream(operation.stream).put(operation.index, operation.record)  # type: ignore[union-attr]
            elif kind is Delete:
                self._table(operation.table).delete(operation.key)  # type: ignore[union-attr]
            else:
                assert kind is Chop
                self._stream(operation.stream).chop(operation.upto)  # type: ignore[union-attr]
        self._volume.write()

    def _stream(self, name: str) -> LogStream:
        stream = self._streams.get(name)
        if stream is None:
            stream = self._streams[name] = self._volume.stream(name)
        return stream

    def _table(self, name: str) -> Table:
        table = self._tables.get(name)
        if table is None:
            table = self._tables[name] = self._volume.table(name)
        return table


def read_records(volume: LogVolume, read: Read) -> ReadResult:
    """Carries out a read on a volume."""
    stream = volume.stream(read.stream)
    try:
        records = stream.read(read.after, read.upto, read.max_bytes)
    except RecordsDamagedError as error:
        return ReadResult(read.cookie, (), stream.first, str(error), error.upto)
    except StorageError as error:
        return ReadResult(read.cookie, (), stream.first, str(error) or type(error).__name__)
    return ReadResult(read.cookie, records, stream.first)


class SyncGroup(Struct, eq=False):
    """The cookies that one sync covers."""

    cookies: list[Cookie]
    written: list[int]
    """When each of the commits was written that have these."""
    synced: bool = False


class GroupCommit:
    """Makes a volume's writes durable, in groups.

    `begin_sync` is asked to sync the volume and then to call `on_synced`, never at once. `on_durable` gets the cookies
    of everything that has become durable, in the order of the commits. `on_failed` gets the error of a failed sync,
    once; from then on nothing is released any more.
    """

    def __init__(
        self,
        volume: LogVolume,
        begin_sync: Callable[[SyncGroup], None],
        on_durable: Callable[[list[Cookie]], None],
        on_failed: Callable[[BaseException], None],
        *,
        syncs_max: int = SYNCS_MAX,
    ) -> None:
        self._write = VolumeWriter(volume).write
        self._begin_sync = begin_sync
        self._on_durable = on_durable
        self._on_failed = on_failed
        self._cookies: list[Cookie] = []
        self._written: list[int] = []
        """When each of the commits was written that wait for the next sync."""
        self.seconds = Histogram(COMMIT_SECONDS)
        """How long commits took until they were durable, those that somebody waited for."""
        self._in_flight: deque[SyncGroup] = deque()
        self._syncs_max = syncs_max
        self._running = 0
        self.failed = False
        """Once a write or a sync has failed nothing is released any more."""

    @property
    def busy(self) -> bool:
        """Whether a sync runs or is due."""
        return self._running > 0 or (bool(self._cookies) and not self.failed)

    def commit(self, operations: Sequence[Operation], cookies: Sequence[Cookie], now: int) -> None:
        """Writes the operations as one atomic batch, and sees to it that they become durable.

        Operations without a cookie wait for the next sync. Raises what the volume's `write` raises; then
        nothing more may be committed.
        """
        assert not self.failed
        if operations:
            try:
                self._write(operations)
            except BaseException:
                self.failed = True
                raise
        if cookies:
            self._cookies += cookies
            self._written.append(now)
        self._begin()

    def on_synced(self, group: SyncGroup, error: BaseException | None, now: int) -> None:
        """A sync has ended."""
        assert self._running > 0, "each sync that was begun ends once"
        assert not group.synced, "each sync that was begun ends once"
        self._running -= 1
        if self.failed:
            return
        if error is not None:
            self.failed = True
            self._on_failed(error)
            return
        group.synced = True
        durable: list[Cookie] = []
        while self._in_flight and self._in_flight[0].synced:
            ended = self._in_flight.popleft()
            durable += ended.cookies
            for written in ended.written:
                self.seconds.observe((now - written) / 1e9)
        self._begin()
        if durable:
            self._on_durable(durable)

    def _begin(self) -> None:
        """Begins a sync of what has gathered, unless too many run."""
        if self._cookies and self._running < self._syncs_max and not self.failed:
            group = SyncGroup(self._cookies, self._written)
            self._cookies, self._written = [], []
            self._in_flight.append(group)
            self._running += 1
            self._begin_sync(group)
