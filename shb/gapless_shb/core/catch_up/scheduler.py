"""Gives the readers of a pubend their turns, so that live deliveries never wait long (protocol: readers).

A reader waits for one of these: the PFS, an answer of the network that it or another reader asked for, the head, or
credit. When that comes, the reader becomes runnable. `pump` gives each runnable reader one piece of work in turn.
Readers also get from here what they need of their pubend.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Protocol

from gapless.core.alarms import Alarm, AlarmCode
from gapless.core.gauges import Gauge
from gapless.core.ports import ReadResult
from gapless.core.stream.curiosity import CuriosityStream
from gapless.core.stream.intervals import Ranges
from gapless.core.stream.knowledge import Knowledge, KnowledgeConflict
from gapless.core.stream.stamps import RAW
from gapless.core.stream.ticks import Tick
from gapless_shb.core.catch_up.page_cache import PageCache
from gapless_shb.core.catch_up.readers import BringsReader, CatchUpReader, ConsumerSink, Reader
from gapless_shb.core.catch_up.scan import Scan
from gapless_shb.core.state import gauges
from gapless_shb.core.state.broker_state import ALL_IS_SAID, BrokerState, HomeSays
from gapless_shb.core.state.consumers import Consumer
from gapless_shb.core.state.memory import EventSizes
from gapless_shb.core.state.positions import SubscriptionPosition
from gapless_shb.core.state.pubend import ServedPubend

_PAGE_CACHE = 0
"""Stands in the place of a subscription's id, which is never 0, for reads that serve all readers."""
_PAGE_CACHE_READ_BYTES = 256 << 10
STEP = 64
"""A step of a reader takes about as long as to look at so many events."""


class Listener(Protocol):
    """Somebody who has asked for something, and takes what arrives."""

    def offer(self, knowledge: Knowledge, cut: Ranges) -> None:
        """See `Reader.offer`."""

    def forget(self, lo: Tick, hi: Tick) -> Ranges:
        """See `Reader.forget`."""


