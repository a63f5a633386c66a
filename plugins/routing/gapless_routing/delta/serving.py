"""Who serves whom for which pubend: each broker chooses, and says it upward (protocol: delta-router).

Toward a pubend a broker is served by the nearest of the next brokers on its way that is of use. It asks that one
(`SERVE`), which agrees (`SERVED`), and only then is the one before let go of (`UNSERVE`). What was said by another
service is told apart by a number, which rises with each one that a broker asks for: a frame that comes late ends
nothing. So whatever is pushed leads away from its pubend, whoever is believed to be away.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct

from gapless.core.foreign import reader_of
from gapless.core.gauges import Family, Gauge
from gapless.core.network.facts import BrokerId, PubendMeta, Real
from gapless.core.network.frames import Private, portions
from gapless.core.network.timer_queue import SECOND
from gapless.core.stream.intervals import IntervalSet
from gapless.core.stream.knowledge import Knowledge, KnowledgeStream
from gapless.core.stream.stamps import Stamp
from gapless.core.stream.ticks import PubendId, ShbId, Tick
from gapless_routing.common.interest import Decision
from gapless_routing.common.pacing import NEXT_TURN
from gapless_routing.common.progress import ProgressTable
from gapless_routing.common.pubend_flow import NOTICE_EVERY, PubendFlow
from gapless_routing.common.relay import MORE_AFTER, Outward, RelayedPubend
from gapless_routing.common.router_state import RouterState
from gapless_routing.delta.copies import CopiedPubend, Copies
from gapless_routing.delta.interest import SideInterests
from gapless_routing.delta.options import Options
from gapless_routing.delta.ring import Ring
from gapless_routing.delta.tree import Tree

SERVE, SERVED, UNSERVE = 11, 12, 13
"""The kinds of a `Private` that holds Services."""
ASK_AGAIN: Final = 1 * SECOND
COPIED_AT_ONCE: Final = 64
"""So many stretches are copied to a broker in one turn."""
SERVED_PUBENDS = Family(
    "gapless_router_served_pubends", "Pubends of a node that another one serves this node with.", ("host", "by")
)
BYPASSED_PUBENDS = Family(
    "gapless_router_bypassed_pubends", "Of these: those that come here past a node on the way.", ("host", "node")
)
CUT_PUBENDS = Family("gapless_router_cut_pubends", "Pubends of a node of which nothing comes here.", ("host",))
UNKNOWN_LASTS: Final = 10 * SECOND
"""So long after it was asked to serve a pubend that it does not know a broker says that it is cut off from that."""
UNKNOWN_MAX: Final = 1024
SILENT: Final = 3 * NOTICE_EVERY
"""A pubend of which no notice has said for so long that it goes on counts as silent."""
HOSTS_MAX: Final = 32
"""The pubends of so many nodes are counted by node; those of further ones together, under no name."""


class Service(Struct, array_like=True, frozen=True, gc=False):
    """A service, by its number; to begin it, what the one who asks has of the pubend already."""

    number: Real
    pubend: PubendId
    lo: Real = 0
    hi: Real = 0


class Services(Struct, array_like=True, frozen=True, gc=False):
    """Services that begin, have begun, or are over."""

    life: Real
    """Of the router that is served: its numbers count in that alone."""
    services: tuple[Service, ...]


_encode = msgspec.msgpack.Encoder().encode
_decode = reader_of(Services, "services")


_words = {SERVE: "serve me with", SERVED: "I serve you with", UNSERVE: "no more of"}


def explained(said: Private) -> str:
    """Which services a frame asks for, begins or ends, in words; "": it is about something else."""
    words = _words.get(said.kind)
    if words is None:
        return ""
    return f"{words} {', '.join(service.pubend for service in _decode(said.data).services)}"


class Server(NamedTuple):
    """A broker that serves this one, or was asked to."""

    broker: BrokerId
    number: int


@dataclass(slots=True, kw_only=True)
class ServedPubend(CopiedPubend):
    """One pubend: who serves this broker, and whom it serves. Those are its directions (`outward`)."""

    server: Server | None = None
    candidate: Server | None = None
    """Who was asked to serve, and has not agreed yet."""
    tried_at: int = 0
    """When it was asked last."""
    told_from: Tick | None = None
    """From where the SHB here counts, since it is told of what comes; None: it is not."""
    ended: dict[BrokerId, int] = field(default_factory=dict)
    """When each broker was told last that it serves nobody here: much that it has said may be on its way."""
    reach: Tick | None = None
    """How far it has come, as far as notices say; None: there was none yet."""
    rose_at: int = 0
    """When that rose last."""
    gone_since: int | None = None
    """Since when it is known to be gone with its broker's volume; None: it is not."""
    numbers: dict[BrokerId, int] = field(default_factory=dict)
    """The latest service of which each broker farther away has spoken in its life: it may be over."""

    def stable_for(self, direction: str, *, is_full: bool) -> Tick:
        """Returns how far a notice may say that the pubend is decided, or those who hear it ask for all of that.

        Nothing to those whom another one serves; and nothing of what is being copied.
        """
        if direction not in self.outward:
            return 0
        stable = RelayedPubend.stable_for(self, direction, is_full=is_full)  # a class with slots has no super()
        copying = self.copying.get(direction)
        return min(stable, copying[0][0]) if copying else stable


