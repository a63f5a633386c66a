from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path

import pytest

from conformance.transports import write_certificates
from gapless.spi import Listener, Transport
from gapless_testing.transport.ends import End, Ends
from gapless_transport import tcp

Open = Callable[..., Transport]
Listen = Callable[..., Awaitable[tuple[Listener, Ends]]]


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """An authority (`ca`), and a `certificate` with its `key` for 127.0.0.1 and broker.example."""
    return write_certificates(tmp_path_factory.mktemp("ours"), "127.0.0.1", "broker.example")


@pytest.fixture(scope="session")
def other_certificates(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """The same of another authority, which nobody trusts."""
    return write_certificates(tmp_path_factory.mktemp("others"), "127.0.0.1", "broker.example")


@pytest.fixture
def open_tcp() -> Open:
    """Makes a TCP transport; its links take little time for goodbyes."""

    def open_transport(**options: object) -> Transport:
        opened: Transport = tcp.open_transport(options={"close_timeout": 0.5, **options})
        return opened

    return open_transport


@pytest.fixture
async def listen(open_tcp: Open) -> AsyncIterator[Listen]:
    """Listens on a port of its own; afterwards the listener and its links are closed."""
    opened: list[tuple[Listener, Ends]] = []

    async def listen(
        transport: Transport, address: str = "127.0.0.1:0", prepare: Callable[[End], None] = lambda _: None
    ) -> tuple[Listener, Ends]:
        ends = Ends(prepare)
        listener = await transport.listen(address, ends.accept)
        opened.append((listener, ends))
        return listener, ends

    yield listen
    for listener, ends in opened:
        await listener.close()
        for end in ends.all:
            end.link.close()
            await end.end()
