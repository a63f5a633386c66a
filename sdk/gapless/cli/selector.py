"""`gapless selector`: tries a selector out."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gapless.cli.lines import headers_of, object_of
from gapless.cli.options import AsJson
from gapless.cli.output import one_line, print_json, print_table, table_of
from gapless.errors import ConfigurationError, InvalidMessageError
from gapless.selectors.headers import HEADER_KINDS, sent_headers
from gapless.selectors.values import plain_properties

if TYPE_CHECKING:
    from gapless.selectors.explanation import NameUse
    from gapless.selectors.values import Value

_TRUTHS = {True: "true", False: "false", None: "unknown"}


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
    """Show how a selector is read, and try it on an event: the exit status is 1 if it does not match.

    EVENT.json holds {"origin": "JFK", …}, or {"properties": {…}, "headers": {"JMSPriority": 7}}, or a line
    as `subscribe --json` prints it. Header fields that it does not name are as if the sender had not set them.
    """
    from gapless import Selector
    from gapless.selectors.explanation import predicates_of, uses_of, written_out
    from gapless.selectors.parser import parse

    parsed, tree = Selector(expression), parse(expression)
    if event is None:
        uses = uses_of(tree)
        if as_json:
            names = [{"name": each.name, "header": each.is_header, "kinds": _kinds(each)} for each in uses]
            print_json({"selector": expression, "read_as": written_out(tree), "names": names})
            return
        print(f"is read as: {one_line(written_out(tree))}")
        if uses:
            rows = [{"name": each.name, "asked": _asked(each)} for each in uses]
            print_table(table_of(rows, {"name": "name", "asked": "is asked to be"}))
            print("What an event does not have is NULL. To compare with NULL is unknown, and so is NOT of it;")
            print("an event is selected if the whole is true.")
        return
    properties, headers = read_event(event)
    matches = parsed.matches(properties, headers)
    tried = predicates_of(tree, lambda name: headers.get(name) if name in HEADER_KINDS else properties.get(name))
    if as_json:
        predicates = [{"predicate": each.text, "truth": each.truth, "values": each.values} for each in tried]
        fields = {"selector": expression, "read_as": written_out(tree), "matches": matches, "predicates": predicates}
        print_json(fields)
    else:
        print("matches" if matches else "does not match")
        rows = [{"is": _TRUTHS[each.truth], "text": each.text, "for": _values(each.values)} for each in tried]
        print_table(table_of(rows, {"text": "predicate", "is": "is", "for": "for"}))
    if not matches:
        raise typer.Exit(1)


def _kinds(use: NameUse) -> list[str]:
    return [kind.name.lower() for kind in use.kinds]


def _asked(use: NameUse) -> str:
    kinds = " and ".join(kind.value for kind in use.kinds) or "anything"
    if len(use.kinds) > 1:
        kinds += ": no value is all of that, so some predicate is never true"
    return f"{kinds} (a header field)" if use.is_header else kinds


def _values(values: Mapping[str, Value]) -> str:
    return ", ".join(f"{name} is {'NULL' if value is None else json.dumps(value)}" for name, value in values.items())


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
        if isinstance(value, (dict, list)):
            raise InvalidMessageError(f"the value of {name} must be true, false, null, a number or a string")
    return dict(plain_properties(properties)), headers


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
