"""The subscribing side of the workload `churn`: a subscription in an application's database, and its consumers.

An application keeps, beside the token, who may commit it: whoever was attached last has the claim, and a
consumer that lost it finds out at its next commit, whose effects are undone. So two processes may fight
for a subscription, and yet every event takes effect once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gapless.core.client import Wanted
from gapless.core.messages import InUse, StartAt
from gapless.errors import (
    ConnectionClosedError,
    GaplessError,
    InvalidTokenError,
    SubscriptionInUseError,
    SubscriptionNotFoundError,
    SubscriptionTakenOverError,
    TokenMismatchError,
)
from gapless.testing.sim.application import Consumer
from gapless.testing.sim.workloads.churn_scene import Scene, wrong

if TYPE_CHECKING:
    from gapless.core.client.effects import Attached
    from gapless.core.tokens import CheckpointToken
    from gapless.testing.sim.application import Row, SimClient

SMALL_WINDOW = 64
"""With a smaller one it would take too long until everything has come right."""


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


class Customer(Consumer):
    """A consumer of a holding."""

    def __init__(
        self,
        holding: Holding,
        client: SimClient,
        wanted: Wanted,
        habits: Habits = EAGER,
        *,
        row: Row | None = None,
        expects: type[GaplessError] | None = None,
    ) -> None:
        """`expects`: it asks for what must be refused, with this error. `row`: another than the holding's."""
        self.holding = holding
        self.expects = expects
        self.asked_with = holding.row.token
        """The token that its application had then."""
        self.boots = client.boots
        self.answered = False
        holding.attempts += 1
        super().__init__(
            client,
            row or holding.row,
            wanted,
            pace=habits.pace,
            portion=habits.portion,
            commit_every=habits.commit_every,
            acknowledges=habits.acknowledges,
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
        if self.row.keeps_token and self.attached and not self.over and self.holding.claimant is not self:
            self.holding.scene.probe("stale commit refused")
            self.leave()
            return
        super().commit()

    def on_answered(self, attached: Attached) -> None:
        """It has its subscription."""
        self.answered = True
        self.holding.before_attached(self, attached)
        moved = self.row.keeps_token and self.row.token is not self.asked_with
        super().on_answered(attached)
        self.holding.on_attached(self, moved=moved)

    def on_failed(self, error: GaplessError) -> None:
        """It is over."""
        self.answered = True
        super().on_failed(error)
        self.holding.on_over(self, error)

    def become_eager(self) -> None:
        """From now on it takes everything at once, and acknowledges what it takes."""
        self.portion = None
        self.commit_every = 1
        self.acknowledges = "at once"
        self.go_on(0)
        self.commit()


class Holding:
    """A subscription of an application: its row, who is to consume it, and how."""

    def __init__(self, scene: Scene, row: Row, habits: Habits, touched: dict[str, int], *, start_wall: int = 0) -> None:
        """In `touched` is noted when the subscription of a name came, or went."""
        self.scene = scene
        self.row = row
        self.habits = habits
        self.start_wall = start_wall
        self.home: SimClient | None = None
        """The process that is to consume it; None: nobody, for now."""
        self.customers: list[Customer] = []
        self.claimant: Customer | None = None
        self.remover: SimClient | None = None
        """The process that is to remove it."""
        self.removals = 0
        """How often its removal was asked for."""
        self.attempts = 0
        self.sid = 0
        """The broker's id for it, once it was attached."""
        self._touched = touched
        self._abandoned: list[Customer] = []
        """Left before they were answered."""

    # Getters.

    @property
    def lane(self) -> str:
        """What it is called."""
        return f"{self.row.client_id}:{self.row.name or f'~{self.row.number}'}"

    @property
    def durable(self) -> bool:
        """Whether it outlives its consumer."""
        return self.row.name is not None

    @property
    def living(self) -> bool:
        """Whether it is neither removed nor about to be."""
        return not self.row.ended and self.remover is None

    def customers_of(self, client: SimClient) -> list[Customer]:
        """Whoever wants it in a process, leaving out those that ask for what must be refused."""
        return [customer for customer in self.alive() if customer.client is client and customer.expects is None]

    def alive(self) -> list[Customer]:
        """All consumers whose processes live."""
        self.customers = [customer for customer in self.customers if customer.alive]
        return self.customers

    def consumer(self) -> Customer | None:
        """Who is attached, as far as anybody can know."""
        attached = [customer for customer in self.alive() if customer.attached]
        return attached[-1] if attached else None

    def pending_elsewhere(self, client: SimClient | None) -> bool:
        """Whether another process has asked for it and has no answer: that could make it anew once it is removed."""
        self._abandoned = [customer for customer in self._abandoned if customer.pending]
        asking = [*self._abandoned, *(customer for customer in self.alive() if customer.pending)]
        return any(customer.client is not client for customer in asking)

    def touch(self) -> None:
        """What a listing says of it is not certain just now."""
        if self.row.name is not None:
            self._touched[self.row.name] = self.scene.world.now

    # Consuming.

    def consume(
        self,
        client: SimClient,
        *,
        in_use: InUse = InUse.ERROR,
        token: CheckpointToken | None = None,
        acknowledged: bool = False,
    ) -> Customer:
        """A process asks for it: with the newest token, another one, or from where it has `acknowledged`."""
        if token is not None:
            self._go_back_to(token)
        if not self.row.created:
            self.touch()
        habits = EAGER if self.scene.calm_now else self.habits
        wanted = self.row.wanted(in_use=in_use, token=token, start_wall=self.start_wall, **dict(habits.window))
        if acknowledged and self.row.created:
            self.row.token = None
            wanted = without_token(wanted)
        customer = Customer(self, client, wanted, habits)
        self.customers.append(customer)
        return customer

    def try_in_vain(
        self, client: SimClient, wanted: Wanted, expects: type[GaplessError], row: Row | None = None
    ) -> None:
        """A process asks for what it must not get."""
        self.customers.append(Customer(self, client, wanted, row=row, expects=expects))

    def _go_back_to(self, token: CheckpointToken) -> None:
        """The application's database is an older copy: it has the effects up to this token."""
        row = self.row
        if token in row.tokens:
            del row.tokens[row.tokens.index(token) :]
        row.token = token

    def depart(self, customer: Customer) -> None:
        """A consumer leaves."""
        if not customer.answered:
            self._abandoned.append(customer)
        customer.leave()
        if customer in self.customers:
            self.customers.remove(customer)
        if not self.durable:
            self.row.ended = True

    def tend(self) -> None:
        """Asks for it where it should be consumed and is not."""
        home = self.home
        if not self.living or home is None or not home.running or self.customers_of(home):
            return
        if not self.durable and self.attempts:
            self.row.ended = True  # it ended with its consumer
            return
        eager = self.scene.calm_now or self.scene.choices.chance(0.4)
        self.consume(home, in_use=InUse.TAKEOVER if eager else InUse.ERROR)

    def calm(self) -> None:
        """Everything has to come right: whoever has it is eager from now on."""
        for customer in list(self.alive()):
            if customer.attached and customer.expects is None:
                self._settle_down(customer)

    def _settle_down(self, customer: Customer) -> None:
        """A small window would take for ever; with any other it takes all there is."""
        wanted = customer.wanted
        if self.durable and min(wanted.window_events, wanted.window_bytes >> 10) < SMALL_WINDOW:
            client = customer.client
            self.depart(customer)
            self.consume(client)
        else:
            customer.become_eager()

    # Removing.

    def remove(self, client: SimClient) -> None:
        """A process asks for it to be removed; it does so again after a crash, until it has an answer."""
        self.remover = client
        self.scene.removals.append(self)
        self.home = None
        for customer in self.alive():
            if customer.pending and customer.client is client:
                self.depart(customer)
        self.ask_for_removal()

    def ask_for_removal(self) -> None:
        """Asks, or asks again."""
        client, row = self.remover, self.row
        assert client is not None
        assert row.name is not None
        self.removals += 1
        self.touch()
        self.scene.world.observe.unsubscribing(row)
        number = client.core.unsubscribe(row.name, row.client_id, client.monotonic())
        client.ask(number, self._on_removed, self._on_not_removed)

    def _on_removed(self, _result: object) -> None:
        self.scene.removals = [removal for removal in self.scene.removals if removal is not self]
        self.touch()
        self.row.ended = True
        self.scene.world.observe.unsubscribed(self.row)
        for customer in list(self.alive()):
            if customer.client is self.remover:
                self.depart(customer)

    def _on_not_removed(self, error: GaplessError) -> None:
        if type(error) is ConnectionClosedError and self.scene.closing is self.remover:
            return
        if not isinstance(error, SubscriptionNotFoundError):
            raise wrong(self.lane, f"it can not be removed: {type(error).__name__}: {error}")
        if self.row.created and self.removals == 1 and not self.scene.lossy:
            raise wrong(self.lane, f"it has vanished: {error}")
        self.scene.probe("removed already")
        self._on_removed(None)

    # What happened.

    def before_attached(self, customer: Customer, attached: Attached) -> None:
        """The broker has attached a consumer. Should it have? And is this the subscription that it was? Then."""
        scene, row = self.scene, self.row
        if not row.created:
            self.touch()
        if customer.expects is not None and not scene.lossy:
            raise wrong(self.lane, f"it was attached, but {customer.expects.__name__} was to be expected")
        customer.expects = None
        known, self.sid = self.sid, attached.sid
        if not attached.created or not known or known == attached.sid:
            return
        if not scene.lossy:
            raise wrong(self.lane, "it came into being twice")
        # Under the old name it is another subscription now.
        scene.probe("made anew")
        row.ended = True
        number = scene.row_number()
        self.row = replace(customer.row, number=number, token=None, tokens=[], created=False, ended=False)
        customer.row = self.row
        customer.asked_with = None

    def on_attached(self, customer: Customer, *, moved: bool) -> None:
        """A consumer has it, and the claim with it.

        `moved`: another one has committed since this one read the token. It holds the claim now, so that
        cannot happen again: it reads the token once more.
        """
        scene = self.scene
        if self.claimant is not None and self.claimant.alive and self.claimant is not customer:
            scene.probe("claim taken")
        self.claimant = customer
        scene.keep_souvenir(self.row.token)
        if not self.living:
            # Only where a disk was lost: what was asked for before that has made it anew.
            self.depart(customer)
            if self.durable:
                self.remove(customer.client)
            return
        self.home = customer.client
        if moved:
            scene.probe("position moved meanwhile")
            self.depart(customer)
            self.consume(customer.client)
        elif scene.calm_now:
            self._settle_down(customer)

    def on_over(self, customer: Customer, error: GaplessError) -> None:
        """A consumer is over: that may be only for a good reason."""
        if customer in self.customers:
            self.customers.remove(customer)
        scene = self.scene
        if customer.expects is not None and isinstance(error, customer.expects):
            scene.probe(f"refused: {type(error).__name__}")
        elif type(error) is ConnectionClosedError and scene.closing is customer.client:
            pass
        elif isinstance(error, SubscriptionInUseError) and self.attempts > 1:
            scene.probe("in use")
        elif isinstance(error, SubscriptionTakenOverError) and self.attempts > 1:
            scene.probe("taken over")
        elif isinstance(error, SubscriptionNotFoundError) and not self.living:
            scene.probe("removed while consumed")
        elif isinstance(error, TokenMismatchError) and self._was_created_unheard():
            scene.probe("created unheard")
            self.row.start_token, self.row.start = None, StartAt.LATEST
        elif isinstance(error, (SubscriptionNotFoundError, InvalidTokenError)) and scene.lossy:
            self._lost(customer)
        else:
            raise wrong(self.lane, f"the consumption is over: {type(error).__name__}: {error}")

    def _was_created_unheard(self) -> bool:
        """Whether it may exist since an earlier request to create it with another subscription's token.

        The answer was lost, and the same request, asked again, finds it there: then the token is foreign.
        """
        return not self.row.created and self.row.start_token is not None

    def _lost(self, customer: Customer) -> None:
        """The broker does not know what it should: the application begins anew, under the same name perhaps."""
        self.scene.probe("subscription lost")
        if self.living and self.durable:
            self.remove(customer.client)
        elif not self.durable:
            self.row.ended = True


def without_token(wanted: Wanted) -> Wanted:
    """The same, from where the subscription has acknowledged."""
    return replace(wanted, start=StartAt.LATEST, positions=None, token_sid=0, token_generation=0, token_seal=b"")


def with_token(wanted: Wanted, token: CheckpointToken) -> Wanted:
    """The same, from a token."""
    return replace(
        wanted,
        start=StartAt.TOKEN,
        positions=dict(token.ticks),
        token_sid=token.sid,
        token_generation=token.generation,
        token_seal=token.seal,
    )
