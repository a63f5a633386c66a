"""Hostile routers in a small network, between stand-ins for the PHB and the SHB that check what they are told.

The stand-in of a PHB has the truth: every event of its pubend, and who may be counted as what. That of an
SHB keeps asking for what it lacks, as the real one does, and compares each delivery with the truth (C1).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from heapq import heappop, heappush
from random import Random
from typing import Any

from gapless.core.network.facts import (
    AskInterest,
    AskPubend,
    Dial,
    Enrol,
    Enrolled,
    FrameArrived,
    Hangup,
    Held,
    Hold,
    Interest,
    Know,
    LinkDown,
    LinkUp,
    NetworkMap,
    NetworkNode,
    Opened,
    OpenRequest,
    Outcome,
    Probe,
    Progress,
    Pub,
    PubendMeta,
    Released,
    Seen,
    SendFrame,
    Submit,
    SubmitOpen,
    Submitted,
    Verdict,
    Wake,
    Want,
)
from gapless.core.network.seam import Effect, RouterContext, Told
from gapless.core.stream.columns import EMPTY, EventBatch, EventColumns
from gapless.core.stream.events import encode_event
from gapless.core.stream.knowledge import Knowledge, KnowledgeStream
from gapless.core.stream.ticks import Tick
from gapless.core.wire.messages import TickRun
from gapless.selectors.filters import Filter
from gapless_sim.hostile.router import HostileRouter

MILLISECOND = 1_000_000
SECOND = 1_000_000_000
LATENCY = 2 * MILLISECOND


class Node:
    """A broker: its router and its stand-ins."""

    def __init__(self, network: Network, name: str, roles: Iterable[str]) -> None:
        self.network = network
        self.name = name
        self.router = HostileRouter()
        self.happened: dict[str, int] = {}
        self.effects: list[Effect] = []
        """Everything the router asked for."""
        self.phb = Phb(self) if "phb" in roles else None
        self.shb = Shb(self) if "shb" in roles else None
        self.placed: dict[Hashable, list[Submitted]] = {}
        self.waking: int | None = None

    def start(self, seed: int, config: Mapping[str, Any]) -> None:
        """Starts the router; its dice are watched."""
        effects = list(self.router.start(self.network.now, RouterContext(self.name, seed, self.network.map, config)))
        hostility = self.router._station.hostility
        happens = hostility.happens

        def watched(behaviour: str, share: float = 1.0) -> bool:
            happened = happens(behaviour, share)
            self.happened[behaviour] = self.happened.get(behaviour, 0) + happened
            return happened

        hostility.happens = watched  # type: ignore[method-assign]
        self.carry_out(effects)

    def tell(self, fact: Told) -> None:
        """Tells the router, and does what it says."""
        self.carry_out(self.router.handlers()[type(fact)](self.network.now, fact))

    def carry_out(self, effects: Iterable[Effect]) -> None:
        """Does what the router says; each answer is another call, later."""
        for effect in list(effects):
            self.effects.append(effect)
            if isinstance(effect, (SendFrame, Dial, Hangup)):
                self.network.carry_out(self, effect)
            elif isinstance(effect, Submitted):
                self.placed.setdefault(effect.reply_to, []).append(effect)
            elif isinstance(effect, (AskPubend, Enrol, Hold, Released, SubmitOpen, Submit)):
                if self.phb is not None:
                    self.phb.told(effect)
            elif self.shb is not None:
                self.shb.told(effect)
        self.network.watch(self)

    def later(self, fact: Told) -> None:
        """Calls the router after what is under way."""
        self.network.after(0, lambda: self.tell(fact))

    def place(self, publisher: str, epoch: int, first: int, pubend: str, count: int = 1) -> Hashable:
        """A client places a batch; returns what it is answered under."""
        name = f"{publisher}/{epoch}/{first}/{len(self.placed)}"
        self.placed[name] = []
        events = [encode_event("a.b", {"n": first + number}, None, b"x") for number in range(count)]
        pub = Pub(publisher, epoch, first, EventColumns.of(events, [1] * count), pubend, b"", principal="anonymous")
        self.tell(Submit(pub, name))
        return name

    def open(self, publisher: str, pubend: str = "", attempt: int = 1) -> Hashable:
        """A client opens a publisher."""
        name = f"{publisher}/{attempt}/{len(self.placed)}"
        self.placed[name] = []
        self.tell(SubmitOpen(OpenRequest(publisher, "i", attempt, None, pubend, principal="anonymous"), name))
        return name


class Phb:
    """A PHB with one pubend. Ticks are milliseconds, and nothing is ever pending."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.pubend = f"p-{node.name}@1"
        self.members: dict[str, Tick] = {}
        self.stable = 0
        self.truth: dict[Tick, tuple[str, bytes]] = {}
        """Topic and event of each tick."""
        self.released: list[Released] = []
        self.logged: dict[str, list[tuple[int, Tick]]] = {}
        self.epochs: dict[str, int] = {}
        self.submits = 0
        self.wants: list[Want] = []
        self.answering = True

    def begin(self) -> None:
        """The pubend opens, and says silence each second."""
        self.hand_over()
        self.node.network.every(SECOND, self.say_silence)

    def hand_over(self) -> None:
        """The router is told of it (again)."""
        meta = PubendMeta(self.pubend, self.node.name, stable=self.stable)
        self.node.tell(Opened(meta, dict(self.members)))

    def time(self) -> Tick:
        """The present, as a tick."""
        return self.node.network.now // MILLISECOND

    def say_silence(self) -> None:
        """Nothing happened since."""
        time = self.time()
        if time > self.stable:
            lo, self.stable = self.stable, time
            self.node.tell(Know(Knowledge(self.pubend, lo, time)))

    def publish(self, *topics: str) -> list[Tick]:
        """Events of these topics, logged and told as one."""
        first = max(self.time(), self.stable + 1)
        for number, topic in enumerate(topics):
            self.truth[first + number] = (topic, encode_event(topic, {}, None, b""))
        lo, self.stable = self.stable, first + len(topics) - 1
        self.node.tell(Know(self.raw(lo, self.stable)))
        return list(range(first, first + len(topics)))

    def raw(self, lo: Tick, hi: Tick, *, reply: bool = False) -> Knowledge:
        """All that there is in an interval."""
        ticks = [tick for tick in self.truth if lo < tick <= hi]
        events = [self.truth[tick][1] for tick in ticks]
        data = EventBatch(ticks, events, [0] * len(ticks)) if ticks else EMPTY
        return Knowledge(self.pubend, lo, hi, data, reply=reply)

    def told(self, effect: Effect) -> None:
        """What the router says."""
        node = self.node
        if isinstance(effect, AskPubend):
            self.wants.append(effect.want)
            for lo, hi in effect.want.ranges:
                end = min(hi, self.stable)
                if lo < end and self.answering:
                    node.later(Know(self.raw(lo, end, reply=True), effect.reply_to))
        elif isinstance(effect, Enrol):
            at = self.members.setdefault(effect.shb, self.stable)
            node.later(Enrolled(effect.pubend, effect.shb, at))
        elif isinstance(effect, Hold):
            node.later(Held(effect.shb, effect.pubend, effect.version, effect.at))
        elif isinstance(effect, Released):
            self.check_released(effect)
        elif isinstance(effect, SubmitOpen):
            epoch = self.epochs[effect.request.publisher] = self.epochs.get(effect.request.publisher, 0) + 1
            node.later(Submitted(effect.reply_to, self.pubend, Outcome(Verdict.OK, epoch=epoch)))
        elif isinstance(effect, Submit):
            self.submits += 1
            node.later(Submitted(effect.reply_to, self.pubend, self.take(effect.pub)))

    def take(self, pub: Pub) -> Outcome:
        """Logs what has the next sequence, as a pubend does."""
        log = self.logged.setdefault(pub.publisher, [])
        following = log[-1][0] + 1 if log else 1
        if pub.first > following:
            return Outcome(Verdict.RESUME, sequence=following)
        if pub.first == following:
            log.extend((following + number, 10_000 * following + number) for number in range(pub.events.count))
        last = pub.first + pub.events.count - 1
        return Outcome(Verdict.OK, sequence=last, ticks=(TickRun(log[pub.first - 1][1], 1, pub.events.count),))

    def check_released(self, minima: Released) -> None:
        """C4: over all members, as they are durably; never falling."""
        shbs = [self.node.network.shb(shb) for shb in self.members]
        assert minima.released <= min(shb.progress.get(self.pubend, (0, 0))[0] for shb in shbs)
        assert minima.delivered <= min(shb.progress.get(self.pubend, (0, 0))[1] for shb in shbs)
        before = self.released[-1] if self.released else Released(self.pubend, -1, -1)
        assert (before.released, before.delivered) <= (minima.released, minima.delivered)
        self.released.append(minima)


