"""An operator starts a copy of a node's volume under the node's own name, beside the process that runs already.

It dials its neighbours, lives for a while, and then one of the two ends. If the one that stays was shut out, the
operator starts that again.

- A node without roles: whatever such a process says comes from somewhere else, so nothing may be lost by it, and no
  oracle excuses anybody. The first process stays.
- A PHB: both may log events. Either of the two volumes goes on, and what the other one has is gone (N2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless_sim.oracles.hops import let_go_of_judges
from gapless_sim.world.broker import SimBroker
from gapless_sim.world.clocks import NodeClock
from gapless_sim.world.options import MILLISECOND

if TYPE_CHECKING:
    from gapless_sim.world.choices import Stream
    from gapless_sim.world.world import World

SOMETIMES = (
    "twice.a second process came",
    "twice.the first was shut out",
    "twice.the second was shut out",
    "twice.a second process of a PHB came",
    "twice.a PHB goes on with the volume of the second process",
    "twice.nobody found out",
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
        self._hosts = world.choices.stream("topology/second hosts")

    def strike(self) -> None:
        """A second process of some node without roles is started."""
        if self._start(frozenset(), self._draws):
            self._world.sometimes("twice.a second process came")

    def strike_host(self) -> None:
        """A second process of some PHB is started."""
        if self._start(frozenset({"phb"}), self._hosts):
            self._world.sometimes("twice.a second process of a PHB came")

    def _start(self, roles: frozenset[str], draws: Stream) -> bool:
        world = self._world
        nodes = [
            broker
            for broker in world.brokers.values()
            if broker.listening and broker.roles == roles and broker.topology is not None and not broker.disk.unsynced
        ]
        taken = {second.name for second in world.second_processes}
        nodes = [broker for broker in nodes if broker.name not in taken]
        if not nodes:
            return False
        let_go_of_judges(world)
        first = draws.pick(nodes)
        if roles:
            world.observe.copied(first)
        second = SecondProcess(first)
        second.node_clock.jump(draws.pick((0, 0, -3_600_000, 5_000)))
        world.second_processes.append(second)
        world.note(second.name, "second process", "on a copy of the volume")
        second.boot()
        stays = (1 + draws.draw(80)) * 100 * MILLISECOND
        world.after(stays, "world", "second process goes", self._end, second)
        return True

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
        if first.roles:
            self._choose_volume(first, second)
        if first.shut_out:
            first.shut_out = False
            first.boot()

    def _choose_volume(self, first: SimBroker, second: SimBroker) -> None:
        """Either volume goes on. Where no neighbour knew both processes nobody can tell what the other one had."""
        if not first.shut_out and not second.shut_out:
            self._world.sometimes("twice.nobody found out")
            self._world.observe.restored(first)
        if self._hosts.chance(0.5):
            self._world.sometimes("twice.a PHB goes on with the volume of the second process")
            self._world.note(first.name, "other volume", "it goes on with that of the second process")
            first.kill()
            first.disk = second.disk
            self._world.observe.took_copy(first)
