"""Lists subscriptions, and counts what each has not acknowledged yet.

The count is read from the PFS, batch by batch, when somebody asks; so nothing has to be counted while events flow. A
long list is sent in parts, with room for other work between them.

For some ticks the PFS cannot tell: those before the subscription joined, and those in blocks that cannot be read. A
count of their events would read the log, perhaps for a hundred thousand subscriptions and for years. So of those before
it joined only the events count that its readers have found (`counted_before`). Unless these are all, the row is marked
as incomplete, and its numbers are a lower bound.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import NamedTuple

from gapless.core.ports import Action, ClientSession, ReadResult, Tell
from gapless.core.principals import NOBODY, Principal
from gapless.core.resources import Durable
from gapless.core.stream.ticks import FOREVER, PubendId, Tick, wall_at
from gapless.core.wire.messages import ListedSubscription, ListSubscriptions, Position, SubscriptionList
from gapless_shb.core.hosting import Hosting
from gapless_shb.core.live.constream import Constream
from gapless_shb.core.pfs.blocks import Block
from gapless_shb.core.state.positions import SubscriptionPosition
from gapless_shb.core.state.registry import SubscriptionRecord
from gapless_shb.core.subscriptions.sharing import SharedSubscriptions
from gapless_shb.core.subscriptions.waiting import Waiting, told

ROWS_MAX = 500
WAITING_MAX = 8
"""So many of the requests that wait for a subscription are listed."""
BYTES_MAX = 1 << 20
"""About how much one part of a list holds at most."""


class Counted(NamedTuple):
    """What a subscription has not acknowledged of a pubend, as far as the PFS knows it."""

    events: int
    oldest: Tick
    """The first of these events. 0 if there are none."""
    complete: bool
    """Whether there are no more."""


@dataclass(slots=True)
class Listing:
    """One request, while the PFS is read for it."""

    session: int
    request: int
    principal: Principal
    """Who asks: what it may not know of is left out."""
    todo: list[PubendId]
    counts: Counter[int] = field(default_factory=Counter)
    oldest: dict[int, Tick] = field(default_factory=dict)
    """The first unacknowledged event of each subscription, on the pubend that is being read."""
    behind: dict[int, int] = field(default_factory=dict)
    """How many milliseconds before the head that event was: the maximum over the pubends that were read."""
    uncounted: dict[PubendId, None] = field(default_factory=dict)
    """The pubends whose PFS could not be read."""
    found: dict[tuple[PubendId, int], tuple[Tick, Tick]] = field(default_factory=dict)
    """Of which subscriptions readers had found all that the PFS does not know when that was counted: with each, from
    where on the PFS knew it, and up to where it was done. Readers go on while the list is made."""
    untold: Iterator[SubscriptionRecord] = field(default_factory=lambda: iter(()))
    asked_at: int = 0
    """When, in monotonic nanoseconds."""
    then: Callable[[Mapping[int, Counted]], None] | None = None
    """What is called with the counts, if no client has asked for a list."""


class Listings:
    """Answers ListSubscriptions."""

    def __init__(
        self,
        hosting: Hosting,
        waiting: Waiting,
        sharing: SharedSubscriptions,
        held_back: Callable[[SubscriptionRecord], int | None],
    ) -> None:
        """`held_back`: says about how many bytes of logs a subscription holds back, if that is known."""
        self._hosting = hosting
        self._sharing = sharing
        self._waiting = waiting
        self._held_back = held_back
        self._listings: dict[int, Listing] = {}
        self.telling: deque[Listing] = deque()
        """The lists that are complete, and have parts to be sent."""
        self._count = 0

    def tell(self) -> None:
        """Sends the next part of the list that has waited longest."""
        listing = self.telling.popleft()
        rows: list[ListedSubscription] = []
        size = hidden = 0
        for subscription in listing.untold:
            if len(rows) + hidden >= ROWS_MAX or size >= BYTES_MAX:
                listing.untold = chain((subscription,), listing.untold)
                self.telling.append(listing)
                break
            if self._hosting.registry.get(subscription.sid) is None:
                continue
            if self._is_hidden(subscription, listing.principal):
                hidden += 1
            else:
                rows.append(self._row(subscription, listing))
                size += len(subscription.selector) + sum(map(len, subscription.topics))
        more = bool(self.telling) and self.telling[-1] is listing
        self._hosting.outbox.emit(Tell(listing.session, SubscriptionList(listing.request, rows, more, hidden=hidden)))

    def _is_hidden(self, subscription: SubscriptionRecord, principal: Principal) -> bool:
        """Whether a principal may not know of a subscription."""
        authorizer, named = self._hosting.authorizer, Durable(subscription.client_id, subscription.name)
        return authorizer.asks and bool(authorizer.refusal(principal, Action.OBSERVE, named))

    def on_list(self, session: ClientSession, request: ListSubscriptions, now: int, _wall: int) -> None:
        """Begins to read the PFS for a request."""
        self._count += 1
        self._listings[self._count] = Listing(
            session.number, request.request, session.principal, list(self._hosting.streams), asked_at=now
        )
        self._read(self._count, 0)

    def count(self, pubend: PubendId, then: Callable[[Mapping[int, Counted]], None]) -> None:
        """Counts what each subscription has not acknowledged of one pubend, and calls `then` with those that lack any.

        Those are among them of which not everything could be counted. It counts from where each stands when the PFS is
        read.
        """
        self._count += 1
        self._listings[self._count] = Listing(0, 0, NOBODY, [pubend], then=then)
        self._read(self._count, 0)

    def _on_read(self, number: int, upto: Tick, result: ReadResult, _now: int, _wall: int) -> None:
        """Counts the blocks of a part of a PFS that was read, up to where it was closed then."""
        listing = self._listings.get(number)
        if listing is None:
            return
        stream = self._hosting.streams.get(listing.todo[0])
        if stream is None or result.error or not result.records:
            if result.error:
                listing.uncounted[listing.todo[0]] = None
            if stream is not None and not result.error and stream.pfs.closed_upto > upto:
                self._read(number, upto)  # a block was closed meanwhile, so it is not among the open ones any more
            else:
                self._finish_stream(number, listing, stream)
            return
        for index, data in result.records:
            block = Block(index, data)
            ticks = block.ticks
            for sid, mask in block.columns():
                self._count_in(listing, stream, sid, ticks, mask)
        self._read(number, result.records[-1][0])

    def _finish_stream(self, number: int, listing: Listing, stream: Constream | None) -> None:
        if stream is not None:
            for ticks, masks in stream.pfs.open_blocks():
                for sid, mask in masks:
                    self._count_in(listing, stream, sid, ticks, mask)
            self._count_before(listing, stream)
            if listing.then is not None:
                listing.then(dict(self._counted(listing, stream)))
            elif stream.meta.timed:  # otherwise the ticks do not show when the events were
                head = wall_at(stream.head)
                for sid, tick in listing.oldest.items():
                    listing.behind[sid] = max(head - wall_at(tick), listing.behind.get(sid, 0))
            listing.oldest.clear()
        listing.todo.pop(0)
        self._read(number, 0)

    def _counted(self, listing: Listing, stream: Constream) -> Iterator[tuple[int, Counted]]:
        for sid in stream.positions:
            counted = Counted(listing.counts[sid], listing.oldest.get(sid, 0), self._is_counted(listing, stream, sid))
            if counted.events or not counted.complete:
                yield sid, counted

    def _count_in(self, listing: Listing, stream: Constream, sid: int, ticks: Sequence[Tick], mask: int) -> None:
        position = stream.positions.get(sid)
        if position is not None and ticks[-1] > position.done_upto:
            at = bisect_right(ticks, position.done_upto)
            due = mask >> at
            listing.counts[sid] += due.bit_count()
            if due and sid not in listing.oldest:
                listing.oldest[sid] = ticks[at + (due & -due).bit_length() - 1]

    def _count_before(self, listing: Listing, stream: Constream) -> None:
        """Adds what readers found where the PFS knows nothing, which is before all that it knows."""
        for sid, position in stream.positions.items():
            if position.before is not None:
                events, first = position.before.due(position.done_upto)
                if events:
                    listing.counts[sid] += events
                    listing.oldest[sid] = first
                if position.before.covers(position.done_upto, _unknown_upto(stream, position)):
                    listing.found[stream.pubend, sid] = position.since, position.done_upto

    def _read(self, number: int, after: int) -> None:
        listing = self._listings[number]
        while listing.todo:
            stream = self._hosting.streams.get(listing.todo[0])
            if stream is not None:
                lowest = stream.retention_floor.lowest()
                start = max(after, stream.head if lowest is None else lowest, stream.pfs.chopped)
                upto = max(stream.pfs.closed_upto, start)
                self._hosting.outbox.read(stream.pfs.stream, start, upto, partial(self._on_read, number, upto))
                return
            listing.todo.pop(0)
        del self._listings[number]
        if listing.then is not None:
            return
        listing.untold = iter([subscription for subscription in self._hosting.registry if subscription.durable])
        self.telling.append(listing)
        if len(self.telling) == 1:
            self.tell()

    def _row(self, subscription: SubscriptionRecord, listing: Listing) -> ListedSubscription:
        sid = subscription.sid
        streams = self._hosting.streams.values()
        complete = all(self._is_counted(listing, stream, sid) for stream in streams)
        return ListedSubscription(
            sid,
            subscription.client_id,
            subscription.name,
            subscription.topics,
            subscription.selector,
            sid in self._hosting.consumers,
            [
                Position(stream.pubend, stream.done_upto(stream.positions[sid]))
                for stream in streams
                if not stream.positions[sid].sought
            ],
            listing.counts[sid],
            listing.behind.get(sid, 0) / 1000,
            complete,
            no_local=bool(subscription.not_from),
            roams=self._hosting.places.has_home(subscription.name),
            phase=self._hosting.registry.phase(sid).value,
            waiting=tuple(map(told, self._waiting.of(sid)[:WAITING_MAX])),
            pinned_bytes=self._held_back(subscription),
            sharing=self._sharing.listed(sid, listing.asked_at),
        )

    def _is_counted(self, listing: Listing, stream: Constream, sid: int) -> bool:
        """Whether a listing has counted everything that a subscription is not done with, up to the head."""
        position = stream.positions[sid]
        stream.release(position)
        if stream.pubend in listing.uncounted or position.sought:
            return False
        if position.done_upto >= _unknown_upto(stream, position):
            return True
        since, done_upto = listing.found.get((stream.pubend, sid), (FOREVER, FOREVER))
        return position.since == since and position.done_upto >= done_upto


def _unknown_upto(stream: Constream, position: SubscriptionPosition) -> Tick:
    """Returns up to where the PFS does not know what a subscription is due."""
    return min(max(position.since, stream.pfs.chopped, stream.scheduler.page_cache.unreadable_upto), stream.head)
