"""Room for frames that have begun to arrive: one budget for all links of a listener.

A frame announces its length in front. One that is not all there at once claims that much room before more of it is
read; if there is none, its link is not read until those before it are done: TCP slows the other end down. So whoever
has room can always finish, and what all links together hold of unfinished frames is bounded. Who does not finish,
while others wait, is ended.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from gapless import loggers

logger = loggers.logger(__name__)

TOLD_EVERY = 60.0
"""Seconds between two warnings that links wait for room."""


class Occupant(Protocol):
    """A link, as the room sees it."""

    def go_on(self) -> None:
        """There is room for the frame now: read again."""

    def give_up(self, reason: str) -> None:
        """The frame is not waited for any more."""


class Room:
    """What the unfinished frames of a listener's links may take."""

    def __init__(self, address: str, size: int, patience: float) -> None:
        """`size` bytes; who holds some for `patience` seconds is ended when others wait."""
        self._address = address
        self._size = size
        self._patience = patience
        self._reserved: dict[Occupant, tuple[int, float]] = {}
        """Bytes, and since when."""
        self._taken = 0
        self._waiting: dict[Occupant, tuple[int, int]] = {}
        """Bytes that are wanted, and those that are there already; in the order of their coming."""
        self._there = 0
        self._told_at = float("-inf")
        self._timer: asyncio.TimerHandle | None = None

    def claim(self, occupant: Occupant, wanted: int, there: int) -> bool:
        """Room for a frame of which some bytes are there. False: not now, wait for `go_on` or `give_up`.

        A frame that is larger than the room has it for itself alone.
        """
        now = asyncio.get_running_loop().time()
        if not self._waiting and self._fits(wanted):
            self._give(occupant, wanted, now)
            return True
        if now - self._told_at > TOLD_EVERY:
            self._told_at = now
            logger.warning(
                "%s: unfinished frames take %d bytes of the %d that they may take; further ones wait",
                self._address,
                self._taken,
                self._size,
            )
        self._waiting[occupant] = wanted, there
        self._there += there
        if self._there > self._size:
            reason = f"unfinished frames of all connections take {self._taken + self._there} bytes already"
            self.leave(occupant)
            occupant.give_up(reason)
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._patience, self._press)
        return False

    def leave(self, occupant: Occupant) -> None:
        """A frame is finished, or its link is over: who waits longest goes on."""
        claim = self._reserved.pop(occupant, None)
        if claim is not None:
            self._taken -= claim[0]
        waiting = self._waiting.pop(occupant, None)
        if waiting is not None:
            self._there -= waiting[1]
        while self._waiting:
            first, (wanted, there) = next(iter(self._waiting.items()))
            if not self._fits(wanted):
                return
            del self._waiting[first]
            self._there -= there
            self._give(first, wanted, asyncio.get_running_loop().time())
            first.go_on()

    def _fits(self, wanted: int) -> bool:
        return not self._reserved or self._taken + wanted <= self._size

    def _give(self, occupant: Occupant, wanted: int, now: float) -> None:
        self._reserved[occupant] = wanted, now
        self._taken += wanted

    def _press(self) -> None:
        """Some have waited for long: who holds room for as long has had his time."""
        self._timer = None
        if not self._waiting:
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        for occupant, (wanted, since) in list(self._reserved.items()):
            if now - since >= self._patience:
                self.leave(occupant)
                reason = f"a frame of {wanted} bytes was not finished within {self._patience:g} s, and others wait"
                occupant.give_up(reason)
        if self._waiting:
            self._timer = loop.call_later(self._patience / 4, self._press)
