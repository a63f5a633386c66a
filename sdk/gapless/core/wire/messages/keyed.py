"""Keyed publishing: batches that carry their own number (protocol: keyed-publishing)."""

from __future__ import annotations

import msgspec

from gapless.core.stream.columns import EventColumns
from gapless.core.stream.ticks import PubendId
from gapless.core.wire.messages.base import ServerMessage
from gapless.core.wire.messages.publishing import TickRun


class PublishKeyed(msgspec.Struct, frozen=True):
    """Events index, index + 1, … of a producer's epoch. Those at or below its mark are dropped. Binary on the wire."""

    request: int
    epoch: int
    index: int
    producer: str
    topic: str
    """The topic by which the producer is assigned to a pubend; "": by its name alone."""
    events: EventColumns


class KeyedPublished(ServerMessage, frozen=True, tag=50):
    """Answers PublishKeyed, durably. `ticks`: of the events that were logged, which are the last ones of the batch."""

    request: int
    pubend: PubendId
    ticks: list[TickRun]
    durable: bool | None = None
    """As in `Published`."""
