"""Whoever reads a clock, draws from the system's randomness or touches the world outside in a run, is caught.

What a run does must follow from its seed alone. The lint of the cores sees most of what would break that;
these wires see the rest while a world runs. `datetime.now()` reads the clock in C and slips through; the
lint knows that one.
"""

from __future__ import annotations

import os
import random
import sys
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

_armed = [False]
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
    for module, name, _ in originals:
        setattr(module, name, _trap(f"{module.__name__}.{name}"))
    _armed[0] = True
    try:
        yield
    finally:
        _armed[0] = False
        for module, name, original in originals:
            setattr(module, name, original)


def _on_audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _armed[0] and event.startswith(FORBIDDEN_EVENTS):
        _armed[0] = False  # what reports this may open files
        raise Impure(f"{event}{arguments[:2]} in the middle of a run")


def _trap(name: str) -> Callable[..., Any]:
    def trapped(*_: Any, **__: Any) -> Any:
        raise Impure(f"{name}() in the middle of a run")

    return trapped
