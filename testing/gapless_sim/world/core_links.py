"""Links between brokers as in production: each node has the link cores, over connections that a kernel might give it.

    router ◀─ machine ◀──▶ NodeLinks: `BrokerLinks` of the SDK ◀──▶ Connection ◀──▶ NodeLinks of the other node

Whatever goes wrong goes wrong on connections, and the cores have to find out. Above them frames may be lost, repeated
or late, as the seam allows: a router stands that, whatever links it has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Protocol

from gapless.core.alarms import Alarm
from gapless.core.network.facts import LINK_HIGH, LinkDown, LinkUp, RanTwice, ShutOut
from gapless.core.network.greeting import LinkIdentity, LinkSizes
from gapless.core.network.links import Connect, EndLink, RaiseFrameLimit, Received, SendPayloads, Waiting
from gapless.core.network.peers import DUPLICATE, OTHER_PROCESS, BrokerLinks
from gapless_sim.faults.link_faults import LinkFaults
from gapless_sim.world.broker import SimBroker
from gapless_sim.world.clocks import NodeClock
from gapless_sim.world.connections import Connection
from gapless_sim.world.links import whole
from gapless_sim.world.network import Network
from gapless_sim.world.options import SECOND
from gapless_sim.world.topology import pair_of

if TYPE_CHECKING:
    from gapless.core.network.facts import BrokerId, LinkId
    from gapless.core.network.links import Payload
    from gapless_sim.recording.frame_tap import LinkBetween
    from gapless_sim.world.leftovers import Way
    from gapless_sim.world.world import Life, World

SIZES: Final = LinkSizes(part=2 << 10, report=2 << 10, underway=16 << 10, window=8 << 10)
"""As little as what is said in a simulation."""
STRANGER_STAYS: Final = 2 * SECOND
SOMETIMES: Final = {
    "nothing was heard": "links.nothing was heard",
    "it says that nothing arrives": "links.worked one way only",
    DUPLICATE: "links.dials crossed",
    OTHER_PROCESS: "links.peer came again as another process",
    "it closed the link: the node is stopping": "links.peer stopped in order",
}
"""What should happen sometimes, by why a core ends a link."""
SECRET: Final = b"known to all nodes of the simulated network"


class LinkWatcher(Protocol):
    """Who watches what cores say of links."""

    def dialed(self, source: SimBroker, peer: BrokerId) -> None:
        """A core has somebody dialed."""

    def link_up(self, connection: Connection, index: int, up: LinkUp) -> None:
        """An end says that a link is up."""

    def frame_taken(self, connection: Connection, index: int, frame: bytes, *, urgent: bool) -> None:
        """A core is given a frame for this end."""

    def frame_handed_over(self, connection: Connection, index: int, frame: bytes) -> None:
        """A core hands over a frame at this end."""

    def connection_over(self, connection: Connection) -> None:
        """Neither end has it any more."""


class NodeLinks:
    """The links of one process of a node: what `gapless.node.links` is in production."""

    def __init__(self, network: CoreNetwork, broker: SimBroker, core: BrokerLinks) -> None:
        self.core = core
        self.connections: dict[LinkId, tuple[Connection, int]] = {}
        """By link: the connection, and which end of it is here."""
        self._network = network
        self._world = network.world
        self._broker = broker
        self._life = broker.life
        self._timer: Life = self._world.new_life()
        self._timer_at: int | None = None
        self._act: dict[type, Callable[[Any], None]] = {
            Connect: self._connect,
            SendPayloads: self._send,
            RaiseFrameLimit: lambda _: None,
            EndLink: self._end,
            Waiting: self._say_waiting,
            LinkUp: self._up,
            LinkDown: self._down,
            Received: self._hand_over,
            RanTwice: broker.on_ran_twice,
            ShutOut: broker.on_shut_out,
            Alarm: broker.alarm,
        }

    @property
    def now(self) -> int:
        """By the node's clock."""
        return self._broker.node_clock.monotonic(self._world.now)

    def flush(self) -> None:
        """Does what the core asks for: after each turn of the machine, and after whatever happens on a link."""
        if self._life.over:
            return
        while effects := self.core.take_effects():
            for effect in effects:
                self._act[type(effect)](effect)
        due = self.core.deadline()
        if due is not None and (self._timer_at is None or due < self._timer_at):
            self._timer.over = True
            self._timer, self._timer_at = self._world.new_life(), due
            at = max(self._broker.node_clock.when(due), self._world.now)
            self._world.at(at, self._broker.name, "beat", self._on_timer, self._life, life=self._timer)

    def _on_timer(self, life: Life) -> None:
        self._timer_at = None
        if not life.over:
            self._broker.awake(self._on_deadline)

    def _on_deadline(self) -> None:
        self.core.on_deadline(self.now)
        self.flush()

    # What the core asks for.

    def _connect(self, connect: Connect) -> None:
        connection = self._network.connection(self._broker, self._world.brokers[connect.peer])
        connection.numbers[0] = connect.link
        for watcher in self._network.watchers:
            watcher.dialed(self._broker, connect.peer)
        self.connections[connect.link] = connection, 0
        self._world.after(2 * self._network.latency(), connect.peer, "dial", connection.dial, life=self._life)

    def _send(self, effect: SendPayloads) -> None:
        found = self.connections.get(effect.link)
        if found is not None:
            self._network.send(*found, effect.payloads)

    def _end(self, effect: EndLink) -> None:
        for reason, name in SOMETIMES.items():
            if effect.reason.startswith(reason):
                self._world.sometimes(name)
        found = self.connections.pop(effect.link, None)
        if found is not None:
            found[0].close(found[1])

    def _say_waiting(self, waiting: Waiting) -> None:
        pending = self._world.options.link_weight * waiting.pending
        connection, index = self.connections[waiting.link]
        connection.pending[1 - index] = waiting.pending
        if pending > LINK_HIGH:
            self._world.sometimes("net.full between brokers")
        self._broker.on_broker_pending(waiting.link, pending)

    def _up(self, up: LinkUp) -> None:
        connection, index = self.connections[up.link]
        connection.is_up[index] = True
        for watcher in self._network.watchers:
            watcher.link_up(connection, index, up)
        self._broker.on_broker_link(up.link, up.peer, up.roles, up.incarnation)

    def _down(self, down: LinkDown) -> None:
        self._broker.on_broker_link_down(down.link)

    def _hand_over(self, arrived: Received) -> None:
        connection, index = self.connections[arrived.link]
        self._network.liar.heard(connection, index, arrived.frame)
        for watcher in self._network.watchers:
            watcher.frame_handed_over(connection, index, arrived.frame)
        if self._network.frames is not None:
            self._network.frames.arrived(connection, index, arrived.frame)
        self._broker.on_broker_frame(arrived.link, arrived.frame)


