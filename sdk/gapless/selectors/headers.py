"""The header fields of events, in one table: for senders, selectors, printed lines, Spark and archives.

A field that a selector may name has a JMS name. Its value is read from the event as the application has it, from the
attribute of the field's name. So a selector sees the same as `event.priority` and the other properties return; None is
NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from operator import attrgetter
from typing import Any, Final, Protocol, TypedDict

from gapless.errors import InvalidMessageError
from gapless.selectors.topics import check_topic
from gapless.selectors.values import Value, ValueKind
from gapless.texts import exact, text_problem

PRIORITY: Final = 4
"""The priority of an event whose sender sets none."""
PERSISTENT: Final = "PERSISTENT"
"""The delivery mode of every event; there is no other."""

APP_ID: Final = "JMSXAppID"
"""The property with which publishers that identify themselves say whose events they are."""

_UNIX: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MILLISECOND: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class HeaderField:
    """A header field of events."""

    name: str
    """The name of the attribute of `Message` and `Event`."""
    jms_name: str
    """The name in selectors; "" if they cannot name it."""
    type: type
    """The type of the value that applications set and get."""
    default: int | str | None
    """The value if the sender set nothing; None also for a field that only the broker knows."""
    check: Callable[[str, Any], int | str] | None
    """Returns the wire form of a sender's value, given the field's name and the value, which is not None.

    Raises InvalidMessageError or InvalidTopicError. None: senders cannot set this field.
    """
    is_fixed: bool = False
    """Whether every event has the default, and none an attribute for it."""

    @property
    def kind(self) -> ValueKind:
        """The kind of the value that selectors compare. A time is a number: milliseconds since 1970."""
        return ValueKind.STRING if self.type is str else ValueKind.NUMBER

    def reader(self) -> Callable[[object], Value]:
        """Returns a function that returns, of an event, the value that a selector compares; None is NULL."""
        if self.is_fixed:
            return lambda _event: self.default
        read: Callable[[object], Any] = attrgetter(self.name)
        return (lambda event: milliseconds(read(event))) if self.type is datetime else read


def _check_priority(_name: str, value: Any) -> int:
    if not isinstance(value, int) or not 0 <= value <= 9:
        raise InvalidMessageError(f"a priority is an int from 0 to 9, not {value!r}")
    return int(value)


def _check_text(name: str, value: Any) -> str:
    if problem := text_problem(value):
        raise InvalidMessageError(f"{name} {problem}")
    return exact(value)


def _check_topic(_name: str, value: Any) -> str:
    return check_topic(value)


def _check_time(name: str, value: Any) -> int:
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise InvalidMessageError(f"an {name} is a datetime with a time zone, not {value!r}")
    return max(1, (value - _UNIX) // _MILLISECOND)


def milliseconds(time: datetime | None) -> int | None:
    """Returns an aware time in the form for selectors: milliseconds since 1970."""
    return None if time is None else (time - _UNIX) // _MILLISECOND


HEADER_FIELDS: Final = (
    HeaderField("priority", "JMSPriority", int, PRIORITY, _check_priority),
    HeaderField("expiration", "", datetime, None, _check_time),
    HeaderField("correlation_id", "JMSCorrelationID", str, None, _check_text),
    HeaderField("reply_to", "", str, None, _check_topic),
    HeaderField("type", "JMSType", str, None, _check_text),
    HeaderField("message_id", "JMSMessageID", str, None, None),
    HeaderField("timestamp", "JMSTimestamp", datetime, None, None),
    HeaderField("delivery_mode", "JMSDeliveryMode", str, PERSISTENT, None, is_fixed=True),
)
"""All header fields. Those that a sender sets come first, in the order of `Message` and of the wire."""


class SentHeaders(TypedDict, total=False):
    """The header fields that a sender sets, as keyword arguments; None means absent."""

    priority: int
    expiration: datetime | None
    correlation_id: str | None
    reply_to: str | None
    type: str | None


SENT_FIELDS: Final = tuple(field for field in HEADER_FIELDS if field.check is not None)
"""The header fields that a sender sets."""

HEADER_KINDS: Final[Mapping[str, ValueKind]] = {field.jms_name: field.kind for field in HEADER_FIELDS if field.jms_name}
"""The header fields that a selector may name, and their kinds (Jakarta Messaging 3.1 section 3.8.1.1)."""

_READERS: Final = {field.jms_name: field.reader() for field in HEADER_FIELDS if field.jms_name}


sent_headers: Final[Callable[[Any], tuple[Any, ...]]] = attrgetter(*(field.name for field in SENT_FIELDS))
"""Returns the values of the fields that a sender sets, from a message or an event, in the order of `SENT_FIELDS`."""
SENT_DEFAULTS: Final = tuple(field.default for field in SENT_FIELDS)
"""The result of `sent_headers` if nothing is set."""


class HeaderValues(Mapping[str, Value]):
    """The header fields of an event by their JMS names, without NULL; each is read when it is needed."""

    __slots__ = ("_event",)

    def __init__(self, event: object) -> None:
        self._event = event

    def get(self, name: str, default: Any = None) -> Any:
        """Returns the value of a field; `default` if it is NULL, or if there is no such field."""
        read = _READERS.get(name)
        value = None if read is None else read(self._event)
        return default if value is None else value

    def __getitem__(self, name: str) -> Value:
        value: Value = self.get(name)
        if value is None:
            raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        return (name for name, read in _READERS.items() if read(self._event) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return repr(dict(self))


class HeaderRows(Protocol):
    """The header fields of the events of a batch, one mapping per event. A list of mappings is one."""

    def __getitem__(self, event: int, /) -> Mapping[str, Value]:
        """Returns the fields of one event, under their JMS names; NULL is absent or None."""
