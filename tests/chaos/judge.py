"""Whether what everybody was told fits together: nothing of gapless is asked, only what was written down.

The log of a pubend is put together from receipts and from what anybody was handed. Then each subscription must have
exactly what plain Python says is for it, in order, each once, or a gap that is told in its place and is legal.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

from chaos.plan import Made, Plan, Seen, family_of

EXAMPLES_MOST = 5
"""Of each kind of finding so many are told in words."""
REASONS = ("released early",)
"""Why events may be gone, here."""
EARLY = "early"
"""The family of pubends that release early."""

Ticks: TypeAlias = Mapping[str, int]
EventId: TypeAlias = tuple[str, int]
"""Who published it, and its number."""


@dataclass(frozen=True)
class Item:
    """An event, or a gap (`start`, `tick`], that a subscription was handed."""

    pubend: str
    tick: int
    event: EventId | None = None
    checksum: int = 0
    start: int = 0
    reason: str = ""
    attach: int = 0
    """What was handed out in one go has one number: by ranges, each range is read by itself."""


@dataclass
class Session:
    """What was handed out between an attach and its end: positions only rise in it."""

    name: str
    start: Ticks
    items: list[Item] = field(default_factory=list)
    end: Ticks | None = None
    """Where it was left in order; None: it was killed, and stood behind its last item at least."""
    acked: dict[str, int] = field(default_factory=dict)
    """The highest positions that were acknowledged in it, or were about to be."""

    def reached(self) -> dict[str, int]:
        """Up to where it is known what it was handed."""
        reached = dict(self.start)
        for item in self.items:
            reached[item.pubend] = item.tick
        return reached if self.end is None else {**reached, **self.end}


@dataclass
class Subscribed:
    """All that a subscription was handed."""

    plan: Plan
    sessions: list[Session]
    resumes: str = ""
    """From where a session goes on at the latest: "acked", what the ones before have acknowledged; "handed", what
    they were handed; "": each stands for itself."""
    complete: bool = True
    """Whether it has to be at the end of everything by now."""


@dataclass
class Published:
    """All that publishers did and were told."""

    sent: dict[EventId, str] = field(default_factory=dict)
    """What may be there, and the instance that sent it first."""
    receipts: dict[EventId, tuple[str, int | None]] = field(default_factory=dict)
    """What must be there: on which pubend, and its tick where that was told."""
    rejected: set[EventId] = field(default_factory=set)
    recovered: list[tuple[str, int, int]] = field(default_factory=list)
    """A name, how many events it was told to have logged, and the highest number with a receipt at that time."""


@dataclass
class History:
    """A whole run."""

    event_of: Callable[[str, int], Made]
    published: Published
    subscribed: list[Subscribed]
    heads: Ticks
    """Up to here everything was consumed at the end."""
    lost: Ticks
    """Up to here pubends said at the end that they have released everything."""
    kept: Mapping[str, list[Item]]
    """What pubends that keep everything had at the end, read from their beginning."""
    told: list[tuple[str, str]] = field(default_factory=list)
    """What processes themselves found: kind and words."""
    named: frozenset[str] = frozenset()
    """Publishers that go on under one name, so that all they sent is in one order."""


@dataclass
class Verdict:
    """What was found."""

    findings: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)
    events: int = 0
    """In the logs."""
    handed: int = 0
    gaps: int = 0
    uncertain: int = 0
    """Sent without an answer, and not there."""

    def find(self, kind: str, words: str) -> None:
        """Notes a finding."""
        self.findings[kind] += 1
        if self.findings[kind] <= EXAMPLES_MOST:
            self.examples.append(f"{kind}: {words}")

    @property
    def is_right(self) -> bool:
        """Whether nothing was found."""
        return not self.findings


class Log:
    """What is in the logs of all pubends, as anybody has seen it."""

    def __init__(self) -> None:
        self.places: dict[EventId, tuple[str, int]] = {}
        self._events: dict[tuple[str, int], EventId] = {}
        self._ticks: dict[str, list[int]] = {}

    def note(self, event: EventId, pubend: str, tick: int, verdict: Verdict) -> None:
        """Somebody says that an event is at a place."""
        place = pubend, tick
        if self._events.setdefault(place, event) != event:
            verdict.find("two events at one tick", f"{pubend} {tick}: {self._events[place]} and {event}")
        if self.places.setdefault(event, place) != place:
            verdict.find("logged twice", f"{event} is at {self.places[event]} and {place}")

    def close(self) -> None:
        """All is noted."""
        for pubend, tick in sorted(self._events):
            self._ticks.setdefault(pubend, []).append(tick)

    def __len__(self) -> int:
        return len(self._events)

    def pubends(self) -> Iterable[str]:
        """Those that have an event."""
        return self._ticks

    def between(self, pubend: str, start: int, end: int) -> Iterator[tuple[int, EventId]]:
        """The events of (start, end]."""
        ticks = self._ticks.get(pubend, [])
        for tick in ticks[bisect_right(ticks, start) : bisect_right(ticks, end)]:
            yield tick, self._events[pubend, tick]


def judge(history: History) -> Verdict:
    """Everything that does not fit."""
    verdict = Verdict()
    for kind, words in history.told:
        verdict.find(kind, words)
    log = _log_of(history, verdict)
    verdict.events = len(log)
    _judge_publishing(history, log, verdict)
    for subscribed in history.subscribed:
        _judge_chain(subscribed, history, log, verdict)
        for session in subscribed.sessions:
            _judge_session(subscribed.plan, session, history, log, verdict)
            verdict.handed += sum(item.event is not None for item in session.items)
            verdict.gaps += sum(item.event is None for item in session.items)
    return verdict


def _log_of(history: History, verdict: Verdict) -> Log:
    log = Log()
    for event, (pubend, tick) in history.published.receipts.items():
        if tick is not None:
            log.note(event, pubend, tick, verdict)
    sessions = [session for subscribed in history.subscribed for session in subscribed.sessions]
    for items in (*(session.items for session in sessions), *history.kept.values()):
        for item in items:
            if item.event is not None:
                log.note(item.event, item.pubend, item.tick, verdict)
    log.close()
    return log


def _judge_publishing(history: History, log: Log, verdict: Verdict) -> None:
    """Receipts, refusals, what nobody sent, and the order of each publisher."""
    published = history.published
    kept = {item.event for items in history.kept.values() for item in items}
    for event, (pubend, tick) in published.receipts.items():
        if tick is None and event in published.sent and family_of(history.event_of(*event).topic) == EARLY:
            continue  # where it is was not told, and it may be gone before anybody saw it
        if event not in log.places or (pubend in history.kept and event not in kept):
            verdict.find("lost", f"{event} has a receipt for {pubend} {tick}, and is not in the log")
    for event, place in log.places.items():
        if event not in published.sent:
            verdict.find("nobody sent it", f"{event} at {place}")
        if event in published.rejected:
            verdict.find("rejected, and logged", f"{event} at {place}")
    for name, logged, highest in published.recovered:
        if highest >= logged:
            verdict.find("recovered too few", f"{name}: {logged}, and number {highest} has a receipt")
    verdict.uncertain = len(published.sent.keys() - log.places.keys() - published.rejected)
    for pubend, items in history.kept.items():
        ticks = [item.tick for item in items]
        if ticks != sorted(set(ticks)):
            verdict.find("wrong order", f"{pubend}, read from its beginning")
        for item in items:
            _judge_content(item, history, f"{pubend}, read from its beginning", verdict)
    orders: dict[tuple[str, str, str], list[tuple[int, int]]] = defaultdict(list)
    for (publisher, number), (pubend, tick) in log.places.items():
        instance = "" if publisher in history.named else published.sent.get((publisher, number), "")
        orders[publisher, instance, pubend].append((number, tick))
    for (publisher, _, pubend), order in orders.items():
        order.sort()
        for (number, tick), (following, its_tick) in pairwise(order):
            if its_tick < tick:
                verdict.find("publisher's order", f"{publisher} {following} stands before {number} on {pubend}")


def _judge_chain(subscribed: Subscribed, history: History, log: Log, verdict: Verdict) -> None:
    """How each session follows the one before, and whether the last has come to the end."""
    plan, sessions = subscribed.plan, subscribed.sessions
    if subscribed.complete:
        reached = sessions[-1].reached() if sessions else {}
        behind = {
            pubend: (reached.get(pubend, 0), tick)
            for pubend, tick in history.heads.items()
            if family_of(pubend) in plan.families and reached.get(pubend, 0) < tick
        }
        if behind:
            verdict.find("not at the end", f"{plan.name} {plan.kind}: {behind}")
    if not subscribed.resumes:
        return
    done: dict[str, int] = {}
    for number, session in enumerate(sessions):
        for pubend, tick in session.start.items() if number else ():
            for at, event in log.between(pubend, done.get(pubend, 0), tick):
                if plan.wants(Seen(history.event_of(*event), pubend, at)):
                    verdict.find("passed over", f"{session.name}: {event} at {pubend} {at}, between two sessions")
        if not number:
            done.update(session.start)
        for pubend, tick in (session.acked if subscribed.resumes == "acked" else session.reached()).items():
            done[pubend] = max(tick, done.get(pubend, 0))


def _judge_session(plan: Plan, session: Session, history: History, log: Log, verdict: Verdict) -> None:
    """What was handed out in one go."""
    who = f"{session.name} ({plan.kind}, {plan.selector!r})"
    reached = session.reached()
    by_pubend: dict[str, list[Item]] = defaultdict(list)
    for item in session.items:
        by_pubend[item.pubend].append(item)
    for pubend in {*reached, *by_pubend}:
        position = session.start.get(pubend, 0)
        seen: set[int] = set()
        gaps: list[Item] = []
        before: Item | None = None
        for item in by_pubend[pubend]:
            if item.event is None:
                _judge_gap(item, before, position, plan, history, who, verdict)
                gaps.append(item)
            else:
                if item.tick in seen:
                    verdict.find("doubled", f"{who}: {item.event} at {pubend} {item.tick}")
                elif item.tick <= position:
                    verdict.find("wrong order", f"{who}: {pubend} {item.tick} behind {position}")
                seen.add(item.tick)
                if _judge_content(item, history, who, verdict) and not plan.wants(
                    Seen(history.event_of(*item.event), pubend, item.tick)
                ):
                    verdict.find("does not match", f"{who}: {item.event} at {pubend} {item.tick}")
            position, before = max(position, item.tick), item
        for tick, event in log.between(pubend, session.start.get(pubend, 0), reached.get(pubend, 0)):
            if tick in seen or any(gap.start < tick <= gap.tick for gap in gaps):
                continue
            if plan.wants(Seen(history.event_of(*event), pubend, tick)):
                verdict.find("missing", f"{who}: {event} at {pubend} {tick}")


def _judge_gap(
    gap: Item, before: Item | None, position: int, plan: Plan, history: History, who: str, verdict: Verdict
) -> None:
    """A gap: where nothing is released early there is none, and what it covers is really gone."""
    told = f"{who}: {gap.pubend} ({gap.start}, {gap.tick}] {gap.reason!r}"
    # Who begins in the past, at a place of its own choosing, may find that gone which nobody needed any more.
    is_released = family_of(gap.pubend) == EARLY or (
        plan.begins_anywhere and family_of(gap.pubend) not in plan.families
    )
    if not is_released:
        verdict.find("false gap", f"{told} where nothing goes early")
    elif gap.reason not in REASONS:
        verdict.find("false gap", f"{told} for a reason that there is not")
    elif gap.tick > history.lost.get(gap.pubend, 0) + 1:  # a position stands behind a place of events, not on it
        verdict.find("false gap", f"{told} beyond what was released, {history.lost.get(gap.pubend, 0)}")
    if not position <= gap.start < gap.tick:
        verdict.find("wrong order", f"{told} behind {position}")
    # Who reads by ranges has chosen where each ends; what lies there may be released before it is read.
    if before is not None and before.event is None and (before.tick, before.attach) == (gap.start, gap.attach):
        verdict.find("gap in pieces", f"{told} begins where the last one ended")


def _judge_content(item: Item, history: History, who: str, verdict: Verdict) -> bool:
    """Whether an event is as it was made."""
    assert item.event is not None
    if item.event not in history.published.sent:
        return False  # that nobody sent it is a finding of its own
    if history.event_of(*item.event).checksum != item.checksum:
        verdict.find("not as it was sent", f"{who}: {item.event} at {item.pubend} {item.tick}")
        return False
    return True
