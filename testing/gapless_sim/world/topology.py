"""Networks of cells or of single nodes: which there are besides PHBs and SHBs, how they hang together, what a path is.

Cells form a tree. A cell of several nodes has no roles: its nodes are intermediate brokers (IBs), any of which does
the work of the others. A node with a role is alone in its cell, and may stand between other cells. There are links from
every node of a cell to every node of a neighbouring one, and between the nodes of a cell; in a mesh of the same nodes
there are links between all. A tree of single nodes (`nodes`) is one of cells of one node each, in which a node without
roles is alone, too: its map has the links that an operator expects, and any two nodes may link all the same. There a
path may pass over nodes that are away, as many next to each other as its routers stand (`delta`).

As text, which is what an option of a run holds: `phb1:phb ib1+ib2<phb1 shb1:shb<ib1`. A cell is called like its first
node; behind a colon stand its roles, and behind `<` the cell that it hangs on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, TypeAlias

from gapless.core.network.facts import NetworkMap, NetworkNode
from gapless.core.ports import Roaming
from gapless_sim.world.options import (
    FAULTS,
    MILLISECOND,
    ROOM_FOR_ALL,
    SECOND,
    DiskFaults,
    NetworkFaults,
    ProcessFaults,
)
from gapless_sim.world.routers import CELLS, FULL_MESH, NODES, ONE, networks_of

if TYPE_CHECKING:
    from gapless_sim.world.choices import Choices, Stream
    from gapless_sim.world.options import Options

Pair: TypeAlias = "tuple[str, str]"
"""Two nodes that may have a link, in the order of their names."""

TREE, MESH, SINGLES = "tree", "mesh", "nodes"
KINDS = (TREE, MESH, SINGLES)
BY_TREE = (TREE, SINGLES)
"""The kinds in which nodes hang on each other, and links have cores."""
DRAWN_FOR = {CELLS: TREE, NODES: SINGLES}
"""What is drawn for routers that are made for such networks, if nobody says anything else; for others, nothing."""
WORKS_IN = {CELLS: BY_TREE, NODES: (SINGLES,), FULL_MESH: (MESH,), ONE: ()}
"""What may be drawn for them: a tree of cells of one node each is one of cells, too."""
PHBS_MOST, SHBS_MOST, CELL_MOST = 3, 4, 3
LEVELS = (0, 1, 2, 2)
"""How many levels of IBs a drawn tree may have; half of all have two."""
CELLS_MOST = 2
"""So many cells of IBs are on a level at most."""
REPLACED_SHARE = 0.25
"""In so many trees machines of SHBs are lost."""
READS_IN_TURNS = ("knowledge",)
"""Routers that have options for how much of an interest they say and read in a turn."""
BYPASSING = ("delta",)
"""Routers that bypass nodes which are away, and keep copies of events for it."""
DELTA_MOST = 2
"""So many nodes next to each other may be away at most."""
OUTAGES_SHARE = 0.25
"""So many of their runs are about nodes that are away, and about nothing else."""
OUTAGES_LAST = 40 * SECOND
OUTAGES_RATE = 8.0
"""So many events are published in these at most, for a long time: what is judged takes long, and needs few."""
CHAIN, HUB, RANDOM = SHAPES = ("chain", "hub", "random")
"""How a drawn tree of single nodes hangs together."""
SINGLES_MOST = 6
"""So many nodes without roles has it at most."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Nodes with the same job."""

    nodes: tuple[str, ...]
    roles: tuple[str, ...] = ()
    """Of its one node; several nodes have none."""
    up: str = ""
    """The cell that it hangs on; "" of the first."""

    @property
    def name(self) -> str:
        """As its first node is called."""
        return self.nodes[0]

    def __str__(self) -> str:
        roles = f":{'+'.join(self.roles)}" if self.roles else ""
        return "+".join(self.nodes) + roles + (f"<{self.up}" if self.up else "")


def pair_of(one: str, other: str) -> Pair:
    """Two nodes in the order of their names."""
    return (one, other) if one < other else (other, one)


