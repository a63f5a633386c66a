"""Whoever reads a clock, draws from the system's randomness or touches the world outside in a run, is caught.

What a run does must follow from its seed alone. The lint of the cores sees most of what would break that;
these wires see the rest while a world runs. `datetime.now()` reads the clock in C and slips through; the
lint knows that one.

Only the thread that runs the world is watched. Others of its process are no part of the run: the server of a test, or a
collector of figures, may do what it likes.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

FORBIDDEN_EVENTS = ("open", "socket.", "subprocess.", "os.", "shutil.", "tempfile.", "urllib.", "_thread.start")
"""Audit events that nothing in a run may cause."""
PATCHED: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (time, ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "sleep")),
    (os, ("urandom", "getrandom")),
    (random, ("random", "randrange", "randint", "choice", "shuffle", "getrandbits", "randbytes")),
)

_NOBODY = 0
"""No thread has this number."""
_watched = [_NOBODY]
"""The thread that nothing outside of a run may reach through audit events."""
_hooked = [False]

# From 3.13 on, Python imports what it hashes a seed with when the first one is wanted: that must not be in a run.
random.Random("")  # noqa: S311 - no secret


class Impure(BaseException):
    """Something in a run reached outside of it. No exception that code could catch by mistake."""


@contextmanager
def determinism_guards() -> Iterator[None]:
    """Within, nothing but the run itself may decide what happens. Raises Impure in whoever breaks that."""
    if not _hooked[0]:
        _hooked[0] = True
        sys.addaudithook(_on_audit)
    originals = [
        (module, name, getattr(module, name)) for module, names in PATCHED for name in names if hasattr(module, name)
    ]
    here = threading.get_ident()
    for module, name, original in originals:
        setattr(module, name, _trap(f"{module.__name__}.{name}", original, here))
    _watched[0] = here
    try:
        yield
    finally:
        _watched[0] = _NOBODY
        for module, name, original in originals:
            setattr(module, name, original)


def _on_audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _watched[0] and event.startswith(FORBIDDEN_EVENTS) and _watched[0] == threading.get_ident():
        _watched[0] = _NOBODY  # what reports this may open files
        raise Impure(f"{event}{arguments[:2]} in the middle of a run")


def _trap(name: str, original: Callable[..., Any], watched: int) -> Callable[..., Any]:
    def trapped(*arguments: Any, **named: Any) -> Any:
        if threading.get_ident() != watched:
            return original(*arguments, **named)
        raise Impure(f"{name}() in the middle of a run")

    return trapped
