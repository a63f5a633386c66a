"""The window of a shared subscription on one pubend: the events that nobody has settled yet (TS24, TS25, TS34).

                     floor            frontier
    ─────────────────┤▓▓░▓░░░▓▓▓▓▓░░▓▓┤──────────────▶      ▓ unsettled   ░ settled
          settled     chunks of 256     not read yet

An event is FREE, DELAYED, HELD (by a `Run`, in one consumer's hands) or DONE. The states of the events of a chunk are
masks, so that what happens to a run of events is one step. Beside the state an event has

- attempts: how often it was about to be handed out, or was given back;
- deaths: it was in hand when its consumer died, so it travels alone;
- doubt: it may have been handed out, and nobody has said so.

What is durable is a row for each chunk that has an unsettled event, up to a durable frontier. Below that no row means
settled. So a write that moves the frontier has the rows of every chunk that it passes. Events are named by ticks, never
by their order: what expires, or is released early, shifts that.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import accumulate
from operator import itemgetter, lt, sub
from struct import Struct
from typing import Any, Final

import msgspec

from gapless.core.ports import Delete, Operation, Set
from gapless.core.stream.columns import EventBatch
from gapless.core.stream.ticks import PubendId, Tick
from gapless.selectors.masks import mask_at, select
from gapless_shb.core.state.segments import GapSegment

WINDOWS: Final = "shb/shared-windows"
"""Subscription id, pubend → WindowRow."""
CHUNKS: Final = "shb/shared-chunks"
"""Subscription id, first tick, pubend → ChunkRow."""
CHUNK: Final = 256
"""A chunk has so many events."""
SPARSE: Final = 4
"""If less than one in so many of a chunk's events is left, what it keeps of them is made anew without the others: …"""
SPARSE_CHUNKS: Final = 32
"""… when so many others have come to that since, for most are settled soon; …"""
SMALL: Final = 1024
"""… or at once, if its events have more bytes than that, on average."""
EXPEDITED: Final = 5
"""Events of this priority, and above, go first."""
ATTEMPTS_MAX: Final = 255
_SID = Struct(">Q")
_TICK = Struct(">Q")


class WindowRow(msgspec.Struct, array_like=True, frozen=True):
    """Where the window of a pubend stands."""

    floor: Tick
    """Everything up to here is settled."""
    frontier: Tick
    """Up to here no row means settled."""


class ChunkRow(msgspec.Struct, array_like=True, frozen=True):
    """A chunk that has an unsettled event."""

    below: int
    """How far below its first tick the event before it is; 0: unknown."""
    gaps: tuple[int, ...]
    """From each tick to the next one."""
    done: bytes
    """The settled ones, as a mask."""
    attempts: dict[int, int] = {}
    """Of the events at these places."""
    deaths: bytes = b""
    """As a mask, …"""
    doubt: bytes = b""
    """… and so are those that may have been handed out before all consumers left."""


class KeptWindow(msgspec.Struct, array_like=True, frozen=True):
    """A window while its subscription has lapsed."""

    row: bytes
    chunks: tuple[tuple[Tick, bytes], ...]
    """The first tick and the row of each."""


_encode = msgspec.msgpack.Encoder().encode
_decode_window = msgspec.msgpack.Decoder(WindowRow).decode
_decode_chunk = msgspec.msgpack.Decoder(ChunkRow).decode


