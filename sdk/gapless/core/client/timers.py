"""What the client's deadlines are for."""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias


class Timer(Enum):
    """What a deadline is for."""

    CONNECT = "connect"
    """Dial again; or give up a dial or a greeting that takes too long."""
    HEARTBEAT = "heartbeat"
    """Say something, if nothing was said."""
    SILENCE = "silence"
    """Judge the link dead, if nothing was heard."""
    ACKNOWLEDGE = "acknowledge"
    """Send the acknowledgements that have gathered."""
    PUBLISHER = "publisher"
    """Send again, or open again, what was put off."""
    SUBSCRIPTION = "subscription"
    """Attach again."""
    QUESTION = "question"
    """Ask again."""
    RANGE = "range"
    """Ask again for a range or a lease."""


Key: TypeAlias = "tuple[Timer, int]"
"""What for, and for which publisher or subscription (0: for the connection)."""
