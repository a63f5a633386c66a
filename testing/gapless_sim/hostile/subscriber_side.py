"""A router's half beside the SHB: sends wants, and delivers what arrives, in whatever pieces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from msgspec.structs import replace

from gapless.core.network.facts import (
    AskInterest,
    BrokerId,
    Held,
    Hold,
    Interest,
    Know,
    Probe,
    Progress,
    PubendMeta,
    Seen,
    Want,
)
from gapless.core.network.frames import (
    Address,
    InterestPart,
    InterestQuestion,
    InterestSummary,
    Message,
    ProgressRows,
    portions,
)
from gapless.core.network.timer_queue import MILLISECOND, SECOND
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.ticks import PubendId, ShbId, Tick
from gapless_routing.common.interest import InterestTable, parts_of
from gapless_sim.hostile.cache import Cache
from gapless_sim.hostile.mesh import Mesh, Station
from gapless_sim.hostile.pieces import joined, part

MERGED_WITHIN = 200 * MILLISECOND
"""How long a piece of knowledge waits for the next."""
ROWS_WITHIN = 50 * MILLISECOND
"""How long a row of progress waits for others."""
LATE_MAX = 200
INTEREST_DELAY = 2 * SECOND
WANT_DELAY = 1 * SECOND
PROGRESS_DELAY = 2 * SECOND

Said = TypeVar("Said", Interest, Want, Progress)


@dataclass(slots=True)
class FollowedPubend:
    """A pubend, as far as it is known here."""

    told: Tick = 0
    """Decided up to here."""
    meta: PubendMeta | None = None
    cache: Cache | None = None
    waiting: Knowledge | None = None
    """What is to be delivered with the next piece."""
    last: Knowledge | None = None
    """What was delivered last."""


class SubscriberSide:
    """The SHB of this node, and the pubends of every node."""

    def __init__(self, station: Station, mesh: Mesh) -> None:
        self._station = station
        self._mesh = mesh
        self._shb: ShbId = ""
        self._own = InterestTable()
        self._pubends: dict[PubendId, FollowedPubend] = {}
        self._late: dict[int, Interest | Want | Progress] = {}
        self._rows: list[Progress] = []
        self._count = 0
        self._tell: dict[type, Callable[..., None]] = {
            Interest: self._tell_interest,
            Want: self._tell_want,
            Progress: self._tell_progress,
        }

    # ---------------------------------------------------------------------------- the local SHB core

    def interest(self, interest: Interest) -> None:
        """The SHB's interest changed, or is sent again; every pubend's broker gets it."""
        self._shb = interest.shb
        if not self._own.apply(interest):
            self._station.effects.append(AskInterest())
        self._mistreat(interest, "drop_interest", "delay_interest", INTEREST_DELAY)

    def hold(self, row: Hold) -> None:
        """The SHB needs more kept than it reported."""
        self._send_to_owner(row.pubend, row)

    def want(self, want: Want) -> None:
        """What the SHB needs: what a cache has of it at once, the rest from the pubend."""
        if self._station.hostility.happens("stale_cache"):
            want = self._answer(want)
        if want.ranges:
            self._mistreat(want, "drop_want", "late_answer", WANT_DELAY)

    def progress(self, progress: Progress) -> None:
        """The SHB's durable progress."""
        self._mistreat(progress, "drop_progress", "delay_progress", PROGRESS_DELAY)

    def say_late(self, count: int) -> None:
        """Something that was held back is said now."""
        said = self._late.pop(count)
        self._tell[type(said)](said)

    def _mistreat(self, said: Said, drop: str, delay: str, span: int) -> None:
        hostility = self._station.hostility
        if hostility.happens(drop):
            return
        if hostility.happens(delay) and len(self._late) < LATE_MAX:
            self._count += 1
            self._late[self._count] = said
            self._station.timers.set(("said", self._count), self._station.within(span))
            return
        self._tell[type(said)](said)

    def _tell_interest(self, interest: Interest) -> None:
        """A repeated version goes with a digest, so that whoever has something else notices."""
        messages: Sequence[Message] = self._in_parts(interest)
        if interest.base == interest.version and not interest.full:
            messages = [InterestSummary(interest.shb, *self._own.summary(interest.shb))]
        for broker in self._mesh.with_role("phb"):
            for message in messages:
                self._mesh.send(broker, message)

    def _tell_want(self, want: Want) -> None:
        self._send_to_owner(want.pubend, want)

    def _tell_progress(self, progress: Progress) -> None:
        """It waits a little for other rows: one frame takes them all to a broker."""
        self._rows.append(progress)
        if len(self._rows) >= LATE_MAX:
            self.say_rows()
        elif ("rows",) not in self._station.timers:
            self._station.timers.set(("rows",), self._station.now + ROWS_WITHIN)

    def say_rows(self) -> None:
        """Every pubend's broker gets the rows of its pubends."""
        self._station.timers.cancel(("rows",))
        rows: dict[BrokerId, list[Progress]] = {}
        for row in self._rows:
            if row.pubend in self._station.owners:
                rows.setdefault(self._station.owners[row.pubend], []).append(row)
        self._rows.clear()
        for owner, own in rows.items():
            for portion in portions(own):
                self._mesh.send(owner, ProgressRows(tuple(portion)))

    def _send_to_owner(self, pubend: PubendId, message: Message) -> None:
        owner = self._station.owners.get(pubend)
        if owner is not None:
            self._mesh.send(owner, message)

    # ------------------------------------------------------------------------- the pubends' routers

    def on_knowledge(self, _broker: BrokerId, knowledge: Knowledge) -> None:
        """What a pubend says, or answers."""
        if not self._shb:
            return
        followed = self._followed(knowledge.pubend)
        followed.told = max(followed.told, knowledge.hi)
        if self._station.hostility.quiet and followed.waiting is None:
            self._station.effects.append(Know(knowledge))
            return
        self._remember(followed, knowledge)
        if knowledge.reply:
            self._deliver_reply(knowledge)
        else:
            self._deliver_pushed(followed, knowledge)

    def meta_of(self, pubend: PubendId) -> PubendMeta | None:
        """What the pubend's broker said of it last; None: nothing."""
        followed = self._pubends.get(pubend)
        return None if followed is None else followed.meta

    def on_seen(self, broker: BrokerId, seen: Seen, address: Address) -> None:
        """A pubend is there. Of what was said of it, the newest counts, whatever comes last."""
        shb, _ = address
        meta = seen.meta
        self._station.owners[meta.pubend] = broker
        if not self._shb:
            return
        followed = self._followed(meta.pubend)
        if followed.meta is None or meta.stable >= followed.meta.stable:
            if followed.meta is not None and followed.meta.voids != meta.voids:
                followed.cache = None  # what a log has lost is not to be remembered
            followed.meta = meta
        followed.told = max(followed.told, meta.stable)
        enrolled_at = seen.enrolled_at if shb == self._shb else None
        self._station.effects.append(Seen(followed.meta, enrolled_at))

    def on_probe(self, _broker: BrokerId, probe: Probe) -> None:
        """Progress is overdue."""
        if self._shb:
            self._station.effects.append(Probe(probe.pubend, probe.upto))

    def on_held(self, _broker: BrokerId, row: Held) -> None:
        """A row of holds is durable."""
        if row.shb == self._shb:
            self._station.effects.append(row)

    def on_question(self, broker: BrokerId, question: InterestQuestion) -> None:
        """Somebody lacks the interest; who does not have it whole here either, asks the SHB."""
        if not self._shb or question.shb not in ("", self._shb):
            return
        if self._shb not in self._own.versions:
            self._station.effects.append(AskInterest())
        else:
            self._send_whole_interest(broker)

    def on_new_peer(self, broker: BrokerId) -> None:
        """Another process is there: it gets the interest, if it can have any use for it."""
        if self._shb in self._own.versions and broker in self._mesh.with_role("phb"):
            self._send_whole_interest(broker)

    def _send_whole_interest(self, broker: BrokerId) -> None:
        version, _ = self._own.summary(self._shb)
        for message in self._in_parts(Interest(self._shb, 0, version, self._own.filters(self._shb), full=True)):
            self._mesh.send(broker, message)

    def _in_parts(self, interest: Interest) -> list[InterestPart]:
        return parts_of(interest, 1) if self._station.hostility.happens("part_interest") else parts_of(interest)

    # ------------------------------------------------------------------------------------------ time

    def housekeep(self) -> None:
        """Each second: what is needless."""
        hostility = self._station.hostility
        if not self._shb or hostility.quiet:
            return
        if hostility.happens("ask_interest"):
            self._station.effects.append(AskInterest())
        for pubend, followed in self._pubends.items():
            if hostility.happens("probe"):
                self._station.effects.append(Probe(pubend, followed.told))

    def forget(self) -> None:
        """As if it had just begun: the interest is asked for, and where pubends are must be learnt again."""
        self._own = InterestTable()
        self._pubends.clear()
        self._rows.clear()
        if self._shb:
            self._station.effects.append(AskInterest())

    # ------------------------------------------------------------------------------------ delivering

    def deliver_waiting(self, pubend: PubendId) -> None:
        """No next piece has come to be delivered with."""
        followed = self._followed(pubend)
        if followed.waiting is not None:
            knowledge, followed.waiting = followed.waiting, None
            self._deliver(knowledge)

    def _followed(self, pubend: PubendId) -> FollowedPubend:
        followed = self._pubends.get(pubend)
        if followed is None:
            followed = self._pubends[pubend] = FollowedPubend()
        return followed

    def _deliver_reply(self, knowledge: Knowledge) -> None:
        self._deliver(knowledge)
        if self._station.hostility.happens("twice"):
            self._deliver(knowledge)

    def _deliver_pushed(self, followed: FollowedPubend, knowledge: Knowledge) -> None:
        happens = self._station.hostility.happens
        if followed.waiting is not None:
            whole = joined(followed.waiting, knowledge)
            if whole is None:
                self._deliver(followed.waiting)
            followed.waiting = None
            self._station.timers.cancel(("merge", knowledge.pubend))
            self._deliver(whole or knowledge)
        elif happens("merge"):
            followed.waiting = knowledge
            self._station.timers.set(("merge", knowledge.pubend), self._station.now + MERGED_WITHIN)
        elif followed.last is not None and happens("overlap"):
            self._deliver(joined(followed.last, knowledge) or knowledge)
        else:
            self._deliver(knowledge)
        followed.last = knowledge

    def _deliver(self, knowledge: Knowledge) -> None:
        pieces = [knowledge]
        if knowledge.hi - knowledge.lo > 1 and self._station.hostility.happens("split"):
            cut = self._cut(knowledge)
            pieces = [part(knowledge, knowledge.lo, cut), part(knowledge, cut, knowledge.hi)]
        self._station.effects.extend(map(Know, pieces))

    def _cut(self, knowledge: Knowledge) -> Tick:
        """Anywhere, but often beside an event."""
        random, ticks = self._station.hostility.random, knowledge.data.ticks
        cut = random.randint(knowledge.lo + 1, knowledge.hi - 1)
        if ticks and random.random() < 0.5:
            cut = ticks[random.randrange(len(ticks))] - random.randint(0, 1)
        return min(max(cut, knowledge.lo + 1), knowledge.hi - 1)

    # ----------------------------------------------------------------------------------------- a cache

    def _remember(self, followed: FollowedPubend, knowledge: Knowledge) -> None:
        if not self._station.hostility.has("stale_cache"):
            return
        if followed.cache is None:
            followed.cache = Cache(knowledge.pubend)
        followed.cache.remember(knowledge)

    def _answer(self, want: Want) -> Want:
        """Answers what a cache can; returns what is left of the want."""
        cache = self._followed(want.pubend).cache
        if cache is None:
            return want
        replies, rest = cache.answer(want.ranges, want.need)
        for reply in replies:
            self._deliver_reply(reply)
        return replace(want, ranges=rest)