@dataclass(slots=True, eq=False)
class Chunk:
    """Some consecutive events of the window; bit i of a mask stands for the i-th of them."""

    below: Tick
    """The last event before its first one; 0: unknown."""
    ticks: list[Tick] = field(default_factory=list)
    idle: int = 0
    """Neither settled, nor held, nor delayed."""
    done: int = 0
    have: int = 0
    """Whose bytes are here, or that are gaps."""
    doubt: int = 0
    unknown: int = 0
    """Of those in doubt: the number of the delivery is not known, because it was in an earlier life of the broker."""
    attempted: int = 0
    attempts: dict[int, int] = field(default_factory=dict)
    deaths: int = 0
    expedited: int = 0
    gaps: dict[int, GapSegment] = field(default_factory=dict)
    ended: dict[int, int] = field(default_factory=dict)
    """The number of the last delivery of an event, if its hold ended without a verdict."""
    pieces: list[tuple[int, EventBatch]] = field(default_factory=list)
    """The events, each piece with the place of its first one, in order."""
    size: int = 0
    """About how many bytes the unsettled events have that are here, …"""
    sized: int = 0
    """… and how many events these are."""
    kept: int = 0
    """How many events `pieces` has, settled ones too."""
    coded: tuple[int, ...] | None = None
    """The distances of its ticks, once it is full."""
    queued: bool = False
    is_stored: bool = False
    """Whether a row of it was written."""

    @property
    def all(self) -> int:
        """The mask of all events."""
        return (1 << len(self.ticks)) - 1

    @property
    def unsettled(self) -> int:
        """The mask of the events that are not settled."""
        return self.all & ~self.done

    @property
    def ready(self) -> int:
        """The mask of the events that can be given to somebody."""
        return self.idle & self.have

    def place(self, tick: Tick) -> int | None:
        """Returns the place of a tick."""
        at = bisect_left(self.ticks, tick)
        return at if at < len(self.ticks) and self.ticks[at] == tick else None

    def batch(self, mask: int) -> EventBatch:
        """Returns these events, which are here and are no gaps."""
        parts: list[EventBatch] = []
        for start, events in self.pieces:
            part = mask >> start & (1 << len(events)) - 1
            if not part:
                continue
            low, count = part & -part, part.bit_count()
            first = low.bit_length() - 1
            in_a_row = part == (low << count) - low
            parts.append(events.slice(first, first + count) if in_a_row else events.select(part))
        return EventBatch.concatenate(parts)

    def settle(self, mask: int) -> int:
        """These events are settled. Returns about how many bytes less are kept of it."""
        here = (
            (mask & self.have & ~mask_at(list(self.gaps))).bit_count() if self.gaps else (mask & self.have).bit_count()
        )
        less = self.size if here >= self.sized else self.size * here // self.sized
        self.size -= less
        self.sized -= here
        self.done |= mask
        self.idle &= ~mask
        self.doubt &= ~mask
        self.unknown &= ~mask
        return less

    @property
    def is_sparse(self) -> bool:
        """Whether most of the events whose bytes it keeps are settled."""
        return self.sized * SPARSE < self.kept

    def thin_out(self) -> None:
        """Lets go of the bytes of settled events, if these are most."""
        if not self.is_sparse:
            return
        self.kept = self.sized
        kept = self.have & self.unsettled & ~mask_at(list(self.gaps))
        if not kept:
            self.pieces = []
            return
        events = self.batch(kept)
        copied = EventBatch(list(events.ticks), list(map(bytes, events.events)), list(events.body_lengths))
        places = select(range(len(self.ticks)), kept)
        self.pieces = [(place, copied.slice(at, at + 1)) for at, place in enumerate(places)]

    def add(self, place: int, events: EventBatch) -> None:
        """The bytes of events are here."""
        self.pieces.append((place, events))
        self.size += events.size
        self.sized += len(events)
        self.kept += len(events)

    def row(self) -> bytes:
        """Returns its row."""
        first = self.ticks[0]
        size = -(-len(self.ticks) // 8)
        open_ = self.unsettled
        attempts = {place: count for place, count in self.attempts.items() if open_ >> place & 1}
        deaths, doubt = self.deaths & open_, self.doubt & open_
        return _encode(
            ChunkRow(
                first - self.below if self.below else 0,
                self._distances(),
                self.done.to_bytes(size, "little"),
                attempts,
                deaths.to_bytes(size, "little") if deaths else b"",
                doubt.to_bytes(size, "little") if doubt else b"",
            )
        )

    def _distances(self) -> tuple[int, ...]:
        if self.coded is not None:
            return self.coded
        distances = tuple(map(sub, self.ticks[1:], self.ticks))
        if len(self.ticks) >= CHUNK:
            self.coded = distances
        return distances

    @classmethod
    def restored(cls, first: Tick, row: bytes) -> Chunk:
        """Returns the chunk of a row; nothing of it is here yet."""
        found = _decode_chunk(row)
        assert min(found.gaps, default=1) > 0, "ticks ascend"
        ticks = list(accumulate(found.gaps, initial=first))
        chunk = cls(first - found.below if found.below else 0, ticks)
        chunk.done = int.from_bytes(found.done, "little") & chunk.all
        chunk.idle = chunk.unsettled
        chunk.attempts = dict(found.attempts)
        chunk.attempted = mask_at(list(found.attempts))
        chunk.deaths = int.from_bytes(found.deaths, "little")
        chunk.doubt = chunk.unknown = int.from_bytes(found.doubt, "little")
        chunk.is_stored = True
        return chunk


@dataclass(slots=True, eq=False)
class Run:
    """Events of a chunk in one consumer's hands, with consecutive delivery numbers."""

    holder: Any
    """Whoever holds them (`dispatch.Member`)."""
    window: Window
    chunk: Chunk
    first: int
    """The number of the first one."""
    places: Sequence[int]
    ticks: Sequence[Tick]
    mask: int
    """Those that are still held."""
    taken: int = 0
    """Those that are in hand, or about to be."""
    risky: int = 0
    """Those that were attempted before a crash: perhaps in this hold."""
    since: int = 0
    """When they were delivered, in monotonic nanoseconds."""
    until: int = 0
    """When the hold ends by itself; 0: never."""
    is_careful: bool = False

    @property
    def count(self) -> int:
        """How many there were at first."""
        return len(self.places)

    def named(self, ticks: Sequence[Tick], numbers: Sequence[int], at: int) -> tuple[int, int]:
        """Returns how many of these in a row it has delivered, from the place `at` on, and the mask of them.

        Some that it has delivered may be left out: so what is settled beside a few of them is one step.
        """
        first, own, places = self.first, self.ticks, self.places
        offset = numbers[at] - first
        count = min(len(places) - offset, len(numbers) - at)
        stop = at + count
        if numbers[stop - 1] == numbers[at] + count - 1 and ticks[at:stop] == own[offset : offset + count]:
            part = places[offset : offset + count]
            if part[-1] - part[0] == count - 1 and numbers[at:stop] == tuple(range(numbers[at], numbers[at] + count)):
                return count, ((1 << count) - 1) << part[0]
        # Some are left out, or others follow: those of this run stand first, if the numbers are in order at all.
        part = numbers[at : bisect_left(numbers, first + len(places), at, stop)]
        offsets = [number - first for number in part]
        if all(map(lt, part, part[1:])) and ticks[at : at + len(part)] == tuple([own[offset] for offset in offsets]):
            return len(part), mask_at([places[offset] for offset in offsets])
        last, end, found = -1, len(places), list[int]()
        for number, tick in zip(numbers[at:stop], ticks[at:stop], strict=True):
            offset = number - first
            if not last < offset < end or own[offset] != tick:
                break
            last = offset
            found.append(places[offset])
        return len(found), mask_at(found)

    def numbers(self, mask: int) -> list[int]:
        """Returns the delivery numbers of these events."""
        return [self.first + offset for offset, place in enumerate(self.places) if mask >> place & 1]


class Window:
    """See the module."""

    def __init__(self, pubend: PubendId, frontier: Tick) -> None:
        self.pubend = pubend
        self.frontier = frontier
        """It is filled up to here."""
        self.newest = frontier
        """The last event, or end of a gap, that was put in, or where it began."""
        self.written = frontier
        """The frontier of the last write, durable or not."""
        self.floor = frontier
        self.count = 0
        """How many events are unsettled."""
        self.size = 0
        """How many bytes these have about."""
        self.absent = 0
        """How many of them are not here, and have to be fetched."""
        self.recalled_upto = 0
        """Up to here they are: what comes in above is new."""
        self.awaited_upto = 0
        """Up to here somebody has named events that were delivered in an earlier life, and are not read again yet."""
        self.held = 0
        self._chunks: list[Chunk] = []
        self._firsts: list[Tick] = []
        self._queue: list[tuple[Tick, int]] = []
        """The first ticks of chunks from which something may go out."""
        self._by_first: dict[Tick, Chunk] = {}
        self._expedited: dict[Tick, None] = {}
        """The first ticks of chunks with such events."""
        self._suspects: dict[Tick, None] = {}
        """The first ticks of chunks with an event that travels alone."""
        self._dirty: dict[Tick, Chunk] = {}
        self._sparse: dict[Tick, Chunk] = {}
        """Chunks that keep the bytes of settled events for a while."""
        self._gone: dict[Tick, None] = {}
        """The first ticks of chunks whose rows have to go."""
        self.doubted_upto = 0
        """What comes in up to here may have been handed out in an earlier life of the broker."""
        self.searched = 0
        """Up to here all that was missing was looked for."""
        self.is_changed = False
        """Whether something has to be written that somebody waits for."""
        self.is_drained = True
        """Whether nothing could go out when that was looked for last."""

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Chunk]:
        return iter(self._chunks)

    # -------------------------------------------------------------------------------- what comes in

    @property
    def is_in_doubt(self) -> bool:
        """Whether anything may have been handed out before."""
        return self.frontier < self.doubted_upto or any(chunk.doubt for chunk in self._chunks)

    def begin_in_doubt(self, upto: Tick) -> None:
        """A life of the broker has ended uncleanly: what is not settled up to a tick may have been handed out."""
        self.doubted_upto = upto
        for chunk in self._chunks:
            self._doubt(chunk, chunk.unsettled)

    def put(self, events: EventBatch) -> None:
        """Takes events in their order. What lies below the frontier is taken if it was missing, or else is settled."""
        low = bisect_right(events.ticks, self.frontier) if self.absent or events.ticks[0] <= self.frontier else 0
        if low:
            self._fill(events.slice(0, low))
        assert low == len(events) or events.ticks[low] > self.newest, "events are put in in their order, each once"
        at = low
        while at < len(events):
            chunk = self._open_chunk(events.ticks[at])
            start = len(chunk.ticks)
            part = events.slice(at, at + CHUNK - start)
            new = ((1 << len(part)) - 1) << start
            chunk.ticks += part.ticks
            chunk.add(start, part)
            chunk.idle |= new
            chunk.have |= new
            if part.ticks[0] <= self.doubted_upto:
                self._doubt(chunk, new)
            self._note_priorities(chunk, start, part)
            self.count += len(part)
            self._came(chunk, part.ticks[-1])
            self.size += part.size
            at += len(part)

    def put_gap(self, gap: GapSegment) -> None:
        """Takes a gap, which is held and settled like an event, by its end."""
        if gap.end <= self.frontier:
            self._fill_gap(gap)
            return
        chunk = self._open_chunk(gap.end)
        place = len(chunk.ticks)
        chunk.ticks.append(gap.end)
        chunk.gaps[place] = gap
        chunk.idle |= 1 << place
        chunk.have |= 1 << place
        self._doubt(chunk, 1 << place)
        self.count += 1
        self._came(chunk, gap.end)

    def pass_to(self, upto: Tick) -> None:
        """There is nothing up to here beside what was put in."""
        self.frontier = max(self.frontier, upto)

    def _doubt(self, chunk: Chunk, mask: int) -> None:
        doubted = mask & ((1 << bisect_right(chunk.ticks, self.doubted_upto)) - 1)
        chunk.doubt |= doubted
        chunk.unknown |= doubted

    def _open_chunk(self, tick: Tick) -> Chunk:
        last = self._chunks[-1] if self._chunks else None
        if last is None or len(last.ticks) >= CHUNK or last.ticks[-1] != self.newest:
            last = Chunk(self.newest)
            self._insert(tick, last)
        return last

    def _insert(self, first: Tick, chunk: Chunk) -> None:
        self._chunks.append(chunk)
        self._firsts.append(first)
        self._by_first[first] = chunk

    def _came(self, chunk: Chunk, newest: Tick) -> None:
        self.frontier = self.newest = newest
        self._enqueue(chunk)

    def _enqueue(self, chunk: Chunk) -> None:
        if not chunk.queued:
            chunk.queued = True
            heappush(self._queue, (chunk.ticks[0], 0))

    def _note_priorities(self, chunk: Chunk, start: int, events: EventBatch) -> None:
        if not events.has_extras:
            return
        for at, header in enumerate(events.headers):
            if header.extras is not None and header.extras.priority >= EXPEDITED:
                chunk.expedited |= 1 << start + at
        if chunk.expedited:
            self._expedited[chunk.ticks[0]] = None

    def _fill(self, events: EventBatch) -> None:
        """Takes the bytes of unsettled events that were not here."""
        if not self.absent:
            return
        for at, tick in enumerate(events.ticks):
            chunk = self.chunk_of(tick)
            place = None if chunk is None else chunk.place(tick)
            if chunk is None or place is None or (chunk.have | chunk.done) >> place & 1:
                continue
            event = events.slice(at, at + 1)
            chunk.add(place, event)
            chunk.pieces.sort(key=itemgetter(0))
            self._note_priorities(chunk, place, event)
            self.size += event.size
            self._filled(chunk, place)

    def _fill_gap(self, gap: GapSegment) -> None:
        for chunk in list(self._chunks):
            for place in select(range(len(chunk.ticks)), chunk.unsettled & ~chunk.have):
                tick = chunk.ticks[place]
                if gap.start < tick <= gap.end:
                    chunk.gaps[place] = GapSegment(tick - 1, tick, gap.reason)
                    self._filled(chunk, place)

    def _filled(self, chunk: Chunk, place: int) -> None:
        chunk.have |= 1 << place
        self.absent -= 1
        self._enqueue(chunk)

    # -------------------------------------------------------------------------------- where what is

    def chunk_of(self, tick: Tick) -> Chunk | None:
        """Returns the chunk in which a tick would be."""
        at = bisect_right(self._firsts, tick)
        return self._chunks[at - 1] if at else None

    def find(self, tick: Tick) -> tuple[Chunk, int] | None:
        """Returns the chunk and the place of an unsettled event."""
        chunk = self.chunk_of(tick)
        place = None if chunk is None else chunk.place(tick)
        if chunk is None or place is None or chunk.done >> place & 1:
            return None
        return chunk, place

    def missing(self, after: Tick, most: int) -> list[Tick]:
        """Returns the first unsettled events behind a tick that are not here."""
        found: list[Tick] = []
        for chunk in self._chunks:
            if chunk.ticks[-1] > after and (absent := chunk.unsettled & ~chunk.have):
                found += [tick for tick in select(chunk.ticks, absent) if tick > after]
                if len(found) >= most:
                    return found[:most]
        return found

    def give_up(self, upto: Tick) -> None:
        """All unsettled events up to a tick were looked for: those that are not here have expired."""
        self.searched = max(self.searched, upto)
        if not self.absent:
            return
        for chunk in list(self._chunks):
            if chunk.ticks[0] > upto:
                return
            mask = chunk.idle & ~chunk.have & ((1 << bisect_right(chunk.ticks, upto)) - 1)
            if mask:
                self.finish(chunk, mask)

    def let_go(self) -> None:
        """Nobody takes part: the bytes of the events are not kept, and are fetched when somebody comes again."""
        for chunk in self._chunks:
            chunk.pieces, chunk.gaps, chunk.have = [], {}, 0
            chunk.size = chunk.sized = chunk.kept = 0
        self._sparse.clear()
        self.absent, self.size, self.searched = self.count, 0, 0
        self.recalled_upto = self.frontier

    # --------------------------------------------------------------------------------- what goes out

    def next_ready(self, *, hidden: bool) -> tuple[Chunk, int] | None:
        """Returns the first chunk from which something can go out, and which events; what travels alone is not in it.

        `hidden`: what is in doubt is kept back.
        """
        for first in list(self._expedited):
            chunk = self._by_first.get(first)
            mask = 0 if chunk is None else self._open(chunk, hidden=hidden) & chunk.expedited
            if chunk is not None and mask:
                self.is_drained = False
                return chunk, mask
            if chunk is None or not chunk.unsettled & chunk.expedited:
                del self._expedited[first]
        kept: list[tuple[Tick, int]] = []
        found: tuple[Chunk, int] | None = None
        self.is_drained = True
        while self._queue:
            chunk = self._by_first.get(self._queue[0][0])
            mask = 0 if chunk is None else self._open(chunk, hidden=hidden)
            if chunk is not None and mask:
                found, self.is_drained = (chunk, mask), False
                break
            entry = heappop(self._queue)
            if chunk is None:
                continue
            if hidden and chunk.ready & ~chunk.deaths:
                kept.append(entry)
            else:
                chunk.queued = False
        for entry in kept:
            heappush(self._queue, entry)
        return found

    @staticmethod
    def _open(chunk: Chunk, *, hidden: bool) -> int:
        mask = chunk.idle & chunk.have & ~chunk.deaths
        return mask & ~chunk.doubt if hidden else mask

    def next_suspect(self, *, hidden: bool) -> tuple[Chunk, int] | None:
        """Returns an event that travels alone, as chunk and mask."""
        for first in list(self._suspects):
            chunk = self._by_first.get(first)
            if chunk is None or not chunk.unsettled & chunk.deaths:
                del self._suspects[first]
                continue
            mask = chunk.ready & chunk.deaths
            if hidden:
                mask &= ~chunk.doubt
            if mask:
                return chunk, mask & -mask
        return None

    def hold(self, chunk: Chunk, mask: int) -> None:
        """These events are in somebody's hands."""
        chunk.idle &= ~mask
        chunk.unknown &= ~mask
        self.held += mask.bit_count()
        if chunk.ended:
            for place in select(range(len(chunk.ticks)), mask):
                chunk.ended.pop(place, None)

    # ------------------------------------------------------------------------------ what comes back

    def free(self, run: Run, mask: int, *, doubt: bool, death: bool = False, verdict: bool = True) -> None:
        """Held events are in nobody's hands any more. `verdict`: whether somebody has said so."""
        chunk = run.chunk
        self.held -= mask.bit_count()
        chunk.idle |= mask
        if doubt:
            chunk.doubt |= mask
        if not verdict:
            for offset, place in enumerate(run.places):
                if mask >> place & 1:
                    chunk.ended[place] = run.first + offset
        if death and (died := mask & (run.taken | run.risky)):
            self.suspect(chunk, died)
        self._enqueue(chunk)
        if nowhere := mask & ~chunk.have & ((1 << bisect_right(chunk.ticks, self.searched)) - 1):
            self.finish(chunk, nowhere)

    def suspect(self, chunk: Chunk, mask: int) -> None:
        """These events were in hand when their consumer died."""
        chunk.deaths |= mask
        self._suspects[chunk.ticks[0]] = None
        self.touch(chunk)

    def delay(self, chunk: Chunk, mask: int) -> None:
        """Held events go to nobody for a while."""
        self.held -= mask.bit_count()
        self.touch(chunk)

    def end_delay(self, chunk: Chunk, mask: int) -> None:
        """The time of delayed events has come."""
        chunk.idle |= mask
        self._enqueue(chunk)

    def attempt(self, chunk: Chunk, mask: int) -> None:
        """One more attempt for each of these events."""
        if not mask:
            return
        attempts = chunk.attempts
        for place in select(range(len(chunk.ticks)), mask):
            attempts[place] = min(attempts.get(place, 0) + 1, ATTEMPTS_MAX)
        chunk.attempted |= mask
        self.touch(chunk)

    def settle(self, chunk: Chunk, mask: int) -> None:
        """Held events are settled."""
        self.held -= mask.bit_count()
        self.finish(chunk, mask)

    def finish(self, chunk: Chunk, mask: int) -> None:
        """Events that nobody holds are settled: as they were held before, or because nobody wants them any more."""
        self.absent -= (mask & ~chunk.have).bit_count()
        self.size -= chunk.settle(mask)
        self.count -= mask.bit_count()
        self.is_changed = True
        if chunk.done == chunk.all:
            self._drop(chunk.ticks[0], chunk)
        else:
            if chunk.is_sparse:
                self._thin_out(chunk)
            self.touch(chunk)
        self._raise_floor()

    def _thin_out(self, chunk: Chunk) -> None:
        if chunk.size <= SMALL * chunk.sized:
            self._sparse[chunk.ticks[0]] = chunk
            if len(self._sparse) <= SPARSE_CHUNKS:
                return
            chunk = self._sparse.pop(next(iter(self._sparse)))
        chunk.thin_out()

    def _drop(self, first: Tick, chunk: Chunk) -> None:
        at = bisect_left(self._firsts, first)
        del self._firsts[at], self._chunks[at], self._by_first[first]
        self._dirty.pop(first, None)
        self._sparse.pop(first, None)
        if chunk.is_stored:
            self._gone[first] = None
        if at < len(self._chunks):
            following = self._chunks[at]
            following.below = max(following.below, chunk.ticks[-1])

    def _raise_floor(self) -> None:
        floor = self.newest
        if self._chunks:
            chunk = self._chunks[0]
            done = (chunk.done + 1 & ~chunk.done).bit_length() - 1
            floor = chunk.ticks[done - 1] if done else chunk.below
        self.floor = max(self.floor, floor)

    def touch(self, chunk: Chunk) -> None:
        """Its row has to be written."""
        self._dirty[chunk.ticks[0]] = chunk
        self.is_changed = True

    # -------------------------------------------------------------------------------------- rows

    def rows(self, sid: int, *, everything: bool = False) -> list[Operation]:
        """Returns what is to be written. The frontier goes as far as something has happened, or as far as it is.

        Every chunk that it passes has a row, or is settled; and it goes as far as every row does.
        """
        if everything or (self.is_changed and not self._chunks):
            frontier = max(self.written, self.frontier)
        elif self.is_changed:
            frontier = max(self.written, self._happened_upto())
        else:
            return []
        operations: list[Operation] = []
        passed = bisect_right(self._firsts, frontier)
        if passed:  # the row of the last one has all of it
            frontier = max(frontier, self._chunks[passed - 1].ticks[-1])
        for at in range(passed):
            chunk, first = self._chunks[at], self._firsts[at]
            is_news = first in self._dirty or chunk.ticks[-1] > self.written or not chunk.is_stored
            if is_news or (everything and chunk.doubt):
                chunk.is_stored = True
                operations.append(Set(CHUNKS, self._key(sid, first), chunk.row()))
        operations += [Delete(CHUNKS, self._key(sid, first)) for first in self._gone]
        self._dirty.clear()
        self._gone.clear()
        self.written = frontier
        self.is_changed = False
        operations.append(Set(WINDOWS, _SID.pack(sid) + self.pubend.encode(), _encode(WindowRow(self.floor, frontier))))
        return operations

    def _happened_upto(self) -> Tick:
        """Returns the end of the last chunk of which something is not as it was when it came, settled ones too."""
        if self.newest > self._chunks[-1].ticks[-1]:
            return self.newest
        for at in reversed(range(len(self._chunks))):
            chunk = self._chunks[at]
            if chunk.done or chunk.attempted or chunk.deaths:
                return chunk.ticks[-1]
            before = self._chunks[at - 1].ticks[-1] if at else 0
            if chunk.below > max(before, self.written):
                return chunk.below
            if chunk.ticks[0] <= self.written:
                break
        return self.written

    def _key(self, sid: int, first: Tick) -> bytes:
        return _SID.pack(sid) + _TICK.pack(first) + self.pubend.encode()

    def kept(self) -> KeptWindow:
        """Returns what is kept of it while its subscription has lapsed."""
        chunks = tuple((chunk.ticks[0], chunk.row()) for chunk in self._chunks)
        return KeptWindow(_encode(WindowRow(self.floor, self.frontier)), chunks)

    @classmethod
    def returned(cls, pubend: PubendId, kept: KeptWindow) -> Window:
        """Returns the window of a subscription that comes back after it has lapsed; its rows are to be written."""
        window = cls.restored(pubend, kept.row, kept.chunks)
        for chunk in window:
            chunk.is_stored = False
            window.touch(chunk)
        return window

    def delete(self, sid: int) -> list[Operation]:
        """Returns the removal of all its rows."""
        stored = [first for first, chunk in zip(self._firsts, self._chunks, strict=True) if chunk.is_stored]
        operations: list[Operation] = [Delete(CHUNKS, self._key(sid, first)) for first in (*stored, *self._gone)]
        return [*operations, Delete(WINDOWS, _SID.pack(sid) + self.pubend.encode())]

    @classmethod
    def restored(cls, pubend: PubendId, row: bytes, chunks: Iterable[tuple[Tick, bytes]]) -> Window:
        """Returns a window as it is durable."""
        found = _decode_window(row)
        window = cls(pubend, found.frontier)
        window.floor = found.floor
        for first, value in chunks:
            chunk = Chunk.restored(first, value)
            assert not window._chunks or window._chunks[-1].ticks[-1] < first, "chunks ascend"
            window._insert(first, chunk)
            window.count += chunk.unsettled.bit_count()
            if chunk.deaths:
                window._suspects[first] = None
            window._enqueue(chunk)
            assert chunk.ticks[-1] <= window.frontier, "every row lies below the frontier that was written with it"
        window.newest = window.frontier
        window._raise_floor()  # a row may have gone farther than the last event, where nothing is left
        window.absent, window.recalled_upto = window.count, window.frontier
        return window


def split_chunk_key(key: bytes) -> tuple[int, Tick, PubendId]:
    """Returns the subscription, the first tick and the pubend of a chunk's row."""
    return _SID.unpack(key[:8])[0], _TICK.unpack(key[8:16])[0], key[16:].decode()


def split_window_key(key: bytes) -> tuple[int, PubendId]:
    """Returns the subscription and the pubend of a window's row."""
    return _SID.unpack(key[:8])[0], key[8:].decode()
