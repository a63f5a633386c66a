"""Scenarios of several who want one subscription: who waits, takes it over, comes and goes, removes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gapless.core.wire.messages import InUse, StartAt
from gapless.errors import SubscriptionNotFoundError, SubscriptionTakenOverError
from gapless_sim.workloads.scenario_filters import INTERESTS
from gapless_sim.workloads.scenario_readers import Reading
from gapless_sim.workloads.scenario_scripts import attached, either, over
from gapless_sim.world.consumer import Consumer
from gapless_sim.world.options import MILLISECOND, SECOND

if TYPE_CHECKING:
    from gapless.core.client import SubscribeOptions
    from gapless.core.client.link.effects import Attached
    from gapless_sim.workloads.scenario_scripts import Script
    from gapless_sim.workloads.scenario_state import Attaching
    from gapless_sim.world.application import SimClient
    from gapless_sim.world.consumer import Row

SOMETIMES = (
    "scenario.standby.waited its turn",
    "scenario.standby.left to the other",
    "scenario.standby.crashed before the other",
    "scenario.standby.asked again with a newer token",
    "scenario.standby.lost it to the other",
    "scenario.rivals.took over",
    "scenario.rivals.taken over",
    "scenario.rivals.left before anybody took over",
    "scenario.sharing.stale commit refused",
    "scenario.flicker.came and went",
    "scenario.flicker.removed while it was being created",
    "scenario.flicker.another filter under the same name",
    "scenario.flicker.began again after a crash",
    "scenario.removal.removed under a consumer",
    "scenario.removal.victim was told",
    "scenario.removal.victim began anew",
)


class Owner(Consumer):
    """Commits only while it is the one that claimed the row last: so a database fences a stale process.

    Whoever waits for the subscription claims the row when it gets it. By then the token that it asked with
    may be old: then it takes nothing, and has to ask once more.
    """

    def __init__(
        self,
        client: SimClient,
        row: Row,
        wanted: SubscribeOptions,
        *,
        owners: dict[int, Consumer],
        claims: bool,
        **habits: Any,
    ) -> None:
        """`owners`: in the database. `claims`: at once, before it asks the broker."""
        self.owners = owners
        self.stale = False
        if claims:
            owners[row.number] = self
        super().__init__(client, row, wanted, **habits)

    @property
    def is_owner(self) -> bool:
        """Whether nobody else claimed the row later."""
        return self.owners.get(self.row.number) is self

    def on_answered(self, attached: Attached) -> None:
        """It has its subscription."""
        token = self.row.token
        if not self.is_owner:
            self.stale = token is not None and dict(token.ticks) != (self.wanted.positions or {})
            self.stopped = self.stale
            if not self.stale:
                self.owners[self.row.number] = self
        super().on_answered(attached)

    def commit(self) -> None:
        """A stale owner's transaction fails, and so it learns that it is no longer the one."""
        if self.is_owner or self.over:
            super().commit()
        else:
            self.client.world.sometimes("scenario.sharing.stale commit refused")
            self.leave()


class Sharing(Reading):
    """Two processes of one service, which have one database: and in it, one row."""

    def plan(self) -> None:
        """Both do the same."""
        self.interest = self.draws.pick(INTERESTS)
        self.commit_every = self.draws.pick((1, 4))
        self.pace = self.draws.pick((0, 5 * MILLISECOND))
        self.owners: dict[int, Consumer] = {}
        self.row = self.subscription(self.interest)
        self.part(self.live)
        self.part(self.live, self.state.other_process(self.client))

    def live(self, client: SimClient) -> Script:
        """Consumes when it can."""
        raise NotImplementedError

    def ask(self, client: SimClient, in_use: InUse, *, claims: bool) -> Attaching:
        """Asks for the subscription; one that was given up is followed by another."""
        if self.row.ended:
            self.row = self.subscription(self.interest)
        habits = {"commit_every": self.commit_every, "pace": self.pace}
        return self.state.attach(
            client, self.row, in_use=in_use, kind=Owner, owners=self.owners, claims=claims, **habits
        )


class Standby(Sharing):
    """The second process waits until the first one leaves or crashes; then they have changed their places."""

    kind = "standby"

    def live(self, client: SimClient) -> Script:
        """Waits, consumes, and leaves it to the other one."""
        while True:
            asked_at = self.world.now
            consumer = yield from self.ask(client, InUse.WAIT, claims=False)
            if isinstance(consumer, Owner) and consumer.stale:
                self.sometimes("asked again with a newer token")
                consumer.leave()
                consumer = yield from self.ask(client, InUse.WAIT, claims=True)
            if consumer is None:
                continue
            if self.rounds and self.world.now > asked_at + SECOND:
                self.sometimes("waited its turn")
            self.rounds += 1
            yield either(self.world, over(consumer), self.time(500, 6_000))
            if consumer.error is not None:
                yield from self._lost_it(client, consumer)
            elif self.draws.chance(0.3):
                self.sometimes("crashed before the other")
                self.state.crash(client, self.time(100, 3_000))
                return
            else:
                self.sometimes("left to the other")
                consumer.commit()
                consumer.leave()
            yield self.time(10, 2_000)

    def _lost_it(self, client: SimClient, consumer: Consumer) -> Script:
        """While it was disconnected, it was given to whoever waited: that is no reason to fight."""
        if isinstance(consumer.error, SubscriptionTakenOverError):
            self.sometimes("lost it to the other")
        else:
            yield from self.lost(client, consumer.row, consumer.error)


