"""The transport `memory`: links within one process and one event loop.

Addresses are names; an empty one asks `listen` to make one up. Who shares a `MemoryNetwork` can dial each
other: it is passed as the option `network`; without it, a transport is alone, as that of an `embedded:` broker is.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import Field

from gapless import loggers
from gapless.errors import ConfigurationError
from gapless.plugins import hookimpl
from gapless.spi import Link, LinkHandler, Listener, Transport
from gapless_transport.memory_link import MemoryLink
from gapless_transport.options import LinkOptions, checked

logger = loggers.logger(__name__)


class MemoryNetwork:
    """Who listens where."""

    def __init__(self) -> None:
        """A network with no listener."""
        self.listeners: dict[str, MemoryListener] = {}
        """The open listeners by address."""
        self._named = 0

    def new_address(self) -> str:
        """An address that nobody listens at."""
        while True:
            self._named += 1
            address = f"memory-{self._named}"
            if address not in self.listeners:
                return address


class MemoryOptions(LinkOptions):
    """What can be configured of the transport `memory`."""

    network: MemoryNetwork = Field(default_factory=MemoryNetwork)
    """The network to listen and dial in; its own if none is given."""


class MemoryListener:
    """An address that can be dialed; see `gapless.spi.Listener`."""

    def __init__(self, transport: MemoryTransport, address: str, accept: Callable[[Link], LinkHandler]) -> None:
        """Opens `address` in the transport's network."""
        self.address = address
        self.transport = transport
        self.dialed = 0
        """How many links were ever made here: their numbers name their ends."""
        self._accept = accept
        transport.network.listeners[address] = self

    async def close(self) -> None:
        """Accepts no more; links go on."""
        listeners = self.transport.network.listeners
        if listeners.get(self.address) is self:
            del listeners[self.address]

    def welcome(self, link: MemoryLink) -> None:
        """A link has come in."""
        link.begin(link, self._accept)
        if link.refusal is not None:
            logger.error("%s: a link was not accepted", self.address, exc_info=link.refusal)


class MemoryTransport:
    """Listens and dials in one network; see `gapless.spi.Transport`."""

    scheme = "memory"
    encrypts = True

    def __init__(self, options: MemoryOptions) -> None:
        """A transport in `options.network`."""
        self.network = options.network
        self.options = options

    def is_loopback(self, address: str) -> bool:
        """Nobody outside this process can reach anything here."""
        return True

    async def listen(self, address: str, accept: Callable[[Link], LinkHandler]) -> Listener:
        """Opens `address`, or a new one if it is empty."""
        address = address or self.network.new_address()
        if address in self.network.listeners:
            raise ConfigurationError(f"cannot listen on {address!r}: somebody does already")
        return MemoryListener(self, address, accept)

    async def dial(self, address: str, accept: Callable[[Link], LinkHandler]) -> Link:
        """Connects to whoever listens at `address`."""
        listener = self.network.listeners.get(address)
        if listener is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"nobody listens at {address!r}")
        near, far = self._pair(listener)
        listener.welcome(far)
        near.begin(near, accept)
        if near.refusal is not None:
            raise near.refusal
        return near

    def _pair(self, listener: MemoryListener) -> tuple[MemoryLink, MemoryLink]:
        """Two joined ends, each with the options of its own transport."""
        listener.dialed += 1
        near = MemoryLink(listener.address, self.options)
        far = MemoryLink(f"{listener.address}#{listener.dialed}/dialer", listener.transport.options)
        near.other, far.other = far, near
        return near, far


@hookimpl
def open_transport(options: Mapping[str, Any]) -> Transport:
    """The transport with these options: see `MemoryOptions`.

    Raises ConfigurationError naming the option that is unknown or wrong.
    """
    return MemoryTransport(checked(MemoryOptions, options, "memory"))
