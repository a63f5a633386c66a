"""The operations of the workload `churn` on subscriptions and consumers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gapless.core.wire.messages import InUse, StartAt
from gapless.errors import (
    InvalidSelectorError,
    InvalidTokenError,
    InvalidTopicError,
    SubscriptionMismatchError,
)
from gapless_sim.clocks import WALL_BEGIN
from gapless_sim.consumer import Row
from gapless_sim.options import MILLISECOND
from gapless_sim.workloads.churn_customers import Customer, Habits, with_token
from gapless_sim.workloads.churn_holdings import Holding
from gapless_sim.workloads.churn_scene import Scene
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

if TYPE_CHECKING:
    from gapless.core.wire.tokens import CheckpointToken
    from gapless_sim.application import SimClient
    from gapless_sim.workloads.churn_application import Application

NAMES = ("one", "two", "three", "four")
STARTS = (StartAt.LATEST, StartAt.EARLIEST, StartAt.TOKEN, StartAt.TIME)


class SubscribingOperations:
    """Each takes an application and one of its processes, and returns whether there was something to do."""

    def __init__(self, scene: Scene, applications: Sequence[Application]) -> None:
        self._scene = scene
        self._choices = scene.choices
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
        most = max(1, self._scene.world.options.subscriptions)
        if sum(len(other.living()) for other in self._applications) >= most:
            return False
        name = None if self._choices.chance(0.25) else self._choices.pick(NAMES)
        if name is not None and application.named(name) is not None:
            return False
        if name is None:
            self._scene.probe("not durable")
        elif name in application.touched:
            self._scene.probe("created again under a name")
        self._create(application, process, name)
        return True

    def remove(self, application: Application, process: SimClient) -> bool:
        """A durable subscription is removed, by its own application or by another one."""
        durable = [
            holding for holding in application.living() if holding.durable and not holding.pending_elsewhere(process)
        ]
        if not durable:
            return False
        holding = self._choices.pick(durable)
        remover = process
        others = self._others_at(process)
        if others and self._choices.chance(0.2) and not holding.pending_elsewhere(None):
            remover = self._choices.pick(others)
            self._scene.probe("removed by another client")
        customer = holding.consumer()
        if customer is not None and customer.client is process and self._choices.chance(0.5):
            holding.depart(customer)
        holding.remove(remover)
        return True

    def _create(self, application: Application, process: SimClient, name: str | None) -> None:
        choices, scene = self._choices, self._scene
        terms, start, token = draw_terms(choices), choices.pick(STARTS), None
        if start is StartAt.TOKEN:
            token = choices.pick(scene.souvenirs) if scene.souvenirs else None
            start = start if token is not None else StartAt.LATEST
        row = self._row(application, name, terms)
        row.start, row.start_token = start, token
        row.silence = choices.chance(scene.world.options.wants_silence)
        row.keeps_token = not choices.chance(0.25)
        begins = WALL_BEGIN + scene.world.now // MILLISECOND - choices.draw(10_000)
        holding = Holding(scene, row, self._habits(name), application.touched, start_wall=begins)
        application.holdings.append(holding)
        holding.home = process
        holding.consume(process)
        scene.probe(f"created at {start.value}")

    def _row(self, application: Application, name: str | None, terms: Terms) -> Row:
        return Row(self._scene.row_number(), application.name, name, terms.topics, terms.selector, terms.matches)

    def _habits(self, name: str | None) -> Habits:
        choices, scene = self._choices, self._scene
        pace = 0
        window: tuple[tuple[str, int], ...] = ()
        if choices.chance(0.3):
            pace = (1 + choices.draw(300)) * MILLISECOND
            scene.probe("slow consumer")
        if choices.chance(0.25):
            scene.probe("small window")
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
        customer = self._some_customer(application, process)
        if customer is None:
            return False
        self._leave(customer)
        customer.holding.home = None
        return True

    def come_back(self, application: Application, process: SimClient) -> bool:
        """Somebody consumes a subscription that nobody did."""
        away = [holding for holding in application.living() if holding.durable and holding.home is None]
        if not away:
            return False
        self._return(self._choices.pick(away), process)
        return True

    def flap(self, application: Application, process: SimClient) -> bool:
        """A consumer ends, and is there again at once, maybe before it has caught up."""
        customer = self._some_customer(application, process)
        if customer is None or not customer.holding.durable:
            return False
        if customer.core.buffered_events:
            self._scene.probe("reattached while catching up")
        self._leave(customer)
        self._return(customer.holding, process)
        return True

    def _leave(self, customer: Customer) -> None:
        if self._choices.chance(0.5):
            customer.commit()
        if not customer.over:
            customer.holding.depart(customer)
        self._scene.keep_souvenir(customer.row.token)
        self._scene.probe("left")

    def _return(self, holding: Holding, process: SimClient) -> None:
        """With the newest token mostly; or with an older one, or none."""
        choices, row = self._choices, holding.row
        how = choices.pick(("newest token", "newest token", "old token", "acknowledged position"))
        token: CheckpointToken | None = None
        if how == "old token" and row.tokens and row.keeps_token:
            token = choices.pick(row.tokens)
        elif how == "old token":
            how = "newest token"
        holding.home = process
        in_use = InUse.TAKEOVER if choices.chance(0.3) else InUse.ERROR
        holding.consume(process, in_use=in_use, token=token, acknowledged=how == "acknowledged position")
        self._scene.probe(f"returned: {how}")

    # Rivals, and what must be refused.

    def rival(self, application: Application, process: SimClient) -> bool:
        """Somebody wants a subscription that another one consumes: in this process, or in the other one."""
        taken = [holding for holding in application.living() if holding.durable and holding.consumer() is not None]
        if not taken:
            return False
        holding = self._choices.pick(taken)
        in_use = self._choices.pick((InUse.ERROR, InUse.WAIT, InUse.TAKEOVER))
        holding.consume(process, in_use=in_use)
        self._scene.probe(f"rival: {in_use.value}")
        return True

    def change_selector(self, application: Application, process: SimClient) -> bool:
        """The name of a subscription with other topics or another selector: refused."""
        holding = self._some_created(application)
        if holding is None:
            return False
        terms = other_terms(self._choices, (holding.row.topics, holding.row.selector))
        row = self._row(application, holding.row.name, terms)
        wanted = row.wanted(in_use=self._choices.pick((InUse.ERROR, InUse.TAKEOVER)))
        holding.try_in_vain(process, wanted, SubscriptionMismatchError, row)
        return True

    def present_foreign_token(self, application: Application, process: SimClient) -> bool:
        """The token of another subscription does not position this one: refused."""
        holding = self._some_created(application)
        own = None if holding is None else holding.row.token
        if holding is None or own is None:
            return False
        # The token that it was created from may be presented once more: the answer may have been lost.
        mine = (own.seal, holding.row.start_token.seal if holding.row.start_token is not None else b"")
        foreign = [token for token in self._scene.souvenirs if token.seal not in mine]
        if not foreign:
            return False
        wanted = with_token(holding.row.wanted(), self._choices.pick(foreign))
        holding.try_in_vain(process, wanted, InvalidTokenError)
        return True

    def ask_nonsense(self, application: Application, process: SimClient) -> bool:
        """A selector, or a topic, that is none: refused."""
        choices = self._choices
        row = self._row(application, "nonsense", combine([PATTERNS[0]], *SELECTORS[0]))
        holding = Holding(self._scene, row, Habits(), {})
        if choices.chance(0.5):
            wanted = replace(row.wanted(), selector=choices.pick(NONSENSE_SELECTORS))
            holding.try_in_vain(process, wanted, InvalidSelectorError)
        else:
            wanted = replace(row.wanted(), topics=(choices.pick(NONSENSE_TOPICS),))
            holding.try_in_vain(process, wanted, InvalidTopicError)
        return True

    # Habits.

    def stop(self, application: Application, process: SimClient) -> bool:
        """A consumer takes nothing any more, although it is attached."""
        customer = self._some_customer(application, process)
        if customer is None:
            return False
        customer.stopped = True
        self._scene.probe("stopped")
        return True

    def go_on(self, application: Application, process: SimClient) -> bool:
        """It takes again, at another pace perhaps."""
        stopped = [customer for customer in self._customers(application, process) if customer.stopped]
        if not stopped:
            return False
        self._choices.pick(stopped).go_on(self._choices.pick((0, 10, 200)) * MILLISECOND)
        self._scene.probe("went on")
        return True

    def acknowledge(self, application: Application, process: SimClient) -> bool:
        """An acknowledgement at any time: of what is committed, or of an older token."""
        customer = self._some_customer(application, process)
        if customer is None or customer.row.token is None or not customer.row.keeps_token:
            return False
        customer.acknowledge(self._choices.pick([customer.row.token, *customer.row.tokens]).ticks)
        self._scene.probe("acknowledged out of turn")
        return True

    # Whom it concerns.

    def _customers(self, application: Application, process: SimClient) -> list[Customer]:
        """The consumers of a process that are attached."""
        holdings = application.living()
        return [customer for holding in holdings for customer in holding.customers_of(process) if customer.attached]

    def _some_customer(self, application: Application, process: SimClient) -> Customer | None:
        customers = self._customers(application, process)
        return self._choices.pick(customers) if customers else None

    def _some_created(self, application: Application) -> Holding | None:
        """A durable subscription that exists for certain."""
        created = [holding for holding in application.living() if holding.durable and holding.row.created]
        return self._choices.pick(created) if created else None

    def _others_at(self, process: SimClient) -> list[SimClient]:
        """Processes of other applications at the same broker."""
        return [
            other
            for application in self._applications
            for other in application.able()
            if other.addresses == process.addresses and process not in application.processes
        ]
