"""How a subscription comes to be covered by the constream (protocol: joining; T3, T45).

Knowledge that is under way was filtered before anybody upstream knew of a new subscription. So it joins
in private: until the head first passes a run whose stamp honours its version, it is not part of what the
constream requires (nobody else waits for it), and its ticks up to there are its own reader's business.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

from gapless.core.stream.knowledge import Kind, KnowledgeStream
from gapless.core.stream.stamps import Stamp, covers
from gapless.core.stream.ticks import FOREVER, ShbId, Tick
from gapless_shb.core.positions import SubscriptionPosition


class JoiningSubscriptions:
    """The subscriptions of one pubend that are not covered yet, and what the covered ones require."""

    def __init__(self, shb: ShbId, istream: KnowledgeStream) -> None:
        self._shb = shb
        self._istream = istream
        self.waiting: dict[int, SubscriptionPosition] = {}
        """Those who are not covered yet. Only while there are any is there anybody to activate."""
        self._by_version: list[tuple[int, int]] = []
        """A heap of (version, sid) of those who wait; and of some who are gone."""
        self.later: dict[int, int] = {}
        """The versions of those who are covered from a tick above the head on: only they change the need."""
        self._by_since: list[tuple[Tick, int]] = []
        """A heap of (since, sid) of those; and of some who are gone."""
        self.need: dict[ShbId, int] = {shb: 0}
        """The interest version that silence must honour to be believed from the head on. Exchanged, never changed."""

    def add(self, sid: int, position: SubscriptionPosition, version: int) -> None:
        """A subscription stands on the pubend: it joins, or has joined before a restart."""
        if position.since == FOREVER:
            self.waiting[sid] = position
            heappush(self._by_version, (version, sid))
        else:
            self._cover_from(sid, position.since, version)
            self.passed(self._istream.base)

    def remove(self, sid: int) -> None:
        """The subscription is gone."""
        self.waiting.pop(sid, None)
        self.later.pop(sid, None)

    def activate(self, head: Tick, horizon: Tick) -> list[int]:
        """Activates those whose version a run of (head, horizon] honours; returns them.

        `since` is no lower than the head, the run's low end, and the highest tick whose silence the
        istream already holds under a lower stamp: that silence was computed without the subscription.
        """
        activated: list[int] = []
        for run in self._istream.runs(head, horizon):
            if run.kind is not Kind.SILENCE:
                continue
            for version, sid, position in self._honoured_by(run.stamp):
                under_lower = self._istream.highest_silence_below(version, self._shb)
                position.since = max(position.start, head, run.lo, under_lower)
                self._cover_from(sid, position.since, version)
                activated.append(sid)
            if not self.waiting:
                break
        return activated

    def _honoured_by(self, stamp: Stamp) -> Iterator[tuple[int, int, SubscriptionPosition]]:
        """Takes out those whose version a stamp honours: the lowest versions."""
        while self._by_version and covers(stamp, {self._shb: self._by_version[0][0]}):
            version, sid = heappop(self._by_version)
            position = self.waiting.pop(sid, None)
            if position is not None:
                yield version, sid, position

    def _cover_from(self, sid: int, since: Tick, version: int) -> None:
        self.later[sid] = version
        heappush(self._by_since, (since, sid))

    def next_change(self, head: Tick) -> Tick:
        """How far the head may go before another version is required."""
        self.passed(head)
        while self._by_since and self._by_since[0][1] not in self.later:
            heappop(self._by_since)
        return self._by_since[0][0] if self._by_since else FOREVER

    def passed(self, head: Tick) -> None:
        """The head stands here: who is covered from here on is required from here on."""
        while self._by_since and self._by_since[0][0] <= head:
            _, sid = heappop(self._by_since)
            version = self.later.pop(sid, 0)
            if version > self.need.get(self._shb, 0):
                self.need = {self._shb: version}
