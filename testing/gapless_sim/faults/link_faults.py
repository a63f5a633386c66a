"""The links of a tree: what a node's link layer does about them, and what goes wrong on them.

What goes wrong is drawn from a stream of its own. Where the link cores of production run (`core_links`) they notice it.
Elsewhere a `LinkLayer` does to the links themselves what cores would do: within three heartbeats it takes down what
carries nothing in one direction, and it dials what was asked for until that is hung up.

dead      a link never comes up, or dies for ever: as long as a path leads from every node to every PHB without it
one way   nothing gets through in one direction for a while
stall     everything waits for a while, and then arrives at once; or the link goes down meanwhile
slow      a link is slow in one direction for a while
stranger  somebody connects to a node who calls itself another one, and does not know the secret
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gapless_sim.world.options import MILLISECOND, SECOND
from gapless_sim.world.topology import pair_of

if TYPE_CHECKING:
    from gapless_sim.recording.frame_tap import LinkBetween
    from gapless_sim.world.broker import SimBroker
    from gapless_sim.world.network import Network
    from gapless_sim.world.topology import Pair, Topology
    from gapless_sim.world.world import World

SILENCE_MOST = 1500 * MILLISECOND
"""So long nothing comes through until a link is taken down: three heartbeats."""
REDIAL = 300 * MILLISECOND
STALLED_RATE = 1 << 40
"""Bytes a second of a link behind a stall: all that has waited leaves at once."""

SOMETIMES = (
    "topology.link dead from the beginning",
    "topology.link died",
    "topology.link one way",
    "topology.link stalled",
    "topology.link slow for a while",
    "topology.stranger",
    "topology.volume gone",
)
"""What should happen sometimes in trees."""


class LinkFaults:
    """What goes wrong on the links of a tree. Link cores notice it by themselves."""

    def __init__(self, network: Network) -> None:
        assert network.world.topology is not None
        self._network = network
        self._world: World = network.world
        self._draws = network.world.choices.stream("topology/link faults")
        self.dead: dict[Pair, int] = {}
        """The links that are dead for ever, and since when."""

    @property
    def _topology(self) -> Topology:
        assert self._world.topology is not None
        return self._world.topology

    def allows(self, one: str, other: str) -> bool:
        """Whether there can be a link: the map has it, or any two may have one, and it is not dead."""
        return self._topology.may_link(one, other) and pair_of(one, other) not in self.dead

    # What there is to do about it, where no link cores run.

    def on_cut(self, source: str, target: str) -> None:
        """Nothing gets through in one direction."""

    def on_down(self, pair: Pair) -> None:
        """A link is down."""

    def on_dead(self, pair: Pair) -> None:
        """A link is dead for ever."""

    def on_stall(self, link: LinkBetween) -> None:
        """A link has carried nothing for as long as a link may."""

    # What goes wrong.

    def begin(self) -> None:
        """Some links are dead from the beginning."""
        if self._network.faults.dead:
            for pair in self._topology.links:
                if self._draws.chance(self._network.faults.dead) and self.kill(pair):
                    self._world.sometimes("topology.link dead from the beginning")

    def kinds(self) -> list[tuple[float, Callable[[], None]]]:
        """What may strike, and how often a second."""
        faults = self._network.faults
        return [
            (faults.deaths, self._die),
            (faults.one_ways, self._cut_one_way),
            (faults.stalls, self._stall),
            (faults.slow_phases, self._slow_down),
            (faults.strangers, self._come_as_a_stranger),
        ]

    def kill(self, pair: Pair) -> bool:
        """A link is dead for ever from now on, unless a path would be missing without it. Returns whether it is."""

        def is_live(one: str, other: str) -> bool:
            return pair_of(one, other) != pair and self.allows(one, other)

        if pair in self.dead or not self._topology.joins_all(is_live):
            return False
        self.dead[pair] = self._world.now
        self._world.note("world", "dead", f"the link between {pair[0]} and {pair[1]}, for ever")
        self.on_dead(pair)
        return True

    def _die(self) -> None:
        if self._topology.links and self.kill(self._draws.pick(self._topology.links)):
            self._world.sometimes("topology.link died")

    def _links(self) -> list[LinkBetween]:
        return self._network.links_up()

    def _some_way(self) -> tuple[LinkBetween, int] | None:
        """A link that is up, and one of its ends."""
        links = self._links()
        return (self._draws.pick(links), self._draws.draw(2)) if links else None

    def _a_while(self) -> int:
        return (1 + self._draws.draw(50)) * 100 * MILLISECOND

    def _come_as_a_stranger(self) -> None:
        running = [broker for broker in self._world.brokers.values() if broker.listening]
        target = self._draws.pick(running) if running else None
        if target is not None and target.topology is not None:
            claimed = self._draws.pick([name for name in target.topology.cell_of if name != target.name] or [""])
            if claimed in self._world.brokers:
                self.on_stranger(target, claimed)

    def on_stranger(self, target: SimBroker, claimed: str) -> None:
        """Somebody connects to a node, and calls itself another one."""

    def _cut_one_way(self) -> None:
        way = self._some_way()
        if way is not None:
            link, index = way
            ends = link.ends[1 - index].name, link.ends[index].name
            self._world.sometimes("topology.link one way")
            self._network.cut(*ends)
            self._world.after(self._a_while(), "world", "heal", self._network.heal, *ends)

    def _stall(self) -> None:
        way = self._some_way()
        if way is None:
            return
        link, index = way
        duration = self._a_while()
        self._world.sometimes("topology.link stalled")
        self._world.note("world", "stall", f"{_name(link)} for {duration // MILLISECOND} ms")
        link.rates[index] = link.rates[index] or STALLED_RATE
        link.busy_until[index] = max(link.busy_until[index], self._world.now) + duration
        if duration > SILENCE_MOST:
            self._world.after(SILENCE_MOST, "world", "heartbeats", self.on_stall, link)
        self._world.after(duration, "world", "fast again", self._speed_up, link, index, STALLED_RATE)

    def _slow_down(self) -> None:
        way = self._some_way()
        if way is None:
            return
        link, index = way
        rate = self._network.faults.slow_rate
        self._world.sometimes("topology.link slow for a while")
        self._world.note("world", "slow", f"{_name(link)} towards {link.ends[index].name}: {rate} bytes a second")
        link.rates[index] = rate
        self._world.after(2 * self._a_while() + SECOND, "world", "fast again", self._speed_up, link, index, rate)

    @staticmethod
    def _speed_up(link: LinkBetween, index: int, rate: int) -> None:
        """It is as it was; a phase of another kind that came meanwhile goes on."""
        if link.rates[index] == rate:
            link.rates[index] = 0


class LinkLayer(LinkFaults):
    """Does to links what link cores would: takes down what carries nothing, and dials what is down."""

    def on_cut(self, source: str, target: str) -> None:
        """Nothing gets through in one direction: that is noticed."""
        if self._topology.may_link(source, target):
            self._world.after(SILENCE_MOST, "world", "heartbeats", self._look, source, target)

    def on_down(self, pair: Pair) -> None:
        """A link is down: it is dialed again, unless it was hung up."""
        if self.allows(*pair):
            self._world.after(REDIAL, "world", "connect", self._network.connect, *pair)

    def _look(self, source: str, target: str) -> None:
        if self._network.is_cut(source, target):
            self._take_down(pair_of(source, target))

    def _take_down(self, pair: Pair) -> None:
        if any(link.up for link in self._links() if _name(link) == pair):
            self._world.note("world", "link down", f"{pair[0]} and {pair[1]} hear nothing in one direction")
            self._network.break_link(pair)

    def on_dead(self, pair: Pair) -> None:
        """Both ends notice."""
        self._network.break_link(pair)

    def on_stall(self, link: LinkBetween) -> None:
        """Heartbeats wait behind what waits."""
        if link.up and link.busy_until != [0, 0] and max(link.busy_until) > self._world.now:
            self._take_down(_name(link))


def _name(link: LinkBetween) -> Pair:
    return pair_of(link.ends[0].name, link.ends[1].name)
