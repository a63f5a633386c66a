"""A client that says whatever a test wants, byte by byte, to a real broker."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import Any

from typing_extensions import Self

from gapless.core.wire.framing import FrameDecoder, encode_frame
from gapless.core.wire.messages import (
    PROTOCOL,
    ClientMessage,
    Hello,
    ListPubends,
    OpenPublisher,
    PubendList,
    Publish,
    PublisherOpened,
    Welcome,
)
from gapless.core.wire.numbering import UNNUMBERED
from wire import Wire

PATIENCE = 20.0


class RawClient:
    """A connection. As a block it is open, and is closed at the end."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._where = host, int(port)
        self.wire = Wire()
        self.heard: list[Any] = []
        """Every message that came."""
        self.http = b""
        """What came that is no frame, but an answer for a client of HTTP."""
        self.closed = False
        """Whether the broker has closed the connection."""

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection(*self._where)
        self._decoder = FrameDecoder(1 << 26)
        self.wire = Wire()
        self.heard = []
        self.closed = False
        self._next = 0
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    @property
    def session(self) -> int:
        """The session's number."""
        return self.wire.session

    # Saying.

    async def send(self, data: bytes) -> None:
        """Sends bytes; a broker that has closed meanwhile is no error."""
        with contextlib.suppress(OSError):
            self._writer.write(data)
            await self._writer.drain()

    async def send_payloads(self, *payloads: bytes) -> None:
        """Sends each payload in a frame, with its number if it is one of this session."""
        await self.send(b"".join(encode_frame(self.wire.numbered(payload)) for payload in payloads))

    async def say(self, *messages: ClientMessage | Publish) -> None:
        """Sends messages of this session."""
        await self.send_payloads(*self.wire.say(*messages))

    async def finish(self) -> None:
        """Says that nothing more will come."""
        with contextlib.suppress(OSError):
            self._writer.write_eof()

    # Hearing.

    async def hear(self, kind: Any, patience: float = PATIENCE) -> Any:
        """The next message of a kind, past others; None when the broker closes before it comes."""
        return await asyncio.wait_for(self._hear(kind), patience)

    async def hear_all(self, patience: float = PATIENCE) -> list[Any]:
        """Every message until the broker closes. Fails when it does not."""
        await asyncio.wait_for(self._hear(type(None)), patience)
        return self.heard

    def heard_of(self, kind: type) -> list[Any]:
        """Every message of a kind so far."""
        return [message for message in self.heard if isinstance(message, kind)]

    async def _hear(self, kind: Any) -> Any:
        while True:
            while self._next < len(self.heard):
                self._next += 1
                if isinstance(self.heard[self._next - 1], kind):
                    return self.heard[self._next - 1]
            try:
                data = await self._reader.read(1 << 16)
            except OSError:
                data = b""
            if not data:
                self.closed = True
                return None
            if data.startswith(b"HTTP/1.1 "):
                self.http += data
                continue
            self.heard += self.wire.decode(self._decoder.feed(data))

    # Doing what a client does.

    async def connect_again(self) -> None:
        """A new connection in the place of this one, and welcome."""
        await self.__aexit__(None, None, None)
        await self.__aenter__()
        await self.shake_hands()

    async def shake_hands(self, instance: str = "raw") -> Welcome:
        """Becomes welcome."""
        await self.say(Hello(PROTOCOL, "", "attacker", instance))
        welcome = await self.hear(Welcome)
        assert isinstance(welcome, Welcome)
        return welcome

    async def open_publisher(self, topic: str | None = None) -> PublisherOpened:
        """Opens publisher 1."""
        await self.say(OpenPublisher(1, "raw", "raw", 1, topic))
        opened = await self.hear(PublisherOpened)
        assert isinstance(opened, PublisherOpened)
        return opened

    async def is_alive(self) -> bool:
        """Whether the broker still answers in this session."""
        await self.say(ListPubends(4711))
        while (listing := await self.hear(PubendList)) is not None:
            if listing.request == 4711:
                return True
        return False


def payload(session: int, message: bytes) -> bytes:
    """A payload with any bytes for a message."""
    return session.to_bytes(8, "little") + (UNNUMBERED if session else b"") + message
