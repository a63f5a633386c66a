"""Chooses who works on the bytes of a batch: the compiled `gapless_fast` where it is installed, else Python.

This is the only module that knows of both. `gapless.core.stream.batch_bytes` says what each function promises.
"""

from __future__ import annotations

from gapless.core.stream import batch_bytes

SERIES = "0.1."
"""The versions of `gapless_fast` that have these functions with these arguments; the extra `fast` asks for them."""

try:
    import gapless_fast

    if not gapless_fast.__version__.startswith(SERIES):
        raise ImportError(f"gapless_fast {gapless_fast.__version__} is not of the series {SERIES}")
except ImportError:
    COMPILED, VERSION = False, ""
    """Whether the compiled functions are used, and of which version."""
    column, gather, encode = batch_bytes.column, batch_bytes.gather, batch_bytes.encode
else:
    COMPILED, VERSION = True, gapless_fast.__version__
    column, gather, encode = gapless_fast.column, gapless_fast.gather, gapless_fast.encode


def check(blob: bytes, lengths: bytes, most: int) -> tuple[str | list[str], bool] | None:
    """Returns what `batch_bytes.check` returns; None if that has to judge, and say in words what is wrong."""
    if not COMPILED:
        return None
    try:
        topics, has_extras = gapless_fast.check(blob, lengths, most)
    except ValueError:
        return None
    return topics, has_extras
