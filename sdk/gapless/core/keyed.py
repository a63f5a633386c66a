"""How a producer of keyed batches is named among publishers: as none of them can be, so that neither meets the other.

On its way to the pubend a keyed batch is a publish like others: `Pub.epoch` and `Pub.first` are the key of its first
event. Routers see nothing of that, and may take two batches of one publisher, epoch and first sequence for the same; a
producer that repeats itself may cut its batches differently. So a batch's name says how many events it has, too.
"""

from __future__ import annotations

from typing import Final

MARKER: Final = "\x01"
"""Begins the marked name, and ends the producer's. A publisher's own name can be printed: it has no such character."""


def marked(producer: str) -> str:
    """The name under which a producer is known among publishers."""
    return MARKER + producer


def batch_name(producer: str, epoch: int, count: int) -> str:
    """The name under which a batch of so many events is placed: another one's of the same key has another name."""
    return f"{MARKER}{producer}{MARKER}{epoch}/{count}"


def is_keyed(publisher: str) -> bool:
    """Whether a publisher is a producer of keyed batches, or one of its batches."""
    return publisher.startswith(MARKER)


def producer_of(publisher: str) -> str:
    """The producer behind a marked name, or behind that of a batch; another name as it is."""
    return publisher.removeprefix(MARKER).partition(MARKER)[0] if is_keyed(publisher) else publisher
