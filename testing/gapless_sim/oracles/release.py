"""The release of events: nothing goes that somebody needs, and nobody takes back what he said he is done with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gapless_sim.oracles.judge import Judge
from gapless_sim.recording.pubend_logs import chops
from gapless_sim.world.options import SECOND

if TYPE_CHECKING:
    from gapless.core.network import facts as routing
    from gapless.core.ports import Operation
    from gapless.core.stream.knowledge import Knowledge
    from gapless.core.stream.ticks import PubendId, ShbId, Tick
    from gapless_sim.recording.accounts import Account, History
    from gapless_sim.recording.model import Model
    from gapless_sim.world.broker import SimBroker


YIELDED = 5 * SECOND
"""Within this time after space was low a release may still come about that was decided then."""


class I8Release(Judge):
    """An event is lost only when no subscription needs it, or it is too old and in every PFS; progress never falls."""

    name = "I8"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._judged: dict[PubendId, Tick] = {}
        """Up to where a release was found to be right."""
        self._progress: dict[tuple[ShbId, PubendId], tuple[Tick, Tick]] = {}

    def written(self, broker: SimBroker, operations: Sequence[Operation]) -> None:
        """A log is about to be shortened."""
        for pubend, upto in chops(operations):
            self._judge(pubend, upto)

    def known(self, broker: str, knowledge: Knowledge) -> None:
        """A PHB says up to where it has lost its events."""
        if knowledge.lost > self._judged.get(knowledge.pubend, 0):
            self._judge(knowledge.pubend, knowledge.lost)

    def progressed(self, broker: str, progress: routing.Progress) -> None:
        """What an SHB says it is done with, it is done with for ever: it says it when that is durable."""
        shb, pubend = progress.shb, progress.pubend
        released, delivered = self._progress.get((shb, pubend), (0, 0))
        if broker in self.model.damaged_brokers:
            self._progress[shb, pubend] = progress.released, progress.delivered
            return
        if progress.released > progress.delivered:
            self.fail(
                f"{shb} has released {pubend} up to {progress.released}, and delivered up to {progress.delivered} only"
            )
        if progress.released < released or progress.delivered < delivered:
            self.fail(
                f"the progress of {shb} on {pubend} falls from {released} released and {delivered} delivered "
                f"to {progress.released} and {progress.delivered}"
            )
        self._progress[shb, pubend] = progress.released, progress.delivered

    def _judge(self, pubend: PubendId, upto: Tick) -> None:
        before = self._judged.get(pubend, 0)
        self._judged[pubend] = max(before, upto)
        history = self.model.histories[pubend]
        if not history.sound or upto <= before:
            return
        # The shorter promise wins, where early release is on; and without space nothing is kept that nobody is owed.
        least = self.world.options.min_retain_seconds
        if self.world.brokers[history.broker].space_low_upto + YIELDED >= self.world.now:
            least = 0
        if least and not self.model.ages.is_older(history, upto, least) and not self.model.ages.is_early(history, upto):
            self.fail(f"{pubend} releases everything up to {upto}, which is not {least} s old")
        for account in self.model.followed:
            if account.exists and account.durable and account.shb not in self.model.retired_shbs:
                self._judge_account(account, history, before, upto)

    def _judge_account(self, account: Account, history: History, before: Tick, upto: Tick) -> None:
        share = account.shares.get(history.pubend)
        if share is None:
            return
        # An acknowledgement counts once its home has received it, from the session that had the subscription then.
        acked = self.model.heard_upto(account, history.pubend)
        if share.start is None:
            needed = next(
                (tick for tick in share.between(max(before, acked), upto) if self.model.is_late(account, share, tick)),
                None,
            )
        else:
            needed = share.first_between(max(before, share.start, share.kept_from, acked), upto)
        if needed is None or self._is_early(history, min(upto, share.newest)):
            return
        counted_from = self.model.members[history.pubend].get(account.shb)
        if counted_from is None or needed <= counted_from:
            return  # its broker was not counted there yet: without `members` and `min_retain` that is a gap
        if self.model.is_given_up_by_name(account):
            return
        publication = history.events[needed].publication
        self.fail(
            f"{history.pubend} releases everything up to {upto}, and {account} needs publication "
            f"{publication.key} at {needed}: it began behind {share.start}, "
            f"and its home has heard acknowledgements up to {acked}"
        )

    def _is_early(self, history: History, tick: Tick) -> bool:
        """Whether an event is so old that it may go, and every SHB that counts has noted who wants it."""
        # Who was counted only later needs nothing from before that.
        delivered = [
            max(counted_from, self._progress.get((shb, history.pubend), (0, 0))[1])
            for shb, counted_from in self.model.members[history.pubend].items()
        ]
        return self.model.ages.is_early(history, tick) and all(tick <= upto for upto in delivered)
