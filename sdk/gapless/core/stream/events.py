"""Events: the publisher encodes them once, and nobody encodes them again.

On the wire an event is one msgpack array, `[topic, properties, extras, body]`, with the body last. Batches of events
are columns (see `columns`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta, timezone
from itertools import chain, repeat
from reprlib import Repr
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import msgspec

from gapless.core.stream.ticks import PubendId, Tick, time_at
from gapless.selectors.headers import PRIORITY, SENT_FIELDS, HeaderValues, sent_headers
from gapless.selectors.values import PLAIN

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from gapless.selectors.headers import SentHeaders

Property: TypeAlias = bool | int | float | str
Properties: TypeAlias = Mapping[str, Property]

_UNIX = datetime(1970, 1, 1, tzinfo=timezone.utc)

_short = Repr()
_short.maxstring = _short.maxother = 80
_short.maxdict = 12


def shorten(value: object) -> str:
    """Returns a repr of bounded length, for texts that people read."""
    if isinstance(value, bytes) and len(value) > 60:
        return f"{value[:48]!r}… ({len(value):,} bytes)"
    return _short.repr(value)


class Extras(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The headers that a sender may set, apart from the topic; None instead of it if none is set.

    On the wire and in logs a field goes by its place. `timestamp` is the last one, which no sender sends. A field that
    is added behind it would be sent together with it; one that is put in front of it moves it, and what is logged with
    a timestamp would be read wrongly.
    """

    priority: int = PRIORITY
    expiration: int = 0
    """In milliseconds since 1970; 0 = never."""
    correlation_id: str = ""
    reply_to: str = ""
    type: str = ""
    timestamp: int = 0
    """When the event was logged, in milliseconds since 1970, where its tick is no time; 0 where it is one.

    No sender sets it: it comes from a log that numbers its records itself.
    """


