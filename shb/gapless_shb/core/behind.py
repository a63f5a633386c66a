"""How far subscriptions are behind: how that is spread over all of them, and by name for the few that are furthest.

A subscription is behind on a pubend as long as it is not done with everything that matched it there; then it is as far
behind as what it is done with lies below the head. That holds the log back, too. All of it is computed from positions
in memory when somebody asks. So that no turn takes long, whoever asks looks at `LOOKED` positions or little more: where
more of them are behind, it takes several askings until all are seen, and until then the figures are those of before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import nlargest
from typing import Final, TypeAlias

from gapless.core.gauges import Gauge, Histogram
from gapless.core.stream.ticks import FOREVER, SECOND, PubendId, Tick
from gapless_shb.core.hosting import Hosting
from gapless_shb.core.live.constream import Constream
from gapless_shb.core.state import gauges

LOOKED: Final = 8192

Found: TypeAlias = "tuple[Tick, int, PubendId]"
"""(how far a subscription is behind, in units of the pubend's distance, its id, the pubend)."""


class Behind:
    """The figures of one SHB."""

    def __init__(self, hosting: Hosting) -> None:
        self._hosting = hosting
        self._left: list[Constream] = []
        """The pubends that were not looked at since the figures were complete."""
        self._furthest: dict[int, Tick] = {}
        """Of each subscription: how far it is behind where that is furthest, of the pubends whose ticks are times."""
        self._named: list[Found] = []
        self._enough = 0
        """Who is less far behind on a pubend, in units of its distance, is not named."""
        self._told: list[Gauge] = []
        """The figures as they were complete last."""

    def gauges(self) -> Iterator[Gauge]:
        """Looks, and yields what is known."""
        if not self._left:
            self._left = list(self._hosting.streams.values())
            self._furthest, self._named, self._enough = {}, [], 0
        looked = 0
        while self._left and looked < LOOKED:
            looked += self._look_at(self._left.pop())
        if not self._left:
            self._cut()
            self._told = [*self._spread(), *self._by_name()]
        return iter(self._told)

    def _look_at(self, stream: Constream) -> int:
        """Notes who is behind on a pubend. Returns how many positions that took."""
        pinning, head = stream.retention_floor.pinning, stream.head
        # As `done_upto` says it, without a call for each of so many.
        behind = [head - max(each.acked, each.nothing_upto, each.released) for each in pinning.values()]
        if not behind:
            return 1
        if min(behind) < 0:  # a consumer is ahead of this broker, which has crashed
            behind = [max(0, ticks) for ticks in behind]
        self._name(stream, zip(behind, pinning, strict=True))
        if stream.meta.timed:
            furthest, here = self._furthest, dict(zip(pinning, behind, strict=True))
            for sid in here.keys() & furthest.keys():
                here[sid] = max(here[sid], furthest[sid])
            furthest.update(here)
        return len(behind)

    def _name(self, stream: Constream, behind: Iterable[tuple[Tick, int]]) -> None:
        grain, pubend = stream.meta.grain, stream.pubend
        least = self._enough * grain
        self._named += [(ticks // grain, sid, pubend) for ticks, sid in behind if ticks >= least]
        if len(self._named) > 2 * self._hosting.catch_up.subscriptions_named:
            self._cut()

    def _cut(self) -> None:
        """Keeps as many as are to be named. From now on only who is as far behind as the last of them may be one."""
        most = self._hosting.catch_up.subscriptions_named
        self._named = nlargest(most, self._named)
        if len(self._named) == most:
            self._enough = self._named[-1][0] if most else FOREVER

    def _spread(self) -> Iterator[Gauge]:
        durable = self._hosting.registry.durable_sids
        spread = Histogram(gauges.BEHIND_SECONDS, grows=False)
        behind = [ticks / SECOND for sid, ticks in self._furthest.items() if sid in durable]
        spread.observe(0, len(durable) - len(behind))
        spread.observe_all(behind)
        return spread.gauges()

    def _by_name(self) -> Iterator[Gauge]:
        for _, sid, pubend in self._named:
            stream, subscription = self._hosting.streams[pubend], self._hosting.registry.get(sid)
            if subscription is not None and sid in stream.positions:
                behind = max(0, stream.head - stream.positions[sid].done_upto)
                yield gauges.BEHIND_TICKS.gauge(behind, pubend, subscription.client_id, subscription.name, sid)
