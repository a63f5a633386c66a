"""What each subscription still needs of each pubend (protocol: positions).

    start       from where it is owed events; fixed when it is created
    since       from where constream and PFS cover it; FOREVER while it is still joining
    acked       the position that the application has acknowledged; acked_event: the last event at or below it
    nothing_upto how far the SHB, going on from there, found nothing to send
    last_tick   the last tick that the PFS holds for it
    released    up to where it needs nothing any more; never falls

A position is *idle* if nothing above what it acknowledged or passed concerns it. Its released then follows
latestDelivered.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from gapless.core.stream.ticks import FOREVER, Tick
from gapless_shb.core.state.counted_before import CountedBefore


@dataclass(slots=True)
class SubscriptionPosition:
    """The position of one subscription on one pubend."""

    start: Tick
    since: Tick = FOREVER
    acked: Tick = 0
    acked_event: Tick = 0
    nothing_upto: Tick = 0
    last_tick: Tick = 0
    sent: Tick = 0
    """The last event or gap that was sent to its consumer. If that is unknown, where the consumer went on from. Nothing
    above it was sent."""
    sent_before: Tick = 0
    """The last one that was sent to consumers before this one, in this life of the broker."""
    released: Tick = 0
    held: bool = False
    reading: bool = False
    """Only for a subscription that is not durable: it is not attached yet, or its reader stands below the head. The PFS
    has nothing of it."""
    sought: bool = False
    """Whether its pubend is being asked where it starts: nothing is served on it before that is known."""
    guest: bool = False
    """Whether another SHB keeps the position, and holds the log back for it."""
    changed: bool = False
    """Whether durable values have changed since the last checkpoint."""
    before: CountedBefore | None = None
    """What readers found up to `since`, while any of it may be due."""

    @property
    def done_upto(self) -> Tick:
        """The subscription is done with everything up to here: acknowledged, passed or released."""
        return max(self.acked, self.nothing_upto, self.released)

    @property
    def is_idle(self) -> bool:
        """Whether nothing above `done_upto` concerns the subscription."""
        done_upto = self.done_upto
        return not self.reading and not self.guest and self.since <= done_upto and self.last_tick <= done_upto

    def attach(self, at: Tick, head: Tick) -> None:
        """A consumer goes on from `at`. Sets `sent`: up to where it may hold unacknowledged events.

        If the PFS has nothing for it above `done_upto` and `sent`, the position has moved by silence alone, and `sent`
        stays. Otherwise the consumer may have been sent more in a former life of this broker, or may have skipped
        events that it was never sent. Then `sent` is `at`.
        """
        self.reading = False
        self.sent_before = max(self.sent_before, self.sent)
        handed = max(self.done_upto, self.sent)
        only_silence = at <= head and self.since <= handed and self.last_tick <= handed
        self.sent = min(self.sent, at) if only_silence else at

    def pass_over(self, upto: Tick) -> None:
        """The SHB went on to `upto`. If the consumer is done with all that was sent, nothing up to there is needed."""
        if upto > self.nothing_upto and self.done_upto >= self.sent:
            self.nothing_upto = upto
            if upto >= self.since:
                self.before = None

    def acknowledge(self, tick: Tick, event: Tick) -> None:
        """The application is done with everything up to `tick`; `event` is the last event of that."""
        if tick > self.acked:
            self.acked = tick
            self.acked_event = max(self.acked_event, min(event, tick))
            assert self.acked_event <= self.acked, "what was acknowledged last is not above the position"
            self.changed = True
            if tick >= self.since:
                self.before = None

    def release(self, latest_delivered: Tick, head: Tick, handed_over: Tick = 0) -> Tick:
        """Moves `released` up as far as it may go, and returns it.

        `handed_over`: the released(p) of the newest checkpoint, durable or not yet. That value includes every idle
        position. So an idle position must keep it, even if its next event comes before that checkpoint is durable.
        """
        if self.is_idle:
            # A position with a hold follows latestDelivered, too. Otherwise it would never come far enough to drop the
            # hold.
            floor = latest_delivered if self.held else max(latest_delivered, handed_over)
        else:
            floor = min(max(self.acked, self.nothing_upto), head, latest_delivered)
        self.released = max(self.released, floor)
        assert self.released >= floor, "released never falls"
        return self.released

    def found_before(self, start: Tick, upto: Tick, ticks: Sequence[Tick], *, whole: bool) -> None:
        """A reader found these events in (start, upto]; what of it lies above `since` is in the PFS.

        Most readers find nothing: then nothing is kept, and the position passes on.
        """
        upto = min(upto, self.since)
        ticks = ticks[: bisect_right(ticks, upto)]
        if start < upto and self.done_upto < upto and (ticks or self.before is not None):
            if self.before is None:
                self.before = CountedBefore(start)
            self.before.note(start, upto, ticks, whole=whole)

    def silent(self) -> tuple[Tick, Tick]:
        """Returns (lo, hi]: silence for every reader of the subscription, whatever is left of the log."""
        return self.acked_event, max(self.acked_event, self.released)

    def begin_anew(self, at: Tick) -> None:
        """The subscription has another filter from `at` on, which is where it stands: nothing before concerns it.

        What the former filter found above `at` says nothing of the new one. Nor is it known what there was for that
        below `at`: a consumer that goes back behind it is told of what is lost there.
        """
        self.start = self.acked = self.acked_event = self.nothing_upto = self.sent = at
        self.sent_before = 0
        self.join_again()

    def join_again(self) -> None:
        """Lets the subscription join again: constream and PFS knew it with another filter or another start."""
        self.since = FOREVER
        self.before = None
        self.changed = True


def last_event(position: SubscriptionPosition, head: Tick, tick: Tick) -> Tick:
    """Returns the last event of a subscription at or below a tick; if it is unknown, a later tick, never an earlier.

    Ticks between the result and `tick` count as silence from now on, whatever becomes of the log. So no matching event
    may stand there. The PFS knows only the ticks after `since` and up to the head, and of these this function needs the
    last event. After a crash of this broker an application may be ahead of the head.
    """
    if tick > head:
        return tick
    return min(tick, max(position.last_tick, position.since))
