"""Applications that have two processes: either may run what the application has, also while the other one does."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar, TypeVar

from gapless.errors import PublishUncertainError
from gapless_sim.workloads.applications import Application, Applications
from gapless_sim.workloads.churn_application import SecondProcess
from gapless_sim.workloads.churn_state import is_parted
from gapless_sim.world.options import MILLISECOND, SECOND

if TYPE_CHECKING:
    from gapless.errors import GaplessError
    from gapless_sim.world.application import SimClient
    from gapless_sim.world.producer import Producer

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

    def crash(self) -> None:
        """A process dies; maybe both, and maybe the broker that they are at."""
        draws, dying = self.draws, self.processes
        if not dying:
            return
        if draws.chance(0.5):
            dying = [draws.pick(dying)]
        elif draws.chance(0.5):
            self.world.sometimes(f"{self._name}.client and broker died together")
            broker = self.world.brokers[self.client.addresses[0]]
            broker.crash(draws.draw(1 + broker.disk.unsynced))
        for process in dying:
            self.world.sometimes(f"{self._name}.process crashed")
            process.crash()
            self.world.after(draws.between(50, 3_000) * MILLISECOND, process.name, "start", process.start)

    @abstractmethod
    def settled(self) -> bool:
        """Whether nothing of it is missing."""

    @staticmethod
    def _on_producer_over(_producer: Producer, error: GaplessError) -> None:
        if not isinstance(error, PublishUncertainError):
            raise error


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
