"""Chooses the address to try next, and the delay before; it remembers failures until a session opens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gapless.core.client.link.backoff import Backoff
from gapless.errors import AuthenticationError

if TYPE_CHECKING:
    from gapless.errors import GaplessError

CUT_OFF_STAYS = 60_000_000_000
"""How long a client stays where it is when every broker that it knows is cut off, in nanoseconds."""


class Addresses:
    """The addresses of a network's brokers, tried in turn. Each try has a number, which is the number of its link."""

    def __init__(self, addresses: Sequence[str], backoff: Backoff, turn: int) -> None:
        """`turn`: below the numbers of all tries, a multiple of the number of addresses."""
        self.turn = turn
        """The number of the newest try."""
        self._addresses = tuple(addresses)
        self._backoff = backoff
        self._failures: dict[str, str] = {}
        self._refusals: dict[str, GaplessError] = {}
        self._barred: set[str] = set()
        """Where the credentials are not taken: nobody is asked that twice, unless there was a session since."""
        self._cut_off: dict[str, None] = {}
        self._stays_until = 0

    @property
    def address(self) -> str:
        """The address of the newest try."""
        return self._addresses[(self.turn - 1) % len(self._addresses)]

    @property
    def count(self) -> int:
        """How many different addresses there are."""
        return len(set(self._addresses))

    def next(self) -> str:
        """Begins the next try, and returns its address."""
        assert len(self._barred) < self.count
        self.turn += 1
        while self.address in self._barred:
            self.turn += 1
        return self.address

    def delay(self) -> int:
        """Returns how long to wait before the next try, in nanoseconds."""
        return self._backoff.next()

    def on_open(self) -> None:
        """A session is open: forgets the failures of addresses."""
        self._failures.clear()
        self._refusals.clear()
        self._barred.clear()

    def on_steady(self) -> None:
        """The last session was long enough: the next try need not wait long."""
        self._backoff.reset()

    def on_failure(self, reason: str) -> str:
        """The address cannot be reached.

        When every address has failed, returns all reasons and begins anew; else "".
        """
        self._failures[self.address] = reason
        if len(self._failures) < self.count:
            return ""
        reasons = "; ".join(why if address in why else f"{address}: {why}" for address, why in self._failures.items())
        self._failures = {address: why for address, why in self._failures.items() if address in self._barred}
        return reasons

    @property
    def are_barred(self) -> bool:
        """Whether an address does not take the credentials."""
        return bool(self._barred)

    def on_served(self) -> None:
        """The broker at the address is not cut off. What others were is long ago when this one is."""
        self._cut_off.clear()

    def leaves_cut_off(self, now: int) -> bool:
        """The broker at the address is cut off from its network. Returns whether to try another one.

        Where all are, one is as good as another: then the client stays for a while.
        """
        if self.count == 1 or now < self._stays_until:
            return False
        self._cut_off[self.address] = None
        if len(self._cut_off) < self.count:
            return True
        self._cut_off.clear()
        self._stays_until = now + CUT_OFF_STAYS
        return False

    def on_refusal(self, error: GaplessError) -> bool:
        """The address refuses this client for good. Returns whether every address has."""
        self._refusals[self.address] = error
        if isinstance(error, AuthenticationError):
            self._barred.add(self.address)
        return len(self._refusals) == self.count
