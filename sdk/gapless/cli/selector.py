"""`gapless selector`: tries a selector out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from gapless.cli.lines import headers_of, object_of
from gapless.cli.options import AsJson
from gapless.cli.output import print_json
from gapless.errors import ConfigurationError, InvalidMessageError
from gapless.selectors.headers import HEADER_KINDS, sent_headers


def selector(
    expression: Annotated[str, typer.Argument(metavar="EXPRESSION")],
    event: Annotated[
        Path | None,
        typer.Argument(
            metavar="[EVENT.json|-]",
            help="An object with the event's properties, or with properties and headers.",
            allow_dash=True,
        ),
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Check a selector, and try it on an event: the exit status is 1 if it does not match.

    EVENT.json holds {"origin": "JFK", …}, or {"properties": {…}, "headers": {"JMSPriority": 7}}, or a line
    as `subscribe --json` prints it. Header fields that it does not name are as if the sender had not set them.
    """
    from gapless import Selector

    parsed = Selector(expression)
    if event is None:
        _print({"selector": expression}, "the selector is well-formed", as_json=as_json)
        return
    properties, headers = read_event(event)
    matches = parsed.matches(properties, headers)
    _print({"selector": expression, "matches": matches}, "matches" if matches else "does not match", as_json=as_json)
    if not matches:
        raise typer.Exit(1)


def read_event(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The properties and headers in a file, `-` for standard input. Raises ConfigurationError."""
    name = "the standard input" if str(path) == "-" else str(path)
    try:
        text = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
        return event_fields(object_of(text))
    except OSError as error:
        raise ConfigurationError(f"{name}: cannot be read: {error.strerror}") from error
    except InvalidMessageError as error:
        raise ConfigurationError(f"{name}: {error}") from error


def event_fields(fields: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Properties and headers of an object that says either. Raises InvalidMessageError."""
    if not isinstance(fields.get("properties"), dict):
        fields = {"properties": fields}
    properties = fields["properties"]
    headers = _headers_of_event(fields)
    if isinstance(named := fields.get("headers"), dict):
        unknown = [name for name in named if name not in HEADER_KINDS]
        if unknown:
            raise InvalidMessageError(f"there is no header {unknown[0]}; there are {', '.join(HEADER_KINDS)}")
        headers |= named
    for name, value in {**properties, **headers}.items():
        if not isinstance(value, (bool, int, float, str, type(None))):
            raise InvalidMessageError(f"the value of {name} must be true, false, null, a number or a string")
    return properties, headers


def _headers_of_event(fields: dict[str, Any]) -> dict[str, Any]:
    """What a selector sees of an event's headers; what the broker sets is NULL where the object does not have it."""
    from gapless import Event
    from gapless.client.messages import Message, extras_of

    extras = extras_of(sent_headers(Message(b"", **headers_of(fields))))
    tick, pubend = fields.get("tick"), fields.get("pubend")
    if isinstance(tick, int) and isinstance(pubend, str):
        return dict(Event("", {}, extras, b"", tick, pubend).headers)
    headers = dict(Event("", {}, extras, b"").headers)
    del headers["JMSMessageID"], headers["JMSTimestamp"]
    return headers


def _print(fields: dict[str, Any], text: str, *, as_json: bool) -> None:
    if as_json:
        print_json(fields)
    else:
        print(text)
