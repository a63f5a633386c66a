"""A network of brokers in one thread: hosts, links that go wrong, and one heap of integer nanoseconds.

It is the whole world of the routers in it, and deterministic in its seed. Everything that is said at the seam goes
past a `Contract`, unless its `Pace` has none: a network of hundreds of brokers is lighter without, and may have
latencies and processors as slow as real ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from heapq import heappop, heappush
from random import Random
from types import MappingProxyType
from typing import Any, Protocol, get_args

from msgspec.structs import replace

from gapless.core.gauges import Gauge
from gapless.core.network import facts as routing
from gapless.core.network.facts import BrokerId
from gapless.core.network.frames import FRAME_BYTES_MAX
from gapless.core.network.seam import Effect, Router, RouterContext, RouterHandler, Told
from gapless.core.stream.ticks import EPOCH_MS
from gapless_testing.routing.breaches import Clause, ContractError
from gapless_testing.routing.contract import Contract
from gapless_testing.routing.faults import MS, SECOND, RoutingFaults, strikes
from gapless_testing.routing.harness import RouterHarness
from gapless_testing.routing.topology import Topology

PENDING_MAX = routing.LINK_HIGH + (1 << 20) + FRAME_BYTES_MAX
"""The most that may wait on a link: it is full, and then comes what was said before the router was told."""
DRAINED = 256 << 10
"""How much of what waited an end reads at a time."""
WAKES_MAX = 100
"""So often a router may be woken at one moment; more is a loop without an end."""
STORM = 100
"""So many times what may be said in one call may be on the links of a network within a second: more is a storm."""
SMALL_NETWORK = 10
"""With more brokers than that a network may have more frames, as many times as it is larger."""
LATE = 8 * SECOND
"""How late a frame is at most that comes once more."""
TOLD: frozenset[type] = frozenset(get_args(Told))
SAID: frozenset[type] = frozenset(get_args(Effect))


@dataclass(frozen=True)
class Pace:
    """How fast a network is, and how closely it is watched. As it is made: a little one, of which all is judged."""

    latency: int = MS
    """How long a frame is on its way at least, in nanoseconds."""
    spread: int = MS
    """And up to so much longer, as drawn."""
    noticed_within: int = 400 * MS
    """A link that goes down is noticed at each end within that, as drawn …"""
    noticed_after: int = 0
    """… and so much later: with little of the one and much of the other, each end notices at the same time."""
    judged: bool = True
    """Whether a `Contract` looks on, and each effect is checked."""
    frame_time: int = 0
    """How long the processor of a broker is busy with a frame, when it sends one and when it receives one."""
    byte_time: float = 0.0
    """And so much longer for each of its bytes."""
    frames_max: int | None = None
    """So many frames may be sent within a second for each broker; None: what is no storm in a network of that size."""

    def cost(self, frame: bytes) -> int:
        """How long a processor is busy with a frame."""
        return self.frame_time + int(self.byte_time * len(frame))


LITTLE = Pace()


class Unwatched(Contract):
    """Stands where a contract would look on, and sees nothing."""

    def informed(self, broker: BrokerId, now: int, fact: Any) -> None:
        """A router is about to be told something."""

    def said(self, broker: BrokerId, now: int, effect: Effect) -> None:
        """An effect came out of a router."""


class StandIn(Protocol):
    """What stands in for a core, or for a client, around a router."""

    def start(self) -> None:
        """The process is there; the router was started."""

    def crash(self) -> None:
        """The process is gone, with all that was not durable."""

    def attend(self, effect: Effect) -> None:
        """The router says something; what does not concern it is ignored."""

    def introduce(self) -> None:
        """Another router is there: it is told what every router is told first."""


Observer = Callable[[BrokerId, int, str, Any], None]
"""Sees each fact that a router is told ("told", fact), and where they are judged each effect ("said", effect)."""


class BrokerHost:
    """One broker: its router, the stand-ins around it, and its links."""

    def __init__(self, network: VirtualNetwork, name: BrokerId) -> None:
        self.network = network
        self.name = name
        self.roles = network.topology.brokers[name]
        self.router: Router | None = None
        self._handlers: Mapping[type, RouterHandler] = {}
        self.stand_ins: list[StandIn] = []
        self.links: dict[int, VirtualLink] = {}
        """The links that its router was told of, by the number they have here."""
        self.rooms: list[routing.LinkRoom] = []
        """What it is to be told of its links, after what it is told now."""
        self.saved: dict[str, bytes] = {}
        self.process = 0
        """The number of its process."""
        self.routers = 0
        """How many routers it has had."""
        self._numbers = 0
        self._stamp: tuple[Any, dict[str, int]] = ({}, {})
        """The last stamp that its router said, and what it was then."""
        self._wake_at: int | None = None
        self._wakes = (0, 0)
        self._busy_until = 0

    @property
    def now(self) -> int:
        """The time."""
        return self.network.now

    @property
    def incarnation(self) -> int:
        """Names its process and router. That of a later one may be the lower number."""
        return int.from_bytes(blake2b(f"{self.name} {self.routers}".encode(), digest_size=4).digest(), "big")

    @property
    def up(self) -> bool:
        """Whether its process runs."""
        return self.router is not None

    # ------------------------------------------------------------------------------ coming and going

    def start(self) -> None:
        """The process starts: a router, then what the cores know, then the links as they come."""
        self.process += 1
        self._busy_until = 0
        self._start_router()
        for stand_in in self.stand_ins:
            stand_in.start()

    def vanish(self) -> None:
        """The router is thrown away, and its links with it; another one takes its place."""
        if self.router is None:
            return
        self.network.contract.vanished(self.name)
        self.network.cut_all(self)
        self._start_router()
        for stand_in in self.stand_ins:
            stand_in.introduce()

    def crash(self) -> None:
        """The process is gone."""
        if self.router is None:
            return
        self.network.contract.restarted(self.name)
        self.router = None
        self.network.cut_all(self)
        for stand_in in self.stand_ins:
            stand_in.crash()

    def _start_router(self) -> None:
        network = self.network
        self.routers += 1
        self.router = network.harness.make()
        self._handlers = self.router.handlers()
        network.wish_for_map(self)
        self._stamp = {}, {}
        self._wake_at = None
        if missing := sorted(kind.__name__ for kind in TOLD - self._handlers.keys()):
            raise ContractError(Clause.SEAM, f"handlers() takes no {', '.join(missing)}", self.name, self.now)
        harness, topology = network.harness, network.topology
        seed = network.random.getrandbits(63)
        config = unchanging(harness.config(topology, self.name))
        plan = replace(network.map, nodes=unchanging(network.map.nodes))
        self.tell(RouterContext(self.name, seed, plan, config, unchanging(self.saved)))

    # ------------------------------------------------------------------------------ the router

    def gauges(self) -> list[Gauge]:
        """The router's figures; none while there is no router."""
        with self.network.guard:
            return [] if self.router is None else list(self.router.gauges())

    def work(self, cost: int) -> int:
        """Has the processor do something, behind what it has to do already. Returns how long that takes from now on."""
        if not cost:
            return 0
        self._busy_until = max(self._busy_until, self.now) + cost
        return self._busy_until - self.now

    def later(self, delay: int, action: Callable[[], None]) -> None:
        """Does something after a while, unless the process ends before."""
        process = self.process

        def still_there() -> None:
            if self.up and self.process == process:
                action()

        self.network.later(delay, still_there)

    def tell(self, fact: Told) -> None:
        """Tells the router something, and does what it wants."""
        network = self.network
        if self.router is None:
            return
        network.note(self.name, "told", fact)
        network.contract.informed(self.name, self.now, fact)
        with network.guard:
            effects = list(self._handlers[type(fact)](self.now, fact))
        if network.pace.judged:
            self._judge(type(fact).__name__, effects)
        for effect in effects:
            self._act(effect)
        self.tell_of_room()
        self._plan_wake()

    def _judge(self, told: str, effects: list[Effect]) -> None:
        network = self.network
        self._check_stamp(told)
        for effect in effects:
            self._check_effect(told, effect)
            network.note(self.name, "said", effect)
            network.contract.said(self.name, self.now, effect)
        self._check_frames(told, effects)

    def tell_of_room(self) -> None:
        """Tells the router which links have become full, or have room again."""
        rooms, self.rooms = self.rooms, []
        for room in rooms:
            if room.link in self.links:
                self.tell(room)

    def _check_effect(self, told: str, effect: Effect) -> None:
        """It is one, and a link that it names is one that the router was told of."""
        if type(effect) not in SAID:
            what = f"{effect!r} in answer to {told}, which is no effect of gapless.core.network.seam"
            raise ContractError(Clause.SEAM, what, self.name, self.now)
        if type(effect) is routing.Know and effect.knowledge.stamp:
            self._stamp = effect.knowledge.stamp, dict(effect.knowledge.stamp)

    def _check_stamp(self, told: str) -> None:
        """Silence that was said cannot say more afterwards, because its stamp is a table that goes on changing."""
        stamp, before = self._stamp
        if stamp != before:
            what = f"the stamp {before}, which it had said, is {stamp} after {told}"
            raise ContractError(Clause.TRUTH, what, self.name, self.now)

    def _link(self, number: int) -> VirtualLink:
        """A link by its number. A router knows which it has: it was told of each that came or went."""
        link = self.links.get(number)
        if link is None:
            what = f"link {number} is used, and there are {sorted(self.links) or 'none'}"
            raise ContractError(Clause.SEAM, what, self.name, self.now)
        return link

    def _check_frames(self, told: str, effects: list[Effect]) -> None:
        """How many frames there are, and how large: no event or batch in these tests is larger than a frame may be."""
        frames = [effect.frame for effect in effects if type(effect) is routing.SendFrame]
        if len(frames) > self.network.harness.frames_per_call_max:
            raise ContractError(Clause.BOUNDED, f"{len(frames)} frames in answer to one {told}", self.name, self.now)
        largest = max(map(len, frames), default=0)
        if largest > FRAME_BYTES_MAX:
            raise ContractError(Clause.BOUNDED, f"a frame of {largest:,} bytes", self.name, self.now)

    def _act(self, effect: Effect) -> None:
        if type(effect) is routing.SendFrame:
            self._link(effect.link).send(self, effect.frame)
        elif type(effect) is routing.Dial:
            self.network.dial(self.name, effect.peer)
        elif type(effect) is routing.Undial:
            self.network.undial(self.name, effect.peer)
        elif type(effect) is routing.Hangup:
            self.network.hang_up(self, self._link(effect.link))
        elif type(effect) is routing.Save:
            self._save(effect)
        else:
            for stand_in in self.stand_ins:
                stand_in.attend(effect)

    def _save(self, save: routing.Save) -> None:
        def durable() -> None:
            if save.value is None:
                self.saved.pop(save.key, None)
            else:
                self.saved[save.key] = save.value
            if save.cookie is not None:
                self.tell(routing.Saved(save.cookie))

        self.later(3 * MS, durable)

    def _plan_wake(self) -> None:
        if self.router is None:
            return
        wake = self.router.next_wake()
        if wake is None or (self._wake_at is not None and self._wake_at <= wake):
            return
        self._wake_at = at = max(wake, self.now)
        number = self.routers

        def due() -> None:
            if self.routers == number and self._wake_at == at:
                self._wake()

        self.later(at - self.now, due)

    def _wake(self) -> None:
        self._wake_at = None
        router = self.router
        wake = router.next_wake() if router is not None else None
        if wake is None or wake > self.now:
            self._plan_wake()
            return
        at, count = self._wakes
        self._wakes = (self.now, count + 1 if at == self.now else 1)
        if self._wakes[1] > WAKES_MAX:
            raise ContractError(Clause.BOUNDED, f"{WAKES_MAX} wakes at one moment", self.name, self.now)
        self.tell(routing.Wake())

    # ------------------------------------------------------------------------------ links

    def new_link(self, link: VirtualLink) -> int:
        """A number for a link that was never used here."""
        self._numbers += 1
        self.links[self._numbers] = link
        return self._numbers


