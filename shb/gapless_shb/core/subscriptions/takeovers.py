"""Who takes a subscription, or a lease, from somebody else (protocol: exclusive-consumers).

A request may have lain somewhere: at a broker that stood still while the link ended on which it came, in its socket,
or as mail on the way to the home. Nobody waits for it any more, and the client may consume at another broker. So a
request takes nothing from somebody else before it was confirmed:

* Of two consumers of one process that one holds for which its application asked later, over whichever connections and
  brokers their requests come, and however often the clients repeat them. The earlier one, which had the subscription,
  does not get it again after the later one, also if that has left since; and if it got it all the same, because a
  broker has restarted and remembers nobody, the later one takes it back. Only who waits is not overtaken: that he gets
  it later is what he wants. Who has had nothing yet may have it once the later one has left in order.
* A request that its process made before the one that got the subscription last may have lain somewhere, also if its
  application asked for it later: it has to be confirmed.
* Any other one is refused once, with a number; whoever still wants it repeats it with that number. A request whose
  link has ended is not repeated. A confirmation may have lain, too: where it comes late, or somebody else has got the
  subscription since it was asked for, it is asked for once more. Somebody whose link has ended still counts, until he
  has left in order: he may be on his way back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from gapless.core.ports import ClientSession
from gapless.core.stream.ticks import tick_at, time_at
from gapless.core.wire.messages import Code, InUse, Subscribe, TakeLease
from gapless_shb.core.state.refusals import RefusedError
from gapless_shb.core.state.takers import Taker, taker_of

SECOND: Final = 1_000_000_000
WAIT_FIRST: Final = 2 * SECOND
"""A confirmation that comes later may have lain somewhere; the next one may take twice as long."""
WAIT_MOST: Final = 32 * SECOND
FORGET: Final = 64 * SECOND
"""Who has not confirmed by then is asked from the beginning."""


@dataclass(slots=True)
class Confirmation:
    """What somebody was asked to repeat."""

    number: int
    asked_at: int
    wait: int


@dataclass(slots=True)
class Taken:
    """A subscription that somebody has got, in this life of the broker."""

    latest: Taker
    """Who has got it last."""
    is_left: bool = False
    """Whether that one has left it in order, and does not come back for it."""
    awaited: dict[tuple[str, int], Confirmation] = field(default_factory=dict)
    """What others were asked to confirm, by connection and number of the request: a connection may have several."""


class Takeovers:
    """Who has got each subscription last, and the confirmations that an SHB waits for."""

    def __init__(self) -> None:
        self._number = 0
        self._taken: dict[int, Taken] = {}
        """By subscription."""

    def check(self, sid: int, session: ClientSession, request: Subscribe | TakeLease, now: int, wall: int) -> None:
        """Somebody is about to get a subscription, which another one may have.

        Raises RefusedError if that one comes later, or as long as it is not sure that this one is still wanted.
        """
        taker = taker_of(session, request)
        if request.in_use is not InUse.WAIT and self.is_overtaken(sid, taker):
            reason = f"a later request of the same {'process' if taker.process else 'client'} came first"
            raise RefusedError(Code.TAKEN_OVER, reason)
        if self._has_to_confirm(sid, taker, request.in_use):
            self._check_confirmed(sid, session, request, now, wall)

    def is_overtaken(self, sid: int, taker: Taker) -> bool:
        """Whether the same process has asked later, and has got the subscription."""
        latest = self._latest_of_process(sid, taker)
        if latest is None or not taker.is_before(latest):
            return False
        return taker.again or taker.asked == latest.asked or not self._taken[sid].is_left

    def in_use(self, sid: int, taker: Taker, in_use: InUse) -> InUse:
        """Returns what becomes of a request if somebody else has the subscription.

        A client that asks again takes nothing back from somebody else, but for what its process has asked for before.
        """
        latest = self._latest_of_process(sid, taker)
        takes_back = latest is not None and taker.again and 0 < latest.asked < taker.asked
        return InUse.TAKEOVER if takes_back else in_use

    def taken(self, sid: int, taker: Taker) -> None:
        """Somebody has got a subscription.

        Who was asked to confirm before would take it from somebody of whom he has not heard.
        """
        self._taken[sid] = Taken(taker)

    def left(self, sid: int) -> None:
        """The consumer of a subscription has left it in order."""
        if sid in self._taken:
            self._taken[sid].is_left = True

    def forget(self, sid: int) -> None:
        """A subscription is gone."""
        self._taken.pop(sid, None)

    def _latest_of_process(self, sid: int, taker: Taker) -> Taker | None:
        taken = self._taken.get(sid)
        return taken.latest if taken is not None and taker.is_of_process(taken.latest) else None

    def _has_to_confirm(self, sid: int, taker: Taker, in_use: InUse) -> bool:
        """Whether nobody may wait for a request any more, and somebody else has the subscription, or may come back."""
        taken = self._taken.get(sid)
        if taken is None:
            return False
        latest = taken.latest
        if in_use is not InUse.WAIT and taker.is_of_process(latest) and taker.attempt < latest.attempt:
            return True
        return not taken.is_left and latest.instance != taker.instance

    def _check_confirmed(
        self, sid: int, session: ClientSession, request: Subscribe | TakeLease, now: int, wall: int
    ) -> None:
        """Raises RefusedError unless it was confirmed just now: who is too old to name its process cannot do that."""
        if not request.process:
            return
        before, who = self._taken[sid].awaited, (session.instance, request.request)
        awaited = {by: asked for by, asked in before.items() if now - asked.asked_at < FORGET}
        asked = awaited.pop(who, None)
        self._taken[sid].awaited = awaited
        wait = WAIT_FIRST
        if asked is not None and asked.number == request.confirms:
            if now - asked.asked_at <= asked.wait:
                return
            wait = min(2 * asked.wait, WAIT_MOST)
        self._number = max(self._number + 1, wall * 1000)  # of no former life of this broker
        awaited[who] = Confirmation(self._number, now, wait)
        reason = "somebody else has it: ask again to take it over"
        raise RefusedError(Code.RETRY, reason, confirm=self._number)


def taken_over_by(client_id: str, taker: Taker, wall: int) -> str:
    """Returns who has taken something over, and when."""
    of = f" of process {taker.process[:8]}" if taker.process else ""
    return (
        f"taken over by connection {taker.instance[:8]}{of}, client {client_id!r}, at"
        f" {time_at(tick_at(wall)):%Y-%m-%d %H:%M:%S} UTC"
    )
