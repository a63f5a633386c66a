"""An operator starts a copy of a node's volume under the node's own name, beside the process that runs already.

Nodes without roles only: whatever such a process says comes from somewhere else, so nothing may be lost by it, and no
oracle excuses anybody. It dials its neighbours, lives for a while, and goes. If the first process was shut out, the
operator starts that again afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless_sim.broker import SimBroker
from gapless_sim.clocks import NodeClock
from gapless_sim.options import MILLISECOND
from gapless_sim.oracles.hops import let_go_of_judges

if TYPE_CHECKING:
    from gapless_sim.world import World

SOMETIMES = (
    "twice.a second process came",
    "twice.the first was shut out",
    "twice.the second was shut out",
)
"""What should happen sometimes in trees in which a node is run twice."""


class SecondProcess(SimBroker):
    """A process under the name of a node that has one already, on a copy of its volume."""

    def __init__(self, first: SimBroker) -> None:
        super().__init__(first.world, first.name, first.loaded, first.new_disk, NodeClock(first.world.now))
        self.disk = first.disk.duplicate()
        self.topology = first.topology
        self.is_second = True


class SecondProcesses:
    """All of them, one of a node at a time."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._draws = world.choices.stream("topology/second processes")

    def strike(self) -> None:
        """A second process of some node without roles is started."""
        world = self._world
        nodes = [
            broker
            for broker in world.brokers.values()
            if broker.listening and not broker.roles and broker.topology is not None and not broker.disk.unsynced
        ]
        taken = {second.name for second in world.second_processes}
        nodes = [broker for broker in nodes if broker.name not in taken]
        if not nodes:
            return
        let_go_of_judges(world)
        second = SecondProcess(self._draws.pick(nodes))
        second.node_clock.jump(self._draws.pick((0, 0, -3_600_000, 5_000)))
        world.second_processes.append(second)
        world.sometimes("twice.a second process came")
        world.note(second.name, "second process", "on a copy of the volume")
        second.boot()
        stays = (1 + self._draws.draw(80)) * 100 * MILLISECOND
        world.after(stays, "world", "second process goes", self._end, second)

    def finish(self) -> None:
        """Faults stop: the operator has found out."""
        for second in list(self._world.second_processes):
            self._end(second)

    def _end(self, second: SimBroker) -> None:
        if second not in self._world.second_processes:
            return
        second.kill()
        self._world.second_processes.remove(second)
        first = self._world.brokers[second.name]
        if first.shut_out:
            first.shut_out = False
            first.boot()
