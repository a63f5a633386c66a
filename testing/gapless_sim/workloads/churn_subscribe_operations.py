"""The operations of the workload `churn` on subscriptions and consumers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING
from zlib import crc32

from gapless.core.wire.messages import InUse, OnChange, Order, StartAt
from gapless.errors import (
    InvalidSelectorError,
    InvalidTokenError,
    InvalidTopicError,
    SubscriptionMismatchError,
)
from gapless_sim.workloads.churn_changes import Changes
from gapless_sim.workloads.churn_commits import Commits
from gapless_sim.workloads.churn_consumers import ChurnConsumer, Habits, with_token
from gapless_sim.workloads.churn_state import ChurnState
from gapless_sim.workloads.churn_subscriptions import AppSubscription
from gapless_sim.workloads.filters import (
    NONSENSE_SELECTORS,
    NONSENSE_TOPICS,
    PATTERNS,
    SELECTORS,
    Terms,
    combine,
    draw_terms,
    other_terms,
)
from gapless_sim.world.clocks import WALL_BEGIN
from gapless_sim.world.consumer import Row
from gapless_sim.world.options import MILLISECOND

if TYPE_CHECKING:
    from gapless.core.wire.tokens import CheckpointToken
    from gapless_sim.workloads.churn_application import Application
    from gapless_sim.world.application import SimClient

NAMES = ("one", "two", "three", "four")
STARTS = (StartAt.LATEST, StartAt.EARLIEST, StartAt.TOKEN, StartAt.TIME)


class SubscribeOperations:
    """Each takes an application and one of its processes, and returns whether there was something to do."""

    def __init__(
        self, state: ChurnState, applications: Sequence[Application], changes: Changes, commits: Commits
    ) -> None:
        self._state = state
        self._commits = commits
        self._changes = changes
        self._choices = state.choices
        self._applications = applications

    def others(self) -> Sequence[Callable[[Application, SimClient], bool]]:
        """All of them. Some stand there twice: they come twice as often."""
        return (
            self.subscribe,
            self.subscribe,
            self.leave,
            self.leave,
            self.come_back,
            self.come_back,
            self.flap,
            self.remove,
            self.rival,
            self.rival,
            self.change_selector,
            self.present_foreign_token,
            self.ask_nonsense,
            self.stop,
            self.go_on,
            self.acknowledge,
        )

    # Creating and removing.

    def subscribe(self, application: Application, process: SimClient) -> bool:
        """A new subscription, under a name that may have been used before; or one that is not durable."""
        most = max(1, self._state.world.options.subscriptions)
        if sum(len(other.living()) for other in self._applications) >= most:
            return False
        name = None if self._choices.chance(0.25) else self._choices.pick(NAMES)
        if name is not None and application.named(name) is not None:
            return False
        if name is None:
            self._state.sometimes("not durable")
        elif name in application.changed_at:
            self._state.sometimes("created again under a name")
        self._create(application, process, name)
        return True

    def remove(self, application: Application, process: SimClient) -> bool:
        """A durable subscription is removed, by its own application or by another one."""
        durable = [
            subscription
            for subscription in application.living()
            if subscription.durable and not subscription.pending_elsewhere(process)
        ]
        if not durable:
            return False
        subscription = self._choices.pick(durable)
        remover = process
        others = self._others_at(process)
        if others and self._choices.chance(0.2) and not subscription.pending_elsewhere(None):
            remover = self._choices.pick(others)
            self._state.sometimes("removed by another client")
        consumer = subscription.attached_consumer()
        if consumer is not None and consumer.client is process and self._choices.chance(0.5):
            subscription.depart(consumer)
        subscription.remove(remover)
        return True

    def _create(self, application: Application, process: SimClient, name: str | None) -> None:
        choices, state = self._choices, self._state
        terms, start, token = draw_terms(choices), choices.pick(STARTS), None
        if start is StartAt.TOKEN:
            token = choices.pick(state.old_tokens) if state.old_tokens else None
            start = start if token is not None else StartAt.LATEST
        row = self._row(application, name, terms)
        row.start, row.start_token = start, token
        row.order = self._order(application, name)
        row.silence = choices.chance(state.world.options.wants_silence)
        row.keeps_token = not choices.chance(0.25)
        self._changes.leave_out(row)
        begins = WALL_BEGIN + state.world.now // MILLISECOND - choices.draw(10_000)
        subscription = AppSubscription(state, row, self._habits(name), application.changed_at, start_wall=begins)
        application.subscriptions.append(subscription)
        subscription.home = process
        self._commits.choose(subscription)
        subscription.consume(process)
        state.sometimes(f"created at {start.value}")

    def _order(self, application: Application, name: str | None) -> Order:
        """The order of a new subscription. A name has the same one always: it may be there still, unknown to all."""
        share = self._state.world.options.ordered
        if not share:
            return Order.PUBEND
        key = name or str(self._state.world.now)
        wanted = crc32(f"{application.name}/{key}".encode()) % 1000 < 1000 * share
        if wanted:
            self._state.sometimes("in total order")
        return Order.TOTAL if wanted else Order.PUBEND

    def _row(self, application: Application, name: str | None, terms: Terms) -> Row:
        return Row(self._state.row_number(), application.name, name, terms.topics, terms.selector, terms.matches)

    def _habits(self, name: str | None) -> Habits:
        choices, state = self._choices, self._state
        pace = 0
        window: tuple[tuple[str, int], ...] = ()
        if choices.chance(0.3):
            pace = (1 + choices.draw(300)) * MILLISECOND
            state.sometimes("slow consumer")
        if choices.chance(0.25):
            state.sometimes("small window")
            smallest = 1 if name is not None else 32
            window = (
                ("window_events", smallest + choices.draw(20)),
                ("window_bytes", smallest << 10 if choices.chance(0.5) else 1 << 20),
            )
        portion = 1 + choices.draw(8) if choices.chance(0.3) else None
        commit_every = 1 + choices.draw(12) if choices.chance(0.4) else 1
        acknowledges = choices.pick(("at once", "late", "early", "never"))
        return Habits(pace, portion, commit_every, acknowledges, window)

    # Leaving and coming back.

    def leave(self, application: Application, process: SimClient) -> bool:
        """A consumer ends; it has committed what it had, or not."""
        consumer = self._some_consumer(application, process)
        if consumer is None:
            return False
        self._leave(consumer)
        consumer.subscription.home = None
        return True

    def come_back(self, application: Application, process: SimClient) -> bool:
        """Somebody consumes a subscription that nobody did."""
        away = [
            subscription for subscription in application.living() if subscription.durable and subscription.home is None
        ]
        if not away:
            return False
        self._return(self._choices.pick(away), process)
        return True

    def flap(self, application: Application, process: SimClient) -> bool:
        """A consumer ends, and is there again at once, maybe before it has caught up."""
        consumer = self._some_consumer(application, process)
        if consumer is None or not consumer.subscription.durable:
            return False
        if consumer.core.buffered_events:
            self._state.sometimes("reattached while catching up")
        self._leave(consumer)
        self._return(consumer.subscription, process)
        return True

    def _leave(self, consumer: ChurnConsumer) -> None:
        if self._choices.chance(0.5):
            consumer.commit()
        if not consumer.over:
            consumer.subscription.depart(consumer)
        self._state.keep_old_token(consumer.row.token)
        self._state.sometimes("left")

    def _return(self, subscription: AppSubscription, process: SimClient) -> None:
        """With the newest token mostly; or with an older one, or none."""
        choices, row = self._choices, subscription.row
        how = choices.pick(("newest token", "newest token", "old token", "acknowledged position"))
        token: CheckpointToken | None = None
        if how == "old token" and row.tokens and row.keeps_token:
            token = choices.pick(row.tokens)
        elif how == "old token":
            how = "newest token"
        subscription.home = process
        in_use = InUse.TAKEOVER if choices.chance(0.3) else InUse.ERROR
        subscription.consume(process, in_use=in_use, token=token, acknowledged=how == "acknowledged position")
        self._state.sometimes(f"returned: {how}")

    # Rivals, and what must be refused.

    def rival(self, application: Application, process: SimClient) -> bool:
        """Somebody wants a subscription that another one consumes: in this process, or in the other one."""
        taken = [
            subscription
            for subscription in application.living()
            if subscription.durable and subscription.attached_consumer() is not None
        ]
        if not taken:
            return False
        subscription = self._choices.pick(taken)
        in_use = self._choices.pick((InUse.ERROR, InUse.WAIT, InUse.TAKEOVER))
        if in_use is InUse.WAIT and not subscription.row.created:
            in_use = InUse.ERROR  # who waits for a change would change it after whatever comes meanwhile
        subscription.consume(process, in_use=in_use)
        self._state.sometimes(f"rival: {in_use.value}")
        return True

    def change_selector(self, application: Application, process: SimClient) -> bool:
        """The name of a subscription with other topics or another selector: refused."""
        subscription = self._some_created(application)
        if subscription is None:
            return False
        terms = other_terms(self._choices, (subscription.row.topics, subscription.row.selector))
        row = self._row(application, subscription.row.name, terms)
        wanted = row.wanted(in_use=self._choices.pick((InUse.ERROR, InUse.TAKEOVER)))
        subscription.try_in_vain(process, wanted, SubscriptionMismatchError, row)
        return True

    def present_foreign_token(self, application: Application, process: SimClient) -> bool:
        """The token of another subscription does not position this one: refused."""
        subscription = self._some_created(application)
        own = None if subscription is None else subscription.row.token
        if subscription is None or own is None:
            return False
        # The token that it was created from may be presented once more: the answer may have been lost. That it is for
        # other events since makes no difference.
        row: Row | None = subscription.row
        mine = {own.seal}
        while row is not None:
            if row.start_token is not None:
                mine.add(row.start_token.seal)
            row = row.former if row.on_change is OnChange.KEEP_POSITION else None
        foreign = [token for token in self._state.old_tokens if token.seal not in mine]
        if not foreign:
            return False
        wanted = with_token(subscription.row.wanted(), self._choices.pick(foreign))
        subscription.try_in_vain(process, wanted, InvalidTokenError)
        return True

    def ask_nonsense(self, application: Application, process: SimClient) -> bool:
        """A selector, or a topic, that is none: refused."""
        choices = self._choices
        row = self._row(application, "nonsense", combine([PATTERNS[0]], *SELECTORS[0]))
        subscription = AppSubscription(self._state, row, Habits(), {})
        if choices.chance(0.5):
            wanted = replace(row.wanted(), selector=choices.pick(NONSENSE_SELECTORS))
            subscription.try_in_vain(process, wanted, InvalidSelectorError)
        else:
            wanted = replace(row.wanted(), topics=(choices.pick(NONSENSE_TOPICS),))
            subscription.try_in_vain(process, wanted, InvalidTopicError)
        return True

    # Habits.

    def stop(self, application: Application, process: SimClient) -> bool:
        """A consumer takes nothing any more, although it is attached."""
        consumer = self._some_consumer(application, process)
        if consumer is None:
            return False
        consumer.stopped = True
        self._state.sometimes("stopped")
        return True

    def go_on(self, application: Application, process: SimClient) -> bool:
        """It takes again, at another pace perhaps."""
        stopped = [consumer for consumer in self._consumers(application, process) if consumer.stopped]
        if not stopped:
            return False
        self._choices.pick(stopped).go_on(self._choices.pick((0, 10, 200)) * MILLISECOND)
        self._state.sometimes("went on")
        return True

    def acknowledge(self, application: Application, process: SimClient) -> bool:
        """An acknowledgement at any time: of what is committed, or of an older token."""
        consumer = self._some_consumer(application, process)
        if consumer is None or consumer.row.token is None or not consumer.row.keeps_token:
            return False
        consumer.acknowledge(self._choices.pick([consumer.row.token, *consumer.row.tokens]).ticks)
        self._state.sometimes("acknowledged out of turn")
        return True

    # Whom it concerns.

    def _consumers(self, application: Application, process: SimClient) -> list[ChurnConsumer]:
        """The consumers of a process that are attached."""
        subscriptions = application.living()
        return [
            consumer
            for subscription in subscriptions
            for consumer in subscription.consumers_of(process)
            if consumer.attached
        ]

    def _some_consumer(self, application: Application, process: SimClient) -> ChurnConsumer | None:
        consumers = self._consumers(application, process)
        return self._choices.pick(consumers) if consumers else None

    def _some_created(self, application: Application) -> AppSubscription | None:
        """A durable subscription that exists for certain."""
        created = [
            subscription for subscription in application.living() if subscription.durable and subscription.row.created
        ]
        return self._choices.pick(created) if created else None

    def _others_at(self, process: SimClient) -> list[SimClient]:
        """Processes of other applications at the same broker."""
        return [
            other
            for application in self._applications
            for other in application.able()
            if other.addresses == process.addresses and process not in application.processes
        ]
