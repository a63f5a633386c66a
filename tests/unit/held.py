"""How much an object holds, whatever it is made of: for tests that nothing is left behind."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType

_SHARED = (type, ModuleType, FunctionType, BuiltinFunctionType, CodeType, str, bytes, int, float, bool, type(None))
"""What others use, too, or what holds nothing."""
_CONTAINERS = (dict, list, set, frozenset, deque)


def held(*roots: object) -> int:
    """The number of entries in all containers that can be reached from these objects, and of the objects on the way."""
    seen: dict[int, object] = {}
    waiting = list(roots)
    while waiting:
        one = waiting.pop()
        if id(one) not in seen and not isinstance(one, _SHARED):
            seen[id(one)] = one
            waiting += gc.get_referents(one)
    return sum(1 + (len(one) if isinstance(one, _CONTAINERS) else 0) for one in seen.values())


def assert_nothing_is_left(holder: object, come_and_go: Callable[[int], object]) -> None:
    """What comes and goes, each time under another number, leaves nothing: `holder` does not grow."""
    for number in range(3):
        come_and_go(number)
    before = held(holder)
    for number in range(3, 10):
        come_and_go(number)
    assert held(holder) == before
