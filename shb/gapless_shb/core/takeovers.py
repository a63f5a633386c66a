"""Who takes a subscription, or a lease, from somebody else (protocol: exclusive-consumers).

A request may have lain somewhere: at a broker that stood still while the link ended on which it came, in its socket,
or as mail on the way to the home. Nobody waits for it any more, and the client may consume at another broker. So a
request takes nothing from somebody else before it was confirmed:

* Of two requests of one process the one that it made later holds, over whichever connections and brokers they come, and
  also if that one has left since. Only who waits is not overtaken: that he gets it later is what he wants.
* Any other one is refused once, with a number; whoever still wants it repeats it with that number. A request whose
  link has ended is not repeated. A confirmation may have lain, too: where it comes late, or somebody else has got the
  subscription since it was asked for, it is asked for once more. Somebody whose link has ended still counts, until he
  has left in order: he may be on his way back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from gapless.core.ports import ClientSession
from gapless.core.stream.ticks import tick_at, time_at
from gapless.core.wire.messages import Code, InUse, Subscribe, TakeLease
from gapless_shb.core.admission import RefusedError

SECOND: Final = 1_000_000_000
WAIT_FIRST: Final = 2 * SECOND
"""A confirmation that comes later may have lain somewhere; the next one may take twice as long."""
WAIT_MOST: Final = 32 * SECOND
FORGET: Final = 64 * SECOND
"""Who has not confirmed by then is asked from the beginning."""


class Asker(NamedTuple):
    """Who asks for a subscription, or for a lease on it, or has got it."""

    instance: str
    """The connection."""
    process: str
    """Whose count the attempt is; "": the connection's alone, of an older client."""
    attempt: int


@dataclass(slots=True)
class Confirmation:
    """What somebody was asked to repeat."""

    number: int
    asked_at: int
    wait: int


class Takeovers:
    """The confirmations that an SHB waits for."""

    def __init__(self) -> None:
        self._number = 0
        self._asked: dict[int, dict[tuple[str, int], Confirmation]] = {}
        """By subscription, and by connection and number of the request: a connection may have several."""
        self._latest: dict[int, Asker] = {}
        """Who has got each subscription last, in this life of the broker."""
        self._left: set[int] = set()
        """The subscriptions that the last one has left in order: he does not come back for them."""

    def check(self, sid: int, session: ClientSession, request: Subscribe | TakeLease, now: int, wall: int) -> None:
        """Somebody wants what somebody else has. Raises RefusedError unless he has confirmed it just now.

        A client that is too old to name its process cannot confirm anything.
        """
        if not request.process:
            return
        self._forget_old(now)
        who = session.instance, request.request
        asked = self._asked.get(sid, {}).pop(who, None)
        wait = WAIT_FIRST
        if asked is not None and asked.number == request.confirms:
            if now - asked.asked_at <= asked.wait:
                return
            wait = min(2 * asked.wait, WAIT_MOST)
        self._number = max(self._number + 1, wall * 1000)  # of no former life of this broker
        self._asked.setdefault(sid, {})[who] = Confirmation(self._number, now, wait)
        reason = "somebody else has it: ask again to take it over"
        raise RefusedError(Code.RETRY, reason, confirm=self._number)

    def check_order(self, sid: int, asker: Asker, in_use: InUse) -> None:
        """Raises RefusedError if the same process has got the subscription by a later request."""
        if in_use is not InUse.WAIT and self.is_overtaken(sid, asker):
            reason = f"a later request of the same {'process' if asker.process else 'client'} came first"
            raise RefusedError(Code.TAKEN_OVER, reason)

    def is_overtaken(self, sid: int, asker: Asker) -> bool:
        """Whether the same process has got the subscription by a later request: counts of others say nothing."""
        latest = self._latest.get(sid)
        if latest is None:
            return False
        knows = asker.process and latest.process
        is_same = asker.process == latest.process if knows else asker.instance == latest.instance
        return is_same and asker.attempt < latest.attempt

    def taken(self, sid: int, asker: Asker) -> None:
        """Somebody has got a subscription.

        Who was asked to confirm before would take it from somebody of whom he has not heard.
        """
        self._asked.pop(sid, None)
        self._latest[sid] = asker
        self._left.discard(sid)

    def left(self, sid: int) -> None:
        """The consumer of a subscription has left it in order."""
        self._left.add(sid)

    def is_expected(self, sid: int, asker: Asker) -> bool:
        """Whether nobody has a subscription because the link of somebody else has ended, who may come back for it."""
        latest = self._latest.get(sid)
        return latest is not None and sid not in self._left and latest.instance != asker.instance

    def forget(self, sid: int) -> None:
        """A subscription is gone."""
        self._asked.pop(sid, None)
        self._latest.pop(sid, None)
        self._left.discard(sid)

    def _forget_old(self, now: int) -> None:
        for sid, asked in list(self._asked.items()):
            for who in [one for one, each in asked.items() if now - each.asked_at >= FORGET]:
                del asked[who]
            if not asked:
                del self._asked[sid]


def asker_of(session: ClientSession, request: Subscribe | TakeLease) -> Asker:
    """Returns who makes a request."""
    return Asker(session.instance, request.process, request.attempt)


def taken_over_by(client_id: str, instance: str, process: str, wall: int) -> str:
    """Returns who has taken something over, and when."""
    of = f" of process {process[:8]}" if process else ""
    return (
        f"taken over by connection {instance[:8]}{of}, client {client_id!r}, at"
        f" {time_at(tick_at(wall)):%Y-%m-%d %H:%M:%S} UTC"
    )
