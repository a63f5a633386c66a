"""Transactions: what a session consumes and publishes between two commits takes effect together, or not at all.

The parts of a commit, and what is promised, are in `gapless.core.client.transacting` (protocol: transactions). Messages
are kept here until the commit; what was handed out and is not committed comes again, from the log.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from gapless import tracing
from gapless.core.client.transacting import Fate, Transacting
from gapless.core.stream.columns import EventColumns
from gapless.errors import (
    GaplessError,
    PublishRejectedError,
    TransactionInDoubtError,
    TransactionRolledBackError,
)

if TYPE_CHECKING:
    from opentelemetry.context import Context

    from gapless.client.driver import Driver
    from gapless.client.messages import Message
    from gapless.client.publisher import Publisher
    from gapless.client.receipts import Receipt, Submission
    from gapless.client.subscription import Subscription

PUBLISHERS_MAX: Final = 16
"""How many topics have a publisher at once: a transaction uses that of its first message."""


class UnderWay:
    """One commit, and its batch once that was sent."""

    def __init__(self, driver: Driver, commit: Transacting, publisher: Publisher | None) -> None:
        self._driver = driver
        self._commit = commit
        self._publisher = publisher
        self._submission: Submission | None = None

    @property
    def error(self) -> GaplessError | None:
        """What was refused."""
        return self._commit.error

    @property
    def reason(self) -> str:
        """Why it was not committed, for people."""
        publisher = self._publisher
        if publisher is not None and publisher.error is not None and not self._commit.is_sent:
            return str(publisher.error)
        return self._commit.reason

    def receipts(self) -> list[Receipt]:
        """Returns those of its messages."""
        return [] if self._submission is None else self._submission.receipts()

    def go_on(self) -> Fate:
        """Does what can be done now."""
        driver, commit, publisher = self._driver, self._commit, self._publisher
        commit.go_on(driver.now())
        if commit.ticket is not None and self._submission is None and publisher is not None:
            self._submission = publisher.expect(commit.ticket)
        submission = self._submission
        if submission is not None and submission.answered:
            if submission.error is None:
                commit.on_durable(driver.now())
            else:
                commit.give_up(submission.error)
        driver.touch()
        return commit.fate


class Transactions:
    """The transactions of one session, one after another. One task at a time may use it."""

    def __init__(
        self,
        driver: Driver,
        publisher: Callable[[str | None], Publisher],
        subscriptions: Callable[[], Sequence[Subscription[Any, Any]]],
    ) -> None:
        """For the session. `subscriptions`: those that have a part in its transactions."""
        self._driver = driver
        self._new_publisher = publisher
        self._subscriptions = subscriptions
        self._publishers: OrderedDict[str, Publisher] = OrderedDict()
        self._messages: list[Message] = []
        self._senders: list[Context] = []
        """The spans that were active when they were sent."""
        self._under_way: UnderWay | None = None
        self._unheard: GaplessError | None = None
        """Why the last commit failed, if its caller had gone."""

    def send(self, message: Message) -> None:
        """Keeps a message, which has its topic, until the commit."""
        self._messages.append(message)
        sender = tracing.current()
        if sender is not None:
            self._senders.append(sender)

    async def commit(self, caller: Context | None = None) -> list[Receipt]:
        """Commits what was handed out and sent since the last commit. Returns the receipts of the messages.

        `caller`: in which context of OpenTelemetry that was asked for, if not here.

        Raises TransactionRolledBackError (nothing took effect, and what was handed out comes again), and
        TransactionInDoubtError if the session is closed, or a subscription taken over, before the answer. If it is
        cancelled, it goes on: the next call waits for it first.
        """
        await self._answer()
        messages, self._messages = self._messages, []
        senders, self._senders = self._senders, []
        parent = caller or tracing.current() or next(iter(senders), None)
        with tracing.sending(messages, None, parent, senders) as traced:
            return await self._committed(traced)

    async def _committed(self, messages: list[Message]) -> list[Receipt]:
        subscriptions = self._subscriptions()
        consumed = dict(filter(None, (each.consumed() for each in subscriptions)))
        unnamed = [each for each in subscriptions if each.name is None]
        if messages or consumed:
            try:
                publisher = None if len(consumed) == 1 and not messages else self._publisher(messages, subscriptions)
                events = EventColumns.of((), ()) if publisher is None else publisher.encoded(messages)
                commit = Transacting(
                    self._driver.core, consumed, events, None if publisher is None else publisher.number
                )
            except GaplessError as error:
                raise await self._rolled_back(error, str(error), messages) from error
            self._under_way = UnderWay(self._driver, commit, publisher)
        receipts = await self._answer(messages)
        for subscription in unnamed:
            await subscription.acknowledge()
        return receipts

    async def rollback(self) -> None:
        """Forgets the messages, and has everything handed out again that was, and is not committed."""
        await self._answer()
        self._messages, self._senders = [], []
        for subscription in self._subscriptions():
            await subscription.recover()

    def note_unheard(self, error: BaseException | None) -> None:
        """A call has failed, and its caller had gone: the next one raises the error."""
        if isinstance(error, GaplessError):
            self._unheard = error

    # How it is done.

    async def _answer(self, messages: Sequence[Message] = ()) -> list[Receipt]:
        """Waits for the commit that is under way."""
        self._driver.check_here()
        if self._unheard is not None:
            await self._recover()
            unheard, self._unheard = self._unheard, None
            raise unheard
        under_way = self._under_way
        if under_way is None:
            return []
        while (fate := under_way.go_on()) is Fate.OPEN:
            await self._driver.change()
        self._under_way = None
        if fate is Fate.COMMITTED:
            return under_way.receipts()
        if fate is Fate.IN_DOUBT:
            raise TransactionInDoubtError(
                f"whether the transaction was committed is not known: {under_way.reason}"
            ) from under_way.error
        raise await self._rolled_back(under_way.error, under_way.reason, messages) from under_way.error

    async def _rolled_back(
        self, cause: GaplessError | None, reason: str, messages: Sequence[Message]
    ) -> TransactionRolledBackError:
        """Rolls back what could not be committed. Returns what to raise; if it is cancelled, the next call does."""
        topics = sorted({message.topic or "" for message in messages})
        if len(topics) > 1 and type(cause) is PublishRejectedError:
            reason = (
                f"{reason}. All messages of a transaction go to one pubend, and these have the topics"
                f" {', '.join(topics)}: give them to one pubend (topics, in [[phb.pubends]] of the broker's"
                " configuration), or send them in transactions of their own"
            )
        error = self._unheard = TransactionRolledBackError(f"the transaction was rolled back: {reason}")
        await self._recover()
        self._unheard = None
        return error

    async def _recover(self) -> None:
        for subscription in self._subscriptions():
            if not subscription.is_over:
                await subscription.recover()

    def _publisher(self, messages: Sequence[Message], subscriptions: Sequence[Subscription[Any, Any]]) -> Publisher:
        """Returns the publisher of the first message; without messages, any that leads to a pubend."""
        topic = messages[0].topic if messages else next(reversed(self._publishers), None)
        if topic is None:  # a pubend that the inputs come from takes their positions as well
            topic = next((topic for each in subscriptions if (topic := each.last_topic)), "")
        publisher = self._publishers.get(topic)
        if publisher is None or publisher.is_over:
            if len(self._publishers) >= PUBLISHERS_MAX:
                self._publishers.popitem(last=False)[1].abandon()
            publisher = self._publishers[topic] = self._new_publisher(topic or None)
        self._publishers.move_to_end(topic)
        return publisher