class Serving(PubendFlow[ServedPubend]):
    """All pubends that are known here, and the services of each."""

    def __init__(
        self,
        state: RouterState,
        tree: Tree,
        ring: Ring,
        interests: SideInterests,
        progress: ProgressTable,
        options: Options,
    ) -> None:
        super().__init__(state, ring.links, interests, progress, {}, options.cache_bytes)
        self._tree = tree
        self._ring = ring
        self._sides = interests
        self._options = options
        self._numbers = 0
        self._unknown: dict[PubendId, int] = {}
        """The pubends that this broker was asked to serve and does not know, and when."""
        self._to_say: dict[tuple[BrokerId, int, int], list[Service]] = {}
        """To whom, of which kind, of whose life."""
        self.shbs, self.versions = interests.shbs, interests.versions
        self.matches, self.wants_nothing, self.widened = interests.matches, interests.wants_nothing, interests.widened
        self.copies = Copies(state, tree, ring, interests, self.relay, self._streams, options)

    # ------------------------------------------------------------------------------------ the shape

    def toward(self, pubend: PubendId) -> BrokerId | None:
        """Returns who serves this broker; None: nobody at present, or the pubend is here."""
        stream = self._streams.get(pubend)
        return stream.server.broker if stream is not None and stream.server is not None else None

    def new(self, meta: PubendMeta) -> ServedPubend | None:
        """Returns what is to be known of a pubend that is new here; None if its broker is not on the map."""
        if meta.broker not in self._tree:
            return None
        is_here = meta.broker == self._state.broker
        path = self._tree.path(meta.broker)
        below = [name for name in self._tree.neighbours if name not in path[:1]]
        has_below = any(self._tree.has_beyond(name, "shb") for name in below)
        is_wanted = has_below or self._tree.has_role(self._state.broker, "shb")
        return ServedPubend(
            meta=meta,
            is_here=is_here,
            cache=KnowledgeStream(meta.pubend),
            path=path,
            has_below=has_below,
            is_wanted=is_wanted,
        )

    def is_told(self, broker: BrokerId, pubend: ServedPubend) -> bool:
        """Whether notices of a pubend go to a broker: it is farther away from it, and the pubend is not gone."""
        return pubend.is_here or (pubend.gone_since is None and self._tree.first(broker) != pubend.path[0])

    def heard_from(self, pubend: ServedPubend, broker: BrokerId) -> None:
        """A notice has come. A broker has one volume: if its pubends of another one are silent, they are gone.

        Which of two volumes is lost neither lives nor times of creation say for certain, for a clock may be set back.
        So the one that goes on is there, also when an operator has put back a volume that was gone.
        """
        meta, before = pubend.meta, pubend.reach
        if before is not None and meta.reach <= before:
            return
        pubend.reach, pubend.rose_at, pubend.gone_since = meta.reach, self._state.now, None
        for other in self._streams.values() if meta.volume and before is not None else ():
            is_of_another = other.meta.broker == meta.broker and other.meta.volume not in {"", meta.volume}
            if is_of_another and other.gone_since is None and self._state.now - other.rose_at >= SILENT:
                other.gone_since = self._state.now

    def decide(self, direction: str, stamp: Stamp, pubend: RelayedPubend) -> Decision:
        """Returns what to do with knowledge of a pubend under a stamp in a direction."""
        return self._sides.decide(direction, stamp, pubend)

    def make_room(self, pubend: RelayedPubend, upto: Tick) -> None:
        """There is no room for what is cached up to a tick."""
        assert isinstance(pubend, ServedPubend)
        self.copies.evict(pubend, upto)

    # ---------------------------------------------------------------------------------- being served

    def choose(self) -> None:
        """Has each pubend served by the nearest broker that is of use; the one before is let go of when it is."""
        for stream in self._streams.values():
            self._tell_shb(stream)
            if self._is_to_come(stream):
                self._choose(stream)
            elif stream.gone_since is not None:
                self._stop(stream)
        self._flush()

    def _tell_shb(self, stream: ServedPubend) -> None:
        """The SHB here counts from somewhere since just now: what is cached by then was not for it yet."""
        counts_from = None if stream.seen is None else stream.seen.enrolled_at
        if counts_from != stream.told_from:
            stream.told_from = counts_from
            if counts_from is not None:
                self.relay.tell_shb(stream)

    def _is_to_come(self, stream: ServedPubend) -> bool:
        """Whether this broker is to be served with it.

        Who has nobody behind it, and whose SHB does not count yet, would be copied what nobody may have. And of what
        is gone nothing comes.
        """
        is_elsewhere = not stream.is_here and stream.gone_since is None
        return is_elsewhere and stream.is_wanted and (stream.has_below or stream.told_from is not None)

    def _stop(self, stream: ServedPubend) -> None:
        """Nobody is to serve this broker with a pubend any more."""
        stream.candidate = None
        if stream.server is not None:
            self._end(stream, stream.server.broker)
            stream.server = None

    def _choose(self, stream: ServedPubend) -> None:
        pubend = stream.meta.pubend
        best = max(
            self._ring.on_way(stream.meta.broker),
            key=lambda x: (not self._ring.is_cut(x, pubend), self._ring.is_ready(x), -self._tree.distance(x)),
            default=None,
        )
        asked = None if stream.candidate is None else stream.candidate.broker
        if asked == best:
            return  # it may be who serves already, and has to begin anew
        stream.candidate = None
        if best is not None and (stream.server is None or stream.server.broker != best):
            self._ask(stream, best)

    def _ask(self, stream: ServedPubend, broker: BrokerId) -> None:
        self._numbers += 1
        stream.candidate = Server(broker, self._numbers)
        self._ask_again(stream)

    def _ask_again(self, stream: ServedPubend) -> None:
        assert stream.candidate is not None
        stream.tried_at = self._state.now
        lo, hi = self.copies.run(stream)
        broker, number = stream.candidate
        self._say(broker, SERVE, self._ring.life, Service(number, stream.meta.pubend, lo, hi))

    def on_served(self, broker: BrokerId, data: bytes) -> None:
        """A broker agrees to serve. Raises RemoteProtocolError when it makes no sense."""
        for service, stream in self._read(data, self._ring.life):
            said = Server(broker, service.number)
            if said == stream.server:
                continue  # it was said again (TD13)
            if said != stream.candidate:
                # Of that very number: the same broker may have been asked again since, and is not to end that.
                self._say(broker, UNSERVE, self._ring.life, Service(service.number, service.pubend))
                continue
            before, stream.server, stream.candidate = stream.server, said, None
            if before is not None and before.broker != broker:
                self._end(stream, before.broker)
            stream.asked.begin_anew()  # what was asked of the one before may never be answered
            self._progress.say_all_to(broker, service.pubend)
        self._flush()

    def _end(self, stream: ServedPubend, broker: BrokerId) -> None:
        """Ends what a broker does for this one, by whatever number so far."""
        self._say(broker, UNSERVE, self._ring.life, Service(self._numbers, stream.meta.pubend))

    def on_knowledge(self, broker: BrokerId, knowledge: Knowledge, slack: int) -> None:
        """Knowledge has come: pushed, or as an answer. It is true whoever says it; who does not serve has to stop."""
        stream = self._streams.get(knowledge.pubend)
        if stream is not None and not knowledge.reply:
            serving = {at.broker for at in (stream.server, stream.candidate) if at is not None}
            if broker not in serving and self._state.now - stream.ended.get(broker, -ASK_AGAIN) >= ASK_AGAIN:
                stream.ended[broker] = self._state.now
                self._end(stream, broker)
                self._flush()
        super().on_knowledge(broker, knowledge, slack)
        if stream is not None:
            self.copies.received(stream, knowledge)

    def is_cut(self, stream: ServedPubend) -> bool:
        """Whether nothing of a pubend comes here."""
        if not self._is_to_come(stream):
            return False
        return stream.server is None or self._ring.is_cut(stream.server.broker, stream.meta.pubend)

    def cut(self) -> tuple[PubendId, ...]:
        """Returns the pubends of which nothing comes here."""
        unknown = (pubend for pubend in self._unknown if pubend not in self._streams)
        return (*(pubend for pubend, stream in self._streams.items() if self.is_cut(stream)), *unknown)

    def gauges(self) -> Iterator[Gauge]:
        """Who serves this broker, past whom, and what does not come; counted, however many pubends there are."""
        hosts: dict[BrokerId, BrokerId] = {}
        counts: Counter[tuple[Family, BrokerId, BrokerId]] = Counter()
        for stream in self._streams.values():
            if not self._is_to_come(stream):
                continue
            host = hosts.setdefault(stream.meta.broker, stream.meta.broker if len(hosts) < HOSTS_MAX else "")
            counts[CUT_PUBENDS, host, ""] += self.is_cut(stream)
            if stream.server is not None:
                server = stream.server.broker
                counts[SERVED_PUBENDS, host, server] += 1
                for nearer in stream.path[: stream.path.index(server)]:
                    counts[BYPASSED_PUBENDS, host, nearer] += 1
        for (family, host, node), count in counts.items():
            yield family.gauge(count, host) if family is CUT_PUBENDS else family.gauge(count, host, node)

    def sources(self) -> Iterator[tuple[PubendId, BrokerId]]:
        """Yields the pubends that this broker is to be served with, and where each is."""
        for pubend, stream in self._streams.items():
            if self._is_to_come(stream):
                yield pubend, stream.meta.broker

    def servers(self) -> dict[BrokerId, None]:
        """Returns who serves this broker, or was asked to."""
        said = [at for stream in self._streams.values() for at in (stream.server, stream.candidate)]
        return dict.fromkeys(at.broker for at in said if at is not None)

    # --------------------------------------------------------------------------------------- serving

    def on_serve(self, broker: BrokerId, data: bytes) -> None:
        """A broker wants to be served. Raises RemoteProtocolError when it makes no sense."""
        said = _decode(data)
        life = said.life
        for service in said.services:
            if service.pubend not in self._streams and len(self._unknown) < UNKNOWN_MAX:
                self._unknown[service.pubend] = self._state.now
        for service, stream in self._read_of(broker, data):
            before = stream.numbers.get(broker, 0)
            if not self.is_told(broker, stream) or service.number < before:
                continue  # the sender has another map; or this is late
            if service.number > before or broker not in stream.outward:
                self._begin(stream, broker, service.number, IntervalSet([(service.lo, service.hi)]))
            self._say(broker, SERVED, life, Service(service.number, stream.meta.pubend))
        self._flush()
        self.copy(broker)

    def _begin(self, stream: ServedPubend, broker: BrokerId, number: int, has: IntervalSet) -> None:
        """Serves a broker from now on: what is known here, and it has not, is copied to it."""
        cache = stream.cache
        self._forget(stream, broker)
        stream.numbers[broker] = number
        # What was let go of is not new when it comes again, whatever is known now: who misses it asks (TD12).
        sent = max(cache.known_upto, stream.let_go_upto)
        stream.outward[broker] = Outward(sent=sent, told=min(stream.meta.stable, cache.known_upto))
        stream.copying[broker] = (IntervalSet([(cache.base, cache.known_upto)]) - has).ranges

    def on_unserve(self, broker: BrokerId, data: bytes) -> None:
        """A broker is served by another one. Raises RemoteProtocolError when it makes no sense."""
        for service, stream in self._read_of(broker, data):
            if stream.numbers.get(broker, 0) <= service.number:
                self._forget(stream, broker)
                stream.numbers[broker] = service.number

    def forget_services(self, broker: BrokerId) -> None:
        """A broker has begun anew: what it had asked for before is over."""
        for stream in self._streams.values():
            self._forget(stream, broker)

    def _forget(self, stream: ServedPubend, broker: BrokerId) -> None:
        stream.numbers.pop(broker, None)
        stream.outward.pop(broker, None)
        stream.copying.pop(broker, None)
        for kind in ("silence", "behind"):
            self._state.timers.cancel((kind, stream.meta.pubend, broker))

    def push(self, direction: str, knowledge: Knowledge, slack: int) -> BrokerId | None:
        """Sends first-time knowledge to a broker: it need not be copied to it as well."""
        pushed, stream = super().push(direction, knowledge, slack), self._streams[knowledge.pubend]
        if pushed and direction in stream.copying:
            left = IntervalSet(stream.copying[direction]) - IntervalSet([(knowledge.lo, knowledge.hi)])
            stream.copying[direction] = left.ranges
        return pushed

    def copy(self, broker: BrokerId) -> None:
        """Goes on to copy to a broker what it has not: so much in one turn, and as far as its link has room."""
        most, is_left = COPIED_AT_ONCE, False
        for stream in self._streams.values():
            ranges = stream.copying.pop(broker, None)
            if ranges is not None:
                left, count = self.relay.copy(stream, broker, ranges, most)
                most -= count
                if left:
                    stream.copying[broker] = left
                    is_left = True
        if is_left:
            self._state.timers.set(("copy", broker), self._state.now + (MORE_AFTER if most else NEXT_TURN))

    # --------------------------------------------------------------------------------- what happened

    def on_link_up(self, broker: BrokerId) -> None:
        """A broker is there: it is told of the pubends that come its way."""
        for stream in self._streams.values():
            self._notify(stream, broker)

    def on_link_down(self, broker: BrokerId) -> None:
        """A link to a broker is gone. Where there is another one, whoever is served over it begins anew."""
        super().on_link_down(broker)
        is_there = broker in self._ring.links
        for stream in self._streams.values():
            if stream.candidate is not None and stream.candidate.broker == broker:
                stream.candidate = None
            if stream.server is not None and stream.server.broker == broker:
                if is_there:
                    self._ask(stream, broker)
                else:
                    stream.server = None
            if not is_there:
                self._forget(stream, broker)
        self._flush()

    def dropped(self, shb: ShbId) -> None:
        """An SHB is no member of a pubend any more: it was retired."""
        self._sides.retire(shb)

    def beat(self) -> Mapping[BrokerId, bytes]:
        """Once a second: who has not agreed to serve is asked again, and what has been gone for long is forgotten.

        Returns what is to be reported to whom.
        """
        for stream in list(self._streams.values()):
            if stream.gone_since is not None and self._state.now - stream.gone_since >= self._options.forget:
                for broker in list(stream.outward):
                    self._forget(stream, broker)
                self.forget(stream.meta.pubend)
                continue
            if stream.candidate is not None and self._state.now - stream.tried_at >= ASK_AGAIN:
                self._ask_again(stream)
        recent = {pubend: at for pubend, at in self._unknown.items() if self._state.now - at < UNKNOWN_LASTS}
        self._unknown = recent
        self._flush()
        return self.copies.beat()

    # -------------------------------------------------------------------------------- how it is done

    def _read_of(self, broker: BrokerId, data: bytes) -> Iterator[tuple[Service, ServedPubend]]:
        """Yields the services of the life that a broker has now, as far as is known, of pubends that are known here."""
        return self._read(data, self._ring.life_of(broker))

    def _read(self, data: bytes, life: int | None) -> Iterator[tuple[Service, ServedPubend]]:
        said = _decode(data)
        for service in said.services if life in (None, said.life) else ():
            stream = self._streams.get(service.pubend)
            if stream is not None:
                yield service, stream

    def _say(self, broker: BrokerId, kind: int, life: int, service: Service) -> None:
        self._to_say.setdefault((broker, kind, life), []).append(service)

    def _flush(self) -> None:
        """Sends what there is to say: of many pubends in one frame."""
        to_say, self._to_say = self._to_say, {}
        for (broker, kind, life), services in to_say.items():
            for portion in portions(services):
                self._links.send(broker, Private(kind, _encode(Services(life, tuple(portion)))))
