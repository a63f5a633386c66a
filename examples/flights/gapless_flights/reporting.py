"""How the demo's processes tell their supervisor how far they are, and that it is gone.

Each report is a line of JSON on the standard output. The standard input stays open, and silent, until the
process is told to end in order, or the supervisor is gone: so none is left behind.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from time import monotonic, sleep
from typing import Any, Final

STDIN: Final = 0
GRACE: Final = 15.0
"""Seconds for an orderly end."""
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


class Stop:
    """Whether this process was told to end in order: by the end of its standard input.

    What `then` was given is called in the loop, at once if that was before it was given. A process that does not
    manage to end in order has lost its supervisor, and its broker: it just ends.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopped = False
        self._on_stop: list[Callable[[], None]] = []
        threading.Thread(target=self._watch, name="stdin", daemon=True).start()

    def __bool__(self) -> bool:
        return self._stopped

    def then(self, on_stop: Callable[[], None]) -> None:
        """What to do, too, when it comes to that."""
        self._on_stop.append(on_stop)
        if self._stopped:
            on_stop()

    def _watch(self) -> None:
        while os.read(STDIN, 4096):
            pass
        with suppress(RuntimeError):  # the loop is closed: the process is about to end
            self._loop.call_soon_threadsafe(self._stop)
        sleep(GRACE)
        os._exit(3)

    def _stop(self) -> None:
        self._stopped = True
        for on_stop in self._on_stop:
            on_stop()
