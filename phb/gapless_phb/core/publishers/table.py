"""The publishers of a pubend: their epochs, sequences and repeated batches (protocol: publishers; T21, T39).

A publisher is known by its name. The instance that opened the name last owns it:

- An instance that opens a name gets a new *term*. Each opening gets a new *epoch*, and the term is the upper part of
  the epoch. Only the newest epoch may publish. Two epochs with the same term belong to the same instance.
- Terms come from one counter per pubend. So a publisher that was forgotten and comes back never gets an epoch that
  an older rival of it may still be using.

Sequences count events and go on across epochs and instances. One high-water mark is enough to recognise repeated
events, because sequences arrive without holes: a batch is taken only if its first sequence is the next one (T39).
A batch with used sequences counts as a repetition only if the same instance logged them. Two instances may publish
equal events, and then both are meant to be published.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import islice, takewhile
from struct import Struct
from typing import ClassVar

from gapless.core.network.facts import is_unnamed
from gapless.core.ports import LogMark
from gapless.core.stream.columns import EventBatch, EventColumns
from gapless.core.stream.ticks import MILLISECOND, STEP, Tick
from gapless.core.wire.messages import TickRun
from gapless.core.wire.tokens import CheckpointToken, Tokens, merge_tokens, split_tokens
from gapless.errors import InvalidTokenError
from gapless_phb.core.rows import PublisherRow

WINDOW = 64
"""A publisher has at most so many unanswered batches, and repeats no older batch."""
_BATCHED = Struct("<QQII")
_KEPT = (WINDOW - 1) * _BATCHED.size
OWNERS = 16
"""For so many instances of a name the table knows which sequences they have logged."""
TERM_BITS = 24
"""The lower bits of an epoch, below its term. An instance that opens its name more often gets a second term."""
TERM_TICKS = 10 * MILLISECOND
"""Terms of a numbered log's publishers are so far apart at least, if gateways take turns."""


def term_of(epoch: int) -> int:
    """Returns the part that all epochs of one instance share, and no other epoch of the name has.

    Volumes of version 0.1.0 have term 0.
    """
    return epoch >> TERM_BITS


class PendingBatch:
    """A batch that has its ticks and is on its way to the disk."""

    __slots__ = (
        "came",
        "columns",
        "count",
        "crc",
        "epoch",
        "first",
        "last",
        "last_tick",
        "publisher",
        "replies",
        "tick",
        "tokens",
    )

    def __init__(
        self,
        publisher: PublisherState,
        epoch: int,
        first: int,
        tick: Tick,
        columns: EventColumns,
        tokens: Tokens,
        crc: int,
        reply_to: Hashable,
        came: int,
    ) -> None:
        """`came`: when it came to this broker, in monotonic nanoseconds."""
        self.publisher = publisher
        self.epoch = epoch
        self.first = first
        self.tick = tick
        self.columns = columns
        self.tokens = tokens
        self.crc = crc
        self.replies = [reply_to]
        self.came = came
        self.count = columns.count
        self.last = first + columns.count - 1
        self.last_tick = tick + (columns.count - 1) * self.step

    @property
    def step(self) -> Tick:
        """How far neighbouring events are apart."""
        return self.publisher.step

    @property
    def events(self) -> EventBatch:
        """The events under their ticks."""
        return self.columns.batch(range(self.tick, self.last_tick + 1, STEP))


@dataclass(slots=True)
class LoggedBatch:
    """A batch that a publisher has logged: what is needed to answer a repetition of it."""

    first: int
    tick: Tick
    """The tick of its first event."""
    count: int
    crc: int
    tokens: Tokens = ()
    """The tokens that its record stores. A row of the window does not name them: the publisher's row does."""
    step: Tick = STEP
    """How far neighbouring events are apart."""

    @property
    def last_tick(self) -> Tick:
        """The tick of its last event."""
        return self.tick + (self.count - 1) * self.step


