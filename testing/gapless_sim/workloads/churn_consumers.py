"""A consumer of the workload `churn`: how it consumes, and that it commits only while it has the claim.

An application keeps, beside the token, who may commit it: whoever was attached last has the claim, and a
consumer that lost it finds out at its next commit, whose effects are undone. So two processes may fight
for a subscription, and yet every event takes effect once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gapless.core.client import SubscribeOptions
from gapless.core.wire.messages import StartAt
from gapless.errors import GaplessError
from gapless_sim.world.committing import CommittingConsumer, GatheringConsumer
from gapless_sim.world.consumer import Consumer

if TYPE_CHECKING:
    from gapless.core.client.link.effects import Attached
    from gapless.core.wire.tokens import CheckpointToken
    from gapless_sim.workloads.churn_subscriptions import AppSubscription
    from gapless_sim.world.application import SimClient
    from gapless_sim.world.consumer import Row


@dataclass(frozen=True, slots=True)
class Habits:
    """How a consumer consumes."""

    pace: int = 0
    portion: int | None = None
    commit_every: int = 1
    acknowledges: str = "at once"
    window: tuple[tuple[str, int], ...] = ()
    """`window_events` and `window_bytes`, where they are not the usual ones."""


EAGER = Habits()


class ChurnConsumer(Consumer):
    """A consumer of a subscription."""

    def __init__(
        self,
        subscription: AppSubscription,
        client: SimClient,
        wanted: SubscribeOptions,
        habits: Habits = EAGER,
        *,
        row: Row | None = None,
        expects: type[GaplessError] | None = None,
        **more: Any,
    ) -> None:
        """`expects`: it asks for what must be refused, with this error. `row`: another than the subscription's."""
        self.subscription = subscription
        self.expects = expects
        self.asked_with = subscription.row.token
        """The token that its application had then."""
        self.boots = client.boots
        self.answered = False
        subscription.attempts += 1
        super().__init__(
            client,
            row or subscription.row,
            wanted,
            pace=habits.pace,
            portion=habits.portion,
            commit_every=habits.commit_every,
            acknowledges=habits.acknowledges,
            **more,
        )

    @property
    def alive(self) -> bool:
        """Whether the process it was made in is there, and it is not over."""
        return not self.over and self.client.running and self.client.boots == self.boots

    @property
    def pending(self) -> bool:
        """Whether the broker may still carry out what it asked for, although nobody knows whether it has."""
        return not self.answered and self.client.running and self.client.boots == self.boots

    def commit(self) -> None:
        """Commits, if it has the claim."""
        if self.row.keeps_token and self.attached and not self.over and self.subscription.claimant is not self:
            self.subscription.state.sometimes("stale commit refused")
            self.leave()
            return
        super().commit()

    def on_answered(self, attached: Attached) -> None:
        """It has its subscription."""
        self.answered = True
        self.subscription.before_attached(self, attached)
        moved = self.row.keeps_token and self.row.token is not self.asked_with
        super().on_answered(attached)
        self.subscription.on_attached(self, moved=moved)

    def on_failed(self, error: GaplessError) -> None:
        """It is over."""
        self.answered = True
        super().on_failed(error)
        self.subscription.on_over(self, error)

    def become_eager(self) -> None:
        """From now on it takes everything at once, and acknowledges what it takes."""
        self.portion = None
        self.commit_every = 1
        self.acknowledges = "at once"
        self.go_on(0)
        self.commit()


class ChurnCommitter(ChurnConsumer, CommittingConsumer):
    """A consumer whose broker keeps the position, as `AckMode.AUTO` has it."""

    def become_eager(self) -> None:
        """From now on it takes everything at once."""
        self.go_on(0)


class ChurnGatherer(ChurnConsumer, GatheringConsumer):
    """The same as `AckMode.CLIENT` has it: it acknowledges now and then all that it was handed."""

    def become_eager(self) -> None:
        """From now on it acknowledges whatever it takes."""
        self.commit_every = 1
        self.acknowledges_next = True
        self.go_on(0)

    def _take_one(self) -> bool:
        taken = super()._take_one()
        if self.gathered >= self.commit_every:
            self.acknowledges_next = True
        return taken


MODES: Mapping[str, tuple[type[ChurnConsumer], Mapping[str, bool]]] = {
    "token": (ChurnConsumer, {}),
    "auto": (ChurnCommitter, {"commits": True}),
    "client": (ChurnGatherer, {"commits": True, "gathers": True}),
}
"""How a subscription is consumed in each mode, and what is asked for. Without a token TOKEN is as DUPS_OK is."""


def without_token(wanted: SubscribeOptions) -> SubscribeOptions:
    """The same, from where the subscription has acknowledged."""
    return replace(
        wanted, start=StartAt.LATEST, positions=None, token_sid=0, token_generation=0, token_seal=b"", token_home=""
    )


def with_token(wanted: SubscribeOptions, token: CheckpointToken) -> SubscribeOptions:
    """The same, from a token."""
    return replace(
        wanted,
        start=StartAt.TOKEN,
        positions=dict(token.ticks),
        token_sid=token.sid,
        token_generation=token.generation,
        token_seal=token.seal,
        token_home=token.home,
    )
