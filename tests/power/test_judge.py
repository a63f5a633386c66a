"""A judge who finds everything right proves nothing: each fault is found."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from power.examine import Found
from power.judge import Judge
from power.promises import Owed
from power.workload import Logged, Truth

EVENTS = [
    Logged("a", 1, 10, "aa", "even"),
    Logged("b", 1, 20, "bb", "odd"),
    Logged("a", 2, 30, "cc", "even"),
    Logged("a", 3, 40, "dd", "even"),
]
TRUTH = Truth(EVENTS, {"all": "", "even": "even"})
OWED = Owed(
    events=tuple(EVENTS[:3]),
    sequences={"a": 2, "b": 1},
    horizon=35,
    subscriptions={"all": 5, "even": 5},
    possible=frozenset({"all", "even"}),
    acknowledged={"all": 10},
)


def found() -> Found:
    """What is right."""
    return Found(
        lost=5,
        sequences={"a": 3, "b": 1},
        acknowledged={"all": 10, "even": 5},
        events={
            "all": [(20, "bb", "t.b"), (30, "cc", "t.a"), (40, "dd", "t.a")],
            "even": [(10, "aa", "t.a"), (30, "cc", "t.a"), (40, "dd", "t.a")],
        },
        marker=50,
    )


def test_what_is_right_is_right() -> None:
    assert Judge(TRUTH).faults(found(), OWED) == []


def test_what_nobody_was_told_of_may_be_missing() -> None:
    less = found()
    for events in less.events.values():
        events.pop()
    less.sequences["a"] = 2

    assert Judge(TRUTH).faults(less, OWED) == []


FAULTS: dict[str, Callable[[Found], object]] = {
    "is lost": lambda found: found.events["even"].pop(1),
    "recovers 1": lambda found: found.sequences.update(a=1),
    "was decided": lambda found: setattr(found, "marker", 35),
    "subscription all is lost": lambda found: [found.acknowledged.pop("all"), found.events.pop("all")],
    "must not be": lambda found: [found.acknowledged.update(gone=5), found.events.update(gone=[])],
    "began at 5": lambda found: found.acknowledged.update(even=4),
    "begins behind": lambda found: setattr(found, "lost", 6),
    "and a new event got": lambda found: found.acknowledged.update(even=50),
    "event 1 of b, tick 20, is lost": lambda found: [
        found.acknowledged.update(all=20),
        found.events["all"].pop(0),
    ],
    "two contents": lambda found: found.events["all"].__setitem__(0, (20, "cc", "t.a")),
    "nobody has published": lambda found: found.events["all"].__setitem__(2, (41, "ee", "t.a")),
    "out of order": lambda found: found.events["all"].reverse(),
    "is there twice": lambda found: found.events["all"].append((45, "dd", "t.a")),
    "a reason": lambda found: setattr(found, "refusal", "a reason"),
    "trouble": lambda found: setattr(found, "trouble", "trouble"),
}


@pytest.mark.parametrize("words", FAULTS)
def test_every_fault_is_found(words: str) -> None:
    wrong = found()
    FAULTS[words](wrong)
    if "gone" in wrong.acknowledged:
        TRUTH.parities["gone"] = ""

    assert any(words in fault for fault in Judge(TRUTH).faults(wrong, OWED))
