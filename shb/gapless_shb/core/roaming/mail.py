"""The messages between SHBs about a subscription that is consumed away from its home (protocol: roaming).

All of it is mail: lossy, repeated, unordered (C10). So every message says which process sent it, and which question,
attachment or attachment it is about, so that its receiver recognises one that comes again, or too late.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import msgspec

from gapless.core.foreign import UNREADABLE
from gapless.core.network.bytes_above import BytesAbove
from gapless.core.network.facts import MAIL_BYTES_MAX, BrokerId, Post, Real
from gapless.core.outbox import Outbox
from gapless.core.principals import SentPrincipal
from gapless.core.stream.ticks import PubendId, ShbId, Tick
from gapless.core.wire.messages import (
    Acknowledged,
    Attach,
    Code,
    Done,
    InUse,
    Position,
    RequestFailed,
    Subscribe,
    Subscribed,
    Unit,
    Unsubscribe,
)
from gapless.core.wire.messages.base import Process

ROLE = "shb"
"""The role that gets this mail."""


class Row(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Where a subscription stands on a pubend, as its home knows; `released` may not be durable yet."""

    pubend: PubendId
    start: Real
    acked: Real
    acked_event: Real
    released: Real
    nothing_upto: Real = 0


class Standing(msgspec.Struct, array_like=True, frozen=True):
    """Where a subscription stands on all pubends that its home knows, and where it begins on others."""

    rows: tuple[Row, ...] = ()
    late_start: Real = 0
    starts: dict[PubendId, Real] = {}
    start_wall: Real = 0
    """The time that it asked to begin at; 0: it did not, or its home is too old to say. With one, it begins on a pubend
    that neither names and whose ticks are no times only when its home has found its place there."""