class Topology:
    """All cells of a network."""

    def __init__(self, cells: Sequence[Cell], kind: str = TREE, *, delta: int = 0) -> None:
        """Each cell hangs on one that stands before it. Raises ValueError if these are no tree, or not of that kind.

        `delta`: so many nodes next to each other may be away on a path, where all are single.
        """
        self.cells: Mapping[str, Cell] = {}
        self.kind = kind
        self.mesh = kind == MESH
        self._delta = delta if kind == SINGLES else 0
        self.cell_of: dict[str, Cell] = {}
        """By node."""
        cells_by_name: dict[str, Cell] = {}
        for cell in cells:
            if (cell.up not in cells_by_name) if cells_by_name else cell.up:
                raise ValueError(f"the cell {cell.name} hangs on {cell.up or 'nothing'}")
            if len(cell.nodes) > 1 and cell.roles:
                raise ValueError(f"the cell {cell.name} has several nodes, and one of them a role")
            if len(cell.nodes) > 1 and kind == SINGLES:
                raise ValueError(f"the cell {cell.name} has several nodes, and all are to be single")
            for node in cell.nodes:
                if node in self.cell_of:
                    raise ValueError(f"the node {node} is in two cells")
                self.cell_of[node] = cell
            cells_by_name[cell.name] = cell
        self.cells = cells_by_name
        self.links = tuple(self._all_links() if self.mesh else self._tree_links())
        """Every link that the map of the network has."""
        self._links = frozenset(self.links)

    @classmethod
    def parse(cls, text: str, kind: str = TREE, *, delta: int = 0) -> Topology:
        """The other way round from `str`. Raises ValueError."""
        return cls([_parse_cell(word) for word in text.split()], kind, delta=delta)

    def with_cells(self, cells: Sequence[Cell]) -> Topology:
        """Others, in a network of the same kind."""
        return Topology(cells, self.kind, delta=self._delta)

    def __str__(self) -> str:
        return " ".join(map(str, self.cells.values()))

    @property
    def roles(self) -> dict[str, tuple[str, ...]]:
        """The nodes by name, and what each hosts."""
        return {node: cell.roles for node, cell in self.cell_of.items()}

    def map(self) -> NetworkMap:
        """As routers are given it."""
        nodes = {
            node: NetworkNode(frozenset(cell.roles), cell.name if self.kind == TREE else "")
            for node, cell in self.cell_of.items()
        }
        return NetworkMap(nodes, self.links)

    def has_link(self, one: str, other: str) -> bool:
        """Whether the map has a link between two nodes."""
        return pair_of(one, other) in self._links

    def may_link(self, one: str, other: str) -> bool:
        """Whether two nodes may have a link: in a tree of single nodes, any two."""
        return self.has_link(one, other) or (self.kind == SINGLES and {one, other} <= self.cell_of.keys())

    def are_mates(self, one: str, other: str) -> bool:
        """Whether two nodes are of one cell."""
        return self.cell_of[one] is self.cell_of[other]

    def neighbours(self, node: str) -> list[Cell]:
        """The cells next to that of a node."""
        here = self.cell_of[node]
        return [cell for cell in self.cells.values() if cell.up == here.name or cell.name == here.up]

    def cells_between(self, one: str, other: str) -> list[Cell]:
        """The cells from that of a node to that of another one, both among them."""
        upward, downward = self._to_the_top(one), self._to_the_top(other)
        while len(upward) > 1 and len(downward) > 1 and upward[-2] is downward[-2]:
            upward.pop()
            downward.pop()
        return upward + downward[-2::-1]

    def has_path(self, one: str, other: str, is_live: Callable[[str, str], bool]) -> bool:
        """Whether a path leads from a node to another one.

        It is one node of each cell between them, with at most one hop sideways in each; where all nodes are single, it
        passes over some that are away.
        """
        if self.mesh or one == other:
            return one == other or is_live(one, other)
        if self.kind == SINGLES:
            return self._has_way([cell.name for cell in self.cells_between(one, other)], is_live)
        reached = self._and_mates([one], is_live)
        for cell in self.cells_between(one, other)[1:]:
            entered = [node for node in cell.nodes if any(is_live(before, node) for before in reached)]
            reached = self._and_mates(entered, is_live)
        return other in reached

    def _has_way(self, nodes: Sequence[str], is_live: Callable[[str, str], bool]) -> bool:
        reached = {0}
        for place in range(1, len(nodes)):
            before = range(max(0, place - 1 - self._delta), place)
            if any(earlier in reached and is_live(nodes[earlier], nodes[place]) for earlier in before):
                reached.add(place)
        return len(nodes) - 1 in reached

    def joins_all(self, is_live: Callable[[str, str], bool]) -> bool:
        """Whether a path leads from every node to every PHB."""
        phbs = [node for node, roles in self.roles.items() if "phb" in roles]
        return all(self.has_path(node, phb, is_live) for node in self.cell_of for phb in phbs)

    def _and_mates(self, nodes: Sequence[str], is_live: Callable[[str, str], bool]) -> list[str]:
        mates = [
            mate
            for mate in (self.cell_of[nodes[0]].nodes if nodes else ())
            if mate not in nodes and any(is_live(node, mate) for node in nodes)
        ]
        return [*nodes, *mates]

    def _to_the_top(self, node: str) -> list[Cell]:
        way = [self.cell_of[node]]
        while way[-1].up:
            way.append(self.cells[way[-1].up])
        return way

    def _tree_links(self) -> Iterator[Pair]:
        for cell in self.cells.values():
            yield from (pair_of(one, other) for one, other in combinations(cell.nodes, 2))
            for above in self.cells[cell.up].nodes if cell.up else ():
                yield from (pair_of(above, node) for node in cell.nodes)

    def _all_links(self) -> Iterator[Pair]:
        yield from (pair_of(one, other) for one, other in combinations(self.cell_of, 2))


