"""The workload `churn`: a steady random mix of everything that applications do, one operation after another.

Each seed has its own mix: some operations are off, others frequent. What is drawn is small: which
operation, who, and how; what follows from it, after crashes too, applications do as sane ones would.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gapless_sim.recording.observation import Oracle
from gapless_sim.workloads import churn_changes, churn_commits
from gapless_sim.workloads.churn_application import Application, SecondProcess
from gapless_sim.workloads.churn_changes import Changes
from gapless_sim.workloads.churn_commits import Commits
from gapless_sim.workloads.churn_publish_operations import PublishOperations
from gapless_sim.workloads.churn_state import ChurnState
from gapless_sim.workloads.churn_subscribe_operations import SubscribeOperations
from gapless_sim.world.options import MILLISECOND, SECOND

if TYPE_CHECKING:
    from gapless_sim.world.application import SimClient
    from gapless_sim.world.world import World

Operation = Callable[[Application, "SimClient"], bool]

RESTART = 3 * SECOND
"""A process that was closed in order stays away for so long: what it sent last has arrived by then."""

SOMETIMES = (
    "churn.acknowledged out of turn",
    "churn.bad publication refused",
    "churn.batch fenced",
    "churn.before the brokers",
    "churn.burst",
    "churn.came back",
    "churn.claim taken",
    "churn.closed in order",
    "churn.created at earliest",
    "churn.created at latest",
    "churn.created at time",
    "churn.created at token",
    "churn.created again under a name",
    "churn.created unheard",
    "churn.fenced",
    "churn.handed over",
    "churn.idle",
    "churn.in use",
    "churn.lapsed",
    "churn.left",
    "churn.made anew",
    "churn.made another after a lapse",
    "churn.listed by several nodes",
    "churn.listed in part",
    "churn.not durable",
    "churn.outbox given up",
    "churn.outbox recovered",
    "churn.position moved meanwhile",
    "churn.publisher closed",
    "churn.publisher opened twice",
    "churn.pubends listed",
    "churn.reattached while catching up",
    "churn.refused: InvalidSelectorError",
    "churn.refused: InvalidTokenError",
    "churn.refused: InvalidTopicError",
    "churn.refused: SubscriptionMismatchError",
    "churn.refused: TokenMismatchError",
    "churn.removed already",
    "churn.removed by another client",
    "churn.removed while consumed",
    "churn.resumed after a lapse",
    "churn.returned: acknowledged position",
    "churn.returned: newest token",
    "churn.returned: old token",
    "churn.rival: error",
    "churn.rival: takeover",
    "churn.rival: wait",
    "churn.second process",
    "churn.slow consumer",
    "churn.small window",
    "churn.stale commit refused",
    "churn.stopped",
    "churn.subscription lost",
    "churn.subscriptions listed",
    "churn.taken over",
    "churn.token from before a lapse",
    "churn.uncertain",
    "churn.went on",
    *churn_changes.SOMETIMES,
    *churn_commits.SOMETIMES,
)
"""What should happen sometimes."""


class Churn(Oracle):
    """Applications that publish, subscribe, come and go. As an oracle it says when all is as they want it."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.state = ChurnState(world)
        choices = self._choices = self.state.choices
        self.applications = [self._application(client) for client in world.clients_of["churn"]]
        publishing = PublishOperations(self.state)
        self._changes = Changes(self.state, self.applications)
        self._commits = Commits(self.state, self.applications)
        subscribing = SubscribeOperations(self.state, self.applications, self._changes, self._commits)
        # Publishing comes first: it is the benign choice, and always on.
        self._mix: list[tuple[int, Operation]] = [(4 + choices.draw(8), publishing.publish)]
        for operation in (*publishing.others(), *subscribing.others(), *self._others()):
            if choices.chance(0.75):
                self._mix.append((1 + choices.draw(4), operation))
        self._subscribe = subscribing.subscribe
        world.observe.add(self)

    def _application(self, client: SimClient) -> Application:
        processes = [client]
        if self._choices.chance(0.4):
            second = SecondProcess(client)
            self.world.clients[second.name] = second
            processes.append(second)
            self.state.sometimes("second process")
        return Application(self.state, processes)

    # What a run asks for.

    def begin(self) -> None:
        """The processes start, some of them before there is a broker."""
        early = self._choices.chance(0.5)
        for application in self.applications:
            for process in application.processes:
                if early:
                    self.world.after(0, process.name, "start", self._start_early, application, process)
                else:
                    self.world.after(self._choices.draw(2 * SECOND), process.name, "start", process.start)
        self._plan()
        self._changes.begin()
        self._commits.begin()

    def begin_liveness(self) -> None:
        """No new operations. Whatever is left lying about is taken up, and everybody is eager."""
        self.state.in_liveness = True
        for application in self.applications:
            for process in application.processes:
                process.start()
            for relay in application.relays:
                relay.close_zombies()
            for subscription in application.living():
                subscription.begin_liveness()

    def settled(self) -> bool:
        """Whether every subscription has its consumer, and every outbox is worked off."""
        return all(not application.unsettled() or application.excused() for application in self.applications)

    def unsettled(self) -> str:
        """What is missing."""
        return "; ".join(text for application in self.applications if (text := application.unsettled()))

    def _may_subscribe(self, process: SimClient) -> bool:
        """Whether a process is connected to a node that hosts subscribers."""
        return "shb" in self.world.brokers[process.addresses[0]].roles

    # One operation after another.

    def _start_early(self, application: Application, process: SimClient) -> None:
        process.start()
        if process is application.processes[0]:
            self.state.sometimes("before the brokers")
            for _ in range(self._choices.draw(3) if self._may_subscribe(process) else 0):
                self._subscribe(application, process)

    def _plan(self, idle: int = 0) -> None:
        mean = int(SECOND / self.world.options.rate)
        self.world.after(idle + self._choices.delay(mean // 4, mean // 2), "world", "operation", self._operate)

    def _operate(self) -> None:
        if self.state.in_liveness:
            return
        able = [(application, process) for application in self.applications for process in application.able()]
        if able:
            application, process = self._choices.pick(able)
            operation = self._pick() if self._may_subscribe(process) else self._mix[0][1]
            if not operation(application, process):
                self._mix[0][1](application, process)
        idle = 0
        if self._choices.chance(0.01):
            self.state.sometimes("idle")
            idle = (1 + self._choices.draw(50)) * 100 * MILLISECOND
        self._plan(idle)

    def _pick(self) -> Operation:
        drawn = self._choices.draw(sum(weight for weight, _ in self._mix))
        for weight, operation in self._mix:
            if drawn < weight:
                return operation
            drawn -= weight
        raise AssertionError

    # Operations that are neither publishing nor subscribing.

    def _others(self) -> Sequence[Operation]:
        return (self._close, self._list_subscriptions, self._list_pubends)

    def _close(self, application: Application, process: SimClient) -> bool:
        if not self._choices.chance(0.3):
            return False
        application.close(process)
        self.state.sometimes("closed in order")
        wait = RESTART + self._choices.draw(3 * SECOND)
        self.world.after(wait, process.name, "start", process.start)
        return True

    def _list_subscriptions(self, application: Application, process: SimClient) -> bool:
        application.list_subscriptions(process, self.applications)
        return True

    def _list_pubends(self, application: Application, process: SimClient) -> bool:
        application.list_pubends(process)
        return True