class VirtualLink:
    """A link between two brokers, from its coming up to its going down."""

    def __init__(self, network: VirtualNetwork, one: BrokerHost, other: BrokerHost) -> None:
        self.network = network
        self.ends = (one, other)
        self.numbers = {one.name: one.new_link(self), other.name: other.new_link(self)}
        self.alive = True
        self._waiting: dict[BrokerId, deque[bytes]] = {one.name: deque(), other.name: deque()}
        """Frames for each end that it has not read."""
        self._pending = {one.name: 0, other.name: 0}

    def waiting(self, host: BrokerHost) -> int:
        """How many bytes wait for an end to read them."""
        return self._pending[host.name]

    @property
    def pair(self) -> tuple[BrokerId, BrokerId]:
        """The names of the ends, in order."""
        return _pair(self.ends[0].name, self.ends[1].name)

    def peer(self, host: BrokerHost) -> BrokerHost:
        """The other end."""
        return self.ends[1] if host is self.ends[0] else self.ends[0]

    def send(self, host: BrokerHost, frame: bytes) -> None:
        """Takes a frame from one end to the other, as well as such a link does, once the other end reads."""
        if not self.alive:
            return
        peer = self.peer(host)
        if not self._pending[peer.name] and peer.name not in self.network.deaf:
            self._carry(peer, frame)
            return
        self._waiting[peer.name].append(frame)
        self._change_pending(peer, len(frame))

    def drain(self, peer: BrokerHost) -> None:
        """An end reads again: what waits for it goes on, not all of it at once."""
        if peer.name in self.network.deaf:
            return
        self.take(peer, DRAINED)
        if self.alive and self._waiting[peer.name]:
            self.network.later(10 * MS, lambda: self.drain(peer))

    def take(self, peer: BrokerHost, size: int) -> None:
        """An end reads so many bytes, or the frame with which it is as many."""
        waiting, total = self._waiting[peer.name], 0
        while self.alive and waiting and total < size:
            frame = waiting.popleft()
            total += len(frame)
            self._change_pending(peer, -len(frame))
            self._carry(peer, frame)
        self.peer(peer).tell_of_room()

    def _change_pending(self, peer: BrokerHost, size: int) -> None:
        host, before = self.peer(peer), self._pending[peer.name]
        pending = self._pending[peer.name] = before + size
        if pending > PENDING_MAX:
            what = f"{pending:,} bytes wait on a link, whose peer does not read"
            raise ContractError(Clause.BOUNDED, what, host.name, host.now)
        if routing.told_of_room(before, pending):
            host.rooms.append(routing.LinkRoom(self.numbers[host.name], pending))

    def _carry(self, peer: BrokerHost, frame: bytes) -> None:
        network = self.network
        network.count_frame()
        left = self.peer(peer).work(network.pace.cost(frame))
        for delay in network.delays():
            network.later(left + delay, lambda: self.arrive(peer, frame))
        if network.faults.late and network.random.random() < network.faults.late:
            network.later(network.random.randrange(LATE), lambda: network.arrive_late(self.pair, peer, frame))

    def arrive(self, host: BrokerHost, frame: bytes) -> None:
        """A frame is there, if the link still is; it is read when the processor comes to it."""
        busy = host.work(self.network.pace.cost(frame))
        if busy:
            self.network.later(busy, lambda: self._read(host, frame))
        else:
            self._read(host, frame)

    def _read(self, host: BrokerHost, frame: bytes) -> None:
        if self.alive:
            host.tell(routing.FrameArrived(self.numbers[host.name], frame, self.network.wall))

    def cut(self, *, told: tuple[BrokerHost, ...]) -> None:
        """Goes down: what is on its way is lost. These ends are told, each in its own time."""
        if not self.alive:
            return
        self.alive = False
        for host in told:
            number = self.numbers[host.name]
            pace = self.network.pace
            delay = self.network.random.randrange(1, max(2, pace.noticed_within // MS)) * MS
            host.later(pace.noticed_after + delay, partial(self._down, host, number))

    def _down(self, host: BrokerHost, number: int) -> None:
        if host.links.pop(number, None) is not None:
            host.tell(routing.LinkDown(number))


class VirtualNetwork:
    """Hosts and links, time, and what goes wrong."""

    def __init__(
        self,
        harness: RouterHarness,
        topology: Topology,
        seed: int,
        guard: AbstractContextManager[object] | None = None,
        pace: Pace = LITTLE,
    ) -> None:
        """`guard` is entered around every call of a router's method, where these are judged."""
        self.harness = harness
        self.pace = pace
        self.topology = topology
        self.random = Random(seed)  # noqa: S311 - the same schedule every time
        self.faults = RoutingFaults()
        self.contract = Contract() if pace.judged else Unwatched()
        self.guard: AbstractContextManager[object] = guard or nullcontext()
        self.observers: list[Observer] = []
        self.now = SECOND
        self.map = harness.network(topology)
        """As every router finds it."""
        self.hosts = {name: BrokerHost(self, name) for name in topology.brokers}
        self._neighbours: dict[BrokerId, list[BrokerId]] = {}
        """By node: to whom the map has links."""
        for one, other in self.map.links:
            self._neighbours.setdefault(one, []).append(other)
            self._neighbours.setdefault(other, []).append(one)
        self._links: dict[tuple[BrokerId, BrokerId], VirtualLink] = {}
        self._wishes: dict[tuple[BrokerId, BrokerId], None] = {}
        """Which broker wishes for a link to whom; from its start on for those of the map."""
        self._parted = False
        brokers, most = len(self.hosts), pace.frames_max
        storm = STORM * self.harness.frames_per_call_max * max(1, brokers // SMALL_NETWORK)
        self._frames_max = storm if most is None else most * brokers
        self._carried = (0, 0)
        """A second, and how many frames were sent in it."""
        self.deaf: dict[BrokerId, None] = {}
        """The brokers that do not read from their links."""
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0

    @property
    def wall(self) -> int:
        """What everybody's wall clock shows, in milliseconds since 1970: ticks are near it."""
        return EPOCH_MS + self.now // MS

    def note(self, broker: BrokerId, direction: str, what: Any) -> None:
        """Shows the observers a call or an effect."""
        for observer in self.observers:
            observer(broker, self.now, direction, what)

    # ------------------------------------------------------------------------------ time

    def later(self, delay: int, action: Callable[[], None]) -> None:
        """Does something after a while."""
        self._count += 1
        heappush(self._events, (self.now + max(0, delay), self._count, action))

    def run(self, duration: int) -> None:
        """Lets time pass."""
        end = self.now + duration
        while self._events and self._events[0][0] <= end:
            self.now, _, action = heappop(self._events)
            action()
        self.now = end

    def start(self, after: Mapping[BrokerId, int] = MappingProxyType({})) -> None:
        """Starts every broker, and the links between them. `after`: some of them so many nanoseconds later."""
        for host in self.hosts.values():
            if after.get(host.name):
                self.later(after[host.name], host.start)
            else:
                host.start()
        self._mend()
        self._trouble()

    # ------------------------------------------------------------------------------ links

    def count_frame(self) -> None:
        """One more frame goes over some link. Raises ContractError if the routers talk among themselves without end."""
        second, count = self._carried
        this = self.now // SECOND
        count = count + 1 if second == this else 1
        self._carried = this, count
        limit = self._frames_max
        if count > limit:
            what = f"more than {limit:,} frames are sent within a second"
            raise ContractError(Clause.BOUNDED, what, "the network", self.now)

    def delays(self) -> Iterator[int]:
        """When copies of a frame arrive: one, none or two."""
        faults, random, pace = self.faults, self.random, self.pace
        copies = 0 if random.random() < faults.loss else 2 if random.random() < faults.duplicates else 1
        for _ in range(copies):
            yield (
                pace.latency
                + random.randrange(max(1, pace.spread))
                + (random.randrange(faults.jitter) if faults.jitter else 0)
            )

    def dial(self, broker: BrokerId, peer: BrokerId) -> None:
        """A router asks for a link."""
        if peer in self.hosts and peer != broker:
            self._wishes[broker, peer] = None
            self.later(5 * MS, lambda: self._connect(_pair(broker, peer)))

    def undial(self, broker: BrokerId, peer: BrokerId) -> None:
        """A router asks for a link no more. One that is up stays as long as the other end wishes for it."""
        self._wishes.pop((broker, peer), None)
        link = self._links.get(_pair(broker, peer))
        if link is not None and not self._is_wished(link.pair):
            self._close(link)

    def hang_up(self, host: BrokerHost, link: VirtualLink) -> None:
        """A router closes a link: it comes back if the other end still wishes for it, and is told of this in time."""
        self._wishes.pop((host.name, link.peer(host).name), None)
        self._close(link)

    def _close(self, link: VirtualLink) -> None:
        link.cut(told=link.ends)
        if self._links.get(link.pair) is link:
            del self._links[link.pair]

    def _is_wished(self, pair: tuple[BrokerId, BrokerId]) -> bool:
        return pair in self._wishes or pair[::-1] in self._wishes

    def wish_for_map(self, host: BrokerHost) -> None:
        """A process starts, or another router: it wishes for the links of the map, and for no others yet."""
        self._wishes = {ends: None for ends in self._wishes if ends[0] != host.name}
        for peer in self._neighbours.get(host.name, ()):
            self._wishes[host.name, peer] = None

    def cut_all(self, host: BrokerHost) -> None:
        """A broker's end of all its links is gone: it is not told, the others are."""
        for link in [link for link in self._links.values() if host in link.ends]:
            del self._links[link.pair]
            link.cut(told=(link.peer(host),))
        host.links.clear()

    def ends(self) -> Iterator[tuple[VirtualLink, BrokerHost]]:
        """Both ends of every link that is up."""
        return ((link, host) for link in self._links.values() for host in link.ends)

    def deafen(self, host: BrokerHost) -> None:
        """A broker is there, and reads nothing from any link."""
        self.deaf[host.name] = None

    def listen(self, host: BrokerHost) -> None:
        """It reads again."""
        del self.deaf[host.name]
        for link in list(self._links.values()):
            if host in link.ends:
                link.drain(host)

    def part(self) -> None:
        """All links go down, and none comes up any more."""
        self._parted = True
        for link in self._links.values():
            link.cut(told=link.ends)
        self._links.clear()

    def join(self) -> None:
        """Links may come up again."""
        self._parted = False

    def _connect(self, pair: tuple[BrokerId, BrokerId]) -> None:
        one, other = (self.hosts[name] for name in pair)
        if self._parted or pair in self._links or not one.up or not other.up or not self._is_wished(pair):
            return
        link = self._links[pair] = VirtualLink(self, one, other)
        for host in link.ends:
            peer = link.peer(host)
            host.tell(routing.LinkUp(link.numbers[host.name], peer.name, peer.roles, peer.incarnation))

    def arrive_late(self, pair: tuple[BrokerId, BrokerId], host: BrokerHost, frame: bytes) -> None:
        """A frame comes on the link that there is now, whoever said it, and to whom."""
        if pair in self._links:
            self._links[pair].arrive(host, frame)

    def _mend(self) -> None:
        """Every now and then, links that should be there are made."""
        for pair in {_pair(*ends): None for ends in self._wishes}:
            self._connect(pair)
        self.later(self.random.randrange(200, 700) * MS, self._mend)

    # ------------------------------------------------------------------------------ trouble

    def _trouble(self) -> None:
        """Every now and then, something goes wrong."""
        step = 100 * MS
        faults, random = self.faults, self.random
        if strikes(random, step, faults.cut_every) and self._links:
            link = self._links.pop(random.choice(list(self._links)))
            link.cut(told=link.ends)
        if strikes(random, step, faults.vanish_every):
            random.choice(list(self.hosts.values())).vanish()
        if strikes(random, step, faults.crash_every):
            self.crash_for_a_while(random.choice(list(self.hosts.values())))
        self.later(step, self._trouble)

    def crash_for_a_while(self, host: BrokerHost) -> None:
        """A broker goes down, and comes back some time later."""
        if host.up:
            host.crash()
            self.later(self.random.randrange(50, 4000) * MS, host.start)


def unchanging(rows: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """The rows as a fact has them: who would change what it is told meets a TypeError."""
    return MappingProxyType(dict(rows))


def _pair(one: BrokerId, other: BrokerId) -> tuple[BrokerId, BrokerId]:
    return (one, other) if one < other else (other, one)
