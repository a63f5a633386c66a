"""Who has looked over HTTP, for the audit: one line in some minutes of whoever comes again and again.

There are no sessions here: each request is judged by itself, and a tool comes every few seconds. So a principal at an
address makes a line when he is let in, and when he is not; and the same line again after `SAME_FOR` at the earliest.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from gapless.core.principals import Principal
    from gapless.core.server.audit import AuditOutcome

SAME_FOR: Final = 600.0
"""Seconds."""
REMEMBERED_MAX: Final = 1024
"""So many are remembered, those that have made a line last; of others a line may come sooner."""

Tell: TypeAlias = "Callable[[Principal, str, AuditOutcome, str], None]"
"""Who it was, at which address, how it has ended, and why."""


class Visits:
    """Who has looked, in the thread that talks HTTP."""

    def __init__(self, tell: Tell, has_room: Callable[[], bool], now: Callable[[], float] = time.monotonic) -> None:
        """`tell`: makes a line. `has_room`: whether one more can be taken. `now`: seconds of any clock."""
        self._tell = tell
        self._has_room = has_room
        self._now = now
        self._told: OrderedDict[tuple[str, str, AuditOutcome], float] = OrderedDict()
        """When each was told last, the earliest first."""

    def note(self, principal: Principal, address: str, outcome: AuditOutcome, reason: str) -> bool:
        """Somebody is let in, or is not. Returns False if that has to be told, and there is no room for it.

        Who was told before goes on meanwhile: who looks after the broker must see that its disk is full.
        """
        visit, now = (principal.name, address, outcome), self._now()
        told = self._told.get(visit)
        if told is not None and now < told + SAME_FOR:
            return True
        if not self._has_room():
            return told is not None
        self._tell(principal, address, outcome, reason)
        self._told[visit] = now
        self._told.move_to_end(visit)
        if len(self._told) > REMEMBERED_MAX:
            self._told.popitem(last=False)
        return True
