"""`gapless.spi.Link` on a WebSocket: each frame is a message, its checksum in front."""

from __future__ import annotations

import asyncio
import enum
import logging
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from websockets.asyncio.connection import Connection
from websockets.exceptions import ConnectionClosed, ConnectionClosedOK

from gapless.errors import LocalProtocolError
from gapless.spi import Certificate, LinkHandler
from gapless_websocket_transport.options import WebSocketOptions

logger = logging.getLogger(__name__)

CHECKSUM_BYTES = 4
FRAGMENT_BYTES = 64 << 10
"""The longest fragment of a message. What is too long is noticed after so much of it, and the rest is not kept."""

Payload: TypeAlias = "bytes | tuple[bytes, bytes]"


class State(enum.Enum):
    """Where a link stands. It only ever goes forward."""

    OPEN = enum.auto()
    BROKEN = enum.auto()
    """What came breaks the framing: nothing more is handed over."""
    CLOSING = enum.auto()
    CLOSED = enum.auto()


class WebSocketLink:
    """One end of a WebSocket.

    Two coroutines do everything that calls the handler, `_read` and `_write`. The calls of the owner only
    note what is wanted and wake them: so no call of the link calls its handler back before it returns.
    """

    def __init__(self, connection: Connection, peer: str, options: WebSocketOptions) -> None:
        """A link on a WebSocket whose handshake is done; nothing moves before `run`."""
        self.peer = peer
        self.secure = False
        self.certificate = Certificate()
        self.shown = b""
        self._connection = connection
        self._options = options
        self._state = State.OPEN
        self._reason: str | None = None
        """What this end gave as the reason of its end."""
        self._limit = options.frame_limit
        self._handler: LinkHandler
        self._urgent: deque[Payload] = deque()
        self._data: deque[Payload] = deque()
        self._unsent = 0
        """Bytes of the payloads in both queues, and of the part of the one under way that is not in the socket."""
        self._was_high = False
        self._wake_writer = asyncio.Event()
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._timer: asyncio.TimerHandle | None = None

    # ------------------------------------------------------------------------------------ the owner

    @property
    def pending(self) -> int:
        """Bytes accepted by `send` that the socket has not taken."""
        return self._unsent

    def send(self, payloads: Sequence[Payload], *, urgent: bool = False) -> None:
        """Queues each payload; see `Link.send`."""
        sizes = [_size(payload) for payload in payloads]
        if 0 in sizes:
            raise LocalProtocolError("a frame's payload has at least one byte")
        if self._state not in {State.OPEN, State.BROKEN}:
            return
        (self._urgent if urgent else self._data).extend(payloads)
        self._unsent += sum(sizes)
        self._was_high |= self._unsent > self._options.high_water
        if self._unsent > self._options.pending_max:
            self.fail(f"{self._unsent} bytes were waiting to be sent, more than {self._options.pending_max}")
        self._wake_writer.set()

    def raise_limit(self, limit: int) -> None:
        """Accepts frames of up to `limit` bytes from now on."""
        self._limit = limit

    def pause(self) -> None:
        """Stops reading: what comes fills the library's queue, and then that of the socket."""
        if self._state is State.OPEN:
            self._may_read.clear()

    def resume(self) -> None:
        """Reads again."""
        self._may_read.set()

    def close(self, reason: str = "") -> None:
        """Sends what is pending within `close_timeout`, then closes. What comes meanwhile is read and dropped."""
        if self._state not in {State.OPEN, State.BROKEN}:
            return
        self._state = State.CLOSING
        self._reason = reason
        self._fail_later(reason)
        self._may_read.set()
        self._wake_writer.set()

    def fail(self, reason: str) -> None:
        """Gives the link up at once: what is pending is lost. `on_closed` follows later."""
        if self._state is State.CLOSED:
            return
        self._state = State.CLOSING
        if self._reason is None:
            self._reason = reason
        self._urgent.clear()
        self._data.clear()
        self._unsent = 0
        self._may_read.set()
        self._connection.transport.abort()

    # ------------------------------------------------------------------------------------ inside

    async def run(self, handler: LinkHandler) -> None:
        """Serves the link until it is over, and then says so to the handler."""
        self._handler = handler
        writer = asyncio.create_task(self._write())
        reason = ""
        try:
            await self._read()
        except ConnectionClosedOK:
            pass
        except ConnectionClosed as error:
            reason = f"the connection was lost: {error}"
        finally:
            writer.cancel()
            if self._timer is not None:
                self._timer.cancel()
            self._connection.transport.abort()
            self._state = State.CLOSED
            self._unsent = 0
            self._tell(handler.on_closed, reason if self._reason is None else self._reason)

    async def _read(self) -> None:
        """Hands over what comes; raises ConnectionClosed when nothing more will."""
        while True:
            payload = await self._receive()
            while not self._may_read.is_set():
                await self._may_read.wait()
            if self._state is State.OPEN and payload is not None:
                self._tell(self._handler.on_frames, [payload])

    async def _receive(self) -> bytes | None:
        """The next payload, or None when it is one to be dropped; a broken one is told to the handler."""
        while not self._may_read.is_set():
            await self._may_read.wait()
        size = -CHECKSUM_BYTES
        fragments: list[bytes] = []
        async for fragment in self._connection.recv_streaming(decode=False):
            size += len(fragment)
            if self._state is State.OPEN and size > self._limit:
                self._break(f"a frame has more than the {self._limit} bytes that are allowed here")
            if self._state is not State.OPEN:
                fragments.clear()  # The rest is read, or the other end's goodbye behind it would not be.
            else:
                fragments.append(fragment)
        if self._state is not State.OPEN:
            return None
        message = b"".join(fragments)
        payload = message[CHECKSUM_BYTES:]
        if not payload or message[:CHECKSUM_BYTES] != _checksum(payload):
            self._break("a frame is empty, or its checksum is wrong")
            return None
        return payload

    async def _write(self) -> None:
        """Sends what is queued, urgent payloads first, and says goodbye at the end."""
        try:
            while True:
                while self._urgent or self._data:
                    await self._connection.send(self._message((self._urgent or self._data).popleft()))
                    self._note_sent()
                if self._state is State.CLOSING:
                    break
                self._wake_writer.clear()
                await self._wake_writer.wait()
            await self._connection.close()
        except ConnectionClosed:
            pass  # `_read` hears of it too

    def _message(self, payload: Payload) -> bytes | Iterator[bytes]:
        """The message that carries a payload: in one piece, or in fragments that are counted as they leave."""
        first, rest = payload if isinstance(payload, tuple) else (payload, b"")
        checksum = _checksum(first, rest)
        if CHECKSUM_BYTES + _size(payload) <= FRAGMENT_BYTES:
            self._unsent -= _size(payload)
            return checksum + first + rest
        return self._fragments(checksum, first, rest)

    def _fragments(self, checksum: bytes, *parts: bytes) -> Iterator[bytes]:
        yield checksum
        for part in parts:
            for start in range(0, len(part), FRAGMENT_BYTES):
                fragment = part[start : start + FRAGMENT_BYTES]
                yield fragment
                self._unsent = max(0, self._unsent - len(fragment))

    def _note_sent(self) -> None:
        if self._was_high and self._state is State.OPEN and self._unsent <= self._options.low_water:
            self._was_high = False
            self._tell(self._handler.on_drained)

    def _break(self, reason: str) -> None:
        self._state = State.BROKEN
        self._fail_later(reason)
        self._tell(self._handler.on_broken, reason)

    def _fail_later(self, reason: str) -> None:
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._options.close_timeout, self.fail, reason)

    def _tell(self, callback: Callable[..., None], *arguments: Any) -> None:
        """Calls the handler; if it raises, that is logged and this link fails."""
        try:
            callback(*arguments)
        except Exception:
            logger.exception("the handler of the link with %s failed", self.peer)
            self.fail("its handler failed")


def _size(payload: Payload) -> int:
    return len(payload[0]) + len(payload[1]) if isinstance(payload, tuple) else len(payload)


def _checksum(first: bytes, rest: bytes = b"") -> bytes:
    return zlib.crc32(rest, zlib.crc32(first)).to_bytes(CHECKSUM_BYTES, "little")