def _sent(value: object) -> Any:
    """Returns a header's value in the form of the wire."""
    return max(1, (value - _UNIX) // timedelta(milliseconds=1)) if isinstance(value, datetime) else value


class _DocumentedOrder(msgspec.StructMeta):
    """Lets `match` take an event's fields in the order of the documentation.

    The fields themselves are in the order of the wire, so that a batch is decoded straight into events.
    """

    @property
    def __match_args__(cls) -> tuple[str, ...]:  # type: ignore[override]  # noqa: N805 - of a metaclass
        return ("topic", "body", "properties", "pubend", "tick")


class Event(msgspec.Struct, metaclass=_DocumentedOrder, array_like=True, gc=False):
    """One event, as a subscriber gets it. Treat it as immutable.

    In tests of your own code, `Event.make` makes events.
    """

    topic: str
    properties: dict[str, bool | int | float | str]
    extras: Extras | None
    """The headers that its sender set, in the form of the wire; use the properties to read them."""
    body: bytes
    tick: Tick = 0
    pubend: PubendId = ""
    delivery_count: int = 1

    @classmethod
    def make(
        cls,
        topic: str,
        body: bytes = b"",
        properties: Properties | None = None,
        *,
        pubend: PubendId = "",
        tick: Tick = 0,
        delivery_count: int = 1,
        **headers: Unpack[SentHeaders],
    ) -> Event:
        """Makes an event like those from a broker, without any checks. `headers` are those of a `Message`."""
        extras = Extras(**{name: _sent(value) for name, value in headers.items() if value is not None})
        return cls(
            topic, dict(properties or {}), None if extras == Extras() else extras, body, tick, pubend, delivery_count
        )

    def __repr__(self) -> str:
        """Shows the event in one line of bounded length; of a long body or property it shows only the beginning."""
        shown = [f"topic={self.topic!r}", f"body={shorten(self.body)}", f"properties={shorten(self.properties)}"]
        shown += [f"pubend={self.pubend!r}", f"tick={self.tick}"]
        for field, value in zip(SENT_FIELDS, sent_headers(self), strict=True):
            if value != field.default:
                text = value.isoformat() if isinstance(value, datetime) else shorten(value)
                shown.append(f"{field.name}={text}")
        if self.redelivered:
            shown.append(f"delivery_count={self.delivery_count}")
        return f"Event({', '.join(shown)})"

    @property
    def message_id(self) -> str:
        """The event's id, unique in the network for ever: its pubend and its tick."""
        return f"ID:{self.pubend}:{self.tick}"

    @property
    def timestamp(self) -> datetime:
        """When the pubend logged the event, UTC, to the millisecond.

        Of an event in a log that numbers its records, it is the time that the record bears.
        """
        if self.extras and self.extras.timestamp:
            return _UNIX + timedelta(milliseconds=self.extras.timestamp)
        return time_at(self.tick)

    @property
    def priority(self) -> int:
        """0 to 9; 4 if the sender set none."""
        return self.extras.priority if self.extras else PRIORITY

    @property
    def expiration(self) -> datetime | None:
        """When the event expires, or None."""
        if not self.extras or not self.extras.expiration:
            return None
        return _UNIX + timedelta(milliseconds=self.extras.expiration)

    @property
    def correlation_id(self) -> str | None:
        """The sender's reference to another event or request, or None."""
        return (self.extras and self.extras.correlation_id) or None

    @property
    def reply_to(self) -> str | None:
        """The topic for an answer, or None."""
        return (self.extras and self.extras.reply_to) or None

    @property
    def type(self) -> str | None:
        """The sender's name for the kind of event, or None."""
        return (self.extras and self.extras.type) or None

    @property
    def headers(self) -> Mapping[str, bool | int | float | str | None]:
        """The header fields under their JMS names, as a selector sees them: for `Selector.matches`."""
        return HeaderValues(self)

    @property
    def redelivered(self) -> bool:
        """Whether the event was handed out before."""
        return self.delivery_count > 1


Long: TypeAlias = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""A signed 64-bit integer. msgpack alone would also accept unsigned ones."""


class Header(msgspec.Struct, array_like=True, gc=False):
    """The part of an event that matching needs; the body is skipped while decoding."""

    topic: str
    properties: dict[str, bool | Long | float | str]
    extras: Extras | None


Finite: TypeAlias = Annotated[float, msgspec.Meta(ge=-1.7976931348623157e308, le=1.7976931348623157e308)]
"""A number that is not infinite: selectors can compare it."""
Name: TypeAlias = Annotated[str, msgspec.Meta(min_length=1)]


PlainMapping: TypeAlias = dict[Name, bool | Long | Finite | str]
PlainProperties: TypeAlias = list[PlainMapping]
"""The properties of several messages; msgspec checks the ranges of the values in one call, where they `are_plain`."""


def are_plain(properties: Iterable[Mapping[str, Any]]) -> bool:
    """Whether all values are of the exact types, with no Python step for each.

    msgspec alone would convert a Decimal to a float, and pass a subclass of str on, which it cannot encode. Raises
    TypeError for properties that are no dict.
    """
    return PLAIN.issuperset(map(type, chain.from_iterable(map(_values, properties))))


_values: Callable[[Any], Iterable[Any]] = dict.values


class CheckedExtras(Extras, array_like=True, frozen=True, forbid_unknown_fields=True, gc=False):
    """Extras in which every value is one that there can be; a seventh one could be nested without an end."""

    priority: Annotated[int, msgspec.Meta(ge=0, le=9)] = PRIORITY
    expiration: Annotated[int, msgspec.Meta(ge=0, lt=253_402_300_800_000)] = 0  # the year 10000
    timestamp: Annotated[int, msgspec.Meta(ge=0, lt=253_402_300_800_000)] = 0


class CheckedHeader(Header, array_like=True, forbid_unknown_fields=True, gc=False):
    """A header with all four parts of its event, each checked, and no fifth."""

    properties: dict[Name, bool | Long | Finite | str]
    extras: CheckedExtras | None
    body: bytes
    """A copy, for small events: a view takes more, and the collector of cycles would look at each."""


class LargeHeader(CheckedHeader, array_like=True, forbid_unknown_fields=True, gc=False):
    """The same of an event whose body is not copied."""

    body: memoryview  # type: ignore[assignment]


_encode = msgspec.msgpack.Encoder().encode


def encode_event(topic: str, properties: Mapping[str, Any], extras: Extras | None, body: bytes) -> bytes:
    """Encodes one event for the wire. The caller has checked the values."""
    if extras is not None and not extras.timestamp:  # what a sender encodes has no place for it
        return _encode((topic, properties, msgspec.structs.astuple(extras)[:-1], body))
    return _encode((topic, properties, extras, body))


def encode_events(
    topic: str, properties: Iterable[Mapping[str, Any]], extras: Iterable[Extras | None], bodies: Iterable[bytes]
) -> list[bytes]:
    """Encodes many events of one topic, with no Python step per event. The caller has checked the values."""
    return list(map(_encode, zip(repeat(topic), properties, extras, bodies)))