def _parse_cell(word: str) -> Cell:
    rest, _, up = word.partition("<")
    nodes, _, roles = rest.partition(":")
    return Cell(tuple(nodes.split("+")), tuple(roles.split("+")) if roles else (), up)


# ---------------------------------------------------------------------------------------------- drawn by the seed


def draw_topology(stream: Stream, shbs_least: int = 1, levels: int | None = None) -> Topology:
    """A tree of 1 to 3 PHBs, 0 to 2 levels of IBs in cells of 1 to 3, and 1 to 4 SHBs.

    `levels`: so many, whatever is drawn, and on each of them a cell of IBs.
    """
    drawn, phbs, shbs = stream.pick(LEVELS), 1 + stream.draw(PHBS_MOST), 1 + stream.draw(SHBS_MOST)
    shbs = max(shbs, shbs_least)
    together = stream.chance(0.25)
    cells = [Cell(("phb1",), ("phb", "shb") if together else ("phb",))]
    shbs -= together
    above, number, shb = cells[:1], 0, 0
    for _ in range(drawn if levels is None else levels):
        level: list[Cell] = []
        for _ in range(1 + stream.draw(CELLS_MOST)):
            up = stream.pick(above).name
            free = levels is None or level  # not the level's only cell of IBs
            if shb < shbs and stream.chance(0.15) and free:  # an SHB that stands between others
                shb += 1
                level.append(Cell((f"shb{shb}",), ("shb",), up))
                continue
            nodes = tuple(f"ib{number + each + 1}" for each in range(1 + stream.draw(CELL_MOST)))
            number += len(nodes)
            level.append(Cell(nodes, (), up))
        cells += level
        above = level
    for each in range(2, phbs + 1):
        cells.append(Cell((f"phb{each}",), ("phb",), stream.pick(cells).name))
    for each in range(shb + 1, shbs + 1):
        # Most are at the far end; some hang on any cell, which may be another SHB's.
        cells.append(Cell((f"shb{each}",), ("shb",), stream.pick(cells if stream.chance(0.3) else above).name))
    return Topology(cells)


