"""What a forked child does with the databases of its parent: nothing, and it ends in peace.

The child has a copy of every object, and none of RocksDB's threads. If it closed a database, it would write into files
that its parent uses. And RocksDB waits for its threads when a process ends, which is a segmentation fault where they
never were. So the child leaves the databases alone, and skips what C++ has registered for the end of the parent.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from typing import Protocol
from weakref import WeakSet


class Inherited(Protocol):
    """What a child has inherited."""

    def leave_to_parent(self) -> None:
        """This is the child: nothing may be done with it any more. No lock may be waited for."""


_open: WeakSet[Inherited] = WeakSet()
_noted = False
"""Whether RocksDB was ever used here: its threads outlive its databases."""


def note(opened: Inherited) -> None:
    """A forked child leaves this alone."""
    global _noted  # noqa: PLW0603 - of the process, as RocksDB's threads are
    _noted = True
    _open.add(opened)


def _in_child() -> None:
    if not _noted:
        return
    for opened in list(_open):
        opened.leave_to_parent()
    with suppress(OSError, AttributeError):  # not every C library has both; then the child has to call os._exit
        _end_quietly(ctypes.CDLL(None))


def _end_quietly(libc: ctypes.CDLL) -> None:
    """Lets `exit` end the process before it runs what the parent has registered; what runs last is named first."""
    libc.on_exit(ctypes.cast(libc._exit, ctypes.c_void_p), None)  # noqa: SLF001 - its name in C
    getattr(libc, "__cxa_atexit")(ctypes.cast(libc.fflush, ctypes.c_void_p), None, None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
