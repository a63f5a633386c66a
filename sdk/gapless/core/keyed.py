"""How a producer of keyed batches is named among publishers: as none of them can be, so that neither meets the other.

On its way to the pubend a keyed batch is a publish like others: `Pub.publisher` is the marked name, `Pub.epoch` and
`Pub.first` are the key of its first event. Routers see nothing of that.
"""

from __future__ import annotations

from typing import Final

MARKER: Final = "\x01"
"""Begins the marked name. A publisher's own name can be printed, so it has no such character."""


def marked(producer: str) -> str:
    """The name under which a producer is known among publishers."""
    return MARKER + producer


def is_keyed(publisher: str) -> bool:
    """Whether a publisher is a producer of keyed batches."""
    return publisher.startswith(MARKER)


def producer_of(publisher: str) -> str:
    """The producer behind a marked name; another name as it is."""
    return publisher.removeprefix(MARKER)
