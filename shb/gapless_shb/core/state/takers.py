"""Who takes a subscription, and in which order one process has asked for it (protocol: exclusive-consumers)."""

from __future__ import annotations

from typing import NamedTuple

from gapless.core.ports import ClientSession
from gapless.core.wire.messages import Subscribe, TakeLease


class Taker(NamedTuple):
    """Who asks for a subscription, or for a lease on it, or has got it."""

    instance: str
    """The connection."""
    process: str
    """Whose count the numbers are; "": the connection's alone, of an older client."""
    asked: int
    """When its application asked for this consumer; 0: not told."""
    attempt: int
    """When the client asked the broker for it; 0: it does not count."""
    again: bool = False
    """Whether it had the subscription before: a client asks again by itself after a lost link."""

    def is_of_process(self, other: Taker) -> bool:
        """Whether both are of one process, as far as that is known: then their numbers can be compared."""
        if self.process and other.process:
            return self.process == other.process
        return self.instance == other.instance

    def is_before(self, other: Taker) -> bool:
        """Whether it comes before another one of its process.

        What the application has asked for later comes later, however often each of the two was asked for again. Of one
        consumer's requests that comes later which the client has made later.
        """
        if self.asked and other.asked and self.asked != other.asked:
            return self.asked < other.asked
        return self.attempt < other.attempt


def taker_of(session: ClientSession, request: Subscribe | TakeLease) -> Taker:
    """Returns who makes a request."""
    again = request.again if isinstance(request, TakeLease) else bool(request.sid)
    return Taker(session.instance, request.process, request.asked, request.attempt, again)
