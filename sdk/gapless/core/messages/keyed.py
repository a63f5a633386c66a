"""Keyed publishing: a batch that says itself which it is (spark.md 6.8)."""

from __future__ import annotations

import msgspec

from gapless.core.columns import EventColumns
from gapless.core.messages.base import ServerMessage
from gapless.core.messages.publishing import TickRun
from gapless.core.ticks import PubendId


class PublishKeyed(msgspec.Struct, frozen=True):
    """Events index, index + 1, … of a producer's epoch; those at or below its mark are dropped. Binary on the wire."""

    request: int
    epoch: int
    index: int
    producer: str
    topic: str
    """What the producer is placed by; "": by its name alone."""
    events: EventColumns


class KeyedPublished(ServerMessage, frozen=True, tag=50):
    """Answers PublishKeyed, durably: the ticks of the events that were logged, the last ones of the batch."""

    request: int
    pubend: PubendId
    ticks: list[TickRun]
