"""Gives memory that this process no longer uses back to the system.

The allocator of glibc keeps what was freed, for the next use, as long as something above it is in use. Hundreds of
connections that had much waiting leave so much there that a broker looks as if it leaked.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable


def trimmer() -> Callable[[], None]:
    """Returns a call that gives back what is free; it does nothing where the C library has no such call.

    It may take some milliseconds, and is meant for a thread: it does not hold the interpreter.
    """
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # another C library, or none that can be opened by that name
        return _nothing
    trim.argtypes = [ctypes.c_size_t]
    return lambda: trim(0)


def _nothing() -> None:
    """There is no such call."""
