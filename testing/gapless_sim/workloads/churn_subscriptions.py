"""The subscribing side of the workload `churn`: a subscription in an application's database, and its life."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gapless.core.client import SubscribeOptions
from gapless.core.wire.messages import InUse, OnChange, StartAt
from gapless.errors import (
    ConfigurationError,
    ConnectionClosedError,
    GaplessError,
    InvalidTokenError,
    SubscriptionInUseError,
    SubscriptionMismatchError,
    SubscriptionNotFoundError,
    SubscriptionTakenOverError,
    TokenMismatchError,
)
from gapless_sim.workloads.changes import ON_ITS_WAY, Requests
from gapless_sim.workloads.churn_consumers import EAGER, MODES, ChurnConsumer, ChurnGatherer, Habits, without_token
from gapless_sim.workloads.churn_state import ChurnState, wrong

if TYPE_CHECKING:
    from gapless.core.client.link.effects import Attached
    from gapless.core.wire.tokens import CheckpointToken
    from gapless_sim.world.application import SimClient
    from gapless_sim.world.consumer import Row

MADE_ANOTHER = (SubscriptionMismatchError, ConfigurationError)
"""What a consumer meets whose name is another subscription's; the second with a token and `on_change="jms"`."""
STRANGE = (SubscriptionNotFoundError, InvalidTokenError, *MADE_ANOTHER)
"""How a broker answers that has lost its disk, and does not know what it knew."""
CHANGED = (SubscriptionNotFoundError, SubscriptionMismatchError, SubscriptionTakenOverError, SubscriptionInUseError)
"""How a broker answers who wants what a subscription was before."""
SMALL_WINDOW = 64
"""With a smaller one it would take too long until everything has come right."""