def draw_nodes(stream: Stream, shbs_least: int = 1) -> Topology:
    """A tree of single nodes: 1 to 3 PHBs, 1 to 4 SHBs, and up to 6 without roles: a chain, a hub, or any tree.

    Any node may stand between others, with or without roles.
    """
    shape, phbs, shbs = stream.pick(SHAPES), 1 + stream.draw(PHBS_MOST), 1 + stream.draw(SHBS_MOST)
    shbs = max(shbs, shbs_least)
    both = stream.chance(0.25)
    hosted: list[tuple[str, tuple[str, ...]]] = [("phb1", ("phb", "shb") if both else ("phb",))]
    hosted += [(f"phb{each}", ("phb",)) for each in range(2, phbs + 1)]
    hosted += [(f"shb{each}", ("shb",)) for each in range(1, shbs - both + 1)]
    hosted += [(f"ib{each}", ()) for each in range(1, stream.draw(SINGLES_MOST + 1) + 1)]
    cells: list[Cell] = []
    while hosted:
        node, roles = hosted.pop(stream.draw(len(hosted)))
        up = [cells[-1] if shape == CHAIN else cells[0] if shape == HUB else stream.pick(cells)] if cells else []
        cells.append(Cell((node,), roles, *(cell.name for cell in up)))
    return Topology(cells, SINGLES)


def star(shbs: int, kind: str = TREE) -> Topology:
    """A PHB and SHBs around it: for scenarios, which are about a PHB and its SHBs."""
    around = [Cell((f"shb{each + 1}",), ("shb",), "phb1") for each in range(shbs)]
    return Topology([Cell(("phb1",), ("phb",)), *around], kind)


def with_topology(
    options: Options,
    choices: Choices,
    kind: str | None,
    faults: tuple[str, ...] = FAULTS,
    levels: int | None = None,
) -> Options:
    """The same with nodes as the seed draws them, in a network of that kind; "": the nodes that it has.

    None: as the router needs it. All is drawn from streams of its own, so that without it seeds stay what they were.
    `levels`: as in `draw_topology`; the star of a run that is about one scenario has no IBs all the same.
    """
    if kind is None:
        kind = DRAWN_FOR.get(networks_of(options.router), "")
    if not kind:
        return options
    least = 2 if options.workload == "roaming" else 1
    draws = choices.stream("topology")
    if options.scenario:
        topology = star(options.shbs, kind)
    else:
        topology = draw_nodes(draws, least) if kind == SINGLES else draw_topology(draws, least, levels)
    roles, by_tree = topology.roles.values(), kind in BY_TREE
    network = options.network if options.scenario else _with_link_faults(options, choices.stream("topology/faults"))
    return replace(
        options,
        topology=kind,
        cells=str(topology),
        phbs=sum("phb" in hosted for hosted in roles),
        shbs=sum("shb" in hosted for hosted in roles),
        together=False,
        link_cores=by_tree,
        map_changes=_map_changes(options, choices.stream("topology/operator"), faults) if by_tree else 0.0,
        second_hosts=_second_hosts(options, choices.stream("topology/hosts twice"), faults) if by_tree else 0.0,
        second_processes=_second_processes(options, choices.stream("topology/twice"), faults) if by_tree else 0.0,
        network=network if by_tree else options.network,
    )


def _map_changes(options: Options, draws: Stream, faults: tuple[str, ...]) -> float:
    """How often an operator changes the map; scenarios know where everybody is."""
    drawn = 0.2 * (1 + draws.draw(4)) / 4 if draws.chance(0.3) else 0.0
    return drawn if options.is_churn_alone and "operator" in faults else 0.0


def _second_processes(options: Options, draws: Stream, faults: tuple[str, ...]) -> float:
    """How often an operator runs a node twice; likewise."""
    drawn = 0.2 * (1 + draws.draw(4)) / 4 if draws.chance(0.3) else 0.0
    return drawn if options.is_churn_alone and "operator" in faults else 0.0