class Shb:
    """An SHB: what it is interested in, what it knows, what it lacks."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.shb = f"{node.name}@disk"
        self.version = 0
        self.filters: dict[int, Filter] = {}
        self.history: dict[int, dict[int, Filter]] = {}
        """The filters of each version."""
        self.streams: dict[str, KnowledgeStream] = {}
        self.heads: dict[str, Tick] = {}
        self.needs: dict[str, int] = {}
        self.stable: dict[str, Tick] = {}
        self.progress: dict[str, tuple[Tick, Tick]] = {}
        self.enrolled: dict[str, Tick] = {}
        self.delivered: list[Knowledge] = []
        self.probed: list[Probe] = []
        self.held: list[Held] = []
        self.wanting = True

    def begin(self) -> None:
        """Announces itself, and repeats what the real one repeats."""
        self.version = 1
        self.history[1] = {}
        self.announce_in_full()
        self.node.network.every(5 * SECOND, self.repeat)
        self.node.network.every(SECOND, self.want)

    def subscribe(self, sid: int, *topics: str) -> int:
        """One more filter; returns the version that has it."""
        return self._change({sid: Filter(topics)}, frozenset())

    def unsubscribe(self, sid: int) -> int:
        """One filter less."""
        return self._change({}, frozenset({sid}))

    def _change(self, add: dict[int, Filter], drop: frozenset[int]) -> int:
        self.version += 1
        self.filters = {sid: one for sid, one in {**self.filters, **add}.items() if sid not in drop}
        self.history[self.version] = self.filters
        self.node.tell(Interest(self.shb, self.version - 1, self.version, add, drop))
        return self.version

    def announce_in_full(self) -> None:
        """All of it."""
        self.node.tell(Interest(self.shb, 0, self.version, self.filters, full=True))

    def repeat(self) -> None:
        """Version and progress, now and then."""
        self.node.tell(Interest(self.shb, self.version, self.version, {}))
        for pubend, head in self.heads.items():
            self.report(pubend, head)

    def report(self, pubend: str, head: Tick) -> None:
        """It is done with everything up to its head."""
        self.progress[pubend] = (head, head)
        self.node.tell(Progress(self.shb, pubend, head, head))

    def want(self) -> None:
        """Asks for what is missing, as often as it takes."""
        for pubend, stream in self.streams.items():
            missing = stream.unknown(self.heads[pubend], max(self.stable[pubend], stream.known_upto), self.need(pubend))
            if missing and self.wanting:
                self.node.tell(Want(pubend, missing, self.need(pubend), self.shb, again=False))

    def need(self, pubend: str) -> dict[str, int]:
        """Which version silence must honour from the head on."""
        return {self.shb: self.needs.get(pubend, 0)}

    def told(self, effect: Effect) -> None:
        """What the router says."""
        if isinstance(effect, Know):
            self._on_knowledge(effect.knowledge)
        elif isinstance(effect, Seen):
            self._on_seen(effect)
        elif isinstance(effect, AskInterest):
            if self.version:
                self.node.network.after(0, self.announce_in_full)
        elif isinstance(effect, Probe):
            self.probed.append(effect)
        elif isinstance(effect, Held):
            self.held.append(effect)

    def _on_seen(self, seen: Seen) -> None:
        phb = self.node.network.phb(seen.meta.pubend)
        assert seen.meta.stable <= phb.stable
        pubend = seen.meta.pubend
        if seen.enrolled_at is not None:
            assert phb.members[self.shb] == seen.enrolled_at  # C5: durable before it is said
            if pubend not in self.enrolled:
                self.enrolled[pubend] = self.heads[pubend] = seen.enrolled_at
                self.streams[pubend] = KnowledgeStream(pubend, seen.enrolled_at)
                self.stable[pubend] = seen.enrolled_at
        if pubend in self.streams:
            self.stable[pubend] = max(self.stable[pubend], seen.meta.stable)

    def _on_knowledge(self, knowledge: Knowledge) -> None:
        self.delivered.append(knowledge)
        self.check(knowledge)
        stream = self.streams.get(knowledge.pubend)
        if stream is not None:
            stream.accumulate(knowledge)
            pubend = knowledge.pubend
            self.heads[pubend] = max(self.heads[pubend], stream.horizon(self.heads[pubend], self.need(pubend)))

    def check(self, knowledge: Knowledge) -> None:
        """C1: no event is made up, and what is called silence is, for every filter the stamp honours."""
        phb = self.node.network.phb(knowledge.pubend)
        assert knowledge.hi <= phb.stable, "decided by nobody"
        ticks = list(knowledge.data.ticks)
        assert [phb.truth[tick][1] for tick in ticks] == list(knowledge.data.events)
        silent = [tick for tick in phb.truth if knowledge.lo < tick <= knowledge.hi and tick not in ticks]
        if knowledge.stamp is None:
            assert silent == []
            return
        version = knowledge.stamp.get(self.shb, 0)
        assert version == 0 or self.shb in phb.members, "C5"
        for sid, wanted in self.history.get(version, {}).items():
            if sid in self.filters:  # what was given up since is nobody's loss: a later version is called a lower one
                assert not [tick for tick in silent if wanted.matches(phb.truth[tick][0], {}, {})], version


class Network:
    """Virtual time, links, and faults of the links."""

    def __init__(
        self,
        brokers: Mapping[str, Iterable[str]],
        hostility: Mapping[str, float] | None = None,
        seed: int = 1,
    ) -> None:
        self.now = 0
        self.random = Random(seed)
        self.loss = 0.0
        self.jitter = 0
        self.broken = False
        """Whether no link can be made."""
        self.frames = 0
        self.serial = 0
        self._links: dict[tuple[str, int], tuple[str, int]] = {}
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self.nodes = {name: Node(self, name, roles) for name, roles in brokers.items()}
        self.roles = {name: list(roles) for name, roles in brokers.items()}
        self.map = NetworkMap({name: NetworkNode(frozenset(roles)) for name, roles in brokers.items()})
        self.config: dict[str, Any] = {"hostility": hostility or {}}
        for number, node in enumerate(self.nodes.values()):
            node.start(seed + number, self.config)
        for node in self.nodes.values():
            for part in (node.phb, node.shb):
                if part is not None:
                    part.begin()

    def __getitem__(self, name: str) -> Node:
        return self.nodes[name]

    def phbs(self) -> list[Phb]:
        """All PHBs."""
        return [node.phb for node in self.nodes.values() if node.phb is not None]

    def shbs(self) -> list[Shb]:
        """All SHBs."""
        return [node.shb for node in self.nodes.values() if node.shb is not None]

    def phb(self, pubend: str) -> Phb:
        """Whose pubend it is."""
        return next(phb for phb in self.phbs() if phb.pubend == pubend)

    def shb(self, shb: str) -> Shb:
        """The SHB of this id."""
        return next(one for one in self.shbs() if one.shb == shb)

    # Time.

    def after(self, span: int, call: Callable[[], None]) -> None:
        """Does something later."""
        self._count += 1
        heappush(self._heap, (self.now + span, self._count, call))

    def every(self, span: int, call: Callable[[], None]) -> None:
        """Does something now and then."""

        def again() -> None:
            call()
            self.after(span, again)

        self.after(span, again)

    def watch(self, node: Node) -> None:
        """Wakes a router in time."""
        due = node.router.next_wake()
        if due is None or (node.waking is not None and node.waking <= due):
            return
        node.waking = due
        self.after(max(0, due - self.now), lambda: self._wake(node))

    def _wake(self, node: Node) -> None:
        node.waking = None
        due = node.router.next_wake()
        if due is not None and due <= self.now:
            node.tell(Wake())
        else:
            self.watch(node)

    def run(self, seconds: float) -> None:
        """Lets time pass."""
        end = self.now + int(seconds * SECOND)
        while self._heap and self._heap[0][0] <= end:
            self.now, _, call = heappop(self._heap)
            call()
        self.now = end

    # Links.

    def carry_out(self, node: Node, effect: SendFrame | Dial | Hangup) -> None:
        """What a router wants of the network."""
        if isinstance(effect, SendFrame):
            self.send(node, effect)
        elif isinstance(effect, Hangup):
            self.after(0, lambda: self.cut(node.name, effect.link))
        else:
            self.after(LATENCY, lambda: self.connect(node.name, effect.peer))

    def send(self, node: Node, effect: SendFrame) -> None:
        """A frame arrives, if the link is there and lasts."""
        self.frames += 1
        end = self._links.get((node.name, effect.link))
        if end is None or self.random.random() < self.loss:
            return
        delay = LATENCY + (self.random.randint(0, self.jitter) if self.jitter else 0)
        self.after(delay, lambda: self._arrive(end, effect.frame))

    def _arrive(self, end: tuple[str, int], frame: bytes) -> None:
        if end in self._links:
            self.nodes[end[0]].tell(FrameArrived(end[1], frame, 0))

    def connect(self, one: str, other: str) -> None:
        """A link between two brokers, if they have none."""
        if self.broken or any(here[0] == one and there[0] == other for here, there in self._links.items()):
            return
        self.serial += 2
        ends = (one, self.serial), (other, self.serial + 1)
        for (name, link), (peer, far) in (ends, ends[::-1]):
            self._links[name, link] = (peer, far)
        for (name, link), (peer, _) in (ends, ends[::-1]):
            self.nodes[name].tell(LinkUp(link, peer, frozenset(self.roles[peer]), 1))

    def cut(self, name: str, link: int) -> None:
        """A link breaks."""
        if (name, link) not in self._links:
            return
        for end in ((name, link), self._links[name, link]):
            del self._links[end]
            self.nodes[end[0]].tell(LinkDown(end[1]))

    def cut_all(self) -> None:
        """Every link breaks."""
        for name, link in list(self._links):
            self.cut(name, link)


def is_served(network: Network) -> bool:
    """Whether every SHB has every event of every pubend that its filters select, and knows where it stands."""
    for shb in network.shbs():
        for phb in network.phbs():
            stream = shb.streams.get(phb.pubend)
            if stream is None or shb.heads[phb.pubend] < max(phb.truth, default=0):
                return False
    return True


def settle(network: Network, seconds: int = 120) -> float:
    """Runs until everything is served; returns how long that took."""
    for second in range(seconds):
        if is_served(network):
            return second
        network.run(1)
    raise AssertionError(f"not served within {seconds} s")
