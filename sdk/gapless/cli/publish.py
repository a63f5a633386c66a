"""`gapless publish`: one event for each line of JSON."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typing_extensions import Self

from gapless.cli.connecting import connected, credentials_of, run
from gapless.cli.lines import message_of, message_of_text
from gapless.cli.options import DEFAULT_URL, DEFAULT_WAIT, AsJson, ClientId, Url, User, Wait
from gapless.cli.output import print_json
from gapless.cli.waiting import telling_why
from gapless.errors import ConfigurationError, GaplessError, InvalidMessageError, InvalidTopicError

if TYPE_CHECKING:
    from gapless import Connection, Message, Receipt

REPORT_EVERY = 1000
"""Events between two looks at the clock of the progress shown."""


def publish(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE|-]", allow_dash=True, help="Default: the standard input.")
    ] = None,
    *,
    message: Annotated[
        str | None,
        typer.Option("--message", "-m", metavar="TEXT", help="Publish one event with this body, and read no lines."),
    ] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option(
            "--property",
            "-p",
            metavar="NAME=VALUE",
            help="With --message: a property; several if repeated. A number, true, false or a quoted string is that as"
            " in JSON, anything else is text.",
        ),
    ] = None,
    url: Url = DEFAULT_URL,
    user: User = "",
    client_id: ClientId = "",
    wait: Wait = DEFAULT_WAIT,
    as_json: AsJson = False,
) -> None:
    """Publish one event per line of JSON: {"body": "text", "properties": {"name": value}}. Or one event with -m TEXT.

    A body that is no text is {"base64": "…"}; priority, type and the other headers of a Message may stand beside
    it. A line that is wrong ends it: nothing behind that line is sent.
    """
    if message is not None:
        if file is not None:
            raise ConfigurationError("-m has the only event: there is nothing to be read from a file")
        event = message_of_text(message, properties or ())
        outcome = run(_publish_one(topic, event, connected(url, client_id, wait, credentials_of(url, user))))
    elif properties:
        raise ConfigurationError("-p is for the event of -m TEXT; each line has properties of its own")
    else:
        with opened(file or Path("-")) as descriptor:
            credentials = credentials_of(url, user)
            outcome = run(_publish(topic, descriptor, connected(url, client_id, wait, credentials)))
    if as_json:
        print_json(outcome.fields())
    else:
        print(f"published {outcome.count:,} event{'s' * (outcome.count != 1)} to {topic}")
    if outcome.error is not None:
        raise outcome.error


class PublishReport:
    """How far it came."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.count = 0
        self.last: Receipt | None = None
        self.error: GaplessError | None = None
        self.lines: deque[int] = deque()
        """The numbers of the lines that have no receipt yet."""

    def fields(self) -> dict[str, Any]:
        """As JSON says it."""
        last = self.last
        return {
            "topic": self.topic,
            "published": self.count,
            "pubend": last and last.pubend,
            "tick": last and last.tick,
            "durable": last and last.durable,
            "error": None if self.error is None else str(self.error),
        }


@contextmanager
def opened(file: Path) -> Iterator[int]:
    """The descriptor of a file, `-` for standard input. Raises ConfigurationError."""
    if str(file) == "-":
        yield sys.stdin.fileno()
        return
    try:
        opened_file = file.open("rb", buffering=0)
    except OSError as error:
        raise ConfigurationError(f"{file}: cannot be read: {error.strerror}") from error
    with opened_file:
        yield opened_file.fileno()


async def _publish(topic: str, descriptor: int, connecting: AbstractAsyncContextManager[Connection]) -> PublishReport:
    outcome = PublishReport(topic)
    async with connecting as connection, connection.session() as session:
        lines = LineReader(descriptor)
        publisher = session.publisher(topic)
        messages = _messages(lines, outcome)
        with stopping_on_interrupt(lines.stop), _Progress() as progress:
            try:
                async with telling_why(connection, [topic], lambda: outcome.count if outcome.lines else None):
                    async for receipt in publisher.send_all(messages):
                        outcome.lines.popleft()
                        outcome.count += 1
                        outcome.last = receipt
                        progress.show(outcome.count)
            except (InvalidMessageError, InvalidTopicError) as error:
                # It comes in the place of the receipt of its own line: all before it have theirs.
                outcome.error = type(error)(f"line {outcome.lines[0]}: {error}; nothing from there on was sent")
            except GaplessError as error:
                outcome.error = error
    return outcome


