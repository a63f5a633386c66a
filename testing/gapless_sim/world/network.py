"""The network: all links, between clients and brokers and between brokers, and everything that goes wrong on them.

On a link between brokers each frame may be lost, repeated (at once or much later) and overtaken. For the links of
clients see `gapless_sim.world.links`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from google_crc32c import value as crc32c

from gapless.core.network.facts import LINK_HIGH
from gapless_sim.faults.liar import Liar
from gapless_sim.faults.link_faults import LinkFaults, LinkLayer
from gapless_sim.recording.frame_tap import FrameTap, LinkBetween
from gapless_sim.world.leftovers import Leftovers, Way
from gapless_sim.world.links import ClientLink, Pipe
from gapless_sim.world.options import MILLISECOND, SECOND
from gapless_sim.world.topology import BY_TREE

if TYPE_CHECKING:
    from gapless_sim.world.application import SimClient
    from gapless_sim.world.broker import SimBroker
    from gapless_sim.world.core_links import NodeLinks
    from gapless_sim.world.world import World

OLD_FRAMES = 32
"""So many payloads of earlier sessions are remembered, to turn up in a later one."""


class BrokerLink:
    """A link between two brokers: a number at each end."""

    def __init__(self, one: SimBroker, other: SimBroker) -> None:
        self.ends = (one, other)
        self.numbers = (one.next_link(), other.next_link())
        self.lives = (one.life, other.life)
        self.up = True
        self.rates = [0, 0]
        """Bytes a second towards each end, 0 for no limit."""
        self.busy_until = [0, 0]
        self.pending = [0, 0]
        """Bytes that have not left for each end."""

    def other_end(self, broker: SimBroker) -> int:
        """The index of the end that is not this broker's."""
        return 1 if self.ends[0] is broker else 0


