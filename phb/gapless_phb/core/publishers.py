"""Who publishes to a pubend: epochs, sequences and repeated batches (protocol: publishers; T21, T39).

A publisher is known by its name, and whoever opened that last owns it. An instance that opens it gets a new
term, and each opening a new epoch, in which the term stands: only the newest epoch may publish, and of any two
epochs of a name one sees whether they are of one instance. Terms are drawn from one counter per pubend, so that
a publisher that is forgotten and comes back can never meet a late twin of its own epoch.

Sequences count events and run on across epochs and instances. A high-water mark is a correct dedupe only because
they arrive without holes: a batch is taken when its first sequence is the next one, and no other (T39). A batch
of a sequence that is used repeats another one only if the same instance logged that: what two instances publish
may be equal, and is published twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from itertools import islice, takewhile
from struct import Struct

from gapless.core.stream.columns import EventBatch, EventColumns
from gapless.core.stream.events import Header
from gapless.core.stream.ticks import STEP, Tick
from gapless.core.wire.messages import TickRun
from gapless_phb.core.rows import PublisherRow

WINDOW = 64
"""A publisher has at most so many batches unanswered, and repeats no older one."""
_BATCHED = Struct("<QQII")
_KEPT = (WINDOW - 1) * _BATCHED.size
OWNERS = 16
"""Of so many instances of a name it is known what they have logged."""
_TERM_BITS = 24
"""Below the term of an epoch. An instance that opens its publisher more often counts as another one."""
TEMPORARY = "~"
"""Begins the name that an SDK draws at random for a publisher without a name of its own."""


def is_temporary(name: str) -> bool:
    """Whether a name was drawn at random, for a publisher without one: nobody but its instance can open it again."""
    return name.startswith(TEMPORARY)


def term_of(epoch: int) -> int:
    """What all epochs of one instance have in common, and no others of a name. Volumes of version 0.1.0 have term 0."""
    return epoch >> _TERM_BITS


class PendingBatch:
    """A batch that has its ticks and is on its way to the disk."""

    __slots__ = (
        "columns",
        "count",
        "crc",
        "epoch",
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
        publisher: PublisherState,
        epoch: int,
        first: int,
        tick: Tick,
        columns: EventColumns,
        headers: list[Header],
        crc: int,
        reply_to: Hashable,
    ) -> None:
        self.publisher = publisher
        self.epoch = epoch
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
class LoggedBatch:
    """A batch that a publisher has logged: enough to answer it again when it is repeated."""

    first: int
    tick: Tick
    """Of its first event."""
    count: int
    crc: int


class PublisherState:
    """What a pubend knows of one publisher. Durable but for `pending` and `closed`."""

    __slots__ = (
        "attempt",
        "closed",
        "epoch",
        "instance",
        "name",
        "opened",
        "owners",
        "pending",
        "recent",
        "sequence",
        "tick",
    )

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
        self.owners: tuple[tuple[int, int], ...] = ()
        """(first sequence, term): from there on an instance has logged what was logged. The last OWNERS ones."""
        self.pending: deque[PendingBatch] = deque()
        self.closed = False
        """Whether it is forgotten as soon as nothing of it is pending."""

    @classmethod
    def restored(cls, name: str, row: PublisherRow) -> PublisherState:
        """A publisher as its row says."""
        publisher = cls(name)
        publisher.epoch, publisher.instance, publisher.attempt = row.epoch, row.instance, row.attempt
        publisher.opened, publisher.sequence, publisher.tick = row.opened, row.sequence, row.tick
        publisher.recent, publisher.owners = row.recent, row.owners
        return publisher

    @property
    def row(self) -> PublisherRow:
        """What may be written: durable sequences only, or a failed batch would count as logged (T44)."""
        return PublisherRow(
            self.epoch, self.instance, self.attempt, self.opened, self.sequence, self.tick, self.recent, self.owners
        )

    @property
    def assigned(self) -> int:
        """The last sequence that has a tick, durable or not."""
        return self.pending[-1].last if self.pending else self.sequence

    def is_newer_than(self, instance: str, epoch: int) -> bool:
        """Whether another instance was opened since this one had that epoch."""
        return 0 < epoch < self.epoch and instance != self.instance

    def is_opened_since(self, instance: str, attempt: int) -> bool:
        """Whether an opening is not its last one."""
        return instance != self.instance or attempt < self.attempt

    def is_same_opening(self, instance: str, attempt: int) -> bool:
        """Whether an opening repeats the last one, or comes late: it gets the same answer (protocol: publishers)."""
        return self.instance == instance and attempt <= self.attempt

    def log(self, epoch: int, batch: LoggedBatch | PendingBatch) -> None:
        """A batch is durable, that was sent in an epoch."""
        assert batch.first == self.sequence + 1, f"publisher {self.name!r}: a hole before {batch.first}"
        assert batch.tick > self.tick, f"publisher {self.name!r}: ticks ascend with sequences"
        self.sequence = batch.first + batch.count - 1
        self.tick = batch.tick + (batch.count - 1) * STEP
        self.recent = self.recent[-_KEPT:] + _BATCHED.pack(batch.first, batch.tick, batch.count, batch.crc)
        term = term_of(epoch)
        if not self.owners or self.owners[-1][1] != term:
            assert not self.owners or self.owners[-1][1] < term, f"publisher {self.name!r}: an older term logs"
            self.owners = (*self.owners[1 - OWNERS :], (batch.first, term))

    def owner(self, sequence: int) -> int | None:
        """The term of the instance whose event has a sequence; None when none has, or nobody knows any more."""
        if sequence > self.sequence:
            used = (batch for batch in self.pending if batch.first <= sequence <= batch.last)
            return next((term_of(batch.epoch) for batch in used), None)
        return next((term for first, term in reversed(self.owners) if first <= sequence), None)

    def find_pending(self, first: int) -> PendingBatch | None:
        """The pending batch that begins with a sequence."""
        return next((batch for batch in self.pending if batch.first == first), None)

    def find_logged(self, first: int) -> LoggedBatch | None:
        """The batch of the window that begins with a sequence."""
        found = (row for row in _BATCHED.iter_unpack(self.recent) if row[0] == first)
        return next((LoggedBatch(*row) for row in found), None)

    def knows(self, epoch: int, first: int, count: int, crc: int) -> bool:
        """Whether this very batch, of the instance of that epoch, is pending, or logged within the window."""
        batch = self.find_pending(first) or self.find_logged(first)
        is_its_own = self.owner(first) == term_of(epoch)
        return batch is not None and is_its_own and (batch.count, batch.crc) == (count, crc)

    @property
    def known_from(self) -> int:
        """The first sequence of the window."""
        return int(_BATCHED.unpack_from(self.recent)[0]) if self.recent else self.sequence + 1


def runs_of(batch: PendingBatch | LoggedBatch) -> tuple[TickRun, ...]:
    """The ticks of a batch, as the publisher is told."""
    return (TickRun(batch.tick, STEP, batch.count),)


class PublisherTable:
    """All publishers of one pubend; which of them changed since the checkpoint, which may be forgotten.

    Those with a name are known for ever. One without is forgotten when it is closed, or a while after its
    session has ended. Times are monotonic nanoseconds.
    """

    def __init__(self, rows: Mapping[str, PublisherRow], epochs: int) -> None:
        """The table as it was saved; `epochs`: the highest epoch ever given."""
        self._publishers = {name: PublisherState.restored(name, row) for name, row in rows.items()}
        self.epochs = max([epochs, *(publisher.epoch for publisher in self._publishers.values())])
        """The highest epoch ever given."""
        self._changed: dict[str, None] = {}
        self._gone: dict[str, int] = {}
        """When the session of each one without a name ended that has none now; the longest gone first."""

    def __len__(self) -> int:
        return len(self._publishers)

    @property
    def changed(self) -> int:
        """How many rows a checkpoint would write."""
        return len(self._changed)

    @property
    def unnamed(self) -> int:
        """How many have no name."""
        return sum(map(is_temporary, self._publishers))

    @property
    def first_gone(self) -> int | None:
        """When the session of the one ended that is to be forgotten next."""
        return next(iter(self._gone.values()), None)

    def get(self, name: str) -> PublisherState | None:
        """The publisher of that name, if it is known."""
        return self._publishers.get(name)

    def begin(self, now: int) -> None:
        """The broker has started: every session has ended, and may be resumed."""
        self._gone = {name: now for name in self._publishers if is_temporary(name)}

    def open(self, name: str, instance: str, attempt: int, at: Tick) -> PublisherState:
        """Begins a new epoch for a publisher, known or new, and a new term for another instance."""
        publisher = self._publishers.setdefault(name, PublisherState(name))
        epoch, term = publisher.epoch + 1, term_of(publisher.epoch)
        if not term or publisher.instance != instance or term_of(epoch) != term:
            epoch = (term_of(self.epochs) + 1) << _TERM_BITS
        self.epochs = max(self.epochs, epoch)
        publisher.epoch, publisher.instance, publisher.attempt = epoch, instance, attempt
        publisher.opened, publisher.closed = at, False
        self._gone.pop(name, None)
        return publisher

    def on_durable(self, batch: PendingBatch) -> None:
        """The oldest pending batch of its publisher is durable."""
        publisher = batch.publisher
        oldest = publisher.pending.popleft()
        assert oldest is batch, "batches become durable in the order they were appended"
        publisher.log(batch.epoch, batch)
        self._changed[publisher.name] = None

    def replay(self, name: str, epoch: int, batch: LoggedBatch, *, with_holes: bool) -> bool:
        """Recovery found a batch in the log. False: the batch before it is neither there nor in the row.

        `with_holes`: a part of the log before it cannot be read, and may have had that one. The row of a publisher
        without a name is durable before its first batch: where there is none, or one of another term, it has been
        forgotten since (T21).
        """
        self.epochs = max(self.epochs, epoch)
        known = self._publishers.get(name)
        if is_temporary(name) and (known is None or term_of(known.epoch) != term_of(epoch)):
            return True
        publisher = self._publishers.setdefault(name, PublisherState(name))
        if batch.first <= publisher.sequence:
            return True
        if batch.first != publisher.sequence + 1:
            if not with_holes:
                return False
            # What was between was logged by whoever logged the next, or by nobody who could still repeat it.
            term = term_of(epoch)
            if not publisher.owners or publisher.owners[-1][1] != term:
                publisher.owners = (*publisher.owners[1 - OWNERS :], (publisher.sequence + 1, term))
            publisher.sequence, publisher.recent = batch.first - 1, b""
        publisher.epoch = max(publisher.epoch, epoch)
        publisher.log(epoch, batch)
        self._changed[name] = None
        return True

    def take_changed(self, limit: int) -> list[PublisherState]:
        """Up to `limit` publishers whose rows are due; they count as unchanged from now on."""
        names = [name for _, name in zip(range(limit), self._changed)]  # noqa: B905  # the shorter one ends it
        for name in names:
            del self._changed[name]
        return [self._publishers[name] for name in names]

    # Those without a name.

    def leave(self, publisher: PublisherState, now: int) -> None:
        """The session of a publisher has ended; its client may resume it."""
        assert is_temporary(publisher.name), "a name is known for ever"
        self._gone.setdefault(publisher.name, now)

    def forget(self, publisher: PublisherState) -> bool:
        """Forgets a publisher without a name; False while a batch of it is on its way to the disk."""
        assert is_temporary(publisher.name), "a name is known for ever"
        if publisher.pending:
            return False
        name = publisher.name
        del self._publishers[name]
        self._changed.pop(name, None)
        self._gone.pop(name, None)
        return True

    def forget_gone(self, before: int, limit: int) -> list[str]:
        """Forgets up to `limit` publishers whose session ended before a time; returns their names."""
        due = list(islice(takewhile(lambda name: self._gone[name] <= before, self._gone), limit))
        return [name for name in due if self.forget(self._publishers[name])]

    def give_way(self) -> str | None:
        """Forgets the longest gone to make room, before its lease is over; None: nobody is gone."""
        return next((name for name in list(self._gone) if self.forget(self._publishers[name])), None)
