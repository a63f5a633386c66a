"""Routers that break one clause of their contract each, to see that the suite notices.

Each is the router `local` with one thing done wrong, or, where that takes two brokers, the router `hostile` without its
hostility. The rest of what takes more than one broker is shown to the observer call by call, in the unit tests.
"""

from __future__ import annotations

import inspect
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gapless.core.alarms import Alarm, AlarmCode
from gapless.core.gauges import Family, Gauge
from gapless.core.network.facts import (
    AskInterest,
    BrokerId,
    Enrol,
    Held,
    Hold,
    Interest,
    Know,
    LinkRoom,
    Opened,
    Outcome,
    Post,
    Probe,
    Progress,
    Released,
    Save,
    Seen,
    SendFrame,
    Submit,
    Submitted,
    Verdict,
    Want,
)
from gapless.core.network.frames import FRAME_BYTES_MAX, Address, InterestPart, InterestSummary
from gapless.core.network.seam import Effect, Effects, Router, RouterContext
from gapless.core.network.timer_queue import SECOND
from gapless.core.stream.columns import EMPTY, EventBatch
from gapless.core.stream.events import encode_event
from gapless.core.stream.intervals import Ranges
from gapless.core.stream.ticks import PubendId, ShbId
from gapless_routing.common.interest import InterestParts, InterestTable
from gapless_routing.local import LocalRouter
from gapless_sim.hostile.router import HostileRouter
from gapless_testing.routing import ALONE, PAIR, Clause, ContractError, RouterHarness


class LocalHarness(RouterHarness):
    """The router as it should be."""

    topologies = (ALONE,)

    def make(self) -> Router:
        return LocalRouter()


class BrokenHarness(LocalHarness):
    """A router as it should not be, and not much patience with it."""

    seeds = 2
    push_seconds = 1.5
    settle_seconds = 12.0
    state_bytes_max = 1 << 20

    def __init__(self, router: Callable[[], Router] = LocalRouter) -> None:
        self._router = router
        if isinstance(router, type) and issubclass(router, HostileRouter):
            self.topologies = (getattr(router, "topology", PAIR),)

    def make(self) -> Router:
        return self._router()


@dataclass(frozen=True)
class Breach:
    """A router, a test of the suite that has to fail with it, and the clause that has to be named."""

    router: type[LocalRouter | HostileRouter]
    test: Callable[..., object]
    clause: Clause

    def __str__(self) -> str:
        return f"{self.router.__name__}-{self.test.__name__}"

    def check(self) -> None:
        """The test fails with the router, and for the right reason."""
        assert self.clause in noticed(self.test, self.router)


def noticed(test: Callable[..., object], router: Callable[[], Router]) -> list[Clause]:
    """Which clause a test of the suite sees broken."""
    try:
        test(_suite_of(test), BrokenHarness(router))
    except ContractError as breach:
        return [breach.clause]
    except pytest.skip.Exception:  # a router for one node, and a test of links
        pass
    return []


def _suite_of(test: Callable[..., object]) -> object:
    return getattr(inspect.getmodule(test), test.__qualname__.partition(".")[0])()


def covers(breaches: Sequence[Breach], suite: type, *others: Callable[..., object]) -> None:
    """Fails unless every test of the suite is seen to fail at least once, and to pass with the router that is right."""
    tests = {name: test for name, test in inspect.getmembers(suite) if name.startswith("test_")}
    failing = {breach.test.__name__ for breach in breaches} | {other.__name__ for other in others}

    assert failing == set(tests)
    for test in {breach.test for breach in breaches}:
        assert noticed(test, LocalRouter) == []


def nothing(*_: object, **__: object) -> Effects:
    """In place of a method that should do something."""
    return []


# ------------------------------------------------------------------------------------------ C1 truth


class InventsSilence(LocalRouter):
    """It takes the time for the pubend's word."""

    def know(self, now: int, said: Know) -> Effects:
        return super().know(now, replace(said, knowledge=replace(said.knowledge, hi=said.knowledge.hi + 1)))