class LostRange(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Ticks that are lost, somewhere in (lo, hi]: a guest asks which of them concern its subscription."""

    pubend: PubendId
    lo: Real
    hi: Real


class Matched(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What the home's PFS knows of a doubt: of all ticks in (lo, upto] the subscription has matched `ticks` alone."""

    pubend: PubendId
    lo: Real
    upto: Real
    ticks: tuple[Real, ...]


class Ask(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """To the home: the request of a client at another SHB. It is repeated until `Answer`."""

    sender: ShbId
    life: Real
    """Names the sender's process; a later one has a higher one."""
    number: Real
    """Of the question, rising in a life."""
    floor: Real
    """All questions with lower numbers are over."""
    client_id: str
    instance: str
    principal: SentPrincipal
    create: bool
    """Whether a subscription that does not exist is created."""
    request: Subscribe | Unsubscribe | Attach


class Working(msgspec.Struct, array_like=True, frozen=True, tag=2):
    """From the home: the question has arrived, and its answer takes longer."""

    sender: ShbId
    life: Real
    """The life of the SHB that asked, as in the messages below."""
    number: Real


class Answer(msgspec.Struct, array_like=True, frozen=True, tag=3):
    """From the home: the answer to a question. With `Subscribed`, the asking SHB has the attachment."""

    sender: ShbId
    life: Real
    number: Real
    message: Subscribed | RequestFailed | Done
    standing: Standing = Standing()


class Renew(msgspec.Struct, array_like=True, frozen=True, tag=4):
    """To the home: the consumer is still here. It is sent every few seconds, and sooner when there is news."""

    sender: ShbId
    life: Real
    question: Real
    """The number of this renewal; its answer has what the home knew after the renewal had arrived."""
    home: ShbId
    sid: Real
    generation: Real
    attachment: Real
    """The number of the question with which the consumer came; also if the home was silent then."""
    client_id: str
    instance: str
    acknowledged: tuple[Acknowledged, ...] = ()
    in_use: InUse | None = None
    """What the client wants if there is another consumer; None once the home has answered since its attachment."""
    leaves: bool = False
    """Whether the consumer has gone. Then it is repeated until `Ended`."""
    handed: tuple[Unit, ...] | None = None
    """With `leaves`: the units that a consumer was handed and did not commit; None: it did not leave in order."""
    cleared: tuple[PubendId, ...] | None = None
    """As in `Detach`."""
    attempt: Real = 0
    """The attempt of the client's request to attach."""
    wants: Real = 0
    """The digest of the filter that the consumer is served with; 0: from an SHB that is too old to send it."""
    nothing_upto: tuple[Position, ...] = ()
    """Up to where the sender found nothing to send. The application need not have acknowledged that."""
    process: Process = ""
    """With `asked`: as in `Subscribe`."""
    doubts: tuple[LostRange, ...] = ()
    """Lost ticks of which the guest is not told before the home has answered."""
    asked: Real = 0
    again: bool = False
    """Whether its client had the subscription before it came to the sender."""
    principal: SentPrincipal | None = None
    """Of the client; None: from an SHB that is too old to send it."""


class Renewed(msgspec.Struct, array_like=True, frozen=True, tag=5):
    """From the home: the attachment goes on."""

    sender: ShbId
    life: Real
    question: Real
    sid: Real
    attachment: Real
    standing: Standing
    matched: tuple[Matched, ...] = ()
    """Of the renewal's doubts those of which the PFS knows something."""


class Ended(msgspec.Struct, array_like=True, frozen=True, tag=6):
    """From the home: the attachment is over, for this reason. `CLOSED`: as its holder wanted."""

    sender: ShbId
    life: Real
    sid: Real
    attachment: Real
    code: Code
    reason: str


class CommitAtHome(msgspec.Struct, array_like=True, frozen=True, tag=7):
    """To the home: the commit of a consumer. It is repeated until `CommittedAtHome`."""

    sender: ShbId
    life: Real
    home: ShbId
    sid: Real
    attachment: Real
    epoch: Real
    number: Real
    positions: tuple[Acknowledged, ...]
    unit: Unit | None
    enlists: PubendId = ""


class CommittedAtHome(msgspec.Struct, array_like=True, frozen=True, tag=8):
    """From the home: the commit is durable."""

    sender: ShbId
    life: Real
    sid: Real
    attachment: Real
    number: Real


class Withdraw(msgspec.Struct, array_like=True, frozen=True, tag=10):
    """To the home: the client that asked has gone, so what still waits must not be done for it any more."""

    sender: ShbId
    life: Real
    number: Real
    """Of the question."""


Mail: TypeAlias = (
    Ask | Working | Answer | Renew | Renewed | Ended | CommitAtHome | CommittedAtHome | Withdraw | BytesAbove
)

MailHandler: TypeAlias = "Callable[[BrokerId, Any, int, int], None]"
"""(the node that has sent it, the message, now, wall)."""

_encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[Mail] = msgspec.msgpack.Decoder(Mail)


def encode(mail: Mail) -> bytes | None:
    """Returns the bytes of a message; None if they are more than one mail may have."""
    data = _encode(mail)
    return data if len(data) <= MAIL_BYTES_MAX else None


def post(outbox: Outbox, node: BrokerId, mail: Mail) -> bool:
    """Sends a message to the SHB of a node. Returns whether it could be sent: it may be too large."""
    data = encode(mail)
    if data is not None:
        outbox.emit(Post(node, ROLE, data))
    return data is not None


def decode(data: bytes) -> Mail | None:
    """Returns the message; None if the bytes are none that this version knows."""
    try:
        return _decoder.decode(data)
    except UNREADABLE:
        return None


def ticks_of(mail: Mail) -> Iterator[tuple[PubendId, Tick]]:
    """Yields the highest ticks that a message names, as its sender knows them (protocol: possible-ticks).

    Ticks of applications, in requests and commits, are not among them: the home judges those as its own clients' ticks.
    """
    if isinstance(mail, Answer | Renewed):
        for row in mail.standing.rows:
            yield row.pubend, max(row.start, row.acked, row.acked_event, row.released, row.nothing_upto)
        yield from mail.standing.starts.items()
    if isinstance(mail, Renewed):
        for matched in mail.matched:
            yield matched.pubend, max(matched.lo, matched.upto, *matched.ticks)
    elif isinstance(mail, Renew):
        yield from ((position.pubend, max(position.tick, position.event)) for position in mail.acknowledged)
        yield from ((position.pubend, position.tick) for position in mail.nothing_upto)
        yield from ((doubt.pubend, max(doubt.lo, doubt.hi)) for doubt in mail.doubts)
