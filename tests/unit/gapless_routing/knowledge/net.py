"""Several routers `knowledge`, joined by links that carry what the test lets through: no network and no clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from gapless.core.network.facts import (
    AskPubend,
    Dial,
    Enrol,
    Enrolled,
    FrameArrived,
    Hangup,
    Interest,
    Know,
    LinkDown,
    LinkRoom,
    LinkUp,
    NetworkMap,
    NetworkNode,
    Opened,
    Progress,
    PubendMeta,
    Save,
    Saved,
    SendFrame,
    Wake,
    Want,
)
from gapless.core.network.frames import Address, Message, Private, decode, encode
from gapless.core.network.seam import Effect, RouterContext, Told
from gapless.core.stream.columns import EMPTY, EventBatch
from gapless.core.stream.events import encode_event
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.stamps import RAW, Stamp
from gapless.core.stream.ticks import EPOCH_MS
from gapless.selectors.filters import Filter
from gapless_routing.common.census import InterestByDirection
from gapless_routing.common.link_table import STAMP_SHBS
from gapless_routing.common.router_state import LIFE
from gapless_routing.knowledge.router import CACHED, KnowledgeRouter
from gapless_routing.knowledge.streams import Streams

MILLISECOND = 1_000_000
SECOND = 1_000_000_000
P = "p@1"
WALL = EPOCH_MS
"""The wall clock of every node: the time of the first tick."""
PHB, SHB = ("phb",), ("shb",)
EffectT = TypeVar("EffectT")


def network_map(cells: Mapping[str, Mapping[str, Iterable[str]]], *links: str) -> NetworkMap:
    """Nodes by cell, with their roles; a link is named `a-b`."""
    nodes = {
        name: NetworkNode(frozenset(roles), cell) for cell, members in cells.items() for name, roles in members.items()
    }
    pairs = [link.split("-") for link in links]
    return NetworkMap(nodes, tuple((one, other) for one, other in pairs))


CHAIN = network_map({"P": {"p": PHB}, "M": {"i": ()}, "S": {"s": SHB}}, "p-i", "i-s")
FORK = network_map({"P": {"p": PHB}, "M": {"i": ()}, "S": {"s": SHB}, "T": {"t": SHB}}, "p-i", "i-s", "i-t")
DIAMOND = network_map({"P": {"p": PHB}, "M": {"i": (), "j": ()}, "S": {"s": SHB}}, "p-i", "p-j", "i-j", "i-s", "j-s")
PAIR = network_map({"P": {"p": PHB}, "S": {"s": SHB}}, "p-s")


class Sent(NamedTuple):
    """A message from one broker to another."""

    source: str
    to: str
    message: Message
    address: Address
    at: int = 0
    """When."""


class Net:
    """Routers on one map. Links are up from the beginning but for those in `cut`, and frames arrive at once."""

    make: Callable[[], Any] = KnowledgeRouter
    """What is tried."""

    def __init__(
        self,
        network: NetworkMap,
        *,
        cut: Iterable[str] = (),
        seed: int = 1,
        **options: int,
    ) -> None:
        """`options`: of every router."""
        self.network = network
        self._config = options
        self.now = 10 * SECOND
        self.routers: dict[str, Any] = {}
        self.effects: dict[str, list[Effect]] = {name: [] for name in network.nodes}
        """What each broker's cores were told, and whom it hung up on."""
        self.sent: list[Sent] = []
        self.saved: dict[str, dict[str, bytes]] = {name: {} for name in network.nodes}
        """What is on each broker's volume."""
        self.syncs = True
        """Whether what a router saves is durable at once; else `sync` makes it so."""
        self._unsynced: list[tuple[str, Save]] = []
        self.lost: Callable[[Sent], bool] = lambda _: False
        """Which messages are lost."""
        self.links: dict[tuple[str, str], int] = {}
        self._waiting: list[tuple[str, int, bytes]] = []
        self._numbers = 0
        self._seed = seed
        for name in network.nodes:
            self.start(name)
        for one, other in network.links:
            if f"{one}-{other}" not in cut:
                self.connect(one, other)
        self.flow()

    def start(self, name: str) -> None:
        """A router begins, or one that knows no more than its volume takes its place."""
        router = self.routers[name] = type(self).make()
        self._unsynced = [(at, save) for at, save in self._unsynced if at != name]
        context = RouterContext(name, self._seed, self.network, self._config, dict(self.saved[name]))
        self._carry_out(name, router.start(self.now, context))

    def sync(self) -> None:
        """What routers have saved is durable now."""
        unsynced, self._unsynced = self._unsynced, []
        for name, save in unsynced:
            assert save.value is not None
            self.saved[name][save.key] = save.value
            self._tell(name, Saved(save.cookie))
        self.flow()

    def tell(self, name: str, *facts: Told) -> list[Effect]:
        """A router is told something, and everything that follows happens. Returns what its own cores are told."""
        before = len(self.effects[name])
        for fact in facts:
            self._tell(name, fact)
        self.flow()
        return self.effects[name][before:]

    def flow(self) -> None:
        """Frames arrive until none is under way."""
        for _ in range(100_000):
            if not self._waiting:
                return
            name, link, frame = self._waiting.pop(0)
            self._tell(name, FrameArrived(link, frame, WALL))
        raise AssertionError("the routers do not come to rest")

    def pass_time(self, span: int) -> None:
        """Timers do what they do, of all routers in the order of time."""
        end = self.now + span
        for _ in range(100_000):
            due = [(at, name) for name, router in self.routers.items() if (at := router.next_wake()) is not None]
            at, name = min(due)
            if at > end:
                self.now = end
                return
            self.now = max(self.now, at)
            self._tell(name, Wake())
            self.flow()
        raise AssertionError("timers do not come to rest")

    # ---------------------------------------------------------------------------------------- links

    def connect(self, one: str, other: str) -> None:
        """A link between two brokers comes up."""
        for name, peer in ((one, other), (other, one)):
            self._numbers += 1
            self.links[name, peer] = self._numbers
        for name, peer in ((one, other), (other, one)):
            roles = self.network.nodes[peer].roles
            self._tell(name, LinkUp(self.links[name, peer], peer, roles, 1))

    def cut(self, one: str, other: str) -> None:
        """The link between two brokers goes down."""
        links = {name: self.links.pop(pair) for name, pair in ((one, (one, other)), (other, (other, one)))}
        self._waiting = [frame for frame in self._waiting if links.get(frame[0]) != frame[1]]
        for name, link in links.items():
            self._tell(name, LinkDown(link))
        self.flow()

    def fill(self, one: str, other: str, pending: int = 2 << 20) -> None:
        """So much waits on the link from one broker to another."""
        self.tell(one, LinkRoom(self.links[one, other], pending))

    def arrive(self, source: str, to: str, message: Message | bytes, address: Address = ()) -> list[Effect]:
        """A message arrives that no router of this network sent. Returns what the receiver's cores are told."""
        frame = message if isinstance(message, bytes) else encode(message, address)
        return self.tell(to, FrameArrived(self.links[to, source], frame, WALL))

    # ------------------------------------------------------------------------------- what is in them

    def interests(self, name: str) -> InterestByDirection:
        """What a router knows of what SHBs want."""
        table: InterestByDirection = self.routers[name]._interests.table
        return table

    def streams(self, name: str) -> Streams:
        """What a router knows of pubends."""
        streams: Streams = self.routers[name]._streams
        return streams

    def life(self, name: str) -> int:
        """Which life a router has saved last."""
        return int(self.saved[name][LIFE])

    def cached_bytes(self, name: str) -> int:
        """How much a router says it keeps of events."""
        [cached] = [gauge.value for gauge in self.routers[name].gauges() if gauge.name == CACHED.name]
        return int(cached)

    # ------------------------------------------------------------------------------- what was seen

    def take(self, kind: type[EffectT], name: str) -> list[EffectT]:
        """What a broker's cores were told of one kind since the last call."""
        found: list[EffectT] = [effect for effect in self.effects[name] if isinstance(effect, kind)]
        self.effects[name] = [effect for effect in self.effects[name] if not isinstance(effect, kind)]
        return found

    def messages(self, kind: type[EffectT], source: str = "", to: str = "") -> list[EffectT]:
        """The messages of one kind between two brokers since `forget`."""
        return [
            one.message
            for one in self.sent
            if isinstance(one.message, kind) and source in ("", one.source) and to in ("", one.to)
        ]

    def ways(self, kind: type) -> list[tuple[str, str]]:
        """From whom to whom messages of one kind went since `forget`."""
        return [(one.source, one.to) for one in self.sent if isinstance(one.message, kind)]

    def forget(self) -> None:
        """What happened up to here does not concern the test."""
        self.sent.clear()
        for effects in self.effects.values():
            effects.clear()

    # ------------------------------------------------------------------------------- what cores say

    def open(self, name: str = "p", members: Mapping[str, int] | None = None, **meta: object) -> None:
        """A pubend is there, with these members."""
        self.tell(name, Opened(PubendMeta(P, name, **meta), members or {}))  # type: ignore[arg-type]

    def say(self, lo: int, hi: int, *topics: str, name: str = "p", reply: bool = False) -> None:
        """The pubend says something: events from `lo` on, and silence up to `hi`."""
        self.tell(name, Know(knowledge(lo, hi, *topics, reply=reply), 1 if reply else None))

    def subscribe(self, name: str, version: int, *topics: str, enrol: str = "p") -> None:
        """The SHB of a broker wants these topics; it is enrolled at the pubend."""
        self.tell(name, full(version, f"{name}@disk", *topics))
        for asked in self.take(Enrol, enrol) if enrol else ():
            self.tell(enrol, Enrolled(asked.pubend, asked.shb, 0))

    def _tell(self, name: str, fact: Told) -> None:
        router = self.routers[name]
        self._carry_out(name, router.handlers()[type(fact)](self.now, fact))

    def _carry_out(self, name: str, effects: Iterable[Effect]) -> None:
        peers = {link: peer for (at, peer), link in self.links.items() if at == name}
        for effect in effects:
            if isinstance(effect, SendFrame):
                sent = Sent(name, peers[effect.link], *decode(effect.frame), self.now)
                self.sent.append(sent)
                if not self.lost(sent):
                    self._waiting.append((sent.to, self.links[sent.to, name], effect.frame))
            elif isinstance(effect, Save):
                self._unsynced.append((name, effect))
                if self.syncs:
                    self.sync()
            else:
                self.link_or_keep(name, effect)

    def link_or_keep(self, name: str, effect: Effect) -> None:
        """A router wants a link, which the test makes, or tells its cores something."""
        if not isinstance(effect, Dial):
            self.effects[name].append(effect)