class LosesEvents(LocalRouter):
    """It cannot hold much, and says that the rest is silent."""

    def know(self, now: int, said: Know) -> Effects:
        return super().know(now, replace(said, knowledge=replace(said.knowledge, data=EMPTY)))


class HidesLoss(LocalRouter):
    """It calls silence what the pubend calls lost."""

    def know(self, now: int, said: Know) -> Effects:
        return super().know(now, replace(said, knowledge=replace(said.knowledge, lost=0)))


class Filtering(LocalRouter):
    """Not broken yet: it filters what is pushed, as routers between brokers do."""

    def __init__(self) -> None:
        super().__init__()
        self.table = InterestTable()

    def take_in(self, interest: Interest) -> Effects:
        return [] if self.table.apply(interest) else [AskInterest()]

    def interest(self, now: int, interest: Interest) -> Effects:
        return [*self.take_in(interest), *super().interest(now, interest)]

    def may_filter(self, pubend: PubendId) -> bool:
        known = self._pubends.get(pubend)
        return known is not None and all(shb in known.members for shb in self._versions)

    def know(self, now: int, said: Know) -> Effects:
        knowledge = said.knowledge
        decision = self.table.decide(None, list(self._versions))
        if said.reply_to is None and not decision.flood and self.may_filter(knowledge.pubend):
            wanted = self.wanted(knowledge.pubend, knowledge.data)
            data = knowledge.data.select(wanted) if wanted else EMPTY
            said = replace(said, knowledge=replace(knowledge, data=data, stamp=decision.stamp))
        return super().know(now, said)

    def wanted(self, pubend: PubendId, data: EventBatch) -> int:
        return self.table.matches(pubend, data) if data else 0


class FiltersWithoutHeaders(Filtering):
    """It looks at topics and properties alone: an event that a header field selects is silence to it."""

    def wanted(self, pubend: PubendId, data: EventBatch) -> int:
        bare = [encode_event(header.topic, header.properties, None, b"") for header in data.headers]
        return super().wanted(pubend, EventBatch(data.ticks, bare, [0] * len(bare)))


class FiltersByAHole(Filtering):
    """It loses every other change, and takes the next one all the same."""

    def take_in(self, interest: Interest) -> Effects:
        if interest.full:
            return super().take_in(interest)
        if interest.version == interest.base:
            return []
        (known,) = self.table.versions.values() or (0,)
        add = interest.add if interest.version % 2 else {}
        self.table.apply(replace(interest, base=known, add=add))
        return []


class FiltersByTheFirstInterest(Filtering):
    """It tells the truth about it: its stamps never change either."""

    def take_in(self, interest: Interest) -> Effects:
        return [] if len(self.table) else super().take_in(interest)


# ------------------------------------------------------------------------------- C2 answer, C3 push


class ForgetsWants(LocalRouter):
    """What was not pushed is never got."""

    want = nothing


class NeverPushes(LocalRouter):
    """It answers wants alone."""

    def know(self, now: int, said: Know) -> Effects:
        effects = super().know(now, said)
        return effects if said.reply_to is not None else []


class PushesEventsAlone(LocalRouter):
    """Nobody hears of a pubend as long as it is idle."""

    def know(self, now: int, said: Know) -> Effects:
        effects = super().know(now, said)
        return effects if said.reply_to is not None or said.knowledge.data else []


class PushesWantedEventsAlone(Filtering):
    """Nobody hears of events that are for others."""

    def know(self, now: int, said: Know) -> Effects:
        effects = super().know(now, said)
        if not said.knowledge.data:
            return effects
        return [effect for effect in effects if isinstance(effect, Know) and effect.knowledge.data]


class KeepsProbes(LocalRouter):
    """Nobody hears that an acknowledgement is overdue."""

    def probe(self, now: int, probe: Probe) -> Effects:
        return []


# ------------------------------------------------------------------------------------------ C4 minima


class ReleasesTooMuch(LocalRouter):
    """It adds a little."""

    def progress(self, now: int, progress: Progress) -> Effects:
        return raised(super().progress(now, progress))


