"""Checkpoints of the publishers: they bound the length of a recovery, and precede every chop (T21)."""

from __future__ import annotations

from collections.abc import Sequence

from gapless.core.outbox import Outbox, Then
from gapless.core.ports import Delete, Operation, Set
from gapless.core.stream.ticks import Tick
from gapless_phb.core import rows
from gapless_phb.core.publishers.appender import Appender
from gapless_phb.core.publishers.table import PublisherTable
from gapless_phb.core.settings import Settings

ROWS_PER_WRITE = 512
"""How many rows one write has: 100,000 publishers are written in many turns, so that no turn is long."""
ROW_BYTES = 1200
"""The approximate size of a busy publisher's row."""


class Checkpoints:
    """Writes the rows that changed, then the checkpoint that refers to them.

    Rows may be newer than the checkpoint: recovery skips the records that a row already covers. A row never holds
    sequences that are not durable.
    """

    def __init__(self, number: int, log: Appender, table: PublisherTable, outbox: Outbox, settings: Settings) -> None:
        self._number = number
        self._log = log
        self._table = table
        self._outbox = outbox
        self._settings = settings
        self._running = False
        self._total_asked = 0
        self._asked = rows.NO_CHECKPOINT
        """The newest checkpoint that was ever given to a write; it may not be durable yet."""
        self.tick: Tick = 0
        """Durable: the rows cover the log up to this tick."""

    def recover(self, found: rows.Checkpoint) -> None:
        """Takes over the checkpoint that was found at start-up."""
        assert found.points[-1][0] == found.tick, "a checkpoint's last point is where it ends"
        self._asked = found
        self.tick = found.tick
        self._total_asked = found.points[-1][1]

    @property
    def is_due(self) -> bool:
        """Whether the log above the checkpoint has grown so far that a new checkpoint is worth its size."""
        grown = self._log.index.total - self._total_asked
        return grown >= self._settings.checkpoint_bytes and grown >= 4 * ROW_BYTES * self._table.changed

    def forget(self, names: Sequence[str]) -> None:
        """Deletes the rows of forgotten publishers. The highest epoch that was given stays in the checkpoint."""
        self._asked = rows.Checkpoint(self._asked.tick, self._table.epochs, self._asked.points)
        deletions = [Delete(self._log.tables.publishers, rows.key(self._number, name)) for name in names]
        self._outbox.write(
            [*deletions, Set(self._log.tables.checkpoints, rows.key(self._number), rows.encode(self._asked))]
        )

    def begin(self, then: Then) -> None:
        """Starts a checkpoint of everything that is durable now, unless one is being written.

        `then` is called when the checkpoint is durable.
        """
        if self._running:
            return
        self._running = True
        self._total_asked = self._log.index.total
        # Fixed now: publishers that change while the rows are written belong to the next checkpoint.
        covered = self._log.newest
        self._write(covered, self._log.index.sample(covered), self._table.changed, then)

    def _write(self, covered: Tick, points: list[tuple[Tick, int]], left: int, then: Then) -> None:
        """Writes some rows, and the rest when these are durable. The checkpoint itself comes last."""
        changed = self._table.take_changed(min(left, ROWS_PER_WRITE))
        operations: list[Operation] = [
            Set(self._log.tables.publishers, rows.key(self._number, publisher.name), rows.encode(publisher.row))
            for publisher in changed
        ]
        if left > ROWS_PER_WRITE:
            rest = left - ROWS_PER_WRITE
            self._outbox.write(operations, lambda _now, _wall: self._write(covered, points, rest, then))
            return
        assert points[-1][0] == covered, "a checkpoint's last point is where it ends"
        assert covered >= self._asked.tick, "checkpoints only rise"
        assert self._table.epochs >= self._asked.epochs, "checkpoints only rise"
        self._asked = rows.Checkpoint(covered, self._table.epochs, points)
        operations.append(Set(self._log.tables.checkpoints, rows.key(self._number), rows.encode(self._asked)))

        def durable(now: int, wall: int) -> None:
            assert covered >= self.tick, "no checkpoint covers less than the one before"
            self.tick = covered
            self._running = False
            then(now, wall)

        self._outbox.write(operations, durable)
