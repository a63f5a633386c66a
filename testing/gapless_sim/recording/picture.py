"""Which lines of a run are worth showing, and in which columns: what a lane diagram is made from."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gapless_sim.recording.trace import Line
from gapless_sim.recording.trace_recorder import LOST

if TYPE_CHECKING:
    from gapless_sim.search.result import Failure

QUIET = ("alive", "credit", "enrol", "interest check", "session", "link up", "connected", "writes")
"""Kinds that are not shown unless somebody wants to see them: they go on all the time."""
ENDS = ("crash", "kill", "stop", "close", "storage failed", "refused to open", "wipe")
"""Kinds behind which there is nobody in a lane, until it begins again."""
BEGINS = ("boot", "start")
WORLD = "world"
FOLDED = "…"
"""The kind of a line that stands for many that are alike."""
_PERIOD_MOST, _ROUNDS_LEAST = 8, 5
_TROUBLES = (*ENDS, "boot", "cut", "heal", "pause", "alarm", "gap", LOST, "refused", "subscription over")
_WORD = re.compile(r"[\w#.-]*\w")


@dataclass(frozen=True, slots=True)
class Picture:
    """What is shown of a run."""

    lanes: tuple[str, ...]
    """From left to right: who publishes, brokers, who subscribes."""
    lines: tuple[Line, ...]
    failure: Failure | None
    left_out: int
    """How many lines are not shown."""


def picture(
    lines: Sequence[Line],
    failure: Failure | None = None,
    *,
    about: Iterable[str] = (),
    limit: int | None = 60,
    hide: Collection[str] = QUIET,
) -> Picture:
    """The last lines that matter to the failure; without one, the last of all.

    What matters is said by the failure, which names pubends, events, clients and subscriptions; `about`
    names more of them. What went wrong in the world matters always.
    """
    words = {*about, *(names_in(failure.what, lines) if failure else ())}
    shown = [line for line in lines if line.kind not in hide and _matters(line, words)]
    if limit is not None:
        shown = fold(shown, [word for word in words if "#" in word])[-limit:]
    return Picture(_lanes(shown, lines), tuple(shown), failure, len(lines) - len(shown))


def fold(lines: Sequence[Line], marked: Collection[str] = ()) -> list[Line]:
    """What goes round and round once at the beginning and once at the end, and a line for what is between.

    A line with a marked word is like no other.
    """
    folded: list[Line] = []
    place = 0
    while place < len(lines):
        period, rounds = _rounds(lines, place, marked)
        behind = place + period * rounds
        if rounds < _ROUNDS_LEAST:
            folded.append(lines[place])
            place += 1
            continue
        what = ", ".join(dict.fromkeys(line.kind for line in lines[place : place + period]))
        told = Line(lines[behind - period].at, WORLD, FOLDED, f"{rounds - 2} more rounds of: {what}")
        folded += [*lines[place : place + period], told, *lines[behind - period : behind]]
        place = behind
    return folded


def _rounds(lines: Sequence[Line], start: int, marked: Collection[str]) -> tuple[int, int]:
    """From here on so many lines are repeated so many times; the texts may differ."""

    def same(one: int, other: int) -> bool:
        alike = lines[one][1:3] == lines[other][1:3] and lines[one].peer == lines[other].peer
        return alike and not any(word in lines[one].text or word in lines[other].text for word in marked)

    best = (1, 1)
    for period in range(1, _PERIOD_MOST + 1):
        place = start + period
        while place < len(lines) and same(place, place - period):
            place += 1
        rounds = (place - start) // period
        if rounds >= _ROUNDS_LEAST and period * rounds > best[0] * best[1]:
            best = period, rounds
    return best


def names_in(text: str, lines: Sequence[Line]) -> list[str]:
    """What a failure's text names: publications, lanes, pubends (with their epochs), and what has a number."""
    lanes = {line.lane for line in lines}
    named = dict.fromkeys(f"#{number}" for number in re.findall(r"\bpublication (\d+)", text))
    for word in re.findall(r"[^\s,;:()\[\]'\"]+", text):
        name, at, _ = word.partition("@")
        numbered = re.search(r"[^\W\d]|#", name) and re.search(r"\d$", name)
        if name in lanes or (at and name) or numbered:
            named[name] = None
    return list(named)


def _matters(line: Line, words: Collection[str]) -> bool:
    if not words or line.lane == WORLD or line.kind in _TROUBLES:
        return True
    return line.lane in words or line.peer in words or any(word in words for word in _WORD.findall(line.text))


def _lanes(shown: Iterable[Line], lines: Iterable[Line]) -> tuple[str, ...]:
    taking_part: dict[str, None] = {}
    for line in shown:
        taking_part.update({line.lane: None, **({line.peer: None} if line.peer else {})})
    taking_part.pop(WORLD, None)
    brokers, publishers, subscribers = (_who(lines, kinds) for kinds in (("boot",), ("publishes",), ("attached",)))

    def place(lane: str) -> tuple[int, str]:
        if lane in brokers:
            return 1, lane
        return 0 if lane in publishers and lane not in subscribers else 2, lane

    return tuple(sorted(taking_part, key=place))


def _who(lines: Iterable[Line], kinds: tuple[str, ...]) -> set[str]:
    return {line.lane for line in lines if line.kind in kinds}