def raised(effects: Effects) -> list[Effect]:
    """The effects, of which releases go one tick further."""
    return [
        Released(said.pubend, said.released + 1, said.delivered) if isinstance(said, Released) else said
        for said in effects
    ]


class ReleasesUnheard(LocalRouter):
    """A membership that is handed over again does not interest it: it has its minima."""

    def pubend(self, now: int, opened: Opened) -> Effects:
        pubend = opened.meta.pubend
        known = self._pubends.get(pubend)
        minima = known.releases.minima() if known else None
        effects = list(super().pubend(now, opened))
        return effects if minima is None else [*effects, Released(pubend, *minima)]


class ReleasesFall(LocalRouter):
    """It says again what it said before."""

    def __init__(self) -> None:
        super().__init__()
        self.first: Effect | None = None

    def progress(self, now: int, progress: Progress) -> Effects:
        effects = list(super().progress(now, progress))
        if effects and self.first is None:
            self.first = effects[0]
        return [*effects, self.first] if effects and self.first else effects


class NeverReleases(LocalRouter):
    """The log grows for ever."""

    progress = nothing


# ------------------------------------------------------------------------------------------- C5 enrol


class SeesTooSoon(LocalRouter):
    """It says that an SHB is counted when it has asked for that."""

    def interest(self, now: int, interest: Interest) -> Effects:
        effects = list(super().interest(now, interest))
        return [said_counted(effect) if isinstance(effect, Seen) else effect for effect in effects]


def said_counted(seen: Seen) -> Seen:
    """What says that the SHB is counted, from now on if from nowhere else."""
    return seen if seen.enrolled_at is not None else Seen(seen.meta, seen.meta.stable)


class FiltersTooSoon(Filtering):
    """It filters for SHBs that are not members, and is slow to make them members."""

    def may_filter(self, pubend: PubendId) -> bool:
        return True

    def interest(self, now: int, interest: Interest) -> Effects:
        effects = super().interest(now, interest)
        return [effect for effect in effects if not isinstance(effect, Enrol)]


class NeverEnrols(LocalRouter):
    """It delivers to whom nobody counts."""

    def interest(self, now: int, interest: Interest) -> Effects:
        return [effect for effect in super().interest(now, interest) if not isinstance(effect, Enrol)]


class SaysOnce(LocalRouter):
    """An SHB that says its whole interest again hears nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.said: dict[ShbId, None] = {}

    def interest(self, now: int, interest: Interest) -> Effects:
        effects = super().interest(now, interest)
        if interest.shb in self.said:
            return [effect for effect in effects if not isinstance(effect, Seen)]
        self.said[interest.shb] = None
        return effects


# ------------------------------------------------------------------------------- C6 pure, deterministic


class ReadsTheClock(LocalRouter):
    """It wants to know how late it is."""

    def know(self, now: int, said: Know) -> Effects:
        self.late = time.monotonic_ns() - now
        return super().know(now, said)


class StartsAThread(LocalRouter):
    """It has others do its work."""

    def start(self, now: int, context: RouterContext) -> Effects:
        thread = threading.Thread(target=nothing)
        thread.start()
        thread.join()
        return super().start(now, context)


class ReadsAFile(LocalRouter):
    """It looks up what it should do."""

    def probe(self, now: int, probe: Probe) -> Effects:
        with Path(__file__).open("rb"):
            return super().probe(now, probe)


class ThrowsDice(LocalRouter):
    """With dice of its own."""

    def know(self, now: int, said: Know) -> Effects:
        return [] if random.random() < 0.1 else super().know(now, said)


class GoesThroughASet(LocalRouter):
    """In the order that the process gives it."""

    def progress(self, now: int, progress: Progress) -> Effects:
        order: Iterable[str] = {f"{number}" for number in range(20)}
        return [*super().progress(now, progress), Save("".join(order), None)]


class BrokenElsewhere(BrokenHarness):
    """A harness that can be made in another process."""

    router: type[LocalRouter] = LocalRouter

    def __init__(self) -> None:
        super().__init__(self.router)


class ReadsTheClockElsewhere(BrokenElsewhere):
    router = ReadsTheClock


class StartsAThreadElsewhere(BrokenElsewhere):
    router = StartsAThread


class ReadsAFileElsewhere(BrokenElsewhere):
    router = ReadsAFile


class GoesThroughASetElsewhere(BrokenElsewhere):
    router = GoesThroughASet


# --------------------------------------------------------------------------------------------- C7 soft


class MissesItsState(LocalRouter):
    """It trusts that it will never have to begin again."""

    def start(self, now: int, context: RouterContext) -> Effects:
        self.lame = bool(context.saved)
        return [*super().start(now, context), Save("begun", b"yes")]

    def interest(self, now: int, interest: Interest) -> Effects:
        return [] if self.lame else super().interest(now, interest)


# ------------------------------------------------------------------------------------------ C8 bounded


class KeepsEverything(LocalRouter):
    """One never knows."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[object] = []

    def know(self, now: int, said: Know) -> Effects:
        self.kept.append(said)
        return super().know(now, said)

    def want(self, now: int, want: Want) -> Effects:
        self.kept.append((want, bytes(1024)))
        return super().want(now, want)

    def interest(self, now: int, interest: Interest) -> Effects:
        self.kept.append((interest, bytes(1024)))
        return super().interest(now, interest)

    def place(self, now: int, batch: Submit) -> Effects:
        self.kept.append(batch)
        return super().place(now, batch)


