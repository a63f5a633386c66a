"""Events as lines of JSON: what `publish` reads and `subscribe --json` prints.

    {"body": "text, sent as UTF-8", "properties": {"origin": "JFK", "dep_delay": 75}}
    {"body": {"base64": "AAEC"}, "type": "reading", "priority": 7}

A body that is not UTF-8 is printed as base64. The headers that a sender sets stand beside body and
properties; what the broker sets (pubend, tick, timestamp) is printed, and refused when it is read.
"""

from __future__ import annotations

import binascii
import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from gapless.cli.output import one_line
from gapless.errors import ConfigurationError, InvalidMessageError
from gapless.selectors.headers import SENT_FIELDS, HeaderField, sent_headers
from gapless.texts import text_problem

if TYPE_CHECKING:
    from gapless import Event, Gap, Message

_SENT: Final = {field.name: field for field in SENT_FIELDS}
KEYS: Final = ("body", "properties", *_SENT)


def message_of(line: str | bytes) -> Message:
    """The message that a line says. Raises InvalidMessageError, which says what is wrong with it."""
    from gapless import Message

    fields = object_of(line)
    unknown = [key for key in fields if key not in KEYS]
    if unknown:
        raise InvalidMessageError(f"there is no key {unknown[0]!r}; there are {', '.join(KEYS)}")
    if "body" not in fields:
        raise InvalidMessageError('it has no body; an empty one is ""')
    properties = fields.get("properties")
    if not isinstance(properties, (dict, type(None))):
        raise InvalidMessageError(f"properties must be an object, not {_kind(properties)}")
    return Message(_body(fields["body"]), properties or {}, **headers_of(fields))


def message_of_text(text: str, properties: Iterable[str]) -> Message:
    """The message with this body, and with properties that are given as NAME=VALUE.

    Raises InvalidMessageError for the body, ConfigurationError for a property that is not understood.
    """
    from gapless import Message

    found: dict[str, Any] = {}
    for given in properties:
        name, equals, value = given.partition("=")
        if not equals or not name:
            raise ConfigurationError(f"-p: {given!r} is not NAME=VALUE")
        if name in found:
            raise ConfigurationError(f"-p: the property {name!r} is given twice")
        found[name] = _property(value)
    return Message(_body(text), found)


def _property(text: str) -> bool | int | float | str:
    """What a person means who writes this behind NAME=: what JSON says that is no null, list or object; or the text."""
    try:
        value = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, (bool, int, float, str)) else text


def headers_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The headers that a sender sets, of those that an object has. Raises InvalidMessageError."""
    return {key: _header(field, fields[key]) for key, field in _SENT.items() if fields.get(key) is not None}


def object_of(line: str | bytes) -> dict[str, Any]:
    """The JSON object that a line holds. Raises InvalidMessageError."""
    try:
        value = json.loads(line, parse_constant=_no_number)
    except UnicodeDecodeError as error:
        raise InvalidMessageError("it is not UTF-8") from error
    except json.JSONDecodeError as error:
        raise InvalidMessageError(f"it is not JSON: {error.msg}, at character {error.pos + 1}") from error
    except ValueError as error:
        raise InvalidMessageError(f"it is not JSON: {error}") from error
    except RecursionError:
        raise InvalidMessageError("it is nested too deep") from None
    if not isinstance(value, dict):
        raise InvalidMessageError(f"it must be an object, not {_kind(value)}")
    return value


def fields_of_event(event: Event) -> dict[str, Any]:
    """An event as `subscribe --json` prints it; headers that the sender did not set are left out."""
    fields: dict[str, Any] = {
        "topic": event.topic,
        "body": json_body(event.body),
        "properties": dict(event.properties),
        "pubend": event.pubend,
        "tick": event.tick,
        "timestamp": event.timestamp.isoformat(),
    }
    for field, value in zip(SENT_FIELDS, sent_headers(event), strict=True):
        if value != field.default:
            fields[field.name] = value.isoformat() if isinstance(value, datetime) else value
    return fields


def fields_of_gap(gap: Gap) -> dict[str, Any]:
    """A gap as `subscribe --json` prints it."""
    since, until = (time and time.isoformat() for time in (gap.since, gap.until))
    return {
        "gap": {
            "pubend": gap.pubend,
            "start": gap.start,
            "end": gap.end,
            "reason": gap.reason,
            "since": since,
            "until": until,
        }
    }


def readable_event(event: Event) -> str:
    """An event on one line, for people."""
    properties = " ".join(f"{one_line(name)}={_plain(value)}" for name, value in event.properties.items())
    body = json_body(event.body)
    text = one_line(body) if isinstance(body, str) else f"({len(event.body):,} bytes)"
    when = f"{event.timestamp:%Y-%m-%d %H:%M:%S}"
    return "  ".join(part for part in (when, one_line(event.topic), properties, text) if part)


def json_body(body: bytes) -> str | dict[str, str]:
    """A body as JSON says it."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(body).decode()}


def _body(value: Any) -> bytes:
    if isinstance(value, str):
        if problem := text_problem(value):
            raise InvalidMessageError(f"body {problem}")
        return value.encode()
    if isinstance(value, Mapping) and set(value) == {"base64"} and isinstance(value["base64"], str):
        try:
            return b64decode(value["base64"], validate=True)
        except (binascii.Error, ValueError) as error:
            raise InvalidMessageError(f"body is not base64: {error}") from error
    raise InvalidMessageError(f'body must be a string or {{"base64": "…"}}, not {_kind(value)}')


def _header(field: HeaderField, value: Any) -> Any:
    if not isinstance(value, int if field.type is int else str) or isinstance(value, bool):
        wanted = "a number" if field.type is int else "a string"
        raise InvalidMessageError(f"{field.name} must be {wanted}, not {_kind(value)}")
    return _time(field.name, value) if field.type is datetime else value


def _time(name: str, text: Any) -> datetime:
    time = aware_time(text)
    if time is None:
        raise InvalidMessageError(f"{name} must be a time with its zone, as 2026-01-31T12:00:00Z, not {text!r}")
    return time


def aware_time(text: str) -> datetime | None:
    """The time that an ISO 8601 text with a zone says; None for any other text."""
    try:
        # Python 3.10 does not know that Z is a zone.
        time = datetime.fromisoformat(f"{text[:-1]}+00:00" if text[-1:] in {"Z", "z"} else text)
    except ValueError:
        return None
    return time if time.tzinfo is not None else None


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no number")


def _kind(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "null" if value is None else "true or false"
    if isinstance(value, str):
        return "a string"
    return "an object" if isinstance(value, dict) else "a list" if isinstance(value, list) else "a number"


def _plain(value: object) -> str:
    return one_line(value) if isinstance(value, str) else json.dumps(value)
