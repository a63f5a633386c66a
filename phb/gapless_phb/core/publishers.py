"""Who publishes to a pubend: epochs, sequences and repeated batches (algorithms.md 1.4 `pubtab`; T21, T39).

A publisher is known by its name. Each opening by a new instance, or a new attempt of the same one, gets a
new epoch, and only the newest epoch may publish. Epochs are drawn from one counter per pubend, so that a
publisher that is forgotten and comes back can never meet a late twin of its own epoch.

Sequences count events and run on across epochs. A high-water mark is a correct dedupe only because they
arrive without holes: a batch is taken when its first sequence is the next one, and no other (T39).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from struct import Struct

from gapless.core.columns import EventBatch, EventColumns
from gapless.core.events import Header
from gapless.core.messages import TickRun
from gapless.core.ticks import STEP, Tick
from gapless_phb.core.rows import PublisherRow

WINDOW = 64
"""W of algorithms.md 1.4: a publisher has at most so many batches unanswered, and repeats no older one."""
_BATCHED = Struct("<QQII")
_KEPT = (WINDOW - 1) * _BATCHED.size
TEMPORARY = "~"
"""Begins the name that an SDK draws at random for a publisher without a name of its own."""


class Batch:
    """A batch that has its ticks and is on its way to the disk (1.4 `pending`)."""

    __slots__ = (
        "columns",
        "count",
        "crc",
        "first",
        "headers",
        "last",
        "last_tick",
        "publisher",
        "replies",
        "tick",
    )

    def __init__(
        self,
        publisher: Publisher,
        first: int,
        tick: Tick,
        columns: EventColumns,
        headers: list[Header],
        crc: int,
        reply_to: Hashable,
    ) -> None:
        self.publisher = publisher
        self.first = first
        self.tick = tick
        self.columns = columns
        self.headers = headers
        self.crc = crc
        self.replies = [reply_to]
        self.count = columns.count
        self.last = first + columns.count - 1
        self.last_tick = tick + (columns.count - 1) * STEP

    @property
    def events(self) -> EventBatch:
        """The events under their ticks."""
        return self.columns.batch(range(self.tick, self.last_tick + 1, STEP), self.headers)


@dataclass(slots=True)
class Batched:
    """A batch that a publisher has logged: enough to answer it again when it is repeated."""

    first: int
    tick: Tick
    """Of its first event."""
    count: int
    crc: int


class Publisher:
    """What a pubend knows of one publisher. Durable but for `pending`."""

    __slots__ = ("attempt", "epoch", "instance", "name", "opened", "pending", "recent", "sequence", "tick")

    def __init__(self, name: str) -> None:
        self.name = name
        self.epoch = 0
        self.instance = ""
        self.attempt = -1
        self.opened: Tick = 0
        self.sequence = 0
        """Of the last durable event."""
        self.tick: Tick = 0
        """Of the last durable event."""
        self.recent = b""
        """The last W batches, packed: there may be 100,000 publishers, and few ever repeat themselves."""
        self.pending: deque[Batch] = deque()

    @classmethod
    def restored(cls, name: str, row: PublisherRow) -> Publisher:
        """A publisher as its row says."""
        publisher = cls(name)
        publisher.epoch, publisher.instance, publisher.attempt = row.epoch, row.instance, row.attempt
        publisher.opened, publisher.sequence, publisher.tick = row.opened, row.sequence, row.tick
        publisher.recent = row.recent
        return publisher

    @property
    def row(self) -> PublisherRow:
        """What may be written: durable sequences only, or a failed batch would count as logged (T44)."""
        return PublisherRow(self.epoch, self.instance, self.attempt, self.opened, self.sequence, self.tick, self.recent)

    @property
    def assigned(self) -> int:
        """The last sequence that has a tick, durable or not."""
        return self.pending[-1].last if self.pending else self.sequence

    @property
    def used(self) -> Tick:
        """When it was last opened, or last logged something."""
        return max(self.opened, self.tick)

    def is_newer_than(self, instance: str, epoch: int) -> bool:
        """Whether another instance was opened since this one had that epoch."""
        return 0 < epoch < self.epoch and instance != self.instance

    def is_same_opening(self, instance: str, attempt: int) -> bool:
        """Whether an opening repeats the last one, or comes late: it gets the same answer (1.4 open)."""
        return self.instance == instance and attempt <= self.attempt

    def log(self, batch: Batched) -> None:
        """A batch is durable."""
        assert batch.first == self.sequence + 1, f"publisher {self.name!r}: a hole before {batch.first}"
        self.sequence = batch.first + batch.count - 1
        self.tick = batch.tick + (batch.count - 1) * STEP
        self.recent = self.recent[-_KEPT:] + _BATCHED.pack(batch.first, batch.tick, batch.count, batch.crc)

    def land(self, batch: Batch) -> None:
        """Its oldest pending batch is durable."""
        oldest = self.pending.popleft()
        assert oldest is batch, "batches become durable in the order they were appended"
        self.log(Batched(batch.first, batch.tick, batch.count, batch.crc))

    def find_pending(self, first: int) -> Batch | None:
        """The pending batch that begins with a sequence."""
        return next((batch for batch in self.pending if batch.first == first), None)

    def find_logged(self, first: int) -> Batched | None:
        """The batch of the window that begins with a sequence."""
        found = (row for row in _BATCHED.iter_unpack(self.recent) if row[0] == first)
        return next((Batched(*row) for row in found), None)

    def knows(self, first: int, count: int, crc: int) -> bool:
        """Whether this very batch is pending, or logged within the window."""
        batch = self.find_pending(first) or self.find_logged(first)
        return batch is not None and (batch.count, batch.crc) == (count, crc)

    @property
    def known_from(self) -> int:
        """The first sequence of the window."""
        return int(_BATCHED.unpack_from(self.recent)[0]) if self.recent else self.sequence + 1


def runs_of(batch: Batch | Batched) -> tuple[TickRun, ...]:
    """The ticks of a batch, as the publisher is told."""
    return (TickRun(batch.tick, STEP, batch.count),)


class PublisherTable:
    """All publishers of one pubend; which of them changed since the checkpoint, which may be forgotten."""

    def __init__(self, rows: Mapping[str, PublisherRow], epochs: int) -> None:
        """The table as it was saved; `epochs`: the highest epoch ever given."""
        self._publishers = {name: Publisher.restored(name, row) for name, row in rows.items()}
        self._epochs = max([epochs, *(publisher.epoch for publisher in self._publishers.values())])
        self._changed: dict[str, None] = {}
        by_use = sorted((publisher.used, name) for name, publisher in self._publishers.items())
        self._temporary = {name: None for _, name in by_use if name.startswith(TEMPORARY)}
        """Those that may be forgotten, the longest unused first."""

    def __len__(self) -> int:
        return len(self._publishers)

    @property
    def epochs(self) -> int:
        """The highest epoch ever given."""
        return self._epochs

    @property
    def changed(self) -> int:
        """How many rows a checkpoint would write."""
        return len(self._changed)

    def get(self, name: str) -> Publisher | None:
        """The publisher of that name, if it is known."""
        return self._publishers.get(name)

    def open(self, name: str, instance: str, attempt: int, at: Tick) -> Publisher:
        """Begins a new epoch for a publisher, known or new."""
        publisher = self._publishers.setdefault(name, Publisher(name))
        self._epochs += 1
        publisher.epoch, publisher.instance, publisher.attempt = self._epochs, instance, attempt
        publisher.opened = at
        self._use(publisher)
        return publisher

    def land(self, batch: Batch) -> None:
        """The oldest pending batch of its publisher is durable."""
        batch.publisher.land(batch)
        self._changed[batch.publisher.name] = None
        self._use(batch.publisher)

    def replay(self, name: str, epoch: int, batch: Batched) -> bool:
        """Recovery found a batch in the log. False: the batch before it is neither there nor in the row."""
        publisher = self._publishers.setdefault(name, Publisher(name))
        if batch.first <= publisher.sequence:
            return True
        if batch.first != publisher.sequence + 1:
            return False
        publisher.epoch = max(publisher.epoch, epoch)
        self._epochs = max(self._epochs, epoch)
        publisher.log(batch)
        self._changed[name] = None
        self._use(publisher)
        return True

    def _use(self, publisher: Publisher) -> None:
        if publisher.name.startswith(TEMPORARY):
            self._temporary.pop(publisher.name, None)
            self._temporary[publisher.name] = None

    def take_changed(self, limit: int) -> list[Publisher]:
        """Up to `limit` publishers whose rows are due; they count as unchanged from now on."""
        names = [name for _, name in zip(range(limit), self._changed)]  # noqa: B905  # the shorter one ends it
        for name in names:
            del self._changed[name]
        return [self._publishers[name] for name in names if name in self._publishers]

    def forget(self, unused_since: Tick, covered: Tick, limit: int) -> list[str]:
        """Forgets up to `limit` temporary publishers that were not used since a tick; returns their names.

        Only those whose records a checkpoint covers up to `covered`: otherwise a recovery would find
        records of a publisher that its rows no longer know (T21).
        """
        forgotten: list[str] = []
        for name in self._temporary:
            publisher = self._publishers[name]
            if publisher.used > unused_since or len(forgotten) >= limit:
                break
            if publisher.tick <= covered and not publisher.pending:
                forgotten.append(name)
        for name in forgotten:
            del self._temporary[name], self._publishers[name]
            self._changed.pop(name, None)
        return forgotten

    def has_forgettable(self, unused_since: Tick) -> bool:
        """Whether `forget` would find somebody."""
        return any(self._publishers[name].used <= unused_since for name in self._first_temporary())

    def _first_temporary(self) -> Iterable[str]:
        return [name for _, name in zip(range(1), self._temporary)]  # noqa: B905  # the shorter one ends it