class KeepsEverythingForEverybody(HostileRouter):
    """Whoever is away will ask for it."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Know] = []

    def know(self, now: int, said: Know) -> Effects:
        self.kept.append(said)
        return super().know(now, said)


class Chatters(LocalRouter):
    """It says everything a thousand times, though there is nobody."""

    def know(self, now: int, said: Know) -> Effects:
        return [*super().know(now, said), *[SendFrame(1, b"")] * 1000]


class NeverSleeps(LocalRouter):
    """It wants to be woken now, and now, and now."""

    def next_wake(self) -> int | None:
        return 0


# -------------------------------------------------------------------------------- C9 place, and holds


class AnswersTwice(LocalRouter):
    def submitted(self, now: int, submitted: Submitted) -> Effects:
        return [*super().submitted(now, submitted)] * 2


class NeverAnswers(LocalRouter):
    """It answers openings, but no batch that does not exist here."""

    def submitted(self, now: int, submitted: Submitted) -> Effects:
        return [] if submitted.outcome.verdict is Verdict.REJECTED else super().submitted(now, submitted)


class NeverLogs(LocalRouter):
    """Nobody can publish."""

    def place(self, now: int, batch: Submit) -> Effects:
        return [Submitted(batch.reply_to, batch.pub.pubend, Outcome(Verdict.RETRY, "later"))]


class AnswersAhead(LocalRouter):
    """It does not wait for the log."""

    def place(self, now: int, batch: Submit) -> Effects:
        pub = batch.pub
        outcome = Outcome(Verdict.OK, sequence=pub.first + pub.events.count - 1)
        return [Submit(pub, None), Submitted(batch.reply_to, pub.pubend, outcome)]


class ChangesBatches(LocalRouter):
    """It submits something else than it was given."""

    def place(self, now: int, batch: Submit) -> Effects:
        return [replace(batch, pub=replace(batch.pub, first=batch.pub.first + 1))]


class KeepsHolds(LocalRouter):
    def held(self, now: int, held: Held) -> Effects:
        return []


class AnswersHoldsItself(LocalRouter):
    """It does not wait for the PHB."""

    def hold(self, now: int, row: Hold) -> Effects:
        return [Held(row.shb, row.pubend, row.version, dict(row.at))]


# ------------------------------------------------------------------------------------------- C10 mail


class LosesMail(LocalRouter):
    def post(self, now: int, mail: Post) -> Effects:
        return []


class ChangesMail(LocalRouter):
    """It has a buffer, and that is too small."""

    def post(self, now: int, mail: Post) -> Effects:
        return super().post(now, replace(mail, data=mail.data[:1024]))


class DeliversMailToAnybody(LocalRouter):
    """Whoever is there gets it."""

    def post(self, now: int, mail: Post) -> Effects:
        return super().post(now, replace(mail, role="shb"))


class TakesEveryWantForARepetition(HostileRouter):
    """What it was asked for lately is on its way, it thinks."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: dict[tuple[PubendId, Ranges], int] = {}

    def want(self, now: int, want: Want) -> Effects:
        asked_at = self.asked.setdefault((want.pubend, want.ranges), now)
        return [] if 0 < now - asked_at < 10 * SECOND else super().want(now, want)


