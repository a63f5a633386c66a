"""How a new subscription comes to be covered by the constream (protocol: joining; T3, T45).

Knowledge that is under way was filtered before the brokers upstream knew of a new subscription. So the subscription
joins in steps:

1. At first it only waits. The constream requires nothing for it, so no other subscription is delayed, and its own
   reader fetches and filters its events.
2. The head passes a run of silence whose stamp honours the subscription's version. From there on (`since`) the
   constream covers it.
3. When the head reaches `since`, its version becomes part of what silence must honour (`need`).
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

from gapless.core.stream.knowledge import Kind, KnowledgeStream
from gapless.core.stream.stamps import Stamp, covers
from gapless.core.stream.ticks import FOREVER, ShbId, Tick
from gapless_shb.core.state.positions import SubscriptionPosition


class JoiningSubscriptions:
    """The subscriptions of one pubend that are not covered yet, and what the covered ones require."""

    def __init__(self, shb: ShbId, istream: KnowledgeStream) -> None:
        self._shb = shb
        self._istream = istream
        self.waiting: dict[int, tuple[int, SubscriptionPosition]] = {}
        """The subscriptions that are not covered yet, with their versions. If there are none, nothing can be
        activated."""
        self._by_version: list[tuple[int, int]] = []
        """A heap of (version, sid) of the waiting subscriptions. It may contain removed ones, and former versions of
        those that have changed."""
        self.later: dict[int, tuple[Tick, int]] = {}
        """`since` and version of subscriptions with a `since` above the head. Only these can still change `need`."""
        self._by_since: list[tuple[Tick, int]] = []
        """A heap of (since, sid) of these subscriptions. It may contain removed ones, and a former `since`."""
        self.need: dict[ShbId, int] = {shb: 0}
        """The interest version that silence must honour to be believed from the head on.

        It is replaced, never changed in place, because wants keep a reference to it.
        """

    def add(self, sid: int, position: SubscriptionPosition, version: int) -> None:
        """Adds a subscription: it starts to join, or it had joined before a restart."""
        if position.since == FOREVER:
            self.waiting[sid] = version, position
            heappush(self._by_version, (version, sid))
        else:
            self._cover_from(sid, position.since, version)
            self.passed(self._istream.base)

    def remove(self, sid: int) -> None:
        """Removes a subscription."""
        self.waiting.pop(sid, None)
        self.later.pop(sid, None)

    def activate(self, head: Tick, horizon: Tick) -> list[int]:
        """Activates the waiting subscriptions whose version a run in (head, horizon] honours. Returns their ids.

        Their `since` is the highest of four ticks: their start, the head, the low end of that run, and the highest tick
        of silence that the istream already holds under a lower stamp. That silence was computed without the
        subscription.
        """
        activated: list[int] = []
        for run in self._istream.runs(head, horizon):
            if run.kind is not Kind.SILENCE:
                continue
            for version, sid, position in self._honoured_by(run.stamp):
                assert position.since == FOREVER, "who waits is not covered yet"
                under_lower = self._istream.highest_silence_below(version, self._shb)
                position.since = max(position.start, head, run.lo, under_lower)
                self._cover_from(sid, position.since, version)
                activated.append(sid)
            if not self.waiting:
                break
        return activated

    def _honoured_by(self, stamp: Stamp) -> Iterator[tuple[int, int, SubscriptionPosition]]:
        """Takes out the waiting subscriptions whose version a stamp honours; these have the lowest versions."""
        while self._by_version and covers(stamp, {self._shb: self._by_version[0][0]}):
            version, sid = heappop(self._by_version)
            if sid in self.waiting and self.waiting[sid][0] == version:
                yield version, sid, self.waiting.pop(sid)[1]

    def _cover_from(self, sid: int, since: Tick, version: int) -> None:
        assert since < FOREVER, "who is not covered has no place from which on it is"
        self.later[sid] = since, version
        heappush(self._by_since, (since, sid))

    def next_change(self, head: Tick) -> Tick:
        """Returns how far the head may go before `need` changes."""
        self.passed(head)
        while self._by_since and not self._is_later(*self._by_since[0]):
            heappop(self._by_since)
        return self._by_since[0][0] if self._by_since else FOREVER

    def passed(self, head: Tick) -> None:
        """The head stands here: subscriptions with a `since` up to here become part of `need`."""
        while self._by_since and self._by_since[0][0] <= head:
            since, sid = heappop(self._by_since)
            if not self._is_later(since, sid):
                continue
            _, version = self.later.pop(sid)
            if version > self.need.get(self._shb, 0):
                self.need = {self._shb: version}

    def _is_later(self, since: Tick, sid: int) -> bool:
        """Whether an entry of the heap is still true."""
        return sid in self.later and self.later[sid][0] == since
