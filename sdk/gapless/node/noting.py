"""What happens in a broker, in its log: so many lines a minute of each subject, and then a count."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from gapless.core.alarms import Note, Subject

LINES_MAX: Final = 60
"""So many lines about one subject are written in a minute."""
MINUTE: Final = 60.0


class Notes:
    """Writes notes, and counts those beyond the limit. A thousand clients that come back are no thousand lines."""

    def __init__(self, loop: asyncio.AbstractEventLoop, write: Callable[[Note], None]) -> None:
        self._loop = loop
        self._write = write
        self._written: dict[Subject, int] = {}
        self._left_out: dict[Subject, int] = {}
        self._timers: dict[Subject, asyncio.TimerHandle] = {}

    def note(self, note: Note) -> None:
        """Writes a note, or counts it."""
        subject = note.subject
        if subject not in self._timers:
            self._timers[subject] = self._loop.call_later(MINUTE, self._end_minute, subject)
        if self._written.get(subject, 0) < LINES_MAX:
            self._written[subject] = self._written.get(subject, 0) + 1
            self._write(note)
        else:
            self._left_out[subject] = self._left_out.get(subject, 0) + 1

    def close(self) -> None:
        """Writes what was counted and not told yet."""
        for subject, timer in list(self._timers.items()):
            timer.cancel()
            self._end_minute(subject)

    def _end_minute(self, subject: Subject) -> None:
        del self._timers[subject]
        self._written.pop(subject, None)
        left_out = self._left_out.pop(subject, 0)
        if left_out:
            text = f"{left_out:,} more lines about {subject.value} within a minute were left out"
            self._write(Note(subject, text))