class AnswersOnce(HostileRouter):
    """It loses nothing."""

    def want(self, now: int, want: Want) -> Effects:
        return [] if want.again else super().want(now, want)


class IgnoresRoom(HostileRouter):
    """It goes on, whoever reads."""

    def room(self, now: int, room: LinkRoom) -> Effects:
        return []


# ------------------------------------------------------------------------------------- what operators are told


class Figuring(LocalRouter):
    """Not broken yet: it counts what it is told."""

    family = Family("told_total", "Knowledge that it was told.", ("kind",), counter=True)

    def __init__(self) -> None:
        super().__init__()
        self.told = 0

    def know(self, now: int, said: Know) -> Effects:
        self.told += 1
        return super().know(now, said)

    def gauges(self) -> Iterator[Gauge]:
        yield from super().gauges()
        yield self.family.gauge(self.told, "know")


class MisnamesFigures(Figuring):
    family = Family("What was told_total", "Knowledge that it was told.", ("kind",), counter=True)


class MisnamesLabels(Figuring):
    family = Family("told_total", "Knowledge that it was told.", ("kind of fact",), counter=True)


class CountsUnderAnotherName(Figuring):
    family = Family("told", "Knowledge that it was told.", ("kind",), counter=True)


class ExplainsNothing(Figuring):
    family = Family("told_total", "", ("kind",), counter=True)


class CountsTwice(Figuring):
    def gauges(self) -> Iterator[Gauge]:
        yield from super().gauges()
        yield self.family.gauge(self.told, "know")


class CountsTwoThings(Figuring):
    """Under one name."""

    def gauges(self) -> Iterator[Gauge]:
        yield from super().gauges()
        yield Family("told_total", "Wants.", ("kind",), counter=True).gauge(0, "want")


class CountsDown(Figuring):
    def know(self, now: int, said: Know) -> Effects:
        self.told -= 1
        return LocalRouter.know(self, now, said)


class CountsQuestions(Figuring):
    """It counts how often it was asked."""

    def gauges(self) -> Iterator[Gauge]:
        self.told += 1
        yield from super().gauges()


class CriesWolf(LocalRouter):
    """Whenever it has something to do."""

    def know(self, now: int, said: Know) -> Effects:
        return [*super().know(now, said), Alarm(AlarmCode.ROUTING_IMPAIRED, "there is so much to do")]


# ------------------------------------------------------------------------------------- an interest in parts


class SaysAllAtOnce(LocalRouter):
    """However large that is."""

    def interest(self, now: int, interest: Interest) -> Effects:
        return [*super().interest(now, interest), SendFrame(1, bytes(FRAME_BYTES_MAX + 1))]


class FirstParts(InterestParts):
    """It waits for nothing."""

    def take(self, part: InterestPart) -> Interest | None:
        return Interest(part.shb, part.base, part.version, part.add, part.drop, part.full)


class TakesTheFirstPartForTheWhole(HostileRouter):
    def start(self, now: int, context: RouterContext) -> Effects:
        effects = super().start(now, context)
        self._hosted._parts = FirstParts()
        return effects


class NeverAsksForALostPart(HostileRouter):
    """It does not look whether what it has is what there is."""

    def _message_handlers(self) -> dict[type, Callable[[BrokerId, Any, Address], None]]:
        return {**super()._message_handlers(), InterestSummary: lambda *_: None}
