"""`gapless subscribe`: consumes a subscription and prints it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from gapless.cli.connecting import connected, credentials_of, run
from gapless.cli.lines import aware_time, fields_of_event, fields_of_gap, readable_event
from gapless.cli.options import DEFAULT_URL, DEFAULT_WAIT, AsJson, ClientId, Url, User, Wait
from gapless.cli.output import json_line, one_line
from gapless.cli.publish import stopping_on_interrupt
from gapless.cli.waiting import telling_why
from gapless.errors import ConfigurationError, GapError, InvalidTokenError

if TYPE_CHECKING:
    from datetime import datetime

    from gapless import CheckpointToken, Event, Gap, Subscription

EVENTS_AT_ONCE = 1024
WRITE_BYTES = 4096
"""About so much is written at once: a pipe takes that whole, or not at all."""


class WhenInUse(str, Enum):
    """What to do about another consumer of the subscription."""

    ERROR = "error"
    WAIT = "wait"
    TAKEOVER = "takeover"

    @property
    def conflict(self) -> Literal["error", "wait", "takeover"]:
        """As `Session.subscribe` takes it."""
        return self.value


class EventsInOrder(str, Enum):
    """In which order the events of several pubends come."""

    PUBEND = "pubend"
    TOTAL = "total"

    @property
    def order(self) -> Literal["pubend", "total"]:
        """As `Session.subscribe` takes it."""
        return self.value


def subscribe(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the durable subscription.")],
    *,
    topic: Annotated[
        list[str], typer.Option(metavar="TOPIC", help="What to subscribe to, with wildcards; several if repeated.")
    ],
    selector: Annotated[str, typer.Option(metavar="SELECTOR")] = "",
    start: Annotated[
        str,
        typer.Option(metavar="START", help="Where a new subscription begins: latest, earliest or a time; or a token."),
    ] = "latest",
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Keep the position here; what it holds goes before --start."),
    ] = None,
    count: Annotated[int | None, typer.Option(min=1, metavar="N", help="End after so many events.")] = None,
    ack: Annotated[bool, typer.Option(help="Let the broker release what was printed.")] = True,
    in_use: Annotated[WhenInUse, typer.Option(help="What to do if another consumer has it.")] = WhenInUse.ERROR,
    order: Annotated[
        EventsInOrder, typer.Option(help="Of events of several pubends: each pubend's own, or one over a group.")
    ] = EventsInOrder.PUBEND,
    url: Url = DEFAULT_URL,
    user: User = "",
    client_id: ClientId = "",
    wait: Wait = DEFAULT_WAIT,
    as_json: AsJson = False,
) -> None:
    """Consume a durable subscription and print its events; Ctrl-C ends it in order.

    Events are printed first, then the token is written, then they are acknowledged: whatever is killed when,
    nothing is lost. A gap is printed in its place, and makes the exit status 1.
    """
    position = (token_file and read_token(token_file)) or start_of(start)
    credentials = credentials_of(url, user)
    consumer = EventPrinter(token_file and token_file.resolve(), count, ack=ack, as_json=as_json)

    async def consume() -> None:
        async with connected(url, client_id, wait, credentials) as connection, connection.session() as session:
            subscribing = session.subscribe(
                *topic,
                name=name,
                selector=selector,
                start=position,
                on_gap="deliver",
                in_use=in_use.conflict,
                order=order.order,
            )
            async with subscribing as subscription:
                with stopping_on_interrupt(subscription.drain):
                    async with telling_why(connection, topic, lambda: consumer.printed):
                        await consumer.consume(subscription)

    run(consume())
    if consumer.gaps:
        raise GapError(consumer.gaps[0])


def start_of(text: str) -> Literal["latest", "earliest"] | datetime | CheckpointToken:
    """Where to begin. Raises ConfigurationError or InvalidTokenError when the text says nothing of the kind."""
    if text == "latest":
        return "latest"
    if text == "earliest":
        return "earliest"
    if text.startswith("gl"):
        from gapless import CheckpointToken

        return CheckpointToken.parse(text)
    time = aware_time(text)
    if time is None:
        raise ConfigurationError(
            f"--start: {text!r} is not latest, earliest, a token, or a time with its zone, as 2026-01-31T12:00:00Z"
        )
    return time


@dataclass(slots=True)
class _Printed:
    """How events and gaps are printed."""

    as_json: bool
    written: int = 0
    """How many of the events that were given last have left, line end and all."""

    def events(self, events: Sequence[Any]) -> None:
        """Prints events, a line each. If it raises, whoever reads the output may have got those that were `written`."""
        line = _json_line if self.as_json else readable_event
        self.written = 0
        lines: list[str] = []
        size = 0
        for event in events:
            text = f"{line(event)}\n"
            if lines and size + len(text) > WRITE_BYTES:
                self._write("".join(lines))
                self.written += len(lines)
                lines, size = [], 0
            lines.append(text)
            size += len(text)
        self._write("".join(lines))
        self.written += len(lines)

    def gap(self, gap: Gap) -> None:
        """Prints a gap, in its place."""
        self._write(f"{json_line(fields_of_gap(gap)) if self.as_json else one_line(f'--- gap: {gap} ---')}\n")

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


class EventPrinter:
    """Prints, keeps the token, acknowledges: in this order."""

    def __init__(self, token_file: Path | None, count: int | None, *, ack: bool, as_json: bool) -> None:
        self.gaps: list[Gap] = []
        self.printed = 0
        """How many events and gaps were printed."""
        self._token_file = token_file
        self._left = count
        self._ack = ack
        self._how = _Printed(as_json)

    async def consume(self, subscription: Subscription[Any, Any]) -> None:
        """Consumes until the subscription is drained, or as many as were asked for.

        Where the output ends in the middle (`| head`), what was written counts as printed, and the rest does not.
        """
        from gapless import Batch

        before = subscription.token
        while self._left is None or self._left > 0:
            batches = subscription.batches(max_events=min(EVENTS_AT_ONCE, self._left or EVENTS_AT_ONCE))
            async for item in batches:
                try:
                    await self.show(item)
                except OSError:
                    if self._how.written and isinstance(item, Batch):
                        last = item[self._how.written - 1]
                        await self._keep(subscription, before.advance({last.pubend: last.tick}))
                    raise
                before = subscription.token
                await self._keep(subscription, before)
                if self._left is not None and self._left < EVENTS_AT_ONCE:
                    break
            else:
                return

    async def show(self, item: Sequence[Event] | Gap) -> None:
        """Prints events, or a gap."""
        # In a thread: whoever reads our output may be slow, and the connection must go on meanwhile.
        from gapless import Gap

        if isinstance(item, Gap):
            self.gaps.append(item)
            await asyncio.to_thread(self._how.gap, item)
            self.printed += 1
            return
        await asyncio.to_thread(self._how.events, item)
        self.printed += len(item)
        if self._left is not None:
            self._left -= len(item)

    async def _keep(self, subscription: Subscription[Any, Any], token: CheckpointToken) -> None:
        if self._token_file is not None:
            await asyncio.to_thread(write_token, self._token_file, token)
        if self._ack:
            await subscription.acknowledge(token)


def _json_line(event: Any) -> str:
    return json_line(fields_of_event(event))


def read_token(path: Path) -> CheckpointToken | None:
    """The token in a file; None when there is no such file.

    Raises ConfigurationError when it cannot be read, InvalidTokenError when it holds something else.
    """
    from gapless import CheckpointToken

    try:
        return CheckpointToken.parse(path.read_text("utf-8").strip())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigurationError(f"--token-file: {path} cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, InvalidTokenError) as error:
        raise InvalidTokenError(f"--token-file: {path} holds no token: {error}") from error


def write_token(path: Path, token: CheckpointToken) -> None:
    """Puts a token into a file, durably: whoever looks finds the old one or the new one, whole.

    Raises ConfigurationError when that is not possible.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(f"{token}\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync_directory(path.parent)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise ConfigurationError(f"--token-file: {path} cannot be written: {error.strerror}") from error


def _sync_directory(directory: Path) -> None:
    if os.name == "nt":  # a directory cannot be opened there, and the rename is durable without it
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
