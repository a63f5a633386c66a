"""Who asked for what of one pubend, and has not been answered: by the broker that asked, for one minute.

It is kept for as long as an answer can take, and not for as long as a want is held back: an answer that comes when its
asker was forgotten would reach nobody (T55). With each answer goes the need that it serves: the stamp of a reply has to
keep the versions of all SHBs in that need, or it would answer for ever, and never enough (T62).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from gapless.core.network.facts import BrokerId
from gapless.core.network.timer_queue import SECOND
from gapless.core.stream.intervals import IntervalMap, IntervalSet, Ranges
from gapless.core.stream.knowledge import Knowledge, KnowledgeStream
from gapless.core.stream.stamps import Stamp, covers, join
from gapless.core.stream.ticks import Tick

REMEMBERED_FOR: Final = 60 * SECOND
UNDER_WAY: Final = 10 * SECOND
"""An answer may be on its way for so long; then whoever still asks has not got it."""
RUNS_MAX: Final = 4096
"""So many runs of one asker are remembered; the oldest ticks go first."""


@dataclass(slots=True)
class Asker:
    """What one broker, or the SHB here, waits for."""

    runs: IntervalMap[tuple[Stamp, int]] = field(default_factory=IntervalMap)
    """With which need, and until when."""
    above: Tick | None = None
    """It wants whatever comes above this tick, as the answer to a want without an upper end."""
    until: int = 0
    """Until when it does."""
    sent: IntervalMap[tuple[Stamp, int]] = field(default_factory=IntervalMap)
    """What it was sent lately on the link that there is: under which stamp, and until when that may be on its way."""
    missed: IntervalSet = field(default_factory=IntervalSet)
    """Where that lies which came for it while there was no room, and was not kept."""


class Askers:
    """All askers of one pubend."""

    def __init__(self) -> None:
        self._askers: dict[BrokerId, Asker] = {}

    def __bool__(self) -> bool:
        return bool(self._askers)

    @property
    def names(self) -> tuple[BrokerId, ...]:
        """Who they are."""
        return tuple(self._askers)

    def __len__(self) -> int:
        """How many runs are waited for."""
        return sum(len(asker.runs) for asker in self._askers.values())

    def add(self, name: BrokerId, ranges: Ranges, need: Stamp, above: Tick | None, now: int) -> None:
        """A broker waits for these ranges, and for what comes above a tick."""
        if not ranges and above is None:
            return
        asker = self._askers.setdefault(name, Asker())
        until = now + REMEMBERED_FOR
        for lo, hi in ranges:
            asker.runs.join(lo, hi, (need, until), _longer)
        if above is not None:
            asker.above, asker.until = above, until
        while len(asker.runs) > RUNS_MAX:
            lo, hi, _ = next(iter(asker.runs))
            asker.runs.remove(lo, hi)

    def take(
        self,
        name: BrokerId,
        knowledge: Knowledge,
        view: KnowledgeStream,
        now: int,
        pushed: Sequence[Knowledge] = (),
    ) -> list[tuple[Knowledge, Stamp]]:
        """What of some knowledge answers a broker, each with the need that it serves; it is waited for no more.

        `view` has that knowledge, and may have more.
        `pushed` is what that broker was just sent of its own accord: where it serves the need, nothing is sent twice.
        Nor is what answers another need of it that is higher.
        """
        asker = self._askers[name]
        answers: list[tuple[Knowledge, Stamp]] = []
        wanted = [run for run in asker.runs.overlapping(knowledge.lo, knowledge.hi) if now < run[2][1]]
        for need, asked in _by_need(wanted):
            said_now = [*pushed, *(answer for answer, _ in answers if not answer.lost and not answer.damaged)]
            served = IntervalSet((said.lo, said.hi) for said in said_now if covers(said.stamp, need))
            ranges = (IntervalSet(asked) - served).ranges
            for lo, hi in served.ranges if ranges != asked else ():
                asker.runs.remove(lo, hi)
            found, rest = _answer(knowledge, view, ranges, need)
            for lo, hi in (IntervalSet(ranges) - IntervalSet(rest)).ranges:
                asker.runs.remove(lo, hi)
            answers += [(answer, need) for answer in found]
        if asker.above is not None and knowledge.reply and knowledge.hi > asker.above:
            if now < asker.until:
                found, _ = _answer(knowledge, view, ((max(asker.above, knowledge.lo), knowledge.hi),), {})
                answers += [(answer, {}) for answer in found]
            asker.above = None
        return answers

    def is_waiting(self, name: BrokerId, knowledge: Knowledge, now: int) -> bool:
        """Whether a broker waits for some of what is said."""
        runs = self._askers[name].runs.overlapping(knowledge.lo, knowledge.hi)
        return any(now < until for _, _, (_, until) in runs)

    def miss(self, name: BrokerId, ranges: Ranges) -> None:
        """What came for a broker in these ranges was not kept."""
        for lo, hi in ranges:
            self._askers[name].missed.add(lo, hi)

    def take_missed(self, name: BrokerId) -> IntervalSet:
        """Returns where that lies which came for a broker and was not kept; it is forgotten."""
        asker = self._askers.get(name)
        if asker is None:
            return IntervalSet()
        missed, asker.missed = asker.missed, IntervalSet()
        return missed

    def waiting(self, name: BrokerId, now: int) -> list[tuple[Stamp, Ranges]]:
        """What a broker waits for, by its need."""
        asker = self._askers.get(name)
        return _by_need([run for run in asker.runs if now < run[2][1]]) if asker is not None else []

    def answered(self, name: BrokerId, ranges: Ranges) -> None:
        """A broker waits for these no more."""
        for lo, hi in ranges:
            self._askers[name].runs.remove(lo, hi)

    def sent(self, name: BrokerId, answer: Knowledge, now: int) -> None:
        """An answer was sent to a broker."""
        sent = self._askers.setdefault(name, Asker()).sent
        sent.join(answer.lo, answer.hi, (answer.stamp, now + UNDER_WAY), _newer)
        while len(sent) > RUNS_MAX:
            lo, hi, _ = next(iter(sent))
            sent.remove(lo, hi)

    def asked_anew(self, name: BrokerId, ranges: Ranges) -> None:
        """A broker asks for these, and not again: what it was sent of them before, it has not kept."""
        if name in self._askers:
            for lo, hi in ranges:
                self._askers[name].sent.remove(lo, hi)

    def under_way(self, name: BrokerId, ranges: Ranges, need: Stamp, now: int) -> Ranges:
        """What of these ranges a broker was sent so lately that it may be on its way, and serves that need."""
        found = IntervalSet()
        for lo, hi in ranges if name in self._askers else ():
            for start, stop, (stamp, until) in self._askers[name].sent.overlapping(lo, hi):
                if now < until and covers(stamp, need):
                    found.add(start, stop)
        return found.ranges

    def link_down(self, name: BrokerId) -> None:
        """A link to a broker is gone, with all that was on its way there."""
        if name in self._askers:
            self._askers[name].sent = IntervalMap()

    def expire(self, now: int) -> None:
        """Forgets what nobody can wait for any more."""
        for name, asker in list(self._askers.items()):
            for lo, hi, (_, until) in tuple(asker.runs):
                if until <= now:
                    asker.runs.remove(lo, hi)
            if asker.above is not None and asker.until <= now:
                asker.above = None
            for lo, hi, (_, until) in tuple(asker.sent):
                if until <= now:
                    asker.sent.remove(lo, hi)
            if not len(asker.runs) and asker.above is None and not len(asker.sent):
                del self._askers[name]


def _longer(old: tuple[Stamp, int], new: tuple[Stamp, int]) -> tuple[Stamp, int]:
    """Who asked before with an older need may have one that is over: the higher one serves both."""
    return join(old[0], new[0]), max(old[1], new[1])


def _newer(_old: tuple[Stamp, int], new: tuple[Stamp, int]) -> tuple[Stamp, int]:
    return new


def _by_need(runs: list[tuple[Tick, Tick, tuple[Stamp, int]]]) -> list[tuple[Stamp, Ranges]]:
    """Ranges by need, neighbours in one."""
    found: list[tuple[Stamp, IntervalSet]] = []
    for lo, hi, (need, _) in runs:
        for other, ranges in found:
            if other == need:
                ranges.add(lo, hi)
                break
        else:
            found.append((need, IntervalSet([(lo, hi)])))
    return [(need, ranges.ranges) for need, ranges in found]


def _answer(knowledge: Knowledge, view: KnowledgeStream, ranges: Ranges, need: Stamp) -> tuple[list[Knowledge], Ranges]:
    """What one statement, or who has taken it in, says to a want for ranges of it, and the rest of that."""
    if knowledge.damaged:
        inside = [(max(lo, knowledge.lo), min(hi, knowledge.hi)) for lo, hi in ranges]
        parts = [part for part in inside if part[0] < part[1]]
        said = [Knowledge.of_damage(knowledge.pubend, lo, hi, knowledge.lost) for lo, hi in parts]
        return said, (IntervalSet(ranges) - IntervalSet(parts)).ranges
    return view.answer(ranges, need)
