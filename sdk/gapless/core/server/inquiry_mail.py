"""The mail of inquiries: a node asks another one, which answers in pages (protocol: inquiries).

Mail may be lost, repeated and reordered, and is small (C10). So an answer is cut into pages. Whoever asks names the
page that he needs next, and asks again until he has all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta, Struct

from gapless.core.foreign import UNREADABLE
from gapless.core.network.facts import MAIL_BYTES_MAX, Real
from gapless.core.principals import SentPrincipal
from gapless.core.wire.messages import (
    AskStatus,
    ListPubends,
    ListSubscriptions,
    PubendList,
    RequestFailed,
    Retire,
    Retired,
    Status,
    SubscriptionList,
)

MAILBOX: Final = "node"
"""The name under which a node itself has mail. No role may be called so."""
PAGE_BYTES: Final = 60_000
"""So much of an answer goes into one page."""
WINDOW: Final = 8
"""So many pages are sent for one question."""

InquiryMessage: TypeAlias = ListSubscriptions | ListPubends | Retire | AskStatus
AnswerMessage: TypeAlias = SubscriptionList | PubendList | Retired | Status | RequestFailed


class AskNode(Struct, array_like=True, frozen=True, tag=1):
    """A node asks another one for a client, from this page of the answer on."""

    question: Real
    """A number that the asking node has given to no other question, in none of its lives."""
    page: Real
    principal: SentPrincipal
    """Who the client is, as the asking node knows him."""
    client_id: str
    request: bytes


class AnswerPage(Struct, array_like=True, frozen=True, tag=2):
    """A page of an answer."""

    question: Real
    run: Real
    """Which answer it is a page of: whoever has forgotten a question answers it anew, perhaps differently."""
    page: Real
    pages: Real
    """How many there are; 0 while the answer is still being put together."""
    data: Annotated[bytes, Meta(max_length=PAGE_BYTES)]


Mail: TypeAlias = AskNode | AnswerPage

_encode = msgspec.msgpack.Encoder().encode
_decode_mail: msgspec.msgpack.Decoder[Mail] = msgspec.msgpack.Decoder(Mail)
_decode_request: msgspec.msgpack.Decoder[InquiryMessage] = msgspec.msgpack.Decoder(InquiryMessage)
_decode_answer: msgspec.msgpack.Decoder[AnswerMessage] = msgspec.msgpack.Decoder(AnswerMessage)
_decode_parts = msgspec.msgpack.Decoder(list[bytes]).decode


def encode_mail(mail: Mail) -> bytes | None:
    """Encodes mail; None if it is too large to be posted."""
    data = _encode(mail)
    return data if len(data) <= MAIL_BYTES_MAX else None


def decode_mail(data: bytes) -> Mail | None:
    """Decodes mail; None if it is none that this version knows."""
    try:
        return _decode_mail.decode(data)
    except UNREADABLE:
        return None


def encode_request(message: InquiryMessage) -> bytes:
    """Encodes what a client asks."""
    return _encode(message)


def decode_request(data: bytes) -> InquiryMessage | None:
    """Decodes what a client asks; None if it is nothing that this version knows."""
    try:
        return _decode_request.decode(data)
    except UNREADABLE:
        return None


def pages_of(answer: Sequence[AnswerMessage]) -> list[bytes]:
    """Cuts an answer into pages; there is at least one."""
    data = _encode([_encode(part) for part in answer])
    return [data[at : at + PAGE_BYTES] for at in range(0, len(data), PAGE_BYTES)]


def answer_of(pages: Sequence[bytes]) -> Iterator[AnswerMessage]:
    """Yields the messages of an answer from all of its pages. Each is decoded when it comes, for they may be large.

    Raises one of `UNREADABLE`: a node of another version may have sent them.
    """
    for part in _decode_parts(b"".join(pages)):
        yield _decode_answer.decode(part)