class Scheduler:
    """The readers of one pubend at one SHB."""

    def __init__(self, stream: ServedPubend, state: BrokerState, curiosity: CuriosityStream) -> None:
        self.stream = stream
        self.readers: dict[int, CatchUpReader] = {}
        self._state = state
        self._curiosity = curiosity
        self._turn_at = -1
        self._left = 0
        """How many events readers may still examine in this turn of the node."""
        self._reader_count = 0
        self.memory = state.memory
        self.sizes = EventSizes()
        self.page_cache = PageCache(
            stream.pfs,
            stream.head,
            self.readers,
            self._read_pages,
            self.fetch,
            state.catch_up.kept_bytes,
            self.memory,
            self.sizes,
        )
        self._scan = Scan(stream.pubend, stream.pfs.grain, self.fetch, self.memory)
        self._runnable: dict[int, None] = {}
        """The readers that can go on, in the order of their turns."""
        self._fetching: dict[int, None] = {}
        """The readers that wait for an answer to their own question to the network."""
        self._others: dict[Listener, None] = {}
        """Who else may wait for an answer."""
        self._at_head: dict[int, None] = {}
        """The readers that wait for the head to move."""
        self.demoted = 0
        """How often a live consumer had no credit for its events, and got a reader."""
        self.promoted = 0
        """How often a reader reached the head, and the constream took over."""
        self.interrupted = 0
        """How often runnable readers had to wait, because live deliveries had their turn."""

    def gauges(self) -> Iterator[Gauge]:
        """Yields how many readers there are, and what became of former ones."""
        name = self.stream.pubend
        yield gauges.READERS.gauge(len(self.readers), name)
        yield gauges.DEMOTED.gauge(self.demoted, name)
        yield gauges.PROMOTED.gauge(self.promoted, name)
        yield gauges.INTERRUPTED.gauge(self.interrupted, name)
        yield from self.page_cache.gauges(name)

    # ------------------------------------------------------------------- who else is told what comes

    def join(self, listener: Listener) -> None:
        """From now on everything that arrives is offered to somebody who is no consumer's reader."""
        self._others[listener] = None

    def leave(self, listener: Listener) -> None:
        """It waits for nothing any more."""
        self._others.pop(listener, None)

    @property
    def is_listening(self) -> bool:
        """Whether anybody waits for what arrives."""
        return bool(self.readers or self._others or self.page_cache.asked)

    # -------------------------------------------------------------------------------- who has one

    def start(self, consumer: Consumer, position: SubscriptionPosition, at: Tick) -> None:
        """Starts a reader that serves the consumer from `at` on; it waits for its turn."""
        self._reader_count += 1
        self.end(consumer.sid)
        self.readers[consumer.sid] = self._reader(consumer, position, at)
        if not consumer.subscription.name:
            position.reading = True
            position.acknowledge(at, at)
            self.stream.touch(consumer.sid, position)
        self._runnable[consumer.sid] = None

    def _reader(self, consumer: Consumer, position: SubscriptionPosition, at: Tick) -> CatchUpReader:
        pubend, number = self.stream.pubend, self._reader_count
        if consumer.ordered is not None and pubend in consumer.ordered:
            assert isinstance(consumer.ordered, BringsReader)
            return consumer.ordered.reader(self, number, position, at)
        return CatchUpReader(self, number, consumer, position, at, ConsumerSink(consumer, pubend, position))

    def end(self, sid: int) -> None:
        """Ends the reader of a subscription that is no longer consumed."""
        reader = self.readers.pop(sid, None)
        if reader is not None:
            reader.close()
            self._scan.leave(sid)

    def promote_waiting(self, now: int) -> None:
        """The head is about to move: consumers whose readers wait at it go live."""
        for sid in list(self._at_head):
            reader = self.readers.get(sid)
            if reader is None or not reader.idle or reader.horizon < self.stream.head or reader.is_blocked:
                continue
            if reader.position.since <= reader.horizon:
                self._promote(reader, now)

    def _promote(self, reader: CatchUpReader, now: int) -> None:
        """Makes the consumer of a reader live from the reader's horizon on."""
        self.promoted += 1
        self._state.counts.on_caught_up(now if reader.began is None else reader.began, now)
        sid = reader.consumer.sid
        self.end(sid)
        reader.position.reading = False
        self.stream.go_live(reader.consumer, reader.horizon)
        self.stream.touch(sid, reader.position)

    # -------------------------------------------------------------------------------------- turns

    def step(self, sid: int, now: int, wall: int) -> None:
        """Makes a reader runnable, and lets all runnable readers go on."""
        self._runnable[sid] = None
        self.pump(now, wall)

    def pump(self, now: int, wall: int) -> None:
        """Lets readers go on, one piece of work each in turn, until all wait or the turn's events are used up.

        Readers that are left go on at the node's next turn; a new turn is recognised by its time. So live deliveries
        and new connections wait for one such piece of work at most, however many readers and messages there are.
        What counts is what readers look at, sent or not.
        """
        turns = self._state.turns
        if now != self._turn_at:
            self._turn_at, self._left = now, turns.allowance(now, self._state.catch_up.turn_events)
        while self._runnable and self._left > 0:
            sid = next(iter(self._runnable))
            del self._runnable[sid]
            reader = self.readers.get(sid)
            if reader is None:
                continue
            if reader.began is None:
                reader.began = now
            credit = reader.consumer.credit_events
            if reader.step(now, wall):
                self._runnable[sid] = None
            else:
                self._scan.rest(sid)
            # A step that looks at nothing takes time, too.
            self._left -= max(credit - reader.consumer.credit_events, reader.examined, STEP)
            self._stepped(reader, now)
        self.interrupted += bool(self._runnable)
        turns.end(self.stream.pubend, left_over=bool(self._runnable))
        self.page_cache.tidy(self._runnable)
        self.page_cache.start_reads()
        self._scan.start(now)

    def _stepped(self, reader: CatchUpReader, now: int) -> None:
        """Notes where a reader stands. If it has reached the head, the constream takes over (T25)."""
        position, sid = reader.position, reader.consumer.sid
        if not reader.consumer.subscription.name:
            position.acknowledge(reader.horizon, reader.horizon)
        self.stream.touch(sid, position)
        consumer = reader.consumer
        if consumer.starved_at is None and not consumer.has_credit:
            consumer.starved_at = now
        if not (reader.idle and reader.horizon >= self.stream.head):
            return
        if position.since <= reader.horizon and not reader.is_blocked:
            self._promote(reader, now)
        else:
            self._at_head[sid] = None

    def deadline(self) -> int | None:
        """When the readers that are left over have to go on; None if there are none."""
        return self._turn_at + 1 if self._runnable else None

    # ------------------------------------------------------------------------- what they wait for

    def on_head(self, now: int, wall: int) -> None:
        """The head may have moved: readers that wait for it are runnable."""
        if self._at_head:
            waiting, self._at_head = self._at_head, {}
            self._runnable.update(waiting)
        if self._runnable:
            self.pump(now, wall)

    def on_knowledge(self, knowledge: Knowledge, now: int, wall: int) -> None:
        """Gives arriving knowledge to the readers and the page cache.

        Raises KnowledgeConflict, after all have it, if it contradicts what one of them has.
        """
        if knowledge.stamp is not RAW:
            return
        if len(knowledge.data):
            knowledge.data.learn()  # once here: the readers' parts of the batch share the result
        cut = self.stream.cut(knowledge)
        self.page_cache.lose(cut)
        listeners: list[Listener] = []
        for sid in list(self._fetching):
            reader = self.readers.get(sid)
            if reader is not None and reader.fetching:
                listeners.append(reader)
                self._runnable[sid] = None
            else:
                del self._fetching[sid]
        conflict: KnowledgeConflict | None = None
        for listener in (*listeners, *self._others, self._scan):
            try:
                listener.offer(knowledge, cut)
            except KnowledgeConflict as found:
                conflict = found
        self._woken(self.page_cache.on_knowledge(knowledge))
        self._woken(self._scan.take_woken())
        self.pump(now, wall)
        if conflict is not None:
            raise conflict

    def forget(self, lo: Tick, hi: Tick, now: int) -> None:
        """The log has lost what it had in (lo, hi]: for whoever reads all of it, that is asked for once more."""
        for listener in (*self.readers.values(), *self._others, self._scan):
            if ranges := listener.forget(lo, hi):
                self.fetch(ranges, now)

    def on_read(self, sid: int, number: int, result: ReadResult, now: int, wall: int) -> None:
        """The PFS was read, for one reader or for the page cache."""
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

    # ---------------------------------------------------------------------- what they need (ReaderContext)

    def read_pfs(self, reader: CatchUpReader, after: Tick, upto: Tick) -> None:
        """Reads PFS records for a reader."""
        answered = partial(self.on_read, reader.consumer.sid, reader.number)
        self._state.outbox.read(self.stream.pfs.stream, after, upto, answered)

    def _read_pages(self, after: Tick, upto: Tick, number: int) -> None:
        answered = partial(self.on_read, _PAGE_CACHE, number)
        self._state.outbox.read(self.stream.pfs.stream, after, upto, answered, _PAGE_CACHE_READ_BYTES)

    def fetch_for(self, reader: CatchUpReader, ranges: Ranges, now: int) -> None:
        """Asks for what a reader wants. Answers are offered to it as they come, even before its next turn."""
        self._fetching[reader.consumer.sid] = None
        self.fetch(ranges, now)

    def ask_home(self, reader: Reader, lo: Tick, hi: Tick, now: int) -> HomeSays | None:
        """Returns what is to be said of lost ticks in (lo, hi]. For a guest, its home is asked first."""
        if not reader.position.guest:
            return ALL_IS_SAID
        return self._state.ask_home(reader.sid, self.stream.pubend, lo, hi, now)

    def shared_scan(self) -> Scan | None:
        """Returns the scan, if there is more than one reader to share it."""
        return self._scan if len(self.readers) > 1 else None

    def fetch(self, ranges: Ranges, now: int) -> None:
        """Asks for RAW knowledge of these ranges, at once."""
        self._curiosity.add(ranges, RAW, now, urgent=True)
