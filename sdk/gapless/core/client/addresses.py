"""Which address to try next, and when: what is known of each since a session was last open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gapless.core.client.backoff import Backoff

if TYPE_CHECKING:
    from gapless.errors import GaplessError


class Addresses:
    """The addresses of a network's brokers, tried in turn; each try has a number, which is its link's."""

    def __init__(self, addresses: Sequence[str], backoff: Backoff) -> None:
        self.turn = 0
        """The number of the newest try."""
        self._addresses = tuple(addresses)
        self._backoff = backoff
        self._failures: dict[str, str] = {}
        self._refusals: dict[str, GaplessError] = {}

    @property
    def address(self) -> str:
        """What the newest try is for."""
        return self._addresses[(self.turn - 1) % len(self._addresses)]

    def next(self) -> str:
        """Begins the next try; returns its address."""
        self.turn += 1
        return self.address

    def delay(self) -> int:
        """How long to wait before the next try, in nanoseconds."""
        return self._backoff.next()

    def on_open(self) -> None:
        """A session is open: what was known of the addresses is old."""
        self._failures.clear()
        self._refusals.clear()

    def on_steady(self) -> None:
        """The session that is over was a good one: the next try need not wait long."""
        self._backoff.reset()

    def on_failure(self, reason: str) -> str:
        """This address cannot be reached. Returns all reasons once every address has one, and begins anew."""
        self._failures[self.address] = reason
        if len(self._failures) < len(set(self._addresses)):
            return ""
        reasons = "; ".join(why if address in why else f"{address}: {why}" for address, why in self._failures.items())
        self._failures.clear()
        return reasons

    def on_refusal(self, error: GaplessError) -> bool:
        """This address refuses for good. Returns whether every address has."""
        self._refusals[self.address] = error
        return len(self._refusals) == len(set(self._addresses))