async def _publish_one(
    topic: str, message: Message, connecting: AbstractAsyncContextManager[Connection]
) -> PublishReport:
    outcome = PublishReport(topic)
    async with connecting as connection, connection.session() as session:
        publisher = session.publisher(topic)
        try:
            async with telling_why(connection, [topic], lambda: outcome.count):
                [outcome.last] = await publisher.send_batch([message])
                outcome.count = 1
        except GaplessError as error:
            outcome.error = error
    return outcome


async def _messages(lines: LineReader, outcome: PublishReport) -> AsyncIterator[Message]:
    """The messages up to the first line that is wrong, which is noted; blank lines are passed over."""
    number = 1
    try:
        async for line in lines:
            if line.strip():
                message = message_of(line)
                outcome.lines.append(number)
                yield message
            number += 1
    except InvalidMessageError as error:
        outcome.error = InvalidMessageError(f"line {number}: {error}; nothing from there on was sent")
    except OSError as error:
        outcome.error = ConfigurationError(f"line {number}: cannot be read: {error.strerror}")


@contextmanager
def stopping_on_interrupt(stop: Any) -> Iterator[None]:
    """The first Ctrl-C or SIGTERM calls `stop`; the next one does what it always does."""
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in before.items():
            if loop.remove_signal_handler(number):
                # The loop leaves Python's own handler, whose KeyboardInterrupt strikes in any callback; that of
                # `asyncio.run` cancels the main task.
                signal.signal(number, handler)

    def on_signal() -> None:
        restore()
        stop()

    for number in before:
        with suppress(NotImplementedError):  # Windows
            loop.add_signal_handler(number, on_signal)
    try:
        yield
    finally:
        with suppress(NotImplementedError):
            restore()


class _Progress:
    """Shows a count on the standard error output, if a person looks there."""

    def __init__(self) -> None:
        self._status: Any = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console

            self._status = Console(stderr=True).status("publishing")
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def show(self, count: int) -> None:
        """So many so far."""
        if self._status is not None and count % REPORT_EVERY == 0:
            self._status.update(f"published {count:,} events")


# Lines of a file, a pipe or a terminal, for an event loop that must not wait for them.

CHUNK_BYTES: Final = 1 << 18
CHUNKS_AHEAD: Final = 4
"""How many chunks are read before anybody wants them."""
LINE_BYTES_MAX: Final = 1 << 24
"""A longer line cannot be an event, whatever escapes it is written with."""


class LineReader:
    """Reads lines in a thread of its own, as they come; iterate it once.

    The thread is a daemon: one that waits for a terminal must not keep the process from ending.
    """

    def __init__(self, descriptor: int) -> None:
        # Its own, which the thread closes: nobody can close it under the thread and open something else there.
        self._descriptor = os.dup(descriptor)
        self._loop = asyncio.get_running_loop()
        self._chunks: asyncio.Queue[bytes | OSError] = asyncio.Queue()
        self._room = threading.Semaphore(CHUNKS_AHEAD)
        self._stopped = False

    def stop(self) -> None:
        """Ends the iteration after the lines that were read."""
        self._stopped = True
        self._chunks.put_nowait(b"")

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Raises OSError as reading does, InvalidMessageError for a line that is far too long."""
        threading.Thread(target=self._read, name="lines", daemon=True).start()
        rest = b""
        while chunk := await self._next_chunk():
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > LINE_BYTES_MAX:
                raise InvalidMessageError(f"it is longer than {LINE_BYTES_MAX:,} bytes")
            for line in lines:
                yield line
        if rest and not self._stopped:
            yield rest

    async def _next_chunk(self) -> bytes:
        chunk = await self._chunks.get()
        self._room.release()
        if isinstance(chunk, OSError):
            raise chunk
        return chunk

    def _read(self) -> None:
        try:
            self._read_chunks()
        finally:
            os.close(self._descriptor)

    def _read_chunks(self) -> None:
        while True:
            self._room.acquire()
            try:
                chunk: bytes | OSError = os.read(self._descriptor, CHUNK_BYTES)
            except OSError as error:
                chunk = error
            try:
                self._loop.call_soon_threadsafe(self._chunks.put_nowait, chunk)
            except RuntimeError:  # the loop is closed: nobody wants lines any more
                return
            if not chunk or isinstance(chunk, OSError):
                return
