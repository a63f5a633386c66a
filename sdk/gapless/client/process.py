"""What all connections of this process have in common."""

from __future__ import annotations

import os
from secrets import token_hex

from gapless.core.client.link.attempts import Attempts

_attempts = Attempts(token_hex(16))


def attempts_of_process() -> Attempts:
    """Returns the count of this process's requests to attach."""
    return _attempts


def _renew() -> None:
    global _attempts  # noqa: PLW0603 - a forked child is another process
    _attempts = Attempts(token_hex(16))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
