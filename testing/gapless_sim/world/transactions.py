"""A transacted session in a client's process: what it consumes and publishes takes effect together or not at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gapless.core.client import Delivery
from gapless.core.client.transacting import Fate, Transacting
from gapless.core.stream.columns import EventColumns
from gapless_sim.world.consumer import Consumer, Row
from gapless_sim.world.producer import Outbox, Producer, Publication

if TYPE_CHECKING:
    from gapless.core.client import Item
    from gapless.core.client.consuming.subscription import SubscribeOptions
    from gapless.core.client.link import effects as e
    from gapless.core.stream.ticks import PubendId, Tick
    from gapless.errors import GaplessError
    from gapless_sim.world.application import SimClient

OUTPUTS = 1 << 48
"""The keys of what transactions publish begin here: others are counted from 1 on."""
OUTPUTS_MOST = 4
"""Of one transaction."""


@dataclass(slots=True, eq=False)
class Transaction:
    """What an application means as one."""

    number: int
    """From 1 on, unique in a world."""
    consumed: dict[int, dict[tuple[PubendId, Tick], None]] = field(default_factory=dict)
    """The places of the events, by the numbers of their rows."""
    outputs: tuple[Publication, ...] = ()
    fate: Fate = Fate.OPEN
    """As its application was told."""
    sent: bool = False
    """Whether anything was sent that may commit it."""


class Session:
    """A transacted session: its subscriptions, and a few publishers, of which each transaction uses one."""

    def __init__(self, client: SimClient, targets: Sequence[str], number: Callable[[], int]) -> None:
        """`targets`: the topics of its publishers; `number`: draws the number of a transaction."""
        self.client = client
        self.inputs: dict[int, Input] = {}
        """Its subscriptions that are not over, by the numbers of their rows."""
        self.publishers = [TransactionPublisher(self, topic) for topic in targets]
        self.transaction = Transaction(number())
        """The one that things are added to, or that is on its way."""
        self.on_ended: Callable[[Transaction], None] | None = None
        """Called when a transaction has ended, in whichever way."""
        self.on_taken: Callable[[], None] | None = None
        """Called when it was handed something."""
        self._number = number
        self._commit: Transacting | None = None

    @property
    def is_committing(self) -> bool:
        """Whether a commit is on its way: nothing is handed out meanwhile."""
        return self._commit is not None

    @property
    def is_clean(self) -> bool:
        """Whether nothing was handed out that is not committed."""
        return self._commit is None and not self.transaction.consumed

    def took(self, consumer: Input, item: Delivery) -> None:
        """It was handed events."""
        places = self.transaction.consumed.setdefault(consumer.row.number, {})
        places.update(dict.fromkeys((item.pubend, tick) for tick in item.ticks))
        if self.on_taken is not None:
            self.on_taken()

    def commit(self, outputs: int, publisher: int) -> None:
        """What was consumed, and so many outputs of one publisher, take effect."""
        client, transaction, world = self.client, self.transaction, self.client.world
        consumed = {number: self.inputs[number] for number in transaction.consumed}
        alone = not outputs and len(consumed) == 1
        if self._commit is not None or not (consumed or outputs):
            return
        by = self.publishers[publisher]
        transaction.outputs = by.write(transaction.number, outputs)
        positions = {consumer.number: consumer.core.end_positions() for consumer in consumed.values()}
        for consumer in consumed.values():
            world.observe.acknowledged(consumer, positions[consumer.number])
        if outputs:
            world.observe.published(by, transaction.outputs)
        columns = EventColumns.of(
            [publication.event for publication in transaction.outputs],
            [len(publication.body) for publication in transaction.outputs],
        )
        self._commit = Transacting(client.core, positions, columns, None if alone else by.number)
        self._publisher = by
        world.observe.transacting(transaction)
        self.go_on()

    def go_on(self) -> None:
        """Something may have happened."""
        commit = self._commit
        if commit is None or not self.client.running:
            return
        before = commit.ticket
        commit.go_on(self.client.monotonic())
        self.transaction.sent = commit.is_sent
        if commit.ticket is not None and before is None:
            self._publisher.sent(commit.ticket, self.transaction.outputs)
        self.client.schedule_pump()
        self._settle()

    def receipted(self, receipted: e.Receipted) -> None:
        """The batch of its transaction is durable."""
        if self._commit is not None and self._commit.ticket == receipted.ticket:
            self._commit.on_receipted(receipted, self.client.monotonic())
            self.client.schedule_pump()
            self._settle()

    def not_published(self, refused: e.NotPublished) -> None:
        """The batch of its transaction has no receipt."""
        if self._commit is not None and self._commit.ticket == refused.ticket:
            self._commit.on_not_published(refused)
            self._settle()

    def lost(self, consumer: Input, error: GaplessError) -> None:
        """A subscription is over: what was handed out of it cannot be committed any more, if it was not sent yet."""
        if self.inputs.get(consumer.row.number) is consumer:
            del self.inputs[consumer.row.number]
        if consumer.row.number not in self.transaction.consumed:
            return
        if self._commit is None:
            self._end(Fate.ROLLED_BACK)
        elif self._commit.ticket is None:
            self._commit.give_up(error)
            self._settle()

    def roll_back(self) -> None:
        """Nothing of it is to take effect."""
        if self._commit is None:
            self._end(Fate.ROLLED_BACK)

    def _settle(self) -> None:
        commit = self._commit
        if commit is not None and commit.fate is not Fate.OPEN:
            self._commit = None
            self._end(commit.fate)

    def _end(self, fate: Fate) -> None:
        transaction, self.transaction = self.transaction, Transaction(self._number())
        transaction.fate = fate
        self.client.world.observe.transacted(transaction)
        if self.on_ended is not None:
            self.on_ended(transaction)
        for consumer in list(self.inputs.values()):
            consumer.go_on(consumer.pace)


class TransactionPublisher(Producer):
    """A publisher without a name, which publishes what transactions have made."""

    def __init__(self, session: Session, topic: str) -> None:
        self.session = session
        super().__init__(session.client, Outbox(topic, topic, common=True), named=False)

    def write(self, transaction: int, outputs: int) -> tuple[Publication, ...]:
        """What a transaction publishes."""
        first = OUTPUTS + transaction * OUTPUTS_MOST
        made = tuple(Publication(first + index, self.outbox.topic, {}) for index in range(outputs))
        for publication in made:
            publication.published_at = self.client.world.now
            publication.sender = self.name
        return made

    def sent(self, ticket: int, outputs: Sequence[Publication]) -> None:
        """They are on their way."""
        self._tickets[ticket] = outputs

    def on_answered(self, ready: e.PublisherReady) -> None:
        """It is open."""
        super().on_answered(ready)
        self.session.go_on()

    def on_receipted(self, receipted: e.Receipted) -> None:
        """A transaction is committed."""
        super().on_receipted(receipted)
        self.session.receipted(receipted)

    def on_not_published(self, refused: e.NotPublished) -> None:
        """A transaction is not, or nobody knows."""
        super().on_not_published(refused)
        self.session.not_published(refused)

    def on_failed(self, error: GaplessError) -> None:
        """It is over."""
        super().on_failed(error)
        self.session.go_on()


class Input(Consumer):
    """A subscription of a transacted session."""

    commits = True

    def __init__(self, session: Session, row: Row, wanted: SubscribeOptions, *, pace: int, portion: int) -> None:
        self.session = session
        super().__init__(session.client, row, wanted, pace=pace, portion=portion, acknowledges="never")
        session.inputs[row.number] = self

    @property
    def waits(self) -> bool:
        """Whether a transaction is on its way, perhaps to a pubend that is cut off."""
        return self.session.is_committing

    def commit(self) -> None:
        """There is no database: the session commits."""

    def on_arrived(self) -> None:
        """There is something to take, or something is durable."""
        self.session.go_on()
        super().on_arrived()

    def on_failed(self, error: GaplessError) -> None:
        """It is over."""
        super().on_failed(error)
        self.session.lost(self, error)

    def _take_one(self) -> bool:
        if not self.attached or self.session.is_committing:
            return False
        item: Item | None = self.client.core.take(self.number, self.client.monotonic(), self.portion)
        if item is None:
            return False
        self.client.world.observe.handed_out(self, item)
        if isinstance(item, Delivery):
            self.session.took(self, item)
        return not self.over
