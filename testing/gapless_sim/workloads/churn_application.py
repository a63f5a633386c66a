"""An application of the workload `churn`: what it has in its database, and the processes that share it.

One or two processes run under the same client id, as an application that is to be available at all times
would. After a crash a process looks into the database for what it has to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gapless.core.client.consuming.subscription import SubscriptionPhase
from gapless.core.wire.messages import ListedPubend, ListedSubscription
from gapless.errors import ConnectionClosedError, GaplessError
from gapless_sim.workloads.churn_listings import (
    check_connected,
    check_names,
    check_pubends,
    check_subscriptions,
)
from gapless_sim.workloads.churn_relays import OutboxRelay
from gapless_sim.workloads.churn_state import ChurnState, is_able, wrong
from gapless_sim.workloads.churn_subscriptions import AppSubscription
from gapless_sim.world.application import SimClient
from gapless_sim.world.options import MILLISECOND

if TYPE_CHECKING:
    from gapless.core.client.consuming.subscription import SubscriptionCore
    from gapless.core.client.link.effects import Listed
    from gapless.core.stream.ticks import PubendId, Tick

CARE = 400 * MILLISECOND
"""How often a process looks after what it should be doing."""


class SecondProcess(SimClient):
    """Another process of the same client: it has a name of its own, but not a client id."""

    def __init__(self, first: SimClient, suffix: str = "b") -> None:
        super().__init__(first.world, f"{first.name}{suffix}", first.addresses)
        self._client_id = first.name

    def start(self) -> None:
        """Starts the process; nothing was sent yet when it says who it is."""
        super().start()
        self.core.client_id = self._client_id


class Application:
    """Everything under one client id."""

    def __init__(self, state: ChurnState, processes: Sequence[SimClient]) -> None:
        self.state = state
        self.name = processes[0].name
        self.processes = processes
        self.relays: list[OutboxRelay] = []
        self.subscriptions: list[AppSubscription] = []
        """Those that are not over."""
        self.changed_at: dict[str, int] = {}
        """When the subscription of a name last came, or went, or was about to."""
        self.known: dict[PubendId, tuple[Tick, Tick]] = {}
        """How far each pubend was when it was last listed: what is lost, and what is stable."""
        for process in processes:
            process.on_start = self.begin

    # Getters.

    def able(self) -> list[SimClient]:
        """The processes that can do something now."""
        return [process for process in self.processes if is_able(process)]

    def living(self) -> list[AppSubscription]:
        """The subscriptions that are neither removed nor about to be."""
        self.subscriptions = [subscription for subscription in self.subscriptions if not subscription.row.ended]
        return [subscription for subscription in self.subscriptions if subscription.living]

    def named(self, name: str) -> AppSubscription | None:
        """The subscription of that name, as far as the application has one."""
        return next(
            (
                subscription
                for subscription in self.subscriptions
                if subscription.row.name == name and not subscription.row.ended
            ),
            None,
        )

    # A process's life.

    def begin(self, client: SimClient) -> None:
        """A process has started: it takes up what the database says it should do."""
        if client.boots > 1:
            self.state.sometimes("came back")
        for removal in self.state.removals:
            if removal.remover is client:
                removal.ask_for_removal()
        self._care(client)

    def _care(self, client: SimClient) -> None:
        """Whatever should be done and is not: again and again."""
        if is_able(client):
            self.look_after(client)
        self.state.world.after(CARE, client.name, "care", self._care, client, life=client.life)

    def look_after(self, client: SimClient) -> None:
        """Opens and attaches what should be open and attached in this process."""
        if self.state.in_liveness:
            self._share_out(client)
        for relay in self.relays:
            if relay.home is client:
                relay.tend()
        for subscription in self.living():
            if subscription.home is client:
                subscription.tend()

    def _share_out(self, client: SimClient) -> None:
        """Nothing is left lying about: this process takes what nobody has."""
        for relay in self.relays:
            if not relay.given_up and (relay.home is None or not relay.home.running):
                relay.home = client
        for subscription in self.living():
            if subscription.home is None or not subscription.home.running:
                subscription.home = client

    def close(self, client: SimClient) -> None:
        """A process ends in order."""
        self.state.closing = client
        client.close()
        self.state.closing = None

    # In the end.

    def unsettled(self) -> str:
        """What has not come right yet; "" when all has."""
        for relay in self.relays:
            if not relay.done:
                return f"{relay.outbox.name} is not worked off: {relay.describe()}"
        for subscription in self.subscriptions:
            consumer = subscription.attached_consumer()
            if subscription.row.ended:
                continue
            if subscription.remover is not None and self.state.in_its_way(subscription.remover):
                continue  # another application is to remove it, and can never say so
            if consumer is None or not subscription.living or consumer.core.phase is not SubscriptionPhase.ATTACHED:
                return f"{subscription.lane} has no consumer"
        return ""

    def excused(self) -> bool:
        """Whether something was left broken, without which nothing can come right."""
        return any(self.state.in_its_way(process) for process in self.processes)

    # Listings.

    def list_subscriptions(self, client: SimClient, applications: Sequence[Application]) -> None:
        """Asks for all subscriptions, and looks whether the answer makes sense."""
        asked = self.state.world.now
        attached = self._attached(client)

        def answered(found: Listed) -> None:
            rows: Sequence[ListedSubscription] = found.rows
            self._note_listing("subscriptions", found)
            check_subscriptions(client, rows)
            ever_since = attached & self._attached(client)
            check_connected(client, rows, frozenset((session, core.sid) for session, core in ever_since))
            for application in applications:
                if not self.state.lossy and application.processes[0].addresses == client.addresses:
                    check_names(client, rows, asked, application)

        number = client.core.list_subscriptions(client.monotonic())
        client.ask(number, answered, lambda error: self._on_unlisted(client, error))

    def _attached(self, client: SimClient) -> frozenset[tuple[int, SubscriptionCore]]:
        """What this process consumes, and in which session: who leaves and comes back in one does it anew.

        Leaves out what is being taken over: a broker says so when that is durable, and lists it as it is before.
        """
        untaken = [each for each in self.subscriptions if not each.pending_elsewhere(None)]
        cores = [consumer.core for subscription in untaken for consumer in subscription.consumers_of(client)]
        welcome = client.core.welcome
        session = 0 if welcome is None else welcome.session
        return frozenset((session, core) for core in cores if core.durable and core.phase is SubscriptionPhase.ATTACHED)

    def list_pubends(self, client: SimClient) -> None:
        """Asks for all pubends, and looks whether the answer makes sense."""
        known = dict(self.known)  # an answer may be on its way for long: it is no older than the question

        def answered(found: Listed) -> None:
            rows: Sequence[ListedPubend] = found.rows
            self._note_listing("pubends", found)
            check_pubends(client, rows, known, lossy=self.state.lossy)
            self.known.update((row.pubend, (row.lost, row.stable)) for row in rows if row.stable)

        number = client.core.list_pubends(client.monotonic())
        client.ask(number, answered, lambda error: self._on_unlisted(client, error))

    def _note_listing(self, what: str, found: Listed) -> None:
        self.state.sometimes(f"{what} listed")
        if found.missing:
            self.state.sometimes("listed in part")
        if len({row.node for row in found.rows}) > 1:
            self.state.sometimes("listed by several nodes")

    def _on_unlisted(self, client: SimClient, error: GaplessError) -> None:
        if type(error) is ConnectionClosedError and self.state.closing is client:
            return
        raise wrong(client.name, f"a listing failed: {type(error).__name__}: {error}")
