"""The batches of a publisher without a receipt, and their sequences (protocol: publishers, publishing; T39).

They wait in one queue. The first `sent` of them are on their way in this session; `logged` is the sequence of the last
event before the queue that is known to be logged. The sequences of a batch follow from its place in the queue, so they
are computed when it is sent, not when it is queued:

    logged │ b₀ b₁ … (sent, unanswered) │ … bₙ (queued)
           └ logged + 1

A batch that was sent, and then taken back because of a refusal, may be logged all the same. So it keeps its sequences
until it is certain that nothing is logged under them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import Struct

from gapless.core.wire.tokens import BatchTokens, join_tokens
from gapless.errors import RemoteProtocolError

if TYPE_CHECKING:
    from gapless.core.stream.columns import EventColumns


class QueuedBatch(Struct, eq=False):
    """Events that are logged together or not at all, and the tokens that are stored with them."""

    events: EventColumns
    tokens: BatchTokens
    ticket: int
    first: int = 0
    """The sequence of the first event, as last sent; 0 before that."""
    uncertain: bool = False
    """Whether it was sent before a session ended or a refusal took it back: then it may be logged."""

    @property
    def last(self) -> int:
        """The sequence of the last event, as last sent; without events, of the last one before it."""
        return self.first + self.events.count - 1

    @property
    def size(self) -> int:
        """How many bytes of the window it takes."""
        return self.events.size + len(join_tokens(self.tokens)) if self.tokens else self.events.size


class BatchQueue:
    """The queue. A sequence of the broker that does not fit raises RemoteProtocolError."""

    def __init__(self) -> None:
        self.logged = 0
        """How many events of this name are known to be logged."""
        self.bytes = 0
        """The bytes of all batches, sent or not."""
        self._queue: deque[QueuedBatch] = deque()
        self._sent = 0
        self._sent_bytes = 0

    def __len__(self) -> int:
        return len(self._queue)

    def __iter__(self) -> Iterator[QueuedBatch]:
        return iter(self._queue)

    def append(self, batch: QueuedBatch) -> None:
        """Adds a batch that is not sent yet."""
        assert not batch.first, "what is queued was never sent"
        assert not batch.uncertain, "what is queued was never sent"
        assert not self._queue or self._queue[-1].ticket < batch.ticket, "tickets ascend: receipts come in their order"
        self._queue.append(batch)
        self.bytes += batch.size

    def clear(self) -> None:
        """Drops all batches: the publisher is over."""
        self._queue.clear()
        self.bytes = 0
        self._keep_sent(0)

    # Sending.

    @property
    def has_unsent(self) -> bool:
        """Whether there are batches that are not on their way."""
        return len(self._queue) > self._sent

    def send(self, most: int, most_bytes: int, room: int) -> list[QueuedBatch]:
        """Numbers and returns the batches to send now, as the window allows: one at least, if none is on its way.

        `room`: how many bytes the link may be given; with any, the last batch may go beyond that.
        """
        queued = len(self._queue) - self._sent
        places = most - self._sent
        if queued <= 0 or places <= 0 or self._is_held():
            return []
        following = self._queue[self._sent - 1].last + 1 if self._sent else self.logged + 1
        sent: list[QueuedBatch] = []
        for batch in islice(self._queue, self._sent, self._sent + min(queued, places)):
            size = batch.size
            if room <= 0 or (self._sent and self._sent_bytes + size > most_bytes):
                break
            room -= size
            # The pubend knows a repetition by its sequences alone: under others it would be logged a second time.
            assert not batch.uncertain or batch.first in {0, following}, "what may be logged keeps its sequences"
            batch.first = following
            following += batch.events.count
            self._sent += 1
            self._sent_bytes += size
            sent.append(batch)
            if self._is_held():
                break
        return sent

    def _is_held(self) -> bool:
        """Whether the last batch on its way has no events: no sequence would show that the one behind it overtook it.

        A broker that took the later tokens first would have to refuse the earlier ones.
        """
        return self._sent > 0 and not self._queue[self._sent - 1].events.count

    def on_session(self) -> None:
        """A session has begun: nothing is on its way in it."""
        self._keep_sent(0)

    def on_session_over(self) -> None:
        """The session is over: what was sent may be logged, or not."""
        for batch in self._queue:
            batch.uncertain = batch.first != 0
        self._keep_sent(0)

    def take_sent(self) -> list[QueuedBatch]:
        """Takes out the batches that were ever sent, because they may be logged. Nothing is on its way afterwards."""
        uncertain = [batch for batch in self._queue if batch.uncertain or batch.first]
        self._queue = deque(batch for batch in self._queue if not (batch.uncertain or batch.first))
        self.bytes -= sum(batch.size for batch in uncertain)
        self._keep_sent(0)
        return uncertain

    def follow(self, sequence: int) -> None:
        """Nothing of the queue is logged, and everything up to a sequence is: the queue continues after it."""
        assert not self._sent, "what is on its way has sequences that the broker counts on"
        self.logged = sequence
        for batch in self._queue:
            batch.first = 0

    # Answers.

    def count_up_to(self, sequence: int) -> int:
        """Returns how many batches end at or below a sequence. It must be the last one of a batch on its way."""
        for index, batch in enumerate(islice(self._queue, self._sent)):
            if batch.last == sequence:
                return index + 1
        raise RemoteProtocolError(f"sequence {sequence} ends no batch that was sent")

    def take_logged(self, count: int) -> list[QueuedBatch]:
        """Takes out the first batches, which have their receipts now."""
        assert 0 < count <= self._sent, "only what is on its way can be logged"
        taken = [self._queue.popleft() for _ in range(count)]
        for batch in taken:
            assert batch.last >= self.logged, "receipts ascend"
            self.logged = batch.last
            self.bytes -= batch.size
            self._sent_bytes -= batch.size
        self._sent -= count
        assert self.bytes >= 0, "each batch gives back what it took"
        assert self._sent_bytes >= 0, "each batch gives back what it took"
        return taken

    def take_stored(self) -> QueuedBatch:
        """Takes out the first batch, which has no events, and whose tokens are stored."""
        if not self._sent or self._queue[0].events.count:
            raise RemoteProtocolError("positions are stored, and the oldest batch on its way has events")
        (batch,) = self.take_logged(1)
        return batch

    def take_covering(self, ticket: int) -> list[QueuedBatch]:
        """Takes out all batches with tokens that were queued after that ticket. Nothing is on its way."""
        assert not self._sent, "what is on its way has an answer to come"
        covering = [batch for batch in self._queue if batch.tokens and batch.ticket > ticket]
        self._queue = deque(batch for batch in self._queue if not batch.tokens or batch.ticket <= ticket)
        self.bytes -= sum(batch.size for batch in covering)
        return covering

    def rewind(self, sequence: int) -> None:
        """Takes back all batches from a sequence on, to be sent again. Those that were sent may still be logged."""
        index = 0 if sequence == self.logged + 1 else self._index_of(sequence)
        for batch in islice(self._queue, self._sent):
            batch.uncertain = True
        self._keep_sent(index)

    def drop(self, sequence: int) -> QueuedBatch:
        """Removes the batch that begins with a sequence: it was refused for good.

        Later batches lose their sequences.
        """
        index = self._index_of(sequence)
        batch = self._queue[index]
        for earlier in islice(self._queue, index):
            earlier.uncertain = True
        self._keep_sent(0)
        del self._queue[index]
        for behind in islice(self._queue, index, None):
            behind.first = 0
        self.bytes -= batch.size
        return batch

    # How it is done.

    def _index_of(self, sequence: int) -> int:
        """Returns the place of the batch on its way that begins with a sequence."""
        for index, batch in enumerate(islice(self._queue, self._sent)):
            if batch.first == sequence:
                return index
        raise RemoteProtocolError(f"sequence {sequence} begins no batch that was sent")

    def _keep_sent(self, count: int) -> None:
        assert 0 <= count <= len(self._queue), "no more is on its way than is queued"
        self._sent = count
        self._sent_bytes = sum(batch.size for batch in islice(self._queue, count))