class PublisherState:
    """What a pubend knows about one publisher. All of it is durable, except `pending`, `moves` and `closed`."""

    __slots__ = (
        "assigned_tokens",
        "attempt",
        "closed",
        "epoch",
        "instance",
        "moved",
        "moves",
        "name",
        "opened",
        "owners",
        "pending",
        "recent",
        "sequence",
        "tick",
        "tokens",
    )

    step: ClassVar[Tick] = STEP
    """How far neighbouring events of one batch are apart."""
    may_be_late: ClassVar[bool] = False
    """Whether what former instances have sent may be logged although a later one was told that it is not."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.epoch = 0
        self.instance = ""
        self.attempt = -1
        self.opened: Tick = 0
        self.sequence = 0
        """The sequence of the last durable event."""
        self.tick: Tick = 0
        """The tick of the last durable event."""
        self.recent = b""
        """The last W batches, packed: there may be 100,000 publishers, and few of them ever repeat a batch."""
        self.owners: tuple[tuple[int, int], ...] = ()
        """The last OWNERS pairs (first sequence, term): from this sequence on the instance of this term has logged."""
        self.tokens: Tokens = ()
        """The durable tokens of the subscriptions that it consumes, the newest last."""
        self.assigned_tokens: Tokens = ()
        """The same with the tokens of all batches on their way to the disk."""
        self.pending: deque[PendingBatch] = deque()
        self.moves: deque[Tokens] = deque()
        """The tokens of batches without events that are on their way to the disk, in the publisher's row."""
        self.moved = 0
        """The checksum of the last batch without events: it is recognised when it comes again."""
        self.closed = False
        """Whether to forget the publisher as soon as no batch of it is pending."""

    @classmethod
    def restored(cls, name: str, row: PublisherRow) -> PublisherState:
        """Restores a publisher from its row."""
        publisher = cls(name)
        publisher.epoch, publisher.instance, publisher.attempt = row.epoch, row.instance, row.attempt
        publisher.opened, publisher.sequence, publisher.tick = row.opened, row.sequence, row.tick
        publisher.recent, publisher.owners = row.recent, row.owners
        publisher.moved = row.moved
        publisher.check()
        publisher.tokens = publisher.assigned_tokens = tuple(map(CheckpointToken.parse, row.tokens))
        return publisher

    def check(self) -> None:
        """Asserts what is true of every row, when it is written and when it is read back."""
        assert self.sequence >= 0, f"publisher {self.name!r}: what was logged is counted from 1"
        assert self.tick >= 0, f"publisher {self.name!r}: what was logged is counted from 1"
        assert [first for first, _ in self.owners] == sorted({first for first, _ in self.owners}), "owners follow"
        assert [term for _, term in self.owners] == sorted({term for _, term in self.owners}), "terms only rise"
        assert not self.owners or self.owners[-1][0] <= self.sequence, f"publisher {self.name!r}: who owns has logged"
        assert len(self.recent) % _BATCHED.size == 0, f"publisher {self.name!r}: the window is of whole batches"

    @property
    def row(self) -> PublisherRow:
        """The row to write. It holds durable sequences only; otherwise a failed batch would count as logged (T44).

        Tokens without events are nowhere but in rows. So a row that is written after another one has its tokens, too.
        """
        self.check()
        return PublisherRow(
            self.epoch,
            self.instance,
            self.attempt,
            self.opened,
            self.sequence,
            self.tick,
            self.recent,
            self.owners,
            tuple(map(str, self._with_moves())),
            self.moved,
        )

    def _with_moves(self) -> Tokens:
        return reduce(merge_tokens, self.moves, self.tokens)

    @property
    def assigned(self) -> int:
        """The last sequence that has a tick, durable or not."""
        return self.pending[-1].last if self.pending else self.sequence

    def is_newer_than(self, instance: str, epoch: int) -> bool:
        """Whether another instance opened the name after this instance had that epoch."""
        return 0 < epoch < self.epoch and instance != self.instance

    def is_opened_since(self, instance: str, attempt: int) -> bool:
        """Whether the name was opened again after this opening, by this instance or another one."""
        return instance != self.instance or attempt < self.attempt

    def is_same_opening(self, instance: str, attempt: int) -> bool:
        """Whether an opening repeats the last one, or arrives late. It gets the same answer (protocol: publishers)."""
        return self.instance == instance and attempt <= self.attempt

    def log(self, epoch: int, batch: LoggedBatch | PendingBatch) -> None:
        """Notes that a batch is durable; `epoch`: the epoch in which it was sent."""
        assert batch.first == self.sequence + 1, f"publisher {self.name!r}: a hole before {batch.first}"
        assert batch.tick > self.tick, f"publisher {self.name!r}: ticks ascend with sequences"
        assert batch.count > 0, f"publisher {self.name!r}: a batch without events has a row, and no record"
        self.sequence = batch.first + batch.count - 1
        self.tick = batch.last_tick
        if batch.tokens:
            self.tokens = merge_tokens(self.tokens, batch.tokens)
            self.assigned_tokens = merge_tokens(self.assigned_tokens, batch.tokens)
        self.recent = self.recent[-_KEPT:] + _BATCHED.pack(batch.first, batch.tick, batch.count, batch.crc)
        term = term_of(epoch)
        if not self.owners or self.owners[-1][1] != term:
            assert not self.owners or self.owners[-1][1] < term, f"publisher {self.name!r}: an older term logs"
            self.owners = (*self.owners[1 - OWNERS :], (batch.first, term))

    def move(self) -> None:
        """Notes that the oldest tokens without events are durable."""
        self.tokens = merge_tokens(self.tokens, self.moves.popleft())

    def owner(self, sequence: int) -> int | None:
        """Returns the term of the instance that used a sequence; None if it is unused, or no longer known."""
        if sequence > self.sequence:
            used = (batch for batch in self.pending if batch.first <= sequence <= batch.last)
            return next((term_of(batch.epoch) for batch in used), None)
        return next((term for first, term in reversed(self.owners) if first <= sequence), None)

    def find_pending(self, first: int) -> PendingBatch | None:
        """Returns the pending batch whose first sequence this is."""
        return next((batch for batch in self.pending if batch.first == first), None)

    def find_logged(self, first: int) -> LoggedBatch | None:
        """Returns the batch of the window whose first sequence this is."""
        for logged, tick, count, crc in _BATCHED.iter_unpack(self.recent):
            if logged == first:
                return LoggedBatch(first, tick, count, crc, (), self.step)
        return None

    def knows(self, epoch: int, first: int, count: int, crc: int) -> bool:
        """Whether this very batch, sent by the instance of that epoch, is pending, or logged within the window."""
        batch = self.find_pending(first) or self.find_logged(first)
        is_its_own = self.owner(first) == term_of(epoch)
        return batch is not None and is_its_own and (batch.count, batch.crc) == (count, crc)

    @property
    def known_from(self) -> int:
        """The first sequence of the window."""
        return int(_BATCHED.unpack_from(self.recent)[0]) if self.recent else self.sequence + 1


