"""Links that a test holds both ends of: a listener's side without a network."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from gapless.core.server import Payload
from gapless.core.wire.messages import ClientMessage, Publish
from gapless.spi import Certificate, Link, LinkHandler, Listener
from wire import Wire, joined


class FakeLink:
    """The broker's end; `handler` is told what the test wants."""

    def __init__(self) -> None:
        self.peer = "127.0.0.1:5555"
        self.certificate = Certificate()
        self.shown = b""
        self.secure = False
        self.pending = 0
        self.calls: list[Any] = []
        self.sent: list[bytes] = []
        self.closed: str | None = None
        self.handler: LinkHandler | None = None
        self.wire = Wire()

    def send(self, payloads: Sequence[Payload], *, urgent: bool = False) -> None:
        self.calls.append(("send", len(payloads), urgent))
        self.sent += map(joined, payloads)

    def raise_limit(self, limit: int) -> None:
        self.calls.append(("limit", limit))

    def pause(self) -> None:
        self.calls.append("pause")

    def resume(self) -> None:
        self.calls.append("resume")

    def close(self, reason: str = "") -> None:
        if self.closed is None:
            self.closed = reason
            if self.handler is not None:
                asyncio.get_running_loop().call_soon(self.handler.on_closed, reason)

    # The test's side.

    def say(self, *messages: ClientMessage | Publish) -> None:
        """The client sends messages in one go."""
        assert self.handler is not None
        self.handler.on_frames(self.wire.say(*messages))

    def hear(self) -> list[Any]:
        """What the client has heard since it last looked."""
        sent, self.sent = self.sent, []
        return self.wire.decode(sent)


class FakeListener:
    """An open port that a test connects to by hand."""

    def __init__(self, address: str, accept: Callable[[Link], LinkHandler]) -> None:
        self.address = address
        self.accept = accept
        self.closed = False

    async def close(self) -> None:
        self.closed = True

    def connect(self) -> FakeLink:
        """A client connects."""
        link = FakeLink()
        link.handler = self.accept(link)
        return link


class FakeTransport:
    """Listens wherever it is told."""

    scheme = "fake"
    encrypts = False
    asks_certificates = False

    def __init__(self) -> None:
        self.listeners: list[FakeListener] = []
        self.error: Exception | None = None

    def is_loopback(self, address: str) -> bool:
        return address.startswith("127.")

    async def listen(self, address: str, accept: Callable[[Link], LinkHandler]) -> Listener:
        if self.error is not None:
            raise self.error
        listener = FakeListener(address.replace(":0", ":4711"), accept)
        self.listeners.append(listener)
        return listener

    async def dial(self, address: str, accept: Callable[[Link], LinkHandler]) -> Link:
        raise NotImplementedError
