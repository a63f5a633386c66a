"""A router's half beside the PHB: pushes what pubends state, answers wants, counts members."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from gapless.core.network.facts import (
    AskPubend,
    BrokerId,
    Enrol,
    Held,
    Hold,
    Probe,
    PubendMeta,
    Released,
    Seen,
    Want,
)
from gapless.core.network.frames import InterestPart, InterestQuestion, InterestSummary, ProgressRows
from gapless.core.stream.intervals import IntervalSet
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.stamps import RAW
from gapless.core.stream.ticks import FOREVER, PubendId, ShbId, Tick
from gapless.core.stream.ticks import SECOND as SECOND_OF_TICKS
from gapless_routing.common.interest import InterestParts, InterestTable
from gapless_routing.common.release import ReleaseTable
from gapless_sim.hostile.cache import Cache
from gapless_sim.hostile.mesh import Mesh, Station
from gapless_sim.hostile.pushes import Pushes


@dataclass(slots=True)
class Hosted:
    """A pubend of this node."""

    meta: PubendMeta
    members: dict[ShbId, Tick]
    pushes: Pushes
    releases: ReleaseTable = field(default_factory=ReleaseTable)
    caches: dict[BrokerId, Cache] = field(default_factory=dict)
    """What was pushed to each broker, as a router on the way there would have it."""


class PublisherSide:
    """All pubends of this node, and what the SHBs of every node want of them."""

    def __init__(self, station: Station, mesh: Mesh) -> None:
        self._station = station
        self._mesh = mesh
        self.pubends: dict[PubendId, Hosted] = {}
        self._tables: dict[BrokerId, InterestTable] = {}
        self._parts = InterestParts()
        self._homes: dict[ShbId, BrokerId] = {}
        self._shbs_at: dict[BrokerId, dict[ShbId, None]] = {}

    # ---------------------------------------------------------------------------- the local PHB core

    def pubend(self, meta: PubendMeta, members: Mapping[ShbId, Tick]) -> None:
        """A pubend as it is now; every member must report (again) from here on (C4)."""
        hosted = self.pubends.get(meta.pubend)
        if hosted is None:
            hosted = Hosted(meta, {}, Pushes(self._station, self._mesh, meta.pubend))
            self.pubends[meta.pubend] = hosted
        retired = [shb for shb in hosted.members if shb not in members]
        hosted.meta, hosted.members = meta, dict(members)
        hosted.releases.replace_members(members)
        hosted.pushes.drop_silence()
        self._station.owners[meta.pubend] = self._station.broker
        for shb in list(self._homes):
            if shb not in retired:
                self._introduce(hosted, shb)
            elif not any(shb in other.members for other in self.pubends.values()):
                self._leave(shb)

    def know(self, knowledge: Knowledge, reply_to: Hashable) -> None:
        """Facts of a pubend: pushed to every SHB, or sent to the one that asked."""
        hosted = self.pubends.get(knowledge.pubend)
        if hosted is None:
            return
        if isinstance(reply_to, tuple):
            self._reply(hosted, knowledge, *reply_to)
            return
        hosted.meta = replace(hosted.meta, reach=max(hosted.meta.reach, knowledge.hi))
        for broker in self._mesh.with_role("shb"):
            self._push(hosted, broker, knowledge)

    def probe(self, probe: Probe) -> None:
        """Progress up to here is overdue."""
        for broker in self._mesh.with_role("shb"):
            self._mesh.send(broker, probe)

    def enrolled(self, pubend: PubendId, shb: ShbId, at: Tick) -> None:
        """The membership is durable: nothing is released unheard of this SHB (T20)."""
        hosted = self.pubends.get(pubend)
        if hosted is not None:
            hosted.members[shb] = at
            hosted.releases.enrol(shb)
            self._introduce(hosted, shb)

    def held(self, held: Held) -> None:
        """A row of holds is durable."""
        home = self._homes.get(held.shb)
        if home is not None:
            self._mesh.send(home, held)

    # --------------------------------------------------------------------------- the SHBs' routers

    def on_interest(self, broker: BrokerId, part: InterestPart) -> None:
        """A part of an SHB's interest, or of a change of it. When all of it is there, a hole is asked about (T4)."""
        self._meet(broker, part.shb)
        interest = self._parts.take(part)
        if interest is None:
            return
        table = self._tables.setdefault(broker, InterestTable())
        if not table.apply(interest):
            self._mesh.send(broker, InterestQuestion(interest.shb))
        self._count(interest.shb, introduce=interest.full)

    def on_summary(self, broker: BrokerId, said: InterestSummary) -> None:
        """What an SHB's interest is now: if it is not so here, it is asked for."""
        self._meet(broker, said.shb)
        version, digest = self._tables.setdefault(broker, InterestTable()).summary(said.shb)
        if version < said.version or (version == said.version and digest != said.digest):
            self._mesh.send(broker, InterestQuestion(said.shb))
        self._count(said.shb, introduce=False)

    def on_want(self, broker: BrokerId, want: Want) -> None:
        """The pubend itself answers, at the SHB's need or better."""
        if want.pubend not in self.pubends:
            return
        need = -1 if want.need is None else want.need.get(want.shb, 0)
        if self._station.hostility.happens("stale_cache"):
            want = self._answer_from_cache(broker, want)
            if not want.ranges:
                return
        if self._station.hostility.happens("answer_more"):
            want = replace(want, ranges=self._widened(want))
        self._station.effects.append(AskPubend(want, (broker, want.shb, need)))

    def on_progress(self, _broker: BrokerId, said: ProgressRows) -> None:
        """SHBs' durable progress; passed on when it moves a minimum, which never falls."""
        for row in said.rows:
            hosted = self.pubends.get(row.pubend)
            if hosted is None:
                continue
            hosted.releases.report(row)
            minima = hosted.releases.take_risen()
            if minima is not None:
                self._station.effects.append(Released(row.pubend, *minima))

    def on_hold(self, broker: BrokerId, row: Hold) -> None:
        """An SHB needs more kept than it reported."""
        if row.pubend in self.pubends:
            self._meet(broker, row.shb)
            self._station.effects.append(row)

    def on_new_peer(self, broker: BrokerId) -> None:
        """Another process is there, or the same one again: what is here is said to it, what it wants is asked."""
        for shb in list(self._shbs_at.get(broker, ())):
            self._leave(shb)
        if self.pubends:
            self._mesh.send(broker, InterestQuestion())
            self._repeat(broker)

    # ----------------------------------------------------------------------------------------- time

    def housekeep(self) -> None:
        """Each second: whatever may have been lost is said again."""
        if not self.pubends:
            return
        hostility = self._station.hostility
        for broker in self._mesh.with_role("shb"):
            if broker not in self._shbs_at or hostility.happens("ask_interest"):
                self._mesh.send(broker, InterestQuestion())
        for broker in self._mesh.everybody():
            self._repeat(broker)

    def flush(self, pubend: PubendId, broker: BrokerId) -> None:
        """Silence has waited long enough."""
        self.pubends[pubend].pushes.flush(broker)

    def forget(self) -> None:
        """As if it had just begun. What the PHB handed over is not the router's own, and stays."""
        for shb in list(self._homes):
            self._leave(shb)
        for hosted in self.pubends.values():
            hosted.releases.replace_members(hosted.members)
            hosted.pushes.forget()
            hosted.caches.clear()

    # ------------------------------------------------------------------------------------ who is there

    def _count(self, shb: ShbId, *, introduce: bool) -> None:
        """An SHB is known now: where it is no member it is to become one (C5)."""
        for hosted in self.pubends.values():
            if introduce or shb not in hosted.members:
                self._introduce(hosted, shb)

    def _introduce(self, hosted: Hosted, shb: ShbId) -> None:
        if shb not in hosted.members:
            self._station.effects.append(Enrol(hosted.meta.pubend, shb))
        home = self._homes.get(shb)
        if home is not None:
            self._tell(hosted, home, shb)

    def _repeat(self, broker: BrokerId) -> None:
        shbs = self._shbs_at.get(broker) or ("",)
        for hosted in self.pubends.values():
            for shb in shbs:
                self._tell(hosted, broker, shb)

    def _tell(self, hosted: Hosted, broker: BrokerId, shb: ShbId) -> None:
        """What the pubend is. How far it is decided, only as far as that broker knows it: it would ask for more."""
        stable = max(hosted.meta.stable, hosted.pushes.told(broker))
        seen = Seen(replace(hosted.meta, stable=stable), hosted.members.get(shb))
        self._mesh.send(broker, seen, (shb, self._mesh.life_for(broker)))

    def _meet(self, broker: BrokerId, shb: ShbId) -> None:
        self._homes[shb] = broker
        self._shbs_at.setdefault(broker, {})[shb] = None

    def _leave(self, shb: ShbId) -> None:
        """An SHB that is gone or given up wants nothing any more, unless it says so."""
        broker = self._homes.pop(shb)
        del self._shbs_at[broker][shb]
        if not self._shbs_at[broker]:
            del self._shbs_at[broker]
        self._parts.forget(shb)
        if broker in self._tables:
            self._tables[broker].forget(shb)

    # ----------------------------------------------------------------------------------------- pushing

    def _push(self, hosted: Hosted, broker: BrokerId, knowledge: Knowledge) -> None:
        """What the SHBs at a broker want of it; silence alone waits, and is said within SIL."""
        pushes, hostility = hosted.pushes, self._station.hostility
        table = self._filter(hosted, broker)
        if table is None:
            self._remember(hosted, broker, knowledge)
            pushes.say(broker, knowledge)
            return
        decision = table.decide(RAW, self._shbs_at[broker])
        if decision.flood or hostility.happens("flood"):
            self._remember(hosted, broker, knowledge)
            pushes.say(broker, knowledge)
            return
        data, stamp = knowledge.data, decision.stamp
        if data:
            wanted = table.matches(knowledge.pubend, data)
            if hostility.happens("over_deliver"):
                wanted |= hostility.random.getrandbits(len(data))
            data = data.select(wanted)
        if stamp is not None and hostility.happens("understate"):
            stamp = {shb: hostility.random.randint(0, version) for shb, version in stamp.items()}
        pushed = replace(knowledge, data=data, stamp=stamp)
        self._remember(hosted, broker, pushed)
        if data or not knowledge.data:
            pushes.say(broker, pushed)
        else:
            pushes.keep_silent(broker, pushed)

    def _filter(self, hosted: Hosted, broker: BrokerId) -> InterestTable | None:
        """What a broker's SHBs want, if all of them are members: else no version may be stamped (C5)."""
        shbs = self._shbs_at.get(broker)
        if not shbs or any(shb not in hosted.members for shb in shbs):
            return None
        return self._tables.get(broker)

    # --------------------------------------------------------------------------------------- answering

    def _reply(self, hosted: Hosted, knowledge: Knowledge, broker: BrokerId, shb: ShbId, need: int) -> None:
        """An answer goes where it was asked for, and nowhere else (T37)."""
        if need >= 0 and knowledge.data and self._station.hostility.happens("thin_answer"):
            table = self._tables.get(broker)
            version = table.versions.get(shb, -1) if table else -1
            if table and shb in hosted.members and version >= need:
                data = knowledge.data.select(table.matches(knowledge.pubend, knowledge.data))
                knowledge = replace(knowledge, data=data, stamp={shb: version})
        self._mesh.send(broker, knowledge)

    def _answer_from_cache(self, broker: BrokerId, want: Want) -> Want:
        """Answers what a router on the way could; returns what is left of the want."""
        cache = self.pubends[want.pubend].caches.get(broker)
        if cache is None:
            return want
        replies, rest = cache.answer(want.ranges, want.need)
        for reply in replies:
            self._mesh.send(broker, reply)
        return replace(want, ranges=rest)

    def _remember(self, hosted: Hosted, broker: BrokerId, knowledge: Knowledge) -> None:
        if self._station.hostility.has("stale_cache"):
            hosted.caches.setdefault(broker, Cache(knowledge.pubend)).remember(knowledge)

    def _widened(self, want: Want) -> tuple[tuple[Tick, Tick], ...]:
        random = self._station.hostility.random
        before, after = random.randint(0, SECOND_OF_TICKS), random.randint(0, SECOND_OF_TICKS)
        return IntervalSet((max(0, lo - before), min(hi + after, FOREVER)) for lo, hi in want.ranges).ranges
