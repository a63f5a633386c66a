"""The subscribing side of the workload `churn`: a subscription in an application's database, and its life."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gapless.core.client import SubscribeOptions
from gapless.core.client.subscribing import SubscriptionPhase
from gapless.core.wire.messages import InUse, StartAt
from gapless.errors import (
    ConnectionClosedError,
    GaplessError,
    InvalidTokenError,
    SubscriptionInUseError,
    SubscriptionMismatchError,
    SubscriptionNotFoundError,
    SubscriptionTakenOverError,
    TokenMismatchError,
)
from gapless_sim.options import SECOND
from gapless_sim.workloads.churn_customers import EAGER, Customer, Habits, without_token
from gapless_sim.workloads.churn_scene import Scene, wrong

if TYPE_CHECKING:
    from gapless.core.client.effects import Attached
    from gapless.core.wire.tokens import CheckpointToken
    from gapless_sim.application import SimClient
    from gapless_sim.consumer import Row

STRANGE = (SubscriptionNotFoundError, SubscriptionMismatchError, InvalidTokenError)
"""How a broker answers that has lost its disk, and does not know what it knew."""
SMALL_WINDOW = 64
"""With a smaller one it would take too long until everything has come right."""
ON_ITS_WAY = 5 * SECOND
"""So long a frame of a process that has ended may take to the broker."""


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
        self._disks: list[tuple[object, bool]] = []
        """On which disks it had that id: an empty one, or an old copy, counts its ids anew."""
        self._touched = touched
        self._abandoned: list[Customer] = []
        """Left before they were answered."""
        self._late_until = 0
        """Until then what a process asked that has ended in order since may still be on its way."""

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

    @property
    def lapsed(self) -> bool:
        """Whether its lease has run out since it was attached last."""
        return self.scene.has_lapsed(self.row.client_id, self.row.name, self.sid)

    def _has_lapsed_for(self, customer: Customer) -> bool:
        """Whether what a consumer had has lapsed, even if another one has made it anew since."""
        return self.scene.has_lapsed(self.row.client_id, self.row.name, customer.core.sid)

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

    @property
    def is_being_created(self) -> bool:
        """Whether somebody waits for it to come into being; one that is not durable does so in each session."""
        again = not self.durable and any(customer.core.phase is SubscriptionPhase.ASKING for customer in self.alive())
        return again or any(customer.pending for customer in self.alive())

    def pending_elsewhere(self, client: SimClient | None) -> bool:
        """Whether another process has asked for it and has no answer: that could make it anew once it is removed."""
        self._abandoned = [customer for customer in self._abandoned if customer.pending]
        asking = [*self._abandoned, *(customer for customer in self.alive() if customer.pending)]
        late = self.scene.world.now < self._late_until
        return late or any(customer.client is not client for customer in asking)

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
        self, client: SimClient, wanted: SubscribeOptions, expects: type[GaplessError], row: Row | None = None
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
        for customer in list(self.alive()):
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
        if not row.created or attached.created:
            self.touch()
        lapsed, strange = self.lapsed, customer.expects is not None
        excused = scene.lossy or scene.has_ever_lapsed(self.row.client_id, self.row.name)
        if customer.expects is not None and not excused:
            raise wrong(self.lane, f"it was attached, but {customer.expects.__name__} was to be expected")
        customer.expects = None
        known, self.sid = (self.sid, self._disks), attached.sid
        brokers = [scene.world.brokers[address] for address in customer.client.addresses]
        self._disks = [(broker.disk, broker.tampered) for broker in brokers]
        if not attached.created or not known[0] or known == (attached.sid, self._disks):
            return
        if lapsed and not strange:
            self._resume(customer)
            return
        if not scene.lossy and not lapsed:
            raise wrong(self.lane, "it came into being twice")
        # Under the old name it is another subscription now.
        scene.probe("made anew")
        row.ended = True
        number = scene.row_number()
        self.row = replace(customer.row, number=number, token=None, tokens=[], created=False, ended=False)
        customer.row = self.row
        customer.asked_with = None
        scene.world.observe.subscribing(customer)

    def _resume(self, customer: Customer) -> None:
        """It goes on where it was, under another id: older tokens are of no use there."""
        self.scene.probe("resumed after a lapse")
        self.row.tokens = []
        if customer.wanted.positions is None:
            self.row.token = None

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
            self.depart(customer)
            if self.durable and scene.lossy:  # what was asked for before a disk was lost has made it anew
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
            if not customer.core.sid:  # it was never told that it has it
                self._late_until = scene.world.now + ON_ITS_WAY
        elif isinstance(error, SubscriptionInUseError) and self.attempts > 1:
            scene.probe("in use")
        elif isinstance(error, SubscriptionTakenOverError) and self.attempts > 1:
            scene.probe("taken over")
        elif not self.living and self._is_gone(error):
            scene.probe("removed while consumed")
        elif isinstance(error, TokenMismatchError) and self._was_created_unheard():
            scene.probe("created unheard")
            self.row.start_token, self.row.start = None, StartAt.LATEST
        elif isinstance(error, SubscriptionNotFoundError) and (self.lapsed or self._has_lapsed_for(customer)):
            scene.probe("lapsed")
        elif isinstance(error, TokenMismatchError) and scene.has_ever_lapsed(self.row.client_id, self.row.name):
            scene.probe("token from before a lapse")
            self.row.token, self.row.tokens = None, []
        elif isinstance(error, SubscriptionMismatchError) and scene.has_ever_lapsed(self.row.client_id, self.row.name):
            scene.probe("made another after a lapse")
        elif self._seems_lost(customer, error):
            self._lost(customer)
        else:
            raise wrong(self.lane, f"the consumption is over: {type(error).__name__}: {error}")

    def _is_gone(self, error: GaplessError) -> bool:
        """Whether it was removed; a request with a foreign token, asked again behind that, makes another one."""
        in_vain = any(customer.expects is not None for customer in self.alive())
        return isinstance(error, SubscriptionNotFoundError) or (isinstance(error, TokenMismatchError) and in_vain)

    def _was_created_unheard(self) -> bool:
        """Whether it may exist since an earlier request to create it with another subscription's token.

        The answer was lost, and the same request, asked again, finds it there: then the token is foreign.
        """
        return not self.row.created and self.row.start_token is not None

    def _seems_lost(self, customer: Customer, error: GaplessError) -> bool:
        """Whether the broker does not know what it should, or cannot know that it should not."""
        return isinstance(error, STRANGE) and self.scene.lossy

    def _lost(self, customer: Customer) -> None:
        """The broker does not know what it should: the application begins anew, under the same name perhaps."""
        self.scene.probe("subscription lost")
        if self.living and self.durable:
            self.remove(customer.client)
        elif not self.durable:
            self.row.ended = True
