"""What each subscription still needs of each pubend (protocol: positions).

    start       from where it is owed events; fixed when it is created
    since       from where constream and PFS cover it; FOREVER while it is still joining
    acked       the application's position, as it said it; quiet_from: the last event at or below it
    passed      how far the SHB, going on from there, found nothing to send
    last_tick   the last tick the PFS holds for it
    released    up to where it needs nothing any more; never falls

It is *idle* when there is nothing above what it acknowledged or passed: then released follows
latestDelivered.
"""

from __future__ import annotations

from dataclasses import dataclass

from gapless.core.stream.ticks import FOREVER, Tick


@dataclass(slots=True)
class SubscriptionPosition:
    """One subscription on one pubend."""

    start: Tick
    since: Tick = FOREVER
    acked: Tick = 0
    quiet_from: Tick = 0
    passed: Tick = 0
    last_tick: Tick = 0
    sent: Tick = 0
    """The last event or gap that its consumer was sent, or where that cannot be known, where it went on from:
    nothing was sent above."""
    released: Tick = 0
    held: bool = False
    reading: bool = False
    """A subscription that is not durable is not attached yet, or its reader stands below the head: the PFS does
    not know its place."""
    changed: bool = False
    """What must be persisted changed since the last checkpoint."""

    @property
    def done_upto(self) -> Tick:
        """Everything up to here is done with: acknowledged, passed or released."""
        return max(self.acked, self.passed, self.released)

    @property
    def is_idle(self) -> bool:
        """Whether nothing above what is done with concerns the subscription."""
        done_upto = self.done_upto
        return not self.reading and self.since <= done_upto and self.last_tick <= done_upto

    def attach(self, at: Tick, head: Tick) -> None:
        """A consumer goes on from `at`: what it may hold unacknowledged is what was sent up to there.

        If the PFS has nothing for it above what is done with and what was sent, it moved on by silence alone. Else
        it may have been sent more in an earlier life of this broker, or have jumped over what it was never sent.
        """
        self.reading = False
        handed = max(self.done_upto, self.sent)
        only_silence = at <= head and self.since <= handed and self.last_tick <= handed
        self.sent = min(self.sent, at) if only_silence else at

    def pass_over(self, upto: Tick) -> None:
        """The SHB went on to `upto`: if all that was sent is done with, nothing more is needed up to there."""
        if self.done_upto >= self.sent:
            self.passed = max(self.passed, upto)

    def acknowledge(self, tick: Tick, event: Tick) -> None:
        """The application is done with everything up to `tick`; `event` was the last event of that."""
        if tick > self.acked:
            self.acked = tick
            self.quiet_from = max(self.quiet_from, min(event, tick))
            self.changed = True

    def release(self, latest_delivered: Tick, head: Tick, handed_over: Tick = 0) -> Tick:
        """Moves `released` up as far as it may go, and returns it.

        `handed_over` is the released(p) of the newest checkpoint, durable or not yet: one that is quiet is part
        of what was said there, and must remember it when its next event comes before the checkpoint is durable.
        """
        if self.is_idle:
            # One that has a hold goes on too, or it would never reach where its SHB is counted and give it back.
            floor = latest_delivered if self.held else max(latest_delivered, handed_over)
        else:
            floor = min(max(self.acked, self.passed), head, latest_delivered)
        self.released = max(self.released, floor)
        return self.released

    def silent(self) -> tuple[Tick, Tick]:
        """(lo, hi]: silence to every reader of the subscription, whatever the log still knows of it."""
        return self.quiet_from, max(self.quiet_from, self.released)

    def join_again(self) -> None:
        """What constream and PFS know does not count for it any more (another filter, another start)."""
        self.since = FOREVER
        self.changed = True