class CoreLinkFaults(LinkFaults):
    """What goes wrong on links, and who wants to get in."""

    def on_stranger(self, target: SimBroker, claimed: str) -> None:
        """Somebody connects to a node, and calls itself another one."""
        network = self._network
        assert isinstance(network, CoreNetwork)
        self._world.sometimes("topology.stranger")
        network.bring_stranger(target, self._world.brokers[claimed])


class CoreNetwork(Network):
    """A network in which the links between brokers have the cores of production at their ends."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.layer = self._link_faults = CoreLinkFaults(self)
        self._connections: dict[int, Connection] = {}
        self._connection_count = 0
        self._starts = 0
        self._cut_since: dict[Way, int] = {}
        self.watchers: list[LinkWatcher] = []
        """Who watches what cores say of links."""
        self._secrets = world.choices.seed

    def open_links(self, broker: SimBroker) -> NodeLinks:
        """The links of a process that begins."""
        return self._open(broker, SECRET)

    def bring_stranger(self, target: SimBroker, claimed: SimBroker) -> None:
        """Somebody who does not know the secret dials a node for a while, and says that it is another one."""
        world = self.world
        stranger = SimBroker(world, claimed.name, claimed.loaded, claimed.new_disk, NodeClock(world.now))
        stranger.topology, stranger.life = target.topology, world.new_life()
        links = stranger.links = self._open(stranger, b"guessed")
        links.core.on_dial(target.name, links.now)
        links.flush()
        world.after(STRANGER_STAYS, "world", "stranger goes", self._send_away, stranger)

    def _send_away(self, stranger: SimBroker) -> None:
        stranger.life.over = True
        self.broker_gone(stranger, silent=False)

    def _open(self, broker: SimBroker, secret: bytes) -> NodeLinks:
        assert broker.topology is not None
        self._starts += 1
        nodes = {node: frozenset(roles) for node, roles in broker.topology.roles.items()}
        me = LinkIdentity(
            network=broker.loaded.config.node.network,
            node=broker.name,
            roles=broker.roles,
            incarnation=broker.incarnation,
            router=self.world.options.router,
            map_digest=sha256(str(broker.topology).encode()).digest(),
            secret=secret,
            sizes=SIZES,
        )
        seed = f"{self._secrets}/{broker.name}/{self._starts}".encode()
        return NodeLinks(self, broker, BrokerLinks(me, nodes, {node: node for node in nodes}, seed))

    def is_blocked(self, source: str, target: str) -> bool:
        """Whether nothing gets from one node to another: it is cut, or dead for ever."""
        dead = self._link_faults.dead
        return self.is_cut(source, target) or (bool(dead) and pair_of(source, target) in dead)

    def blocked_since(self, source: str, target: str) -> int | None:
        """Since when nothing gets from one node to another; None: it does."""
        dead = self._link_faults.dead.get(pair_of(source, target))
        cut = self._cut_since.get((source, target)) if self.is_cut(source, target) else None
        return min((since for since in (dead, cut) if since is not None), default=None)

    # What routers want.

    def wish(self, source: SimBroker, peer: BrokerId) -> None:
        """A router asks for a link to a peer."""
        links = source.links
        if links is not None:
            links.core.on_dial(peer, links.now)

    def unwish(self, source: SimBroker, peer: BrokerId) -> None:
        """A router does not ask for a link to a peer any more."""
        links = source.links
        if links is not None:
            links.core.on_undial(peer, links.now)

    def hang_up(self, source: SimBroker, number: LinkId) -> None:
        """A router closes a link."""
        links = source.links
        if links is not None:
            links.core.on_hangup(number, links.now)

    def to_broker(self, source: SimBroker, number: LinkId, frame: bytes, *, urgent: bool) -> None:
        """Sends a frame to another broker: or loses it, or sends it twice, or late."""
        links = source.links
        found = None if links is None else links.connections.get(number)
        if found is None:
            return
        connection, index = found
        if self.frames is not None:
            self.frames.sent(connection, 1 - index, frame)
        faults, choices = self.faults, self.choices
        if choices.chance(faults.loss):
            if choices.chance(0.5):
                self.world.sometimes("net.lost")
            else:
                self._send_late(source, number, frame, urgent, self.latency())
            return
        self._send_now(source, number, frame, urgent)
        if choices.chance(faults.repeat):
            much_later = choices.chance(0.3)
            self.world.sometimes("net.repeated much later" if much_later else "net.repeated")
            wait = self.latency() + (choices.draw(20) * SECOND if much_later else 0)
            self._send_late(source, number, frame, urgent, wait)

    def _send_now(self, source: SimBroker, number: LinkId, frame: bytes, urgent: bool) -> None:  # noqa: FBT001 - called later
        links = source.links
        found = None if links is None else links.connections.get(number)
        if links is not None and found is not None:
            for watcher in self.watchers:
                watcher.frame_taken(found[0], 1 - found[1], frame, urgent=urgent)
            links.core.on_send(number, frame, urgent=urgent, now=links.now)

    def _send_late(self, source: SimBroker, number: LinkId, frame: bytes, urgent: bool, wait: int) -> None:  # noqa: FBT001
        def send() -> None:
            self._send_now(source, number, frame, urgent)
            if source.links is not None:
                source.links.flush()

        self.world.after(wait, source.name, "late frame", source.awake, send, life=source.life)

    # What connections say.

    def connection(self, dialer: SimBroker, listener: SimBroker) -> Connection:
        """A dial begins."""
        self._connection_count += 1
        made = self._connections[self._connection_count] = Connection(self, self._connection_count, dialer, listener)
        made.rates = [self.faults.slow_rate if self._slow.chance(self.faults.slow) else 0 for _ in (0, 1)]
        return made

    def forget_connection(self, connection: Connection) -> None:
        """Neither end has it any more."""
        connection.life.over = True
        for watcher in self.watchers:
            watcher.connection_over(connection)
        self._connections.pop(connection.serial, None)

    def on_connected(self, connection: Connection) -> None:
        """A dial was answered."""
        links = connection.ends[0].links
        if links is not None and not connection.gone[0]:
            if links.core.on_connected(connection.numbers[0], "", links.now):
                links.flush()
            else:
                connection.close(0)

    def on_accepted(self, connection: Connection) -> None:
        """Somebody has connected."""
        links = connection.ends[1].links
        if links is None or connection.gone[1]:
            return
        number = links.core.on_accepted(f"{connection.ends[0].name}:{connection.serial}", "", links.now)
        if number is None:
            connection.close(1)
        else:
            connection.numbers[1] = number
            links.connections[number] = connection, 1
        links.flush()

    def on_payloads(self, connection: Connection, index: int, payloads: Sequence[bytes]) -> None:
        """Payloads have arrived at an end."""
        links = connection.ends[index].links
        if links is not None:
            links.core.on_payloads(connection.numbers[index], payloads, links.now)
            links.flush()

    def on_closed(self, connection: Connection, index: int, reason: str) -> None:
        """An end hears that it is over."""
        links = connection.ends[index].links
        if links is not None:
            number = connection.numbers[index]
            links.connections.pop(number, None)
            links.core.on_closed(number, reason, links.now)
            links.flush()

    def send(self, connection: Connection, index: int, payloads: Sequence[Payload]) -> None:
        """An end's core sends payloads."""
        flat = [whole(payload) for payload in payloads]
        self.keep(connection.way_to(1 - index), connection.serial, flat)
        connection.send(1 - index, flat)

    # What goes wrong.

    def cut(self, source: str, target: str) -> None:
        """From now on nothing gets through in this direction."""
        if not self.is_cut(source, target):
            self._cut_since[source, target] = self.world.now
        super().cut(source, target)

    def heal(self, source: str, target: str) -> None:
        """The way is free again, as far as this cut is concerned."""
        super().heal(source, target)
        for connection in list(self._connections.values()):
            for index in (0, 1):
                if connection.way_to(index) == (source, target):
                    connection.flush(index)

    def speed_up(self) -> None:
        """No link is slow any more."""
        super().speed_up()
        for connection in list(self._connections.values()):
            connection.rates = [0, 0]
            if max(connection.busy_until) > self.world.now + SECOND:
                connection.reset("it was too slow")

    def broker_gone(self, broker: SimBroker, *, silent: bool) -> None:
        """A broker's process is over; silently: its peers are not told."""
        for connection in list(self._connections.values()):
            for index in (0, 1):
                if connection.ends[index] is broker and not connection.gone[index]:
                    connection.vanish(index, silent=silent)

    def links_up(self) -> list[LinkBetween]:
        """The links between brokers that are there."""
        return [connection for connection in self._connections.values() if connection.up]

    def flap_some(self, choose: Callable[[int], int]) -> None:
        """One link between brokers goes down."""
        up = [connection for connection in self._connections.values() if connection.up]
        if up:
            up[choose(len(up))].reset("connection reset")
            self.world.sometimes("net.broker link down")

    def _broker_ways(self) -> dict[Way, Callable[[], None]]:
        """By way between two nodes: what brings payloads of an earlier connection to the one that there is."""
        return {
            connection.way_to(index): partial(self._bring_late, connection, index)
            for connection in self._connections.values()
            for index in (0, 1)
            if not any(connection.gone) and self._leftovers.has_any(connection.way_to(index), connection.serial)
        }

    def _bring_late(self, connection: Connection, index: int) -> None:
        connection.send(index, self._leftovers.take(connection.way_to(index), connection.serial))
