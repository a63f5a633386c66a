"""Loggers whose records keep no connection waiting.

A logging handler of an application may block. One that publishes its records by a blocking connection does: it waits
for a receipt, and meanwhile it holds the lock that every handler has. If a thread that works for the connection had
something to log then, it would wait for that lock, and the handler for it. So where there are such connections, our own
threads hand their records over to another one, whose only work is to give them to their handlers.

    thread "gapless-…" ── record ──▶ queue ──▶ thread "gapless log" ──▶ handlers of the application

A broker or an application on an event loop of its own has no such thread: there everything is handled at once.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from queue import SimpleQueue
from typing import Final

RECORDS_MAX: Final = 10_000
"""So many records wait; later ones are dropped, and counted in the next one that is not."""
EXIT_SECONDS: Final = 1.0
"""So long the end of a process waits for the handlers of what was logged before."""

OURS: Final = ("gapless-", "asyncio_")
"""How the names of the threads begin that work for a connection: our own, and those of an event loop's executor."""
HANDLES: Final = "gapless log"


class _HandingOver(logging.Filter):
    """Lets pass what threads of the application log, and hands over what those of connections do."""

    def filter(self, record: logging.LogRecord) -> bool:
        if not _records.are_wanted or not threading.current_thread().name.startswith(OURS):
            return True
        _records.put(record)
        return False


class _Records:
    """Records on their way to their handlers."""

    def __init__(self) -> None:
        self.are_wanted = False
        """Whether there is, or was, a connection whose threads may wait for no handler."""
        self._queue: SimpleQueue[logging.LogRecord | threading.Event] = SimpleQueue()
        self._lost = 0
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def put(self, record: logging.LogRecord) -> None:
        """Takes a record. It never waits for a handler."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._handle_all, name=HANDLES, daemon=True)
                self._thread.start()
        if self._queue.qsize() >= RECORDS_MAX:
            self._lost += 1
            return
        if self._lost:
            record.msg, record.args = f"{record.getMessage()} (and {self._lost:,} records before it were dropped)", ()
            self._lost = 0
        self._queue.put(record)

    def flush(self, timeout: float) -> bool:
        """Waits until everything was handled that was taken before. Returns whether it was."""
        if self._thread is None:
            return True
        done = threading.Event()
        self._queue.put(done)
        return done.wait(timeout)

    def _handle_all(self) -> None:
        while True:
            item = self._queue.get()
            if isinstance(item, threading.Event):
                item.set()
            else:
                logging.getLogger(item.name).handle(item)


_records = _Records()
_handing_over = _HandingOver()


def logger(name: str) -> logging.Logger:
    """Returns the logger of that name: for all that may log in a thread of a connection."""
    found = logging.getLogger(name)
    found.addFilter(_handing_over)
    return found


def start_handing_over() -> None:
    """There is a blocking connection: from now on, another thread handles what those of connections log."""
    _records.are_wanted = True


def flush(timeout: float = EXIT_SECONDS) -> bool:
    """Waits until everything that was logged so far has been handled. Returns whether it has."""
    return _records.flush(timeout)


def _begin_again() -> None:
    """This is a forked child: the thread is not here, and what it had to do is its parent's."""
    global _records  # noqa: PLW0603 - its lock may be held for ever
    _records = _Records()


atexit.register(flush)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_again)