class AppSubscription:
    """A subscription of an application: its row, who is to consume it, and how."""

    def __init__(
        self, state: ChurnState, row: Row, habits: Habits, changed_at: dict[str, int], *, start_wall: int = 0
    ) -> None:
        """In `changed_at` is noted when the subscription of a name came, or went."""
        self.state = state
        self.row = row
        self.habits = habits
        self.mode = "token"
        """Of `MODES`."""
        self.start_wall = start_wall
        self.home: SimClient | None = None
        """The process that is to consume it; None: nobody, for now."""
        self.consumers: list[ChurnConsumer] = []
        self.claimant: ChurnConsumer | None = None
        self.remover: SimClient | None = None
        """The process that is to remove it."""
        self.removals = 0
        """How often its removal was asked for."""
        self.attempts = 0
        self.sid = 0
        """The broker's id for it, once it was attached."""
        self._disks: list[tuple[object, bool]] = []
        """On which disks it had that id: an empty one, or an old copy, counts its ids anew."""
        self._changed_at = changed_at
        self._abandoned: list[ChurnConsumer] = []
        """Left before they were answered."""
        self._late_until = 0
        """Until then what a process asked that has ended in order since may still be on its way."""
        self._requests = Requests(state.world)

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
        """Whether it has expired since it was attached last."""
        return self.state.has_lapsed(self.row.client_id, self.row.name, self.sid)

    def _has_lapsed_for(self, consumer: ChurnConsumer) -> bool:
        """Whether what a consumer had has lapsed, even if another one has made it anew since."""
        return self.state.has_lapsed(self.row.client_id, self.row.name, consumer.core.sid)

    def consumers_of(self, client: SimClient) -> list[ChurnConsumer]:
        """Whoever wants it in a process, leaving out those that ask for what must be refused."""
        return [consumer for consumer in self.alive() if consumer.client is client and consumer.expects is None]

    def alive(self) -> list[ChurnConsumer]:
        """All consumers whose processes live."""
        self.consumers = [consumer for consumer in self.consumers if consumer.alive]
        return self.consumers

    def attached_consumer(self) -> ChurnConsumer | None:
        """Who is attached, as far as anybody can know."""
        attached = [consumer for consumer in self.alive() if consumer.attached]
        return attached[-1] if attached else None

    def pending_elsewhere(self, client: SimClient | None) -> bool:
        """Whether another process has asked for it and has no answer: that could make it anew once it is removed."""
        self._abandoned = [consumer for consumer in self._abandoned if consumer.pending]
        asking = [*self._abandoned, *(consumer for consumer in self.alive() if consumer.pending)]
        late = self.state.world.now < self._late_until
        return late or any(consumer.client is not client for consumer in asking)

    def is_certain(self) -> bool:
        """Whether nothing that was asked about it may still arrive at the broker, and be done."""
        return self._requests.are_over() and not self.pending_elsewhere(None)

    def note_change(self) -> None:
        """What a listing says of it is not certain just now."""
        if self.row.name is not None:
            self._changed_at[self.row.name] = self.state.world.now

    # Consuming.

    def consume(
        self,
        client: SimClient,
        *,
        in_use: InUse = InUse.ERROR,
        token: CheckpointToken | None = None,
        acknowledged: bool = False,
    ) -> ChurnConsumer:
        """A process asks for it: with the newest token, another one, or from where it has `acknowledged`."""
        if token is not None:
            self._go_back_to(token)
        if not self.row.created:
            self.note_change()
        habits = EAGER if self.state.in_liveness else self.habits
        kind, asked = MODES[self.mode]
        more = {**dict(habits.window), **asked}
        wanted = self.row.wanted(in_use=in_use, token=token, start_wall=self.start_wall, **more)
        if acknowledged and self.row.created:
            self.row.token = None
            wanted = without_token(wanted)
        return self._consumed_by(kind(self, client, wanted, habits))

    def recover(self, former: ChurnGatherer) -> None:
        """What a consumer was handed and has not acknowledged is to come again, in the same process."""
        wanted = former.core.acknowledged()
        habits = EAGER if self.state.in_liveness else self.habits
        self._consumed_by(ChurnGatherer(self, former.client, wanted, habits, former=former))

    def _consumed_by(self, consumer: ChurnConsumer) -> ChurnConsumer:
        self._requests.note(consumer)
        self.consumers.append(consumer)
        return consumer

    def try_in_vain(
        self, client: SimClient, wanted: SubscribeOptions, expects: type[GaplessError], row: Row | None = None
    ) -> None:
        """A process asks for what it must not get."""
        consumer = ChurnConsumer(self, client, wanted, row=row, expects=expects)
        self._requests.note(consumer)
        self.consumers.append(consumer)

    def change(self, row: Row, client: SimClient, in_use: InUse) -> None:
        """A process asks for other events under its name; from now on that is what the application wants."""
        former, self.row = self.row, row
        former.ended = True
        self.state.world.observe.changing(former)
        self.home = client
        if row.on_change is OnChange.JMS:
            self.sid = 0
        self.consume(client, in_use=in_use)

    def _go_back_to(self, token: CheckpointToken) -> None:
        """The application's database is an older copy: it has the effects up to this token."""
        row = self.row
        if token in row.tokens:
            del row.tokens[row.tokens.index(token) :]
        row.token = token

    def depart(self, consumer: ChurnConsumer) -> None:
        """A consumer leaves."""
        if not consumer.answered:
            self._abandoned.append(consumer)
        consumer.leave()
        if consumer in self.consumers:
            self.consumers.remove(consumer)
        if not self.durable:
            self.row.ended = True

    def tend(self) -> None:
        """Asks for it where it should be consumed and is not."""
        home = self.home
        if not self.living or home is None or not home.running or self.consumers_of(home):
            return
        if not self.durable and self.attempts:
            self.row.ended = True  # it ended with its consumer
            return
        eager = self.state.in_liveness or self.state.choices.chance(0.4)
        self.consume(home, in_use=InUse.TAKEOVER if eager else InUse.ERROR)

    def begin_liveness(self) -> None:
        """Everything has to come right: whoever has it is eager from now on."""
        for consumer in list(self.alive()):
            if consumer.row is not self.row and consumer.expects is None:
                self.depart(consumer)
            elif consumer.attached and consumer.expects is None:
                self._settle_down(consumer)

    def _settle_down(self, consumer: ChurnConsumer) -> None:
        """A small window would take for ever; with any other it takes all there is."""
        wanted = consumer.wanted
        if self.durable and min(wanted.window_events, wanted.window_bytes >> 10) < SMALL_WINDOW:
            client = consumer.client
            self.depart(consumer)
            self.consume(client)
        else:
            consumer.become_eager()

    # Removing.

    def remove(self, client: SimClient) -> None:
        """A process asks for it to be removed; it does so again after a crash, until it has an answer."""
        self.remover = client
        self.state.removals.append(self)
        self.home = None
        for consumer in list(self.alive()):
            if consumer.pending and consumer.client is client:
                self.depart(consumer)
        self.ask_for_removal()

    def ask_for_removal(self) -> None:
        """Asks, or asks again."""
        client, row = self.remover, self.row
        assert client is not None
        assert row.name is not None
        self.removals += 1
        self.note_change()
        self.state.world.observe.unsubscribing(row)
        number = client.core.unsubscribe(row.name, row.client_id, client.monotonic())
        client.ask(number, self._on_removed, self._on_not_removed)

    def _on_removed(self, _result: object) -> None:
        self.state.removals = [removal for removal in self.state.removals if removal is not self]
        self.note_change()
        self.row.ended = True
        self.state.world.observe.unsubscribed(self.row)
        for consumer in list(self.alive()):
            if consumer.client is self.remover:
                self.depart(consumer)

    def _on_not_removed(self, error: GaplessError) -> None:
        if type(error) is ConnectionClosedError and self.state.closing is self.remover:
            return
        if not isinstance(error, SubscriptionNotFoundError):
            raise wrong(self.lane, f"it can not be removed: {type(error).__name__}: {error}")
        if self.row.created and self.removals == 1 and not self.state.lossy:
            raise wrong(self.lane, f"it has vanished: {error}")
        self.state.sometimes("removed already")
        self._on_removed(None)

    # What happened.

    def before_attached(self, consumer: ChurnConsumer, attached: Attached) -> None:
        """The broker has attached a consumer. Should it have? And is this the subscription that it was? Then."""
        state, row = self.state, self.row
        if not row.created or attached.created:
            self.note_change()
        lapsed, strange = self.lapsed, consumer.expects is not None
        excused = state.lossy or state.has_ever_lapsed(self.row.client_id, self.row.name)
        if consumer.expects is not None and not excused:
            raise wrong(self.lane, f"it was attached, but {consumer.expects.__name__} was to be expected")
        consumer.expects = None
        known, self.sid = (self.sid, self._disks), attached.sid
        brokers = [state.world.brokers[address] for address in consumer.client.addresses]
        self._disks = [(broker.disk, broker.tampered) for broker in brokers]
        if not attached.created or not known[0] or known == (attached.sid, self._disks):
            return
        if lapsed and not strange:
            self._resume(consumer)
            return
        if not state.lossy and not lapsed:
            raise wrong(self.lane, "it came into being twice")
        # Under the old name it is another subscription now.
        state.sometimes("made anew")
        row.ended = True
        number = state.row_number()
        self.row = replace(consumer.row, number=number, token=None, tokens=[], created=False, ended=False)
        consumer.row = self.row
        consumer.asked_with = None
        state.world.observe.subscribing(consumer)

    def _resume(self, consumer: ChurnConsumer) -> None:
        """It goes on where it was, under another id: older tokens are of no use there."""
        self.state.sometimes("resumed after a lapse")
        self.row.tokens = []
        if consumer.wanted.positions is None:
            self.row.token = None

    def on_attached(self, consumer: ChurnConsumer, *, moved: bool) -> None:
        """A consumer has it, and the claim with it.

        `moved`: another one has committed since this one read the token. It holds the claim now, so that
        cannot happen again: it reads the token once more.
        """
        state = self.state
        if self.claimant is not None and self.claimant.alive and self.claimant is not consumer:
            state.sometimes("claim taken")
        self.claimant = consumer
        state.keep_old_token(self.row.token)
        if not self.living:
            self.depart(consumer)
            if self.durable and state.lossy:  # what was asked for before a disk was lost has made it anew
                self.remove(consumer.client)
            return
        self.home = consumer.client
        if moved:
            state.sometimes("position moved meanwhile")
            self.depart(consumer)
            self.consume(consumer.client)
        elif state.in_liveness:
            self._settle_down(consumer)

    def on_over(self, consumer: ChurnConsumer, error: GaplessError) -> None:
        """A consumer is over: that may be only for a good reason."""
        if consumer in self.consumers:
            self.consumers.remove(consumer)
        state = self.state
        if consumer.expects is not None and isinstance(error, consumer.expects):
            state.sometimes(f"refused: {type(error).__name__}")
        elif consumer.row is not self.row and isinstance(error, CHANGED):
            state.sometimes("changed under a consumer")
        elif type(error) is ConnectionClosedError and state.closing is consumer.client:
            if not consumer.core.sid:  # it never learnt that it has it
                self._late_until = state.world.now + ON_ITS_WAY
        elif isinstance(error, SubscriptionInUseError) and self.attempts > 1:
            state.sometimes("in use")
        elif isinstance(error, SubscriptionTakenOverError) and self.attempts > 1:
            state.sometimes("taken over")
        elif not self.living and self._is_gone(error):
            state.sometimes("removed while consumed")
        elif isinstance(error, TokenMismatchError) and self._was_created_unheard():
            state.sometimes("created unheard")
            self.row.start_token, self.row.start = None, StartAt.LATEST
        elif isinstance(error, SubscriptionNotFoundError) and (self.lapsed or self._has_lapsed_for(consumer)):
            state.sometimes("lapsed")
        elif isinstance(error, TokenMismatchError) and state.has_ever_lapsed(self.row.client_id, self.row.name):
            state.sometimes("token from before a lapse")
            self.row.token, self.row.tokens = None, []
        elif isinstance(error, MADE_ANOTHER) and state.has_ever_lapsed(self.row.client_id, self.row.name):
            state.sometimes("made another after a lapse")
        elif self._seems_lost(consumer, error):
            self._lost(consumer)
        else:
            raise wrong(self.lane, f"the consumption is over: {type(error).__name__}: {error}")

    def _is_gone(self, error: GaplessError) -> bool:
        """Whether it was removed; a request with a foreign token, asked again behind that, makes another one."""
        in_vain = any(consumer.expects is not None for consumer in self.alive())
        return isinstance(error, SubscriptionNotFoundError) or (isinstance(error, TokenMismatchError) and in_vain)

    def _was_created_unheard(self) -> bool:
        """Whether it may exist since an earlier request to create it with another subscription's token.

        The answer was lost, and the same request, asked again, finds it there: then the token is foreign.
        """
        return not self.row.created and self.row.start_token is not None

    def _seems_lost(self, consumer: ChurnConsumer, error: GaplessError) -> bool:
        """Whether the broker does not know what it should, or cannot know that it should not."""
        return isinstance(error, STRANGE) and self.state.lossy

    def _lost(self, consumer: ChurnConsumer) -> None:
        """The broker does not know what it should: the application begins anew, under the same name perhaps."""
        self.state.sometimes("subscription lost")
        if self.living and self.durable:
            self.remove(consumer.client)
        elif not self.durable:
            self.row.ended = True
