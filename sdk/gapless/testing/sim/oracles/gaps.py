"""Gaps: told in order, and only where a policy, an operator or the application itself has caused them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.client import Gap
from gapless.testing.sim.oracles.judging import Judge

if TYPE_CHECKING:
    from gapless.core.client import Item
    from gapless.testing.sim.accounts import Account, Share
    from gapless.testing.sim.consumer import Consumer

BELOW_OWN_ACKNOWLEDGEMENT = "oracle.gap below what the application acknowledged itself"
PROBES = (
    BELOW_OWN_ACKNOWLEDGEMENT,
    "oracle.gap of early release",
    "oracle.gap at a retired broker",
    "oracle.gap before the start",
    "oracle.gap after a lapse",
)


class I5GapLegal(Judge):
    """A gap tells of what its pubend lost, and somebody has caused it.

    Early release is on; or the application had acknowledged all of it; or its SHB was retired; or the
    subscription began with a token of what was lost already, or was resumed after its lease had run out.
    """

    name = "I5"

    def told(self, consumer: Consumer, item: Item) -> None:
        """Looks for who has caused it."""
        if not isinstance(item, Gap):
            return
        account = self.model.accounts[consumer.row.number]
        share = self.model.share_of(account, item.pubend)
        if share is None:
            self.fail(f"{consumer.lane} was told {item}, and the pubend never was")
        if not share.history.sound or account.broker in self.model.damaged_brokers:
            return
        span = f"({item.start}, {item.end}] of {item.pubend} ({item.reason})"
        # It may be drawn out to the end of a time in which the PHB was down, where nothing can be lost.
        if share.history.has_between(share.history.lost, item.end):
            self.fail(f"{consumer.lane} was told of a gap {span}, and lost is up to {share.history.lost}")
        probe = self._cause(account, share, item)
        if probe is None:
            self.fail(
                f"{consumer.lane} was told of a gap {span}, although nothing is released early; "
                f"it began behind {share.start} and has acknowledged up to {share.acked}"
            )
        self.world.probe(probe)

    def _cause(self, account: Account, share: Share, gap: Gap) -> str | None:
        if gap.end <= share.acked:
            return BELOW_OWN_ACKNOWLEDGEMENT
        if account.shb in self.model.retired_shbs:
            return "oracle.gap at a retired broker"
        opening = (
            not share.history.has_between(share.lost_at_start, gap.end)
            or gap.start == share.opening_gap
            or share.first_between(share.start or 0, gap.start) is None
        )
        if account.resumed and opening:
            share.opening_gap = gap.end
            return "oracle.gap after a lapse"
        if account.row.start_token is not None and opening:
            # Nothing was kept for it before it was there: its first gap, in as many pieces as it takes.
            share.opening_gap = gap.end
            return "oracle.gap before the start"
        counted_from = self.model.members.get(share.history.pubend, {}).get(account.shb, 0)
        if gap.start < counted_from and not share.history.has_between(counted_from, gap.end):
            return "oracle.gap before the broker was counted"
        if not account.durable:
            # One that is not durable begins anew with each session, with a token of where it was.
            return "oracle.gap before the start"
        if self._released_early(share, gap):
            return "oracle.gap of early release"
        return None

    def _released_early(self, share: Share, gap: Gap) -> bool:
        """Whether all that it tells of can have been too old: what is younger is there, whoever wants it."""
        return self.model.is_early(share.history, min(gap.end, share.history.lost))