def runs_of(batch: PendingBatch | LoggedBatch) -> tuple[TickRun, ...]:
    """Returns the ticks of a batch in the form of a receipt."""
    return (TickRun(batch.tick, batch.step, batch.count),)


class PublisherTable:
    """All publishers of one pubend: which ones changed since the checkpoint, and which ones may be forgotten.

    A publisher with a name is known for ever. A publisher without a name is forgotten when it is closed, or some time
    after its session has ended. Times are monotonic nanoseconds.
    """

    kind: ClassVar[type[PublisherState]] = PublisherState

    def __init__(self, rows: Mapping[str, PublisherRow], epochs: int) -> None:
        """Restores the table from its rows. `epochs`: the highest epoch that was ever given."""
        self._publishers = {name: self.kind.restored(name, row) for name, row in rows.items()}
        self.epochs = max([epochs, *(publisher.epoch for publisher in self._publishers.values())])
        """The highest epoch ever given."""
        self._changed: dict[str, None] = {}
        self._gone: dict[str, int] = {}
        """When the session ended, for each publisher without a name that has no session; the longest gone is first."""

    def __len__(self) -> int:
        return len(self._publishers)

    @property
    def changed(self) -> int:
        """How many rows a checkpoint would write."""
        return len(self._changed)

    @property
    def unnamed(self) -> int:
        """How many publishers have no name."""
        return sum(map(is_unnamed, self._publishers))

    @property
    def first_gone(self) -> int | None:
        """When the session ended of the publisher that is to be forgotten next."""
        return next(iter(self._gone.values()), None)

    def get(self, name: str) -> PublisherState | None:
        """Returns the publisher of that name, if it is known."""
        return self._publishers.get(name)

    def begin(self, now: int) -> None:
        """The broker has started: every session has ended, and any publisher may be resumed."""
        self._gone = {name: now for name in self._publishers if is_unnamed(name)}

    def open(self, name: str, instance: str, attempt: int, had: int, at: Tick) -> PublisherState:
        """Begins a new epoch for a publisher, known or new, and a new term for another instance.

        `had`: the epoch that the instance says it had before; 0 if none.
        """
        publisher = self._publishers.setdefault(name, self.kind(name))
        self._recognise(publisher, instance, had)
        epoch, term = publisher.epoch + 1, term_of(publisher.epoch)
        # Volumes of version 0.1.0 have no term, and an instance may use up the epochs of its term: draw a new term.
        if not term or publisher.instance != instance or term_of(epoch) != term:
            epoch = (term_of(self.epochs) + 1) << TERM_BITS
        assert epoch > publisher.epoch, (
            f"publisher {name!r}: each opening has a higher epoch, or nobody would be fenced"
        )
        self.epochs = max(self.epochs, epoch)
        publisher.epoch, publisher.instance, publisher.attempt = epoch, instance, attempt
        publisher.opened, publisher.closed = at, False
        self._gone.pop(name, None)
        return publisher

    def _recognise(self, publisher: PublisherState, instance: str, had: int) -> None:
        """Finds out whether a publisher of which nobody knows whose it is belongs to an instance that had an epoch."""

    def on_durable(self, batch: PendingBatch) -> None:
        """Notes that a batch is durable. It is the oldest pending batch of its publisher."""
        oldest = batch.publisher.pending.popleft()
        assert oldest is batch, "batches become durable in the order they were appended"
        self.note(batch)

    def note(self, batch: PendingBatch) -> None:
        """Notes a batch that is durable, and pending no longer."""
        batch.publisher.log(batch.epoch, batch)
        self._changed[batch.publisher.name] = None

    def replay(self, name: str, epoch: int, batch: LoggedBatch, *, with_holes: bool) -> bool:
        """Applies a batch that recovery found in the log. Returns False if the batch before it is missing.

        Missing means: neither in the log nor covered by the publisher's row. `with_holes`: an earlier part of the log
        cannot be read, and may hold that batch.

        The row of a publisher without a name is durable before its first batch. If there is no such row, or it has
        another term, the publisher has been forgotten since, and its batches are of no interest (T21).
        """
        self.epochs = max(self.epochs, epoch)
        known = self._publishers.get(name)
        if is_unnamed(name) and (known is None or term_of(known.epoch) != term_of(epoch)):
            return True
        publisher = self._publishers.setdefault(name, self.kind(name))
        if batch.first <= publisher.sequence:
            return True
        if batch.first != publisher.sequence + 1:
            if not with_holes:
                return False
            # The missing events were logged by the instance that logged the next ones, or by an instance that can no
            # longer repeat them. So it is safe to give all of them to this term.
            term = term_of(epoch)
            if not publisher.owners or publisher.owners[-1][1] != term:
                publisher.owners = (*publisher.owners[1 - OWNERS :], (publisher.sequence + 1, term))
            publisher.sequence, publisher.recent = batch.first - 1, b""
        publisher.epoch = max(publisher.epoch, epoch)
        publisher.log(epoch, batch)
        self._changed[name] = None
        return True

    def take_changed(self, limit: int) -> list[PublisherState]:
        """Returns up to `limit` publishers whose rows have to be written; they count as unchanged from now on."""
        names = [name for _, name in zip(range(limit), self._changed)]  # noqa: B905  # the shorter one ends it
        for name in names:
            del self._changed[name]
        return [self._publishers[name] for name in names]

    # Publishers without a name.

    def leave(self, publisher: PublisherState, now: int) -> None:
        """Notes that the session of a publisher has ended. Its client may resume it."""
        assert is_unnamed(publisher.name), "a name is known for ever"
        self._gone.setdefault(publisher.name, now)

    def forget(self, publisher: PublisherState) -> bool:
        """Forgets a publisher without a name. Returns False while one of its batches is on its way to the disk."""
        assert is_unnamed(publisher.name), "a name is known for ever"
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
        """Forgets the publisher that is gone for longest, to make room; returns its name, or None if none is gone."""
        return next((name for name in list(self._gone) if self.forget(self._publishers[name])), None)