def subscribed(
    network: NetworkMap = CHAIN, *, cache_bytes: int = 64 << 20, stamp_shbs: int = STAMP_SHBS, **topics: str
) -> Net:
    """A network that has settled: its SHBs want a topic each (`a`, unless another one is named), and are enrolled."""
    net = Net(network, cache_bytes=cache_bytes, stamp_shbs=stamp_shbs)
    net.open()
    for name, node in network.nodes.items():
        if "shb" in node.roles:
            net.subscribe(name, 1, topics.get(name, "a"))
    net.pass_time(6 * SECOND)
    net.forget()
    return net


def events(*topics: str, first: int = 11) -> EventBatch:
    """Events of these topics, at ticks one after the other."""
    encoded = [encode_event(topic, {}, None, b"") for topic in topics]
    return EventBatch(list(range(first, first + len(topics))), encoded, [0] * len(topics))


def knowledge(lo: int, hi: int, *topics: str, stamp: Stamp = RAW, reply: bool = False) -> Knowledge:
    """Events of these topics from `lo` on, and silence."""
    return Knowledge(P, lo, hi, events(*topics, first=lo + 1) if topics else EMPTY, stamp=stamp, reply=reply)


def full(version: int, shb: str, *topics: str) -> Interest:
    """A whole interest; each filter is a topic pattern."""
    add = {number: Filter((topic,)) for number, topic in enumerate(topics)}
    return Interest(shb, version, version, add, full=True)