class Network:
    """All links, and what is cut."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.faults = world.options.network
        self.choices = world.choices.stream("network")
        self.client_links: dict[int, ClientLink] = {}
        self._serial = 0
        self._cuts: dict[tuple[str, str], int] = {}
        self._broker_links: dict[tuple[str, str], BrokerLink] = {}
        self._by_number: dict[tuple[str, int], BrokerLink] = {}
        self._wishes: dict[tuple[str, str], None] = {}
        """Between whom a link is to come up."""
        self._wished_by: dict[tuple[str, str], None] = {}
        """Which router wishes for a link to whom."""
        self._old: dict[tuple[str, str, str], deque[bytes]] = {}
        self._slow = world.choices.stream("slow links between brokers")
        self._leftovers = Leftovers(world.choices.stream("late frames"))
        self.layer: LinkFaults | None = LinkLayer(self) if world.options.topology in BY_TREE else None
        """What sees to the links of a tree."""
        self.liar = Liar(world, on=self.faults.lies > 0)
        self.frames = FrameTap(world) if world.topology is not None else None
        """What is said between brokers, for oracles."""

    def latency(self) -> int:
        """How long something is on its way."""
        return self.choices.delay(self.faults.least, self.faults.delay)

    # Cuts.

    def is_cut(self, source: str, target: str) -> bool:
        """Whether nothing gets from one to the other just now."""
        return bool(self._cuts) and (source, target) in self._cuts

    def cut(self, source: str, target: str) -> None:
        """From now on nothing gets through in this direction."""
        self._cuts[source, target] = self._cuts.get((source, target), 0) + 1
        self.world.note("world", "cut", f"{source} can not reach {target}")
        if self.layer is not None:
            self.layer.on_cut(source, target)

    def heal(self, source: str, target: str) -> None:
        """The way is free again, as far as this cut is concerned."""
        count = self._cuts.get((source, target), 0)
        if count > 1:
            self._cuts[source, target] = count - 1
            return
        if self._cuts.pop((source, target), None) is None:
            return
        self.world.note("world", "heal", f"{source} reaches {target} again")
        for link in list(self.client_links.values()):
            for pipe in (link.upward, link.downward):
                if (pipe.source, pipe.target) == (source, target):
                    pipe.flush()

    def heal_all(self) -> None:
        """Every way is free."""
        for source, target in list(self._cuts):
            self._cuts[source, target] = 1
            self.heal(source, target)

    def speed_up(self) -> None:
        """No link is slow any more. One that would still be busy for long with what it has breaks instead."""
        for link in list(self.client_links.values()):
            if link.downward.busy_until > self.world.now + SECOND:
                link.reset("it was too slow")
            link.downward.rate = 0
        for pair, between in list(self._broker_links.items()):
            between.rates = [0, 0]
            if max(between.busy_until) > self.world.now + SECOND:
                self.break_link(pair)

    # Clients' links.

    def dial(self, client: SimClient, number: int, broker: SimBroker) -> None:
        """A client connects."""
        arrival = self.world.now + 2 * self.latency()
        self.world.at(arrival, broker.name, "dial", self._answer, client, number, broker, life=client.life)

    def _answer(self, client: SimClient, number: int, broker: SimBroker) -> None:
        if self.is_cut(client.name, broker.name) or self.is_cut(broker.name, client.name):
            return  # nobody answers; the client gives up in its own time
        if not broker.listening:
            client.on_link_down(number, "connection refused")
            return
        self._serial += 1
        link = ClientLink(self, self._serial, client, number, broker)
        self.client_links[self._serial] = link
        broker.accept(link)
        client.on_link_up(number, link)
        if self.choices.chance(self.faults.stale):
            self._bring_back_old_frames(link)

    def forget(self, link: ClientLink) -> None:
        """A link is over."""
        self.client_links.pop(link.serial, None)

    def old_frames(self, client: str, broker: str, source: str) -> deque[bytes]:
        """What one side said in sessions between the two."""
        key = (client, broker, source)
        if key not in self._old:
            self._old[key] = deque(maxlen=OLD_FRAMES)
        return self._old[key]

    def _bring_back_old_frames(self, link: ClientLink) -> None:
        """Frames of an earlier session turn up in this one: both sides must ignore them."""
        for pipe in (link.upward, link.downward):
            old = list(link.old_frames(pipe.source))
            if old:
                self._inject(link, pipe, old, self.world.now + 20 * self.latency())
                self.world.sometimes("net.stale")

    def _inject(self, link: ClientLink, pipe: Pipe, frames: list[bytes], at: int) -> None:
        self.world.at(at, pipe.target, "stale", pipe.inject, frames, life=link.life)

    # Frames that are late beyond their link.

    def keep(self, way: Way, link: int, frames: Sequence[bytes]) -> None:
        """These frames of a link may turn up on a later one."""
        if self.faults.late and frames:
            self._leftovers.keep(way, link, frames)

    def bring_leftovers(self) -> None:
        """Some frames of an earlier link turn up on the one that the same two have now."""
        pipes, links = self._client_ways(), self._broker_ways()
        if not pipes and not links:
            return
        way = self._leftovers.pick([*pipes, *links])
        if way in pipes:
            link, pipe = pipes[way]
            self._inject(link, pipe, self._leftovers.take(way, link.serial), self.world.now + self.latency())
            self.world.sometimes("net.late to a client" if pipe is link.downward else "net.late to a broker")
        else:
            links[way]()
            self.world.sometimes("net.late between brokers")

    def _client_ways(self) -> dict[Way, tuple[ClientLink, Pipe]]:
        """By way: the newest link of a client, where earlier ones have left something."""
        return {
            (pipe.source, pipe.target): (link, pipe)
            for link in self.client_links.values()
            for pipe in (link.upward, link.downward)
            if self._leftovers.has_any((pipe.source, pipe.target), link.serial)
        }

    def _broker_ways(self) -> dict[Way, Callable[[], None]]:
        """By way between two brokers: what brings something of an earlier link."""
        found: dict[Way, Callable[[], None]] = {}
        for link in self._broker_links.values():
            for index, target in enumerate(link.ends):
                source = link.ends[1 - index]
                way = (source.name, target.name)
                if link.up and self._leftovers.has_any(way, link.numbers[1 - index]):
                    found[way] = partial(self._bring_to_broker, way, link, index)
        return found

    def _bring_to_broker(self, way: Way, link: BrokerLink, index: int) -> None:
        for frame in self._leftovers.take(way, link.numbers[1 - index]):
            self._carry(link, index, frame, self.world.now + self.latency())

    def reset_links(self, client: SimClient) -> None:
        """All links of one client break."""
        for link in list(self.client_links.values()):
            if link.client is client:
                link.reset("connection reset")

    def reset_some(self, choose: Callable[[int], int]) -> None:
        """One client's link breaks."""
        links = list(self.client_links.values())
        if links:
            links[choose(len(links))].reset("connection reset")
            self.world.sometimes("net.reset")

    def break_word(self, choose: Callable[[int], int]) -> None:
        """The next frame of a session is lost on one client's link, one way, and nobody is told."""
        links = list(self.client_links.values())
        if links:
            link = links[choose(len(links))]
            (link.downward, link.upward)[choose(2)].loses_next = True

    def keep_word(self) -> None:
        """No link of a client loses anything any more."""
        for link in self.client_links.values():
            link.downward.loses_next = link.upward.loses_next = False

    # Links between brokers.

    def open_links(self, broker: SimBroker) -> NodeLinks | None:
        """The link cores of a process that begins, where there are any."""
        return None

    def wish(self, source: SimBroker, peer: str) -> None:
        """A router asks for a link to a peer; it comes up as soon as it can."""
        target = self.world.brokers.get(peer)
        if target is None or target is source or (self.layer is not None and not self.layer.allows(source.name, peer)):
            return
        self._wishes[_pair(source.name, peer)] = None
        self._wished_by[source.name, peer] = None
        self.world.at(self.world.now + self.latency(), "world", "connect", self.connect, source.name, peer)

    def unwish(self, source: SimBroker, peer: str) -> None:
        """A router does not ask for a link to a peer any more: one that neither end asks for goes down."""
        if self._let_go(source.name, peer):
            self.break_link(_pair(source.name, peer))

    def _let_go(self, source: str, peer: str) -> bool:
        """One end wishes for a link no more. Returns whether neither does."""
        self._wished_by.pop((source, peer), None)
        if (peer, source) in self._wished_by:
            return False
        self._wishes.pop(_pair(source, peer), None)
        return True

    def connect(self, one: str, other: str) -> None:
        """Brings a wished link up, if both ends are there and reach each other."""
        pair = _pair(one, other)
        brokers = [self.world.brokers[name] for name in pair]
        link = self._broker_links.get(pair)
        if pair not in self._wishes or (link is not None and link.up):
            return
        if self.layer is not None and not self.layer.allows(*pair):
            return
        if not all(broker.running for broker in brokers) or self.is_cut(*pair) or self.is_cut(*pair[::-1]):
            self.world.after(200 * MILLISECOND, "world", "connect", self.connect, one, other)
            return
        if self.layer is None:  # there a link is wished for until it is hung up
            del self._wishes[pair]
        link = self._broker_links[pair] = BrokerLink(*brokers)
        link.rates = [self.faults.slow_rate if self._slow.chance(self.faults.slow) else 0 for _ in brokers]
        for index, broker in enumerate(brokers):
            peer = brokers[1 - index]
            self._by_number[broker.name, link.numbers[index]] = link
            broker.on_broker_link(link.numbers[index], peer.name, peer.roles, peer.boots)

    def to_broker(self, source: SimBroker, number: int, frame: bytes, *, urgent: bool) -> None:
        """Sends a frame to another broker. Any may be overtaken, urgent or not."""
        link = self._by_number.get((source.name, number))
        if link is None or not link.up:
            return
        index = link.other_end(source)
        target = link.ends[index]
        if self.frames is not None:
            self.frames.sent(link, index, frame)
        self.keep((source.name, target.name), number, (frame,))
        if link.lives[index].over or self.is_cut(source.name, target.name):
            return
        left = self._leave(link, index, len(frame))
        faults, choices = self.faults, self.choices
        if choices.chance(faults.loss):
            self.world.sometimes("net.lost")
            return
        self._carry(link, index, frame, left + self.latency())
        if choices.chance(faults.repeat):
            much_later = choices.chance(0.3)
            self.world.sometimes("net.repeated much later" if much_later else "net.repeated")
            wait = self.latency() + (choices.draw(20) * SECOND if much_later else 0)
            self._carry(link, index, frame, left + wait)

    def _leave(self, link: BrokerLink, index: int, size: int) -> int:
        """When a frame leaves for an end of a link: at once, or behind all that a slow link has."""
        rate, now = link.rates[index], self.world.now
        if not rate:
            return now
        left = link.busy_until[index] = max(now, link.busy_until[index]) + size * SECOND // rate
        self._say_pending(link, index, size, now)
        self._say_pending(link, index, -size, left)
        return left

    def _say_pending(self, link: BrokerLink, index: int, size: int, at: int) -> None:
        """The node is told that more waits on a link, or less."""
        source, number, life = link.ends[1 - index], link.numbers[1 - index], link.lives[1 - index]

        def say() -> None:
            link.pending[index] += size
            if link.up:
                pending = self.world.options.link_weight * link.pending[index]
                if pending > LINK_HIGH:
                    self.world.sometimes("net.full between brokers")
                source.on_broker_pending(number, pending)

        self.world.at(at, source.name, "pending", say, life=life)

    def _carry(self, link: BrokerLink, index: int, frame: bytes, arrival: int) -> None:
        broker = link.ends[index]
        life, digest = link.lives[index], crc32c(frame)
        self.world.at(arrival, broker.name, "frame", self._hand_over, link, index, frame, life=life, digest=digest)

    def _hand_over(self, link: BrokerLink, index: int, frame: bytes) -> None:
        if link.up:
            self.liar.heard(link, index, frame)
            if self.frames is not None:
                self.frames.arrived(link, index, frame)
            link.ends[index].on_broker_frame(link.numbers[index], frame)

    def broker_gone(self, broker: SimBroker, *, silent: bool) -> None:
        """A broker's process is over: its peers notice after a while, silent or not."""
        self._wished_by = {ends: None for ends in self._wished_by if ends[0] != broker.name}
        for pair, link in list(self._broker_links.items()):
            if broker in link.ends and link.up:
                self.break_link(pair)

    def break_link(self, pair: tuple[str, str]) -> None:
        """A link between brokers goes down; each end that lives hears of it."""
        link = self._broker_links.get(pair)
        if link is None or not link.up:
            return
        link.up = False
        for index, end in enumerate(link.ends):
            at = self.world.now + self.latency() + self.choices.draw(10) * 100 * MILLISECOND
            self.world.at(
                at, end.name, "link down", end.on_broker_link_down, link.numbers[index], life=link.lives[index]
            )
        if self.layer is not None:
            self.layer.on_down(pair)

    def hang_up(self, source: SimBroker, number: int) -> None:
        """A router closes a link."""
        link = self._by_number.get((source.name, number))
        if link is not None:
            self._let_go(source.name, link.ends[link.other_end(source)].name)
            self.break_link(_pair(link.ends[0].name, link.ends[1].name))

    def lie(self, choose: Callable[[int], int]) -> None:
        """A broker says of a tick what cannot be, on some link."""
        self.liar.lie(self.links_up(), choose)

    def links_up(self) -> list[LinkBetween]:
        """The links between brokers that are there."""
        return [link for link in self._broker_links.values() if link.up]

    def may_meet(self, one: str, other: str) -> bool:
        """Whether there can be a link between two brokers: as far as the map, and what is cut or dead, is concerned."""
        if self.is_cut(one, other) or self.is_cut(other, one):
            return False
        return self.layer is None or self.layer.allows(one, other)

    def flap_some(self, choose: Callable[[int], int]) -> None:
        """One link between brokers goes down."""
        up = [pair for pair, link in self._broker_links.items() if link.up]
        if up:
            self.break_link(up[choose(len(up))])
            self.world.sometimes("net.broker link down")


def _pair(one: str, other: str) -> tuple[str, str]:
    return (one, other) if one < other else (other, one)
