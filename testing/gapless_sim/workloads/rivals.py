"""Applications that have two processes: either may run what the application has, also while the other one does."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar, TypeVar

from gapless_sim.workloads.applications import Application, Applications
from gapless_sim.workloads.churn_application import SecondProcess
from gapless_sim.workloads.churn_state import is_parted
from gapless_sim.world.options import SECOND

if TYPE_CHECKING:
    from gapless_sim.world.application import SimClient

RivalledT = TypeVar("RivalledT", bound="RivalledApplication")


class RivalledApplication(Application):
    """An application with a rival of its process."""

    def __init__(self, workload: RivalledApplications[RivalledT], client: SimClient) -> None:
        super().__init__(workload, client)
        self.rival = SecondProcess(client)
        self.world.clients[self.rival.name] = self.rival

    @property
    def clients(self) -> list[SimClient]:
        """Both, whether they run or not."""
        return [self.client, self.rival]

    @property
    def processes(self) -> list[SimClient]:
        """Those that run."""
        return [process for process in self.clients if process.running]

    @property
    def connected(self) -> list[SimClient]:
        """Those that have a broker."""
        return [process for process in self.processes if process.core.connected]

    @abstractmethod
    def settled(self) -> bool:
        """Whether nothing of it is missing."""


class RivalledApplications(Applications[RivalledT]):
    """The applications of one world."""

    missing: ClassVar[str]
    """What an application lacks that is not settled, though everything is published."""

    def begin(self) -> None:
        """Rivals start somewhat later."""
        super().begin()
        for application in self.applications:
            rival = application.rival
            self.world.after(self.draws.draw(4 * SECOND), rival.name, "start", rival.start)

    def begin_liveness(self) -> None:
        """All processes run."""
        for application in self.applications:
            application.client.start()
            application.rival.start()
        super().begin_liveness()

    def settled(self) -> bool:
        """Whether everything is published, and nothing is missing of any application."""
        return super().settled() and all(
            application.settled() for application in self.applications if self._is_reached(application)
        )

    def unsettled(self) -> str:
        """What is missing."""
        return self.missing if super().settled() else super().unsettled()

    def _is_reached(self, application: RivalledT) -> bool:
        """Whether all that it needs is there for one of its processes, and nothing was left broken for ever."""
        world = self.world
        brokers_listen = all(broker.listening for broker in world.brokers.values())
        return brokers_listen and any(not is_parted(world, process) for process in application.connected)