class NumberedPublisher(PublisherState):
    """A publisher of a numbered log: the events of a batch stand at neighbouring ticks."""

    __slots__ = ("proven",)
    step = 1
    may_be_late = True

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.proven = 0
        """The newest epoch of which a batch was met in the log."""


class NumberedPublishers(PublisherTable):
    """The publishers of a numbered log. What is known of them is what their marks in the log show."""

    kind = NumberedPublisher

    def open(self, name: str, instance: str, attempt: int, had: int, at: Tick) -> PublisherState:
        """Begins a new epoch. A new term is that of the present, for another gateway may have given any below.

        Those that have logged something are in the marks; the others are not known here if publishing was taken over,
        or if a volume was lost.
        """
        self.epochs = max(self.epochs, (at // TERM_TICKS - 1) << TERM_BITS)
        return super().open(name, instance, attempt, had, at)

    def _recognise(self, publisher: PublisherState, instance: str, had: int) -> None:
        """An instance goes on under its term if the marks have none that is later.

        Marks do not say whose they are. If its batches were taken for those of somebody else, it could not repeat them.
        """
        if not publisher.instance and had and term_of(had) >= term_of(publisher.epoch):
            publisher.instance = instance
            publisher.epoch = max(had, publisher.epoch)

    def meet(self, tick: Tick, mark: LogMark) -> None:
        """Notes a batch that was met in the log, and that none of the pubend's own batches is.

        Others append to such a log, so what does not fit is passed over.
        """
        known = self.get(mark.publisher)
        if known is not None and known.owners and term_of(mark.epoch) < known.owners[-1][1]:
            return
        if known is not None and term_of(mark.epoch) > term_of(known.epoch):
            known.instance, known.attempt = "", -1  # another instance has opened the name, at another gateway
        try:
            tokens = split_tokens(mark.tokens)
        except InvalidTokenError:
            tokens = ()
        batch = LoggedBatch(mark.first, tick, mark.count, mark.crc, tokens, NumberedPublisher.step)
        self.replay(mark.publisher, mark.epoch, batch, with_holes=True)
