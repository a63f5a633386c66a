"""`gapless selector`: tries a selector out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from gapless.cli.lines import object_of
from gapless.cli.options import AsJson
from gapless.cli.output import print_json
from gapless.errors import ConfigurationError, InvalidMessageError

HEADER_NAMES = {"priority": "JMSPriority", "type": "JMSType", "correlation_id": "JMSCorrelationID"}
"""How selectors call the headers that a printed event has beside its properties."""


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
    as `subscribe --json` prints it.
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
    properties, headers = fields, dict[str, Any]()
    if isinstance(fields.get("properties"), dict):
        properties = fields["properties"]
        headers = {jms: fields[name] for name, jms in HEADER_NAMES.items() if name in fields}
        if isinstance(fields.get("headers"), dict):
            headers |= fields["headers"]
    for name, value in {**properties, **headers}.items():
        if not isinstance(value, (bool, int, float, str, type(None))):
            raise InvalidMessageError(f"the value of {name} must be true, false, null, a number or a string")
    return properties, headers


def _print(fields: dict[str, Any], text: str, *, as_json: bool) -> None:
    if as_json:
        print_json(fields)
    else:
        print(text)