class Rivals(Sharing):
    """Each takes the subscription over from the other, now and then; the loser stands back for a while."""

    kind = "rivals"

    def live(self, client: SimClient) -> Script:
        """Takes it, and keeps it until it is taken."""
        while True:
            yield self.time(100, 6_000)
            held = any(owner.attached and not owner.over for owner in self.owners.values())
            consumer = yield from self.ask(client, InUse.TAKEOVER, claims=True)
            if consumer is None:
                continue
            if held:
                self.sometimes("took over")
            yield either(self.world, over(consumer), self.time(2_000, 15_000))
            if isinstance(consumer.error, SubscriptionTakenOverError):
                self.sometimes("taken over")
            elif consumer.error is not None:
                yield from self.lost(client, consumer.row, consumer.error)
            elif not consumer.over:
                self.sometimes("left before anybody took over")
                consumer.leave()
            yield self.time(500, 5_000)


class Flicker(Reading):
    """Subscribes and unsubscribes in a loop, under one name, while events flow; every time for something else."""

    kind = "flicker"

    def plan(self) -> None:
        """One name, of which it has at most one row at a time."""
        self.hurry = self.draws.pick((0.2, 0.0, 0.6))
        self.row: Row | None = None  # type: ignore[assignment]
        self.part(self.live)

    def live(self, client: SimClient) -> Script:
        """Comes, and goes again."""
        if self.row is not None and not self.row.ended:
            self.sometimes("began again after a crash")
            yield from self.state.unsubscribe(client, self.row)
        while True:
            row = self._choose()
            consumer = Consumer(client, row, self.state.wanted(row))
            if not self.draws.chance(self.hurry):
                yield attached(consumer)
                yield either(self.world, over(consumer), self.time(1, 2_000))
            if consumer.error is not None:
                self.state.check(consumer.error)
            in_hand = consumer.attached
            if in_hand and self.draws.chance(0.5):
                consumer.leave()
            yield from self.state.unsubscribe(client, row)
            if not in_hand:
                self._was_answered(consumer)
            self.sometimes("came and went")
            yield self.draws.draw(4) * self.time(1, 200)

    def _choose(self) -> Row:
        interest = self.draws.pick(INTERESTS)
        if self.row is not None and self.row.selector != interest.selector:
            self.sometimes("another filter under the same name")
        start = self.draws.pick((StartAt.LATEST, StartAt.EARLIEST))
        self.row = self.subscription(interest, start=start)
        return self.row

    def _was_answered(self, consumer: Consumer) -> None:
        """Whoever asks for a subscription has an answer by the time that it is removed: yes or no."""
        self.sometimes("removed while it was being created")
        assert consumer.attached or consumer.over, f"{consumer.row.name}: no answer to its creation, and it is removed"
        if consumer.error is not None:
            self.state.check(consumer.error, SubscriptionNotFoundError)


class ConcurrentRemoval(Reading):
    """One process removes a subscription while another one consumes it; that one gets an error, and begins anew."""

    kind = "removal"
    label = "vandal"

    def plan(self) -> None:
        """The victim, and a second process that removes what the first one has."""
        self.interest = self.draws.pick(INTERESTS)
        self.row = self.subscription(self.interest)
        self.victim: Consumer | None = None
        self.part(self.live)
        self.part(self.remove, self.state.other_process(self.client))

    def live(self, client: SimClient) -> Script:
        """The first process: consumes, and begins anew."""
        self.victim = None
        while True:
            if self.row.ended:
                self.sometimes("victim began anew")
                self.row = self.subscription(self.interest)
            self.victim = yield from self.state.attach(client, self.row)
            if self.victim is None:
                continue
            yield over(self.victim)
            if self.row.number in self.state.leaving or self.row.ended:
                self.sometimes("victim was told")
                self.state.check(self.victim.error, SubscriptionNotFoundError)
            else:
                yield from self.lost(client, self.row, self.victim.error)
            yield self.time(10, 2_000)

    def remove(self, client: SimClient) -> Script:
        """The second process: removes. A removal that a crash has interrupted is brought to an end."""
        if self.row.number in self.state.leaving:
            yield from self.state.unsubscribe(client, self.row)
        while True:
            yield self.time(1_000, 10_000)
            victim = self.victim
            if victim is not None and victim.attached and not victim.over and not victim.row.ended:
                self.sometimes("removed under a consumer")
                yield from self.state.unsubscribe(client, self.row)


SCENARIOS: tuple[type[Reading], ...] = (Standby, Rivals, Flicker, ConcurrentRemoval)
