"""Interrupts as a signal handler raises them, at each place where CPython would run one, one place after another.

CPython looks for signals where a function begins, and where a function written in C has returned. Both are told to a
profile function, and what that raises is raised there.
"""

from __future__ import annotations

import _weakrefset
import gc
import sys
import threading
import weakref
from collections.abc import Callable
from itertools import count
from types import FrameType
from typing import Any


class Interrupt(KeyboardInterrupt):
    """What the signal handler of these tests raises."""


class Place:
    """One place: entered, it raises in the block when so many places in other files than the caller's were passed."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.is_reached = False
        self.where = ""
        self._passed = 0
        self._own: set[str] = set()

    def __enter__(self) -> None:
        # Where an object ends what is raised is lost in the interpreter, and so is an interrupt. And a Condition that
        # is interrupted may release what it does not hold: here only threads that begin have one.
        theirs = {module.__file__ for module in (weakref, _weakrefset, threading)}
        self._own = {__file__, sys._getframe(1).f_code.co_filename, *filter(None, theirs)}
        gc.disable()  # what its callbacks raise is lost in the interpreter, too
        sys.setprofile(self._look)

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        gc.enable()

    def _look(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event not in ("call", "c_return") or frame.f_code.co_filename in self._own:
            return
        self._passed += 1
        if self._passed == self.number:
            sys.setprofile(None)
            self.is_reached = True
            self.where = f"{event} of {frame.f_code.co_name} in {frame.f_code.co_filename}:{frame.f_lineno}"
            raise Interrupt


def every_place(call: Callable[[Place], object]) -> int:
    """Calls this with one place after another, until one is not reached. Returns how many there are."""
    for number in count(1):
        place = Place(number)
        call(place)
        if not place.is_reached:
            return number - 1
    raise AssertionError
