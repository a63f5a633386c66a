"""Routers that break their contract when something changes, or when it comes late, to see that the suite notices.

The rest of them is in `conformance.broken_routers`.
"""

from __future__ import annotations

from msgspec.structs import replace

from gapless.core.network.facts import (
    LINK_HIGH,
    BrokerId,
    FrameArrived,
    Interest,
    Know,
    LinkDown,
    LinkRoom,
    LinkUp,
    Opened,
    Post,
    Progress,
    SendFrame,
    Submit,
    SubmitOpen,
    Wake,
    Want,
)
from gapless.core.network.frames import decode, encode
from gapless.core.network.seam import Effects, RouterContext
from gapless.core.stream.ticks import EPOCH_MS, MILLISECOND, PubendId, ShbId
from gapless_routing.common.interest import InterestTable
from gapless_routing.local import LocalRouter
from gapless_sim.hostile.router import HostileRouter
from gapless_testing.routing import CHAIN, DIAMOND


class PushesAnswers(LocalRouter):
    """It calls an answer what nobody asked for, and the other way round."""

    def know(self, now: int, said: Know) -> Effects:
        knowledge = said.knowledge
        return super().know(now, replace(said, knowledge=replace(knowledge, reply=not knowledge.reply)))


class ReleasesAsOne(LocalRouter):
    """To it, delivered is what was released."""

    def progress(self, now: int, progress: Progress) -> Effects:
        return super().progress(now, replace(progress, delivered=progress.released))


class WaitsForTheRetired(LocalRouter):
    """Who was a member is one for ever."""

    def __init__(self) -> None:
        super().__init__()
        self.met: dict[PubendId, dict[ShbId, int]] = {}

    def pubend(self, now: int, opened: Opened) -> Effects:
        met = self.met.setdefault(opened.meta.pubend, {})
        met.update(opened.members)
        return super().pubend(now, replace(opened, members=dict(met)))


class KeepsTheFirstMeta(LocalRouter):
    """A pubend is what it was at first."""

    def __init__(self) -> None:
        super().__init__()
        self.first: dict[PubendId, Opened] = {}

    def pubend(self, now: int, opened: Opened) -> Effects:
        first = self.first.setdefault(opened.meta.pubend, opened)
        return super().pubend(now, replace(opened, meta=first.meta))


class CallsDamageSilence(LocalRouter):
    """To it nothing is there."""

    def know(self, now: int, said: Know) -> Effects:
        return super().know(now, replace(said, knowledge=replace(said.knowledge, damaged=False)))


class ForgetsWhoAsks(LocalRouter):
    """Everything is published in its own name."""

    def place(self, now: int, batch: Submit) -> Effects:
        return super().place(now, replace(batch, pub=replace(batch.pub, principal="router")))


class DefersOpenings(LocalRouter):
    """The latest opening first: the others come behind it when there is time."""

    def __init__(self) -> None:
        super().__init__()
        self.deferred: list[SubmitOpen] = []

    def open(self, now: int, opening: SubmitOpen) -> Effects:
        deferred, self.deferred = self.deferred, []
        if not opening.request.publisher.startswith("writer-") or deferred:
            return [opening, *deferred]
        self.deferred.append(opening)
        return []


class WorksInVain(LocalRouter):
    """It is woken a thousand times a second."""

    now = 0

    def start(self, now: int, context: RouterContext) -> Effects:
        self.now = now
        return super().start(now, context)

    def next_wake(self) -> int | None:
        return self.now + 1_000_000

    def wake(self, now: int, _: Wake) -> Effects:
        self.now = now
        return []


class TakesNumbersForAges(HostileRouter):
    """Of two incarnations, the higher number is the later process."""

    def __init__(self) -> None:
        super().__init__()
        self.latest: dict[BrokerId, int] = {}
        self.ignored: dict[int, None] = {}

    def link_up(self, now: int, up: LinkUp) -> Effects:
        if up.incarnation < self.latest.setdefault(up.peer, up.incarnation):
            self.ignored[up.link] = None
            return []
        self.latest[up.peer] = up.incarnation
        return super().link_up(now, up)

    def link_down(self, now: int, down: LinkDown) -> Effects:
        return [] if down.link in self.ignored else super().link_down(now, down)

    def frame(self, now: int, arrived: FrameArrived) -> Effects:
        return [] if arrived.link in self.ignored else super().frame(now, arrived)


class FailsForAFrame(HostileRouter):
    """It takes what comes for what it wrote itself."""

    def frame(self, now: int, arrived: FrameArrived) -> Effects:
        decode(arrived.frame)
        return super().frame(now, arrived)


class BelievesAnyTick(HostileRouter):
    """Whatever tick a neighbour names, it acts on it."""

    def frame(self, now: int, arrived: FrameArrived) -> Effects:
        return super().frame(now, replace(arrived, wall=(1 << 61) // MILLISECOND + EPOCH_MS))


class NeedsEverybody(HostileRouter):
    """It serves nobody while somebody is away."""

    topology = DIAMOND

    def know(self, now: int, said: Know) -> Effects:
        return super().know(now, said) if all(self._mesh.link_counts().values()) else []


class NeverAsks(HostileRouter):
    """What comes, comes."""

    def want(self, now: int, want: Want) -> Effects:
        return []


class AnswersForItself(HostileRouter):
    """An answer says nothing of the interests that were asked for."""

    topology = CHAIN

    def _effects(self) -> Effects:
        return [
            replace(effect, knowledge=replace(effect.knowledge, stamp={}))
            if isinstance(effect, Know) and effect.knowledge.reply
            else effect
            for effect in super()._effects()
        ]


class OldTable(InterestTable):
    """It takes every change for the next one."""

    def apply(self, interest: Interest) -> bool:
        return super().apply(replace(interest, base=self.summary(interest.shb)[0]))


class OldTables(dict[BrokerId, InterestTable]):
    def setdefault(self, broker: BrokerId, _table: InterestTable | None = None) -> InterestTable:
        return super().setdefault(broker, OldTable())


class FiltersByAHoleOnLinks(HostileRouter):
    def start(self, now: int, context: RouterContext) -> Effects:
        effects = super().start(now, context)
        self._hosted._tables = OldTables()
        return effects


class GoesOnTooEarly(HostileRouter):
    """It goes on as soon as a link is no longer full, and does not wait until it is low."""

    def room(self, now: int, room: LinkRoom) -> Effects:
        return super().room(now, replace(room, pending=0) if room.pending <= LINK_HIGH else room)


class ResendsNoMail(HostileRouter):
    """What it was given once it has sent."""

    def __init__(self) -> None:
        super().__init__()
        self.posted: dict[Post, None] = {}

    def post(self, now: int, mail: Post) -> Effects:
        if mail in self.posted:
            return []
        self.posted[mail] = None
        return super().post(now, mail)


class SaysAllInOneFrame(HostileRouter):
    """However much a pubend said at once."""

    def know(self, now: int, said: Know) -> Effects:
        effects = list(super().know(now, said))
        links = dict.fromkeys(effect.link for effect in effects if isinstance(effect, SendFrame))
        return [*effects, *(SendFrame(link, encode(said.knowledge)) for link in links)]
