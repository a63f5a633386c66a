"""The log has so many lines a minute, and a count of the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from gapless.core.alarms import Note, Subject
from gapless.node.noting import LINES_MAX, Notes


class Clock:
    """A loop of which only timers are used, which a test lets end."""

    def __init__(self) -> None:
        self.timers: list[Clock.Timer] = []

    class Timer:
        def __init__(self, call: Callable[[], None]) -> None:
            self.call = call
            self.cancelled = False

        def cancel(self) -> None:
            self.cancelled = True

    def call_later(self, _seconds: float, call: Callable[..., None], *arguments: Any) -> Timer:
        self.timers.append(Clock.Timer(lambda: call(*arguments)))
        return self.timers[-1]


def notes_of(clock: Clock) -> tuple[Notes, list[str]]:
    lines: list[str] = []
    return Notes(cast("Any", clock), lambda note: lines.append(note.text)), lines


def test_beyond_so_many_a_minute_lines_are_counted() -> None:
    clock = Clock()
    notes, lines = notes_of(clock)

    for number in range(LINES_MAX + 7):
        notes.note(Note(Subject.CLIENT, f"client {number}"))
    notes.note(Note(Subject.PUBEND, "a pubend"))
    assert lines == [*(f"client {number}" for number in range(LINES_MAX)), "a pubend"], "each subject has its own"
    assert len(clock.timers) == 2
    clock.timers[0].call()
    notes.note(Note(Subject.CLIENT, "later"))

    assert lines[-2:] == ["7 more lines about clients within a minute were left out", "later"]


def test_a_minute_in_which_nothing_was_left_out_says_nothing() -> None:
    clock = Clock()
    notes, lines = notes_of(clock)

    notes.note(Note(Subject.CLIENT, "one"))
    clock.timers[0].call()

    assert lines == ["one"]


def test_at_the_end_it_says_what_it_has_counted() -> None:
    clock = Clock()
    notes, lines = notes_of(clock)
    for number in range(LINES_MAX + 1):
        notes.note(Note(Subject.SUBSCRIPTION, f"{number}"))

    notes.close()

    assert lines[-1] == "1 more lines about subscriptions within a minute were left out"
    assert clock.timers[0].cancelled
