"""How a node is: what it says of itself, and whether its loop still turns. Any thread may ask, also while it does not.

A node that begins reads its volume on its loop, which stands meanwhile: that is no reason to end it. Once it serves, a
loop that stands for long is one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import Final

TURNS_WITHIN: Final = 5.0
"""Seconds within which the loop of a node that serves has to turn."""


class Phase(Enum):
    """Where a node stands between its beginning and its end."""

    STARTING = "starting"
    RECOVERING = "recovering"
    SERVING = "serving"
    SHUT_OUT = "shut out"
    """It serves nobody any more, and begins nothing again: its operator is to stop it."""
    STOPPING = "stopping"


class Health:
    """What is known of one node. The node tells its phase on its loop; everybody may read."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        lacks: Callable[[], str] = lambda: "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`lacks`: called on the node's loop, says what it has not got and cannot serve without; "": nothing."""
        self._loop = loop
        self._lacks = lacks
        self._clock = clock
        self._state = Phase.STARTING, ""
        self._lacking = ""
        self._asked_at: float | None = None
        """Since when it is waited for the loop to turn; None: it has."""

    @property
    def phase(self) -> Phase:
        """Where the node stands."""
        return self._state[0]

    def become(self, phase: Phase, reason: str = "") -> None:
        """The node is in this phase from now on. `reason`: why, for people."""
        self._lacking = self._lacks() if phase is Phase.SERVING else ""
        self._state = phase, reason

    def look(self) -> None:
        """Asks the loop to turn, unless it was asked and has not yet: to be called every second, in one thread."""
        if self._asked_at is None:
            self._asked_at = self._clock()
            with suppress(RuntimeError):  # the loop is closed, and this process about to end
                self._loop.call_soon_threadsafe(self._on_turn)

    def stands(self) -> str:
        """Returns why the process should be ended and started anew; "": it need not."""
        asked_at = self._asked_at
        stood = 0.0 if asked_at is None else self._clock() - asked_at
        if self.phase is Phase.SERVING and stood > TURNS_WITHIN:
            return f"the broker's loop has not turned for {stood:.0f} s"
        return ""

    def unready(self) -> str:
        """Returns why no client should be sent here now; "": it serves."""
        phase, reason = self._state
        if phase is not Phase.SERVING:
            return f"{phase.value}: {reason}" if reason else phase.value
        return self.stands() or self._lacking

    def _on_turn(self) -> None:
        self._lacking = self._lacks() if self.phase is Phase.SERVING else ""
        self._asked_at = None
