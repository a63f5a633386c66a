"""How much memory an object holds."""

from __future__ import annotations

import gc
import sys
from types import BuiltinFunctionType, FunctionType, ModuleType

from msgspec import Struct
from msgspec.structs import astuple


def deep_size(root: object) -> int:
    """Bytes of an object and of everything that it alone or with others refers to, but for code.

    Classes, modules and the globals of functions are not counted; what a closure holds is.
    """
    seen: set[int] = set()
    stack: list[object] = [root]
    total = 0
    while stack:
        thing = stack.pop()
        if id(thing) in seen or isinstance(thing, (type, ModuleType, BuiltinFunctionType)):
            continue
        seen.add(id(thing))
        total += sys.getsizeof(thing)
        if isinstance(thing, FunctionType):
            stack.extend(cell for cell in thing.__closure__ or ())
        elif isinstance(thing, Struct):  # the collector does not know what one with gc=False refers to
            stack.extend(astuple(thing))
        else:
            stack.extend(gc.get_referents(thing))
    return total
