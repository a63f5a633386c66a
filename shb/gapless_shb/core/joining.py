"""How a subscription comes to be covered by the constream (algorithms.md 3.1 `since`, T3, T45).

Knowledge that is under way was filtered before anybody upstream knew of a new subscription. So it joins
in private: until the head first passes a run whose stamp honours its version, it is not part of what the
constream requires (nobody else waits for it), and its ticks up to there are its own reader's business.
"""

from __future__ import annotations

from gapless.core.knowledge import Kind, KnowledgeStream
from gapless.core.stamps import covers
from gapless.core.ticks import FOREVER, ShbId, Tick
from gapless_shb.core.positions import Position


class Joining:
    """The subscriptions of one pubend that are not covered yet, and what the covered ones require."""

    def __init__(self, shb: ShbId, istream: KnowledgeStream) -> None:
        self._shb = shb
        self._istream = istream
        self._waiting: dict[int, tuple[Position, int]] = {}
        self._later: dict[int, tuple[Tick, int]] = {}
        """Covered only from a tick above the head on: (since, version)."""
        self.version = 0
        """The interest version that silence must honour to be believed from the head on."""

    def add(self, sid: int, position: Position, version: int) -> None:
        """A subscription stands on the pubend: it joins, or has joined before a restart."""
        if position.since == FOREVER:
            self._waiting[sid] = (position, version)
        else:
            self._later[sid] = (position.since, version)
            self.passed(self._istream.base)

    def remove(self, sid: int) -> None:
        """The subscription is gone."""
        self._waiting.pop(sid, None)
        self._later.pop(sid, None)

    def settle(self, head: Tick, horizon: Tick) -> list[int]:
        """Settles those whose version a run of (head, horizon] honours; returns them.

        `since` is no lower than the head, the run's low end, and the highest tick whose silence the
        istream already holds under a lower stamp: that silence was computed without the subscription.
        """
        if not self._waiting:
            return []
        settled: list[int] = []
        for run in self._istream.runs(head, horizon):
            if run.kind is not Kind.SILENCE:
                continue
            for sid, (position, version) in list(self._waiting.items()):
                if covers(run.stamp, {self._shb: version}):
                    under_lower = self._istream.highest_silence_below(version, self._shb)
                    position.since = max(position.start, head, run.lo, under_lower)
                    del self._waiting[sid]
                    self._later[sid] = (position.since, version)
                    settled.append(sid)
            if not self._waiting:
                break
        return settled

    def next_change(self, head: Tick) -> Tick:
        """How far the head may go before another version is required."""
        return min((since for since, _ in self._later.values() if since > head), default=FOREVER)

    def passed(self, head: Tick) -> None:
        """The head stands here: who is covered from here on is required from here on."""
        for sid, (since, version) in list(self._later.items()):
            if since <= head:
                self.version = max(self.version, version)
                del self._later[sid]