def _second_hosts(options: Options, draws: Stream, faults: tuple[str, ...]) -> float:
    """How often an operator runs a PHB twice; likewise, and all its pubends must be on both volumes."""
    drawn = 0.2 * (1 + draws.draw(4)) / 4 if draws.chance(0.15) else 0.0
    return drawn if options.is_churn_alone and not options.additions and "operator" in faults else 0.0


def _with_link_faults(options: Options, draws: Stream) -> NetworkFaults:
    """What happens to links of a tree, where anything happens to the network at all."""
    network = options.network
    if network == NetworkFaults(network.delay, bytewise=network.bytewise, slow_rate=network.slow_rate):
        return network

    def rate(most: float, share: float) -> float:
        return most * (1 + draws.draw(8)) / 8 if draws.chance(share) else 0.0

    return replace(
        network,
        dead=rate(0.5, 0.5),
        deaths=rate(0.1, 0.3),
        one_ways=rate(0.3, 0.4),
        stalls=rate(0.3, 0.4),
        slow_phases=rate(0.2, 0.3),
        strangers=rate(0.3, 0.2),
    )


def with_interest_turns(options: Options, draws: Stream) -> Options:
    """The same; in some trees routers say and read interests little by little, as if they were large."""
    interest_turn = draws.pick((options.interest_turn, options.interest_turn, 1, 2))
    if options.router not in READS_IN_TURNS or options.scenario:
        return options
    return replace(options, interest_turn=interest_turn)


def with_bypasses(options: Options, draws: Stream) -> Options:
    """The same; where nodes that are away are bypassed, how many in a row, and how long and for how many copies stay.

    Events of a run are small and few: so is the room for them where it is to be short.
    """
    delta, window = 1 + draws.draw(DELTA_MOST), draws.pick((10, 10, 3, 1))
    room = draws.pick((options.copies_bytes, options.copies_bytes, options.copies_bytes, 8_000, 1_500))
    if options.router not in BYPASSING:
        return options
    options = replace(options, delta=delta, window_seconds=window, copies_bytes=room)
    return _with_outages(options, draws) if options.is_churn_alone and draws.chance(OUTAGES_SHARE) else options


def _with_outages(options: Options, draws: Stream) -> Options:
    """A run about nodes that are away, and that nobody notices: nothing else goes wrong with them, or between them."""
    network, process = options.network, options.process
    return replace(
        options,
        outages=0.25 * (1 + draws.draw(4)),
        duration=OUTAGES_LAST,
        rate=min(options.rate, OUTAGES_RATE),
        link_weight=1,
        subscription_expiry_seconds=None,
        window_seconds=10,
        copies_bytes=ROOM_FOR_ALL,
        network=NetworkFaults(min(network.delay, 5 * MILLISECOND), bytewise=network.bytewise),
        disk=DiskFaults(min(options.disk.sync_time, MILLISECOND), min(options.disk.read_time, MILLISECOND)),
        process=ProcessFaults(client_crash=process.client_crash),
        clock=replace(options.clock, jumps=0.0),
        retires=0.0,
        additions=0.0,
        policy_changes=0.0,
        map_changes=0.0,
        second_processes=0.0,
        second_hosts=0.0,
    )


def with_replacements(options: Options, draws: Stream) -> Options:
    """The same; in some trees SHBs are lost and replaced. Scenarios know what they are told of."""
    often = draws.chance(REPLACED_SHARE)
    knows = options.is_churn_alone or options.workload == "roaming"
    if not often or options.topology not in BY_TREE or not knows or options.outages:
        return options
    return replace(options, replacements=0.3 if options.workload == "roaming" else 0.1)


def roaming_of(options: Options) -> Roaming | None:
    """What the SHBs of a world have in common in which subscriptions are consumed at any of them; else None."""
    topology = topology_of(options)
    if not options.roaming or topology is None:
        return None
    return Roaming(tuple(topology.map().with_role("shb")), b"the secret of a simulated network")


def topology_of(options: Options) -> Topology | None:
    """What the options of a run say of it; None where it has no nodes but PHBs and SHBs."""
    return Topology.parse(options.cells, options.topology, delta=options.delta) if options.topology else None
