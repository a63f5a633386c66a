"""The workload `transactions`: applications whose inputs and outputs take effect together, without a database.

It is run when it is asked for by its name, and draws from a stream of its own. Each client has two processes, and
either may take the subscriptions over from the other one, which works, stands still or is dead meanwhile. Each process
has two publishers, whose topics may be on pubends of two brokers. Brokers die, too, now and then together with
the processes of a client.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gapless.core.client.transacting import Fate
from gapless.core.wire.messages import InUse, StartAt
from gapless.errors import (
    ConnectionClosedError,
    PublishUncertainError,
    SubscriptionInUseError,
    SubscriptionTakenOverError,
)
from gapless_sim.workloads.filters import combine
from gapless_sim.workloads.publications import TOPICS
from gapless_sim.workloads.rivals import RivalledApplication, RivalledApplications
from gapless_sim.workloads.transforms import INPUTS
from gapless_sim.world.consumer import Row
from gapless_sim.world.options import MILLISECOND
from gapless_sim.world.producer import Outbox, Producer
from gapless_sim.world.transactions import Input, Session, Transaction

if TYPE_CHECKING:
    from gapless.errors import GaplessError
    from gapless_sim.world.application import SimClient
    from gapless_sim.world.consumer import Consumer

SOMETIMES = (
    "transactions.published",
    "transactions.committed at home",
    "transactions.committed outputs alone",
    "transactions.committed both",
    "transactions.committed inputs of two subscriptions",
    "transactions.rolled back",
    "transactions.refused",
    "transactions.process crashed",
    "transactions.client and broker died together",
    "transactions.stood still",
    "transactions.input taken over",
    "transactions.enlisted at two pubends",
)


class TransactingApplication(RivalledApplication):
    """One client: an outbox with inputs for others, and the subscriptions that its processes consume."""

    def __init__(self, workload: Transactions, client: SimClient, number: int) -> None:
        super().__init__(workload, client)
        self.workload = workload
        self.sessions: dict[SimClient, Session] = {}
        """The session of each process."""
        self.outbox = Outbox(f"out-{number}", self.draws.pick(TOPICS))
        self.rival.on_start = self._start_session

    def start(self, client: SimClient) -> None:
        """A process begins: it publishes inputs, and consumes."""
        self.producer = Producer(client, self.outbox)
        self.producer.on_over = self._on_producer_over
        self._start_session(client)

    def _start_session(self, client: SimClient) -> None:
        targets = [f"output.{self.draws.pick('xy')}.{index}" for index in range(2)]
        session = self.sessions[client] = Session(client, targets, self.workload.transaction_number)
        session.on_ended = partial(self._on_ended, session)
        session.on_taken = partial(self._on_taken, session)
        for publisher in session.publishers:
            publisher.on_over = self._on_producer_over
        for row in self.rows:
            if self.draws.chance(0.6):
                self.consume(session, row)

    def add(self, number: int, start: StartAt) -> None:
        """One more subscription."""
        terms = combine([self.draws.pick(INPUTS)], "", lambda _: True)
        name = f"input-{number}"
        row = Row(number, self.client.name, name, terms.topics, terms.selector, terms.matches, start)
        row.keeps_token = False
        self.rows.append(row)
        for process in self.processes[:1]:
            self.consume(self.sessions[process], row)

    def consume(self, session: Session, row: Row) -> None:
        """A session consumes a subscription, whoever else does; what it had of it before is rolled back."""
        if not session.client.running or session.is_committing:
            return
        former = session.inputs.get(row.number)
        if former is not None:
            self._leave(session, former)
        pace = self.draws.pick((0, 0, 20, 300)) * MILLISECOND
        wanted = row.wanted(in_use=InUse.TAKEOVER, commits=True)
        Input(session, row, wanted, pace=pace, portion=self.draws.pick((1, 2, 3, 8)))

    def _leave(self, session: Session, consumer: Input) -> None:
        """A consumer leaves; the transaction that it had a part in is rolled back."""
        if session.inputs.pop(consumer.row.number, None) is not None:
            consumer.leave()
        if consumer.row.number in session.transaction.consumed:
            session.roll_back()

    # What transactions do.

    def _on_taken(self, session: Session) -> None:
        """Something was consumed: commits now, or takes more, or thinks better of it."""
        draws = self.draws
        if self.workload.in_liveness or draws.chance(0.5):
            self.world.after(0, session.client.name, "commit", self._commit, session, life=session.client.life)
        elif draws.chance(0.2):
            self.world.after(0, session.client.name, "roll back", session.roll_back, life=session.client.life)

    def _commit(self, session: Session) -> None:
        draws = self.draws
        if not session.is_clean and not session.is_committing:
            session.commit(draws.draw(3), draws.draw(2))
            if not self.workload.in_liveness and draws.chance(0.1):
                self._stand_still(session.client)

    def _stand_still(self, client: SimClient) -> None:
        """A process stands still with its commit on its way or not, and the other one takes over."""
        self.world.sometimes("transactions.stood still")
        client.pause(self.draws.between(50, 6_000) * MILLISECOND)
        other = self.rival if client is self.client else self.client
        if other.running:
            for row in self.rows:
                self.consume(self.sessions[other], row)

    def publish_alone(self) -> None:
        """A session has outputs and no inputs."""
        for client in self.processes:
            session = self.sessions[client]
            if session.is_clean and self.draws.chance(0.5):
                session.commit(self.draws.between(1, 2), self.draws.draw(2))

    def crash(self) -> None:
        """A process dies; maybe both, and maybe the broker that they are at."""
        draws, dying = self.draws, self.processes
        if not dying:
            return
        if draws.chance(0.5):
            dying = [draws.pick(dying)]
        elif draws.chance(0.5):
            self.world.sometimes("transactions.client and broker died together")
            broker = self.world.brokers[self.client.addresses[0]]
            broker.crash(draws.draw(1 + broker.disk.unsynced))
        for process in dying:
            self.world.sometimes("transactions.process crashed")
            process.crash()
            self.world.after(draws.between(50, 3_000) * MILLISECOND, process.name, "start", process.start)

    def go_over(self) -> None:
        """A process takes a subscription over, or everything from one that stands still."""
        draws, able = self.draws, self.processes
        if not able or not self.rows:
            return
        client = draws.pick(able)
        if draws.chance(0.3):
            self._stand_still(client)
        else:
            self.consume(self.sessions[client], draws.pick(self.rows))

    def finish(self) -> None:
        """Everything is published, consumed by somebody, and committed."""
        super().finish()
        for client in self.processes:
            session = self.sessions[client]
            for consumer in list(session.inputs.values()):
                consumer.go_on(0)
            self._commit(session)
        for row in self.rows:
            if not any(self._has(client, row) for client in self.connected):
                for client in self.connected[:1]:
                    self.consume(self.sessions[client], row)

    def settled(self) -> bool:
        """Whether each subscription is consumed, and all of it committed."""
        return all(any(self._has(client, row) for client in self.connected) for row in self.rows) and all(
            self.sessions[client].is_clean for client in self.connected
        )

    def _has(self, client: SimClient, row: Row) -> bool:
        consumer = self.sessions[client].inputs.get(row.number)
        return consumer is not None and not consumer.over

    def _on_ended(self, session: Session, transaction: Transaction) -> None:
        """What was handed out and is not committed comes again, from the broker."""
        fate, sometimes = transaction.fate, self.world.sometimes
        if fate is Fate.COMMITTED:
            inputs, outputs = len(transaction.consumed), len(transaction.outputs)
            if not inputs:
                sometimes("transactions.committed outputs alone")
            elif outputs:
                sometimes("transactions.committed both")
            else:
                sometimes(f"transactions.committed {'at home' if inputs == 1 else 'inputs of two subscriptions'}")
            for consumer in session.inputs.values():
                committing = consumer.core.committing
                if committing is not None and len(committing.enlisted) > 1:
                    sometimes("transactions.enlisted at two pubends")
            return
        sometimes(f"transactions.{'refused' if transaction.sent else 'rolled back'}")
        for number in transaction.consumed:
            left = session.inputs.pop(number, None)
            if left is not None:
                left.leave()
                wait = self.draws.draw(200 * MILLISECOND)
                life = session.client.life
                self.world.after(wait, session.client.name, "again", self.consume, session, left.row, life=life)

    def _on_producer_over(self, _producer: Producer, error: GaplessError) -> None:
        if not isinstance(error, PublishUncertainError):
            raise error


class Transactions(RivalledApplications[TransactingApplication]):
    """The applications of one world."""

    name = "transactions"
    missing = "a transaction is not committed, or nobody consumes"
    _transactions = 0

    def transaction_number(self) -> int:
        """A number that no transaction had before."""
        self._transactions += 1
        return self._transactions

    def lost_subscription(self, consumer: Consumer, error: GaplessError) -> None:
        """A rival has taken it over, or its process ends."""
        if not self.has(consumer.client):
            return
        if isinstance(error, SubscriptionTakenOverError):
            self.world.sometimes("transactions.input taken over")
        elif not isinstance(error, ConnectionClosedError | SubscriptionInUseError):
            raise error

    def _application(self, client: SimClient, number: int) -> TransactingApplication:
        return TransactingApplication(self, client, number)

    def _add(self, start: StartAt) -> None:
        self.draws.pick(self.applications).add(self.row_number(), start)

    def _act(self, application: TransactingApplication) -> None:
        if self.draws.chance(0.04):
            application.crash()
        elif self.draws.chance(0.08):
            application.go_over()
        elif self.draws.chance(0.05):
            application.publish_alone()
        else:
            application.publish()
