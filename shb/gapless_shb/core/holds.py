"""Holds: what keeps a pubend from forgetting what an SHB has already reported as released.

A subscription that starts in the past (earliest, a time, a token) needs events that the SHB no longer
pinned. Its hold says so to the pubend, durably there, before the subscription is acknowledged. One row
per SHB and pubend, under a version, always sent whole (protocol: holds, members).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gapless.core.network.facts import Held, Hold
from gapless.core.stream.ticks import PubendId, ShbId, Tick

REPEAT = 1_000_000_000
"""How long an unanswered row waits before it is sent again, in nanoseconds."""


@dataclass(slots=True)
class PubendHolds:
    """One SHB's row at one pubend."""

    shb: ShbId
    pubend: PubendId
    version: int = 0
    durable: int = 0
    """The version that is durable here: a higher one may not be sent, or it could be sent twice, differently."""
    row: dict[int, Tick] = field(default_factory=dict)
    answered: int = 0
    send_at: int | None = None
    """When the row is to be sent (again), as soon as it is durable; None: it is answered."""

    def put(self, sid: int, at: Tick, now: int) -> None:
        """Asks for events above `at`; 0 asks for the earliest."""
        self.row[sid] = at
        self._changed(now)

    def drop(self, sid: int, now: int) -> bool:
        """The subscription needs its hold no longer; returns whether it had one."""
        if self.row.pop(sid, None) is None:
            return False
        self._changed(now)
        return True

    def renew(self, now: int) -> None:
        """After a restart: the pubend may not have heard the last change, least of all that nothing is held."""
        if self.version:
            self._changed(now)

    def ask_again(self, now: int) -> None:
        """Whatever the pubend answers from here on, it answers after this."""
        self._changed(now)

    def on_held(self, held: Held) -> list[tuple[int, Tick]]:
        """The pubend keeps the row; returns what the entries were resolved to, if the answer is to this row."""
        if held.version != self.version or self.answered == self.version:
            return []
        self.answered = self.version
        self.send_at = None
        resolved = [(sid, held.at[sid]) for sid in self.row if sid in held.at]
        self.row.update(resolved)
        return resolved

    def waits_for(self, sid: int) -> bool:
        """Whether the subscription's entry is not known to be kept yet."""
        return sid in self.row and self.answered != self.version

    def due(self, now: int) -> Hold | None:
        """The row, if it must be sent (again) now."""
        if self.send_at is None or now < self.send_at or self.durable < self.version:
            return None
        self.send_at = now + REPEAT
        return Hold(self.shb, self.pubend, self.version, dict(self.row))

    @property
    def deadline(self) -> int | None:
        """When `due` wants to be asked."""
        return self.send_at if self.durable >= self.version else None

    def _changed(self, now: int) -> None:
        self.version += 1
        self.send_at = now