def want(lo: int, hi: int, need: Stamp = RAW, shb: str = "s@disk") -> Want:
    """A want for one range."""
    return Want(P, ((lo, hi),), need, shb, again=False)


def done(released: int, delivered: int, shb: str = "s@disk") -> Progress:
    """A row of progress."""
    return Progress(shb, P, released, delivered)


def said(messages: Iterable[Knowledge]) -> list[tuple[int, int, tuple[int, ...]]]:
    """Knowledge in short: its interval, and the ticks of its events."""
    return [(one.lo, one.hi, tuple(one.data.ticks) if one.data else ()) for one in messages]


def asked(net: Net, name: str = "p") -> list[Want]:
    """What a pubend's host was asked since the last call."""
    return [effect.want for effect in net.take(AskPubend, name)]


def delivered(net: Net, name: str = "s") -> list[Knowledge]:
    """What the SHB of a broker was told since the last call."""
    return [effect.knowledge for effect in net.take(Know, name)]


def hung_up(net: Net, name: str) -> bool:
    """Whether a broker hung up on somebody since the last call."""
    return bool(net.take(Hangup, name))


def private(net: Net, kind: int, source: str = "", to: str = "") -> list[bytes]:
    """What routers said to their own kind."""
    return [message.data for message in net.messages(Private, source, to) if message.kind == kind]
