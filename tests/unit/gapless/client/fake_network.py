"""A transport whose other end is a fake broker: links made by hand, on the running loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from gapless.core.wire.codec import session_of
from gapless.spi import Certificate, Link, LinkHandler
from unit.gapless.client.fake_broker import FakeBroker

T = TypeVar("T")


class FakeLink:
    """The client's end of a link."""

    peer = "fake"
    certificate = Certificate()
    secure = True
    pending = 0

    def __init__(self, network: FakeNetwork, number: int) -> None:
        self.network = network
        self.shown = network.shown
        self.number = number
        self.handler: LinkHandler | None = None
        self.open = True
        self.limit = 4096
        self.sent: list[bytes] = []

    def send(self, payloads: Sequence[bytes | tuple[bytes, bytes]], *, urgent: bool = False) -> None:
        if self.open:
            self.network.sends += 1
            self.network.carry(self, [p if isinstance(p, bytes) else b"".join(p) for p in payloads])

    def raise_limit(self, limit: int) -> None:
        self.limit = limit

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def close(self, reason: str = "") -> None:
        asyncio.get_running_loop().call_soon(self.end, reason)

    def end(self, reason: str = "") -> None:
        """The link is over, for both ends."""
        if self.open:
            self.open = False
            self.network.broker.disconnect(self.number)
            assert self.handler is not None
            self.handler.on_closed(reason)


class FakeNetwork:
    """One broker, reachable under any address but those that are `unreachable`."""

    scheme = "fake"

    def __init__(self, broker: FakeBroker | None = None) -> None:
        self.broker = broker or FakeBroker()
        self.links: dict[int, FakeLink] = {}
        self.unreachable = False
        self.shown = b""
        """The certificate that the listener shows."""
        self.dialled: list[str] = []
        self.sends = 0
        self.stalled = False
        """Whether what the client sends is kept back."""
        self.kept: list[tuple[FakeLink, list[bytes]]] = []

    def is_loopback(self, _address: str) -> bool:
        """Every address is one."""
        return True

    async def dial(self, address: str, accept: Callable[[Link], LinkHandler]) -> Link:
        self.dialled.append(address)
        self._loop = asyncio.get_running_loop()
        await asyncio.sleep(0)
        if self.unreachable:
            raise ConnectionRefusedError("nobody there")
        link = self.links[len(self.links)] = FakeLink(self, len(self.links))
        self.broker.connect(link.number)
        link.handler = accept(link)
        return link

    async def listen(self, address: str, accept: Callable[[Link], LinkHandler]) -> Any:
        raise NotImplementedError

    def carry(self, link: FakeLink, payloads: list[bytes]) -> None:
        if self.stalled:
            self.kept.append((link, payloads))
        else:
            asyncio.get_running_loop().call_soon(self._arrive, link, payloads)

    def flow(self) -> None:
        """What was kept back arrives."""
        self.stalled = False
        kept, self.kept = self.kept, []
        for link, payloads in kept:
            self._arrive(link, payloads)

    def _arrive(self, link: FakeLink, payloads: list[bytes]) -> None:
        if link.open:
            self.broker.frames(link.number, payloads)
            self.settle()
            if self.broker.late:
                asyncio.get_running_loop().call_later(self.broker.delay, self._be_late)

    def _be_late(self) -> None:
        self.broker.take_late()
        self.settle()

    def settle(self) -> None:
        """What the broker has to say arrives at its clients."""
        for number, payload in self.broker.take():
            link = self.links[number]
            if payload is None:
                link.end("closed by the broker")
            elif link.open:
                assert len(payload) <= link.limit, "the client was told to expect less"
                assert session_of(payload) >= 0
                assert link.handler is not None
                link.handler.on_frames([payload])

    def log(self, *bodies: bytes, **properties: Any) -> list[int]:
        """Events are logged, and delivered."""
        ticks = self.broker.log(*bodies, **properties)
        self.settle()
        return ticks

    def do(self, act: Callable[[], T]) -> T:
        """Does something in the loop of who has connected, from another thread."""

        async def done() -> T:
            return act()

        return asyncio.run_coroutine_threadsafe(done(), self._loop).result(60)

    def silence(self, upto: int | None = None) -> int:
        """The broker says that nothing came."""
        upto = self.broker.say_silence(upto)
        self.settle()
        return upto

    def cut(self) -> None:
        """All links break."""
        for link in list(self.links.values()):
            link.end("cut")
        self.broker.take()
