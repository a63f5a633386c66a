"""How the demo's processes tell their supervisor how far they are, and that it is gone.

Each report is a line of JSON on the standard output. The standard input stays open, and silent, for as
long as the supervisor lives: its end is the end of the process, so that none is left behind.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from time import monotonic
from typing import Any, Final

EVERY: Final = 0.05
"""Seconds between two reports that are not asked for."""


class Reporter:
    """Writes reports, not more of them than anybody can read."""

    def __init__(self) -> None:
        self._due = 0.0

    def report(self, **fields: Any) -> None:
        """Reports now."""
        self._due = monotonic() + EVERY
        sys.stdout.write(json.dumps(fields) + "\n")
        sys.stdout.flush()

    @property
    def is_due(self) -> bool:
        """Whether the last report is long enough ago."""
        return monotonic() >= self._due


def die_with_parent() -> None:
    """From now on this process ends at once when its standard input does."""

    def watch() -> None:
        while sys.stdin.buffer.read(4096):
            pass
        os._exit(3)

    threading.Thread(target=watch, name="parent", daemon=True).start()
