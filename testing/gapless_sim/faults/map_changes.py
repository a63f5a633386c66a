"""An operator changes the network's map: each node reads the new one when it is started again, one after the other.

A cell of IBs gains a node or loses one, or an SHB moves to another cell. Until all have been started, nodes with the
older map and with the newer one work together as far as both know each other. Nothing may be wrong meanwhile; that
everything comes right again is asked for when all nodes have one map.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from gapless_sim.faults.reconfiguration import change_map
from gapless_sim.oracles.hops import let_go_of_judges
from gapless_sim.world.options import MILLISECOND
from gapless_sim.world.topology import SINGLES, Cell, pair_of

if TYPE_CHECKING:
    from gapless_sim.world.broker import SimBroker
    from gapless_sim.world.topology import Topology
    from gapless_sim.world.world import World

SPREAD = 60
"""Within so many tenths of a second each node is started again."""
NODES_MOST = 4
"""A cell grows no larger."""

SOMETIMES = (
    "map.an IB came",
    "map.an IB went",
    "map.an SHB moved",
    "map.a node with an older map was there",
    "map.all had it before faults stopped",
)
"""What should happen sometimes where maps change."""


class MapChanges:
    """All changes of a world's map, one at a time."""

    def __init__(self, world: World, add_node: Callable[[World, str], SimBroker]) -> None:
        """`add_node`: makes the process of a node that is new."""
        self._world = world
        self._add_node = add_node
        self._draws = world.choices.stream("topology/map changes")
        self._added = 0

    def strike(self) -> None:
        """The operator changes the map, unless some node has not read the one before."""
        world = self._world
        before = world.topology
        if before is None or self._behind():
            return
        kind = self._draws.pick(("an IB came", "an IB went", "an SHB moved"))
        after = {"an IB came": self._gain, "an IB went": self._lose, "an SHB moved": self._move}[kind](before)
        if after is None or not self._is_joined(after):
            return
        world.sometimes(f"map.{kind}")
        world.note("world", "map", f"{kind}: {after}")
        let_go_of_judges(world)
        world.topology = after
        for name in after.cell_of:
            if name not in world.brokers:
                world.brokers[name] = self._add_node(world, name)
                world.brokers[name].topology = None  # it has read none, and is started with the others
        for broker in list(world.brokers.values()):
            wait = (1 + self._draws.draw(SPREAD)) * 100 * MILLISECOND
            world.after(wait, "world", "new map", self._give, broker, after)

    def finish(self) -> None:
        """Whoever has not read the map reads it now."""
        for broker in self._behind():
            assert self._world.topology is not None
            self._give(broker, self._world.topology)

    def _behind(self) -> list[SimBroker]:
        topology = self._world.topology
        return [each for each in self._world.brokers.values() if not each.removed and each.topology is not topology]

    def _give(self, broker: SimBroker, topology: Topology) -> None:
        """A node's file is replaced, and the node started again."""
        if broker.topology is topology or broker.removed:
            return
        if len(self._behind()) > 1:
            self._world.sometimes("map.a node with an older map was there")
        change_map(broker, topology)
        broker.stop()
        if broker.boots == 0:
            broker.boot()
        if not self._behind() and not self._world.in_liveness:
            self._world.sometimes("map.all had it before faults stopped")

    # What changes.

    def _gain(self, before: Topology) -> Topology | None:
        if before.kind == SINGLES:
            up = self._draws.pick(list(before.cells))
            return before.with_cells([*before.cells.values(), Cell((self._new_name(),), (), up)])
        cells = [cell for cell in before.cells.values() if not cell.roles and len(cell.nodes) < NODES_MOST]
        if not cells:
            return None
        cell = self._draws.pick(cells)
        return _with(before, replace(cell, nodes=(*cell.nodes, self._new_name())))

    def _new_name(self) -> str:
        self._added += 1
        return f"ib{len(self._world.brokers) + self._added}"

    def _lose(self, before: Topology) -> Topology | None:
        """A cell loses a node that no client is connected to; it keeps the one that it is called after.

        Of single nodes one at the rim goes.
        """
        used = {address for client in self._world.clients.values() for address in client.addresses}
        if before.kind == SINGLES:
            hung_on = {cell.up for cell in before.cells.values()}
            rim = [cell for cell in before.cells.values() if not cell.roles and cell.name not in hung_on | used]
            if not rim:
                return None
            leaves = self._draws.pick(rim)
            return before.with_cells([cell for cell in before.cells.values() if cell is not leaves])
        cells = [cell for cell in before.cells.values() if any(node not in used for node in cell.nodes[1:])]
        if not cells:
            return None
        cell = self._draws.pick(cells)
        gone = self._draws.pick([node for node in cell.nodes[1:] if node not in used])
        return _with(before, replace(cell, nodes=tuple(node for node in cell.nodes if node != gone)))

    def _move(self, before: Topology) -> Topology | None:
        """An SHB at the rim hangs on another cell."""
        hung_on = {cell.up for cell in before.cells.values()}
        rim = [
            cell for cell in before.cells.values() if cell.roles == ("shb",) and cell.up and cell.name not in hung_on
        ]
        if not rim:
            return None
        moved = self._draws.pick(rim)
        others = [cell for cell in before.cells.values() if cell is not moved and cell.name != moved.up]
        if not others:
            return None
        up = self._draws.pick(others).name
        rest = [cell for cell in before.cells.values() if cell is not moved]
        return before.with_cells([*rest, replace(moved, up=up)])

    def _is_joined(self, after: Topology) -> bool:
        """Whether a path leads from every node to every PHB, although some links are dead."""
        layer = self._world.network.layer
        dead = {} if layer is None else layer.dead
        return after.joins_all(lambda one, other: after.may_link(one, other) and pair_of(one, other) not in dead)


def _with(topology: Topology, changed: Cell) -> Topology:
    """The same with this cell in place of the one of its name."""
    return topology.with_cells([changed if cell.name == changed.name else cell for cell in topology.cells.values()])
