"""The turns of a pubend's readers: all that can go on do, a piece each, and what is live waits for no more than that.

A reader waits for the PFS, for what others or it itself asked the network for, for the head to move, or for credit.
Whoever brings that makes it runnable, and `pump` gives it a turn. What readers need of their pubend they get here
(protocol: readers).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from gapless.core.alarms import Alarm, AlarmCode
from gapless.core.gauges import Gauge
from gapless.core.ports import ReadResult
from gapless.core.stream.curiosity import CuriosityStream
from gapless.core.stream.intervals import Ranges
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.stamps import RAW
from gapless.core.stream.ticks import Tick
from gapless_shb.core import gauges
from gapless_shb.core.consumers import Consumer
from gapless_shb.core.page_cache import PageCache
from gapless_shb.core.positions import SubscriptionPosition
from gapless_shb.core.pubend import ServedPubend
from gapless_shb.core.readers import CatchUpReader
from gapless_shb.core.state import BrokerState

_PAGE_CACHE = 0
"""Stands in the place of a subscription's id, which is never 0, in what is read for all readers."""
_PAGE_CACHE_READ_BYTES = 256 << 10


class Scheduler:
    """The readers of one pubend at one SHB."""

    def __init__(self, stream: ServedPubend, state: BrokerState, curiosity: CuriosityStream) -> None:
        self.stream = stream
        self.readers: dict[int, CatchUpReader] = {}
        self._state = state
        self._curiosity = curiosity
        self._turn_at = -1
        self._left = 0
        """How many events readers may still send in this turn."""
        self._reader_count = 0
        self.page_cache = PageCache(
            stream.pfs, stream.head, self.readers, self._read_pages, self.fetch, state.catch_up.kept_bytes
        )
        self._runnable: dict[int, None] = {}
        """The readers that can go on, in the order of their turns."""
        self._fetching: dict[int, None] = {}
        """The readers that wait for what they asked the network for themselves."""
        self._at_head: dict[int, None] = {}
        """The readers that wait for the head to move."""
        self.demoted = 0
        """How often a live consumer had no credit for what was due, and was given a reader."""
        self.promoted = 0
        """How often a reader reached the head, and the constream took over."""
        self.interrupted = 0
        """How often readers could have gone on, and what is live had its turn."""

    def gauges(self) -> Iterator[Gauge]:
        """How many there are, and what became of those that were."""
        name = self.stream.pubend
        yield gauges.READERS.gauge(len(self.readers), name)
        yield gauges.DEMOTED.gauge(self.demoted, name)
        yield gauges.PROMOTED.gauge(self.promoted, name)
        yield gauges.INTERRUPTED.gauge(self.interrupted, name)
        yield from self.page_cache.gauges(name)

    # -------------------------------------------------------------------------------- who has one

    def start(self, consumer: Consumer, position: SubscriptionPosition, at: Tick) -> None:
        """A reader serves the consumer from `at` on, when it gets a turn."""
        self._reader_count += 1
        self.readers[consumer.sid] = CatchUpReader(self, self._reader_count, consumer, position, at)
        if not consumer.subscription.durable:
            position.reading = True
            position.acknowledge(at, at)
            self.stream.touch(consumer.sid, position)
        self._runnable[consumer.sid] = None

    def end(self, sid: int) -> None:
        """Nobody consumes the subscription here any more."""
        self.readers.pop(sid, None)

    def promote_waiting(self) -> None:
        """The head is about to move: who waits at it goes live."""
        for sid in list(self._at_head):
            reader = self.readers.get(sid)
            if reader is None or not reader.idle or reader.horizon < self.stream.head or reader.consumer.starved:
                continue
            if reader.position.since <= reader.horizon:
                self._promote(reader)

    def _promote(self, reader: CatchUpReader) -> None:
        """Its consumer is live from here on."""
        self.promoted += 1
        sid = reader.consumer.sid
        del self.readers[sid]
        reader.position.reading = False
        self.stream.go_live(reader.consumer, reader.horizon)
        self.stream.touch(sid, reader.position)

    # -------------------------------------------------------------------------------------- turns

    def step(self, sid: int, now: int, wall: int) -> None:
        """Lets a reader go on, and all that can."""
        self._runnable[sid] = None
        self.pump(now, wall)

    def pump(self, now: int, wall: int) -> None:
        """Lets readers go on, a piece each in turn, until all wait or enough was sent for one turn of the node.

        What is left goes on at the next turn, which is known by its time. So however many catch up, and however many
        messages of a turn let them go on, what is live, and who connects, waits for one such piece of work at most.
        """
        if now != self._turn_at:
            self._turn_at, self._left = now, self._state.catch_up.turn_events
        while self._runnable and self._left > 0:
            sid = next(iter(self._runnable))
            del self._runnable[sid]
            reader = self.readers.get(sid)
            if reader is None:
                continue
            credit = reader.consumer.credit_events
            if reader.step(now, wall):
                self._runnable[sid] = None
            self._left -= max(credit - reader.consumer.credit_events, 1)
            self._stepped(reader)
        self.interrupted += bool(self._runnable)
        self.page_cache.tidy(self._runnable)
        self.page_cache.start_reads()

    def _stepped(self, reader: CatchUpReader) -> None:
        """Takes note of where a reader stands; where it has reached the head, the constream takes over (T25)."""
        position, sid = reader.position, reader.consumer.sid
        if not reader.consumer.subscription.durable:
            position.acknowledge(reader.horizon, reader.horizon)
        self.stream.touch(sid, position)
        if not (reader.idle and reader.horizon >= self.stream.head):
            return
        if position.since <= reader.horizon and not reader.consumer.starved:
            self._promote(reader)
        else:
            self._at_head[sid] = None

    def deadline(self) -> int | None:
        """When those that were left over want to go on, if any were."""
        return self._turn_at + 1 if self._runnable else None

    # ------------------------------------------------------------------------- what they wait for

    def on_head(self, now: int, wall: int) -> None:
        """The head may have moved."""
        if self._at_head:
            waiting, self._at_head = self._at_head, {}
            self._runnable.update(waiting)
        if self._runnable:
            self.pump(now, wall)

    def on_knowledge(self, knowledge: Knowledge, now: int, wall: int) -> None:
        """Knowledge arrived: what was asked for, or what passes by."""
        if knowledge.stamp is not RAW:
            return
        if len(knowledge.data):
            _ = knowledge.data.headers  # decoded once here; every reader's share of the batch has them then
        for sid in list(self._fetching):
            reader = self.readers.get(sid)
            if reader is not None and reader.fetching:
                reader.offer(knowledge)
                self._runnable[sid] = None
            else:
                del self._fetching[sid]
        self._woken(self.page_cache.on_knowledge(knowledge))
        self.pump(now, wall)

    def on_read(self, sid: int, number: int, result: ReadResult, now: int, wall: int) -> None:
        """The PFS was read, for a reader or for all of them."""
        if result.error:
            text = f"the PFS of {self.stream.pubend} cannot be read, events are fetched instead: {result.error}"
            self._state.outbox.emit(Alarm(AlarmCode.PFS_UNREADABLE, text, self.stream.pubend))
        reader = self.readers.get(sid)
        if sid == _PAGE_CACHE:
            self._woken(self.page_cache.on_read(number, result))
        elif reader is not None and reader.number == number:
            reader.on_read(result, now)
            self._runnable[sid] = None
        self.pump(now, wall)

    def _woken(self, sids: Iterable[int]) -> None:
        for sid in sids:
            reader = self.readers.get(sid)
            if reader is not None:
                reader.wake()
                self._runnable[sid] = None

    # ---------------------------------------------------------------------- what they need (Host)

    def read_pfs(self, reader: CatchUpReader, after: Tick, upto: Tick) -> None:
        """Reads PFS records for a reader."""
        answered = partial(self.on_read, reader.consumer.sid, reader.number)
        self._state.outbox.read(self.stream.pfs.stream, after, upto, answered)

    def _read_pages(self, after: Tick, upto: Tick, number: int) -> None:
        answered = partial(self.on_read, _PAGE_CACHE, number)
        self._state.outbox.read(self.stream.pfs.stream, after, upto, answered, _PAGE_CACHE_READ_BYTES)

    def fetch_for(self, reader: CatchUpReader, ranges: Ranges, now: int) -> None:
        """Asks for what a reader wants, and offers it what comes, also when that is before its next turn."""
        self._fetching[reader.consumer.sid] = None
        self.fetch(ranges, now)

    def fetch(self, ranges: Ranges, now: int) -> None:
        """Asks for RAW knowledge of these ranges, at once."""
        self._curiosity.add(ranges, RAW, now, urgent=True)
