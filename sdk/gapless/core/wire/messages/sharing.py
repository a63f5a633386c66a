"""Shared subscriptions: each event is held by one consumer, and settled by itself (protocol: shared-subscriptions).

    client                                   SHB
    Subscribe(sharing=…)              ──▶    the instance stands in the roster, durably, before its first delivery
                                      ◀──    Subscribed, without positions
    Credit                            ──▶
                                      ◀──    DeliverHeld: events, their delivery numbers, attempts, careful
    Take, if it was careful           ──▶    counts an attempt, durably
                                      ◀──    Taken: now they may be handed out
    Settle(number, verdicts)          ──▶    one write
                                      ◀──    Settled(number, lost)
    Settle(RELEASE …), Detach         ──▶    the goodbye: what was never handed out is as it was before

A hold is named by its pubend, its tick and its delivery number, which is another one for each delivery of an event. A
settlement is numbered by its instance, so that it can be repeated: it is answered as it was.
"""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Final

import msgspec

from gapless.core.stream.ticks import PubendId
from gapless.core.wire.delivered import DeliveredColumns
from gapless.core.wire.messages.base import ClientMessage, Number, RealTick, ServerMessage
from gapless.core.wire.token_room import ID_BYTES_MAX, PUBENDS_MAX

WINDOW_MAX: Final = 1 << 20
"""More unsettled events than this no subscription may have."""
UNANSWERED_MAX: Final = 64
"""So many settlements of an instance may be without an answer."""
RUN_MAX: Final = 64
"""So many events are taken at once."""
MILLISECONDS_MAX: Final = 1 << 42
"""A hundred years."""

Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=MILLISECONDS_MAX)]


class Holds(msgspec.Struct, array_like=True, frozen=True):
    """Events of a pubend that are held: ticks in order, and the number of the delivery of each."""

    pubend: Annotated[PubendId, msgspec.Meta(max_length=ID_BYTES_MAX)]
    ticks: Annotated[tuple[RealTick, ...], msgspec.Meta(max_length=WINDOW_MAX)]
    numbers: Annotated[tuple[Number, ...], msgspec.Meta(max_length=WINDOW_MAX)]
    """As many as ticks."""


class Kind(str, Enum):
    """What an application says of an event."""

    ACKNOWLEDGE = "acknowledge"
    """It is done with it."""
    RETRY = "retry"
    """It is to come again, after a delay."""
    RELEASE = "release"
    """It was never handed out, and is as it was before it was delivered. Its consumer is given nothing more until it
    grants credit again: so whoever leaves gives back what it has, waits for the answer, gives back what came meanwhile,
    and says Detach."""


class Verdict(msgspec.Struct, array_like=True, frozen=True):
    """What an application says of events of one pubend."""

    kind: Kind
    holds: Holds
    delay_ms: Milliseconds = 0
    """Of RETRY."""


class Sharing(msgspec.Struct, array_like=True, frozen=True):
    """How a consumer of a shared subscription wants to take part."""

    window: Annotated[int, msgspec.Meta(ge=1, le=WINDOW_MAX)]
    """How many events may be unsettled, if the subscription is created now."""
    durable: bool
    """Whether it lives on without consumers, if it is created now."""
    hold_ms: Milliseconds = 0
    """After how long a hold of this consumer ends by itself; 0: never."""
    resume_ms: Milliseconds = 5_000
    """For how long its events are kept for it when its link is lost."""
    holds: Annotated[tuple[Holds, ...], msgspec.Meta(max_length=PUBENDS_MAX)] = ()
    """What it holds from before: it goes on with these. Also what it has given a verdict on that has no answer yet.

    What is not named never reached it, and is free again as it was."""
    embedded: bool = False
    """Whether it is in the broker's process, and dies with it: then nobody waits for it after a crash."""


class DeliverHeld(msgspec.Struct, frozen=True):
    """Events of one pubend for one consumer, which holds them from now on. Binary on the wire."""

    sid: int
    number: int
    """Of the pubend, as in `Deliver`."""
    first: int
    """The delivery number of the first event. Those of the others follow it."""
    careful: bool
    """Whether they may have been handed out before: then Take comes before they are handed out."""
    attempts: bytes
    """How often each was taken or retried before, 255 at most; empty: none of them was."""
    columns: DeliveredColumns


class DeliverHeldGap(ServerMessage, frozen=True, tag=70):
    """Events in (start, end] may have been lost. It is held and settled like an event, by its end."""

    sid: int
    number: int
    """Of the pubend."""
    held: int
    """Its delivery number."""
    careful: bool
    attempts: int
    start: int
    end: int
    reason: str


class Take(ClientMessage, frozen=True, tag=70):
    """The events are about to be handed out: that is one more attempt for each."""

    sid: Number
    holds: Holds


class Taken(ServerMessage, frozen=True, tag=71):
    """Answers Take. The attempts are durable."""

    sid: int
    first: int
    """The delivery number of the first event that was named."""
    lost: tuple[int, ...] = ()
    """The delivery numbers of those that are no longer held: they are not handed out."""


class Settle(ClientMessage, frozen=True, tag=71):
    """The verdicts on what a consumer held. Settled answers it when they are durable."""

    sid: Number
    number: Number
    """Counts the settlements of the instance. A repeated one has the number that it had."""
    verdicts: Annotated[tuple[Verdict, ...], msgspec.Meta(max_length=4 * PUBENDS_MAX)]


class Settled(ServerMessage, frozen=True, tag=72):
    """Answers Settle, durably."""

    sid: int
    number: int
    lost: tuple[Holds, ...] = ()
    """What it did not hold any more: others have got it, or may get it."""
    uncertain: bool = False
    """Whether the SHB does not know any more what became of this settlement: its row has gone."""


class Extend(ClientMessage, frozen=True, tag=72):
    """The consumer still works on these: the time of their holds begins anew. Nothing answers it."""

    sid: Number
    holds: Holds


class HoldLost(ServerMessage, frozen=True, tag=73):
    """These are not held any more: their time was over, or another instance has resumed them.

    Of what has a verdict without an answer that says nothing: Settled does.
    """

    sid: int
    holds: tuple[Holds, ...]
