"""Gaps: in order, and only where a policy, an operator or the application itself has caused them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from gapless.core.client import Gap
from gapless.core.wire.messages import GapReason
from gapless_sim.oracles.judge import Judge
from gapless_sim.recording.model import begins_of

if TYPE_CHECKING:
    from gapless.core.client import Item
    from gapless.core.client.link.effects import Attached
    from gapless.core.stream.ticks import PubendId, Tick
    from gapless_sim.recording.accounts import Account, Share
    from gapless_sim.world.consumer import Consumer

BELOW_OWN_ACKNOWLEDGEMENT = "oracle.gap below what the application acknowledged itself"
BEFORE_THE_START = "oracle.gap before the start"
AFTER_A_LAPSE = "oracle.gap after a lapse"
OF_DAMAGE = "oracle.gap of what an operator gave up"
SOMETIMES = (
    BELOW_OWN_ACKNOWLEDGEMENT,
    "oracle.gap of early release",
    "oracle.gap at a retired broker",
    BEFORE_THE_START,
    AFTER_A_LAPSE,
    OF_DAMAGE,
)


class I5GapLegal(Judge):
    """A gap covers what its pubend lost, and it has a cause.

    Early release is on; or the application had acknowledged all of it; or its SHB was retired; or the
    subscription began with a token of what was lost already, or was resumed after it had expired. Or a record
    could not be read, and an operator has given it up: never before that, and never of anything else.

    An event may come to light below a gap that was delivered; how far its causes excuse that, each consumer's account
    notes (I3).
    """

    name = "I5"

    def attached(self, consumer: Consumer, result: Attached, begins: Mapping[PubendId, Tick]) -> None:
        """Up to where it begins it need not get again what those before it got."""
        account = self.model.accounts[consumer.row.number]
        for pubend, tick in begins_of(consumer, begins).items():
            account.excuse(consumer, pubend, account.excused_upto(pubend, tick))

    def handed_out(self, consumer: Consumer, item: Item) -> None:
        """Looks for who has caused it."""
        if not isinstance(item, Gap):
            return
        account = self.model.accounts[consumer.row.number]
        share = self.model.share_of(account, item.pubend)
        if share is None:
            self.fail(f"{consumer.lane} was told {item}, and the pubend never was")
        if item.reason == "damaged":
            self._judge_damage(consumer, share, item)
            account.excuse(consumer, item.pubend, share.history.given_up.within(item.start, item.end))
            return
        if item.reason == GapReason.TOO_LATE.value:  # which I11 judges
            account.excuse(consumer, item.pubend, [(item.start, item.end)])
            return
        upto = min(item.end, share.history.lost)
        if share.history.sound and account.broker not in self.model.damaged_brokers:
            upto = min(upto, self._judge(consumer, account, share, item))
        account.excuse(consumer, item.pubend, [(item.start, upto)])

    def _judge_damage(self, consumer: Consumer, share: Share, gap: Gap) -> None:
        """It has something of what was given up, and no event that matches and was not; silence it may have."""
        span = f"({gap.start}, {gap.end}] of {gap.pubend} ({gap.reason})"
        history = share.history
        if not history.sound:
            return
        if not history.given_up.within(gap.start, gap.end):
            self.fail(f"{consumer.lane} was told of a gap {span}, of which no operator has given up anything")
        for lo, hi in history.given_up.gaps(max(gap.start, history.lost), gap.end):
            kept = share.first_between(lo, hi)
            if kept is not None:
                self.fail(f"{consumer.lane} was told of a gap {span}, and nobody has given up its event at {kept}")
        self.world.sometimes(OF_DAMAGE)

    def _judge(self, consumer: Consumer, account: Account, share: Share, item: Gap) -> Tick:
        """Up to where whoever has caused it excuses what nobody knows to be logged there."""
        span = f"({item.start}, {item.end}] of {item.pubend} ({item.reason})"
        # It may end behind a place of events, where nothing can be lost.
        if share.history.has_between(share.history.lost, item.end):
            self.fail(f"{consumer.lane} was told of a gap {span}, and lost is up to {share.history.lost}")
        causes = list(self._causes(account, share, item))
        if not causes:
            self.fail(
                f"{consumer.lane} was told of a gap {span}, although nothing is released early; "
                f"it began behind {share.start} and has acknowledged up to {share.acked}"
            )
        if causes[0][0] in (BEFORE_THE_START, AFTER_A_LAPSE):
            share.opening_gap = item.end
        self.world.sometimes(causes[0][0])
        return max(upto for _, upto in causes)

    def _causes(self, account: Account, share: Share, gap: Gap) -> Iterator[tuple[str, Tick]]:
        """All who may have caused it, each with the end of what it excuses."""
        if gap.end - 1 <= share.acked:  # a gap that ends at a place of events is delivered up to the tick behind it
            yield BELOW_OWN_ACKNOWLEDGEMENT, gap.end
        if account.shb in self.model.retired_shbs:
            yield "oracle.gap at a retired broker", gap.end
        if account.resumed:
            yield from _opening(share, gap, AFTER_A_LAPSE)
        if account.may_begin_lost:
            yield from _opening(share, gap, BEFORE_THE_START)
        counted_from = self.model.members.get(share.history.pubend, {}).get(account.shb, 0)
        if gap.start < counted_from and not share.history.has_between(counted_from, gap.end):
            yield "oracle.gap before the broker was counted", counted_from
        if not account.durable:
            # One that is not durable begins anew with each session, with a token of where it was.
            yield BEFORE_THE_START, gap.end
        if self._released_early(share, gap):
            yield "oracle.gap of early release", gap.end

    def _released_early(self, share: Share, gap: Gap) -> bool:
        """Whether everything in it can have been too old: younger events are there for everybody."""
        return self.model.ages.is_early(share.history, min(gap.end, share.history.lost))


def _opening(share: Share, gap: Gap, cause: str) -> Iterator[tuple[str, Tick]]:
    """Nothing was kept for it before it was there: its first gap, in as many pieces as it takes."""
    if gap.start == share.opening_gap or share.first_between(share.start or 0, gap.start) is None:
        yield cause, gap.end
    elif not share.history.has_between(share.lost_at_start, gap.end):
        yield cause, share.lost_at_start
