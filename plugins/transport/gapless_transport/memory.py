"""The transport `memory`: links within one process and one event loop, with faults if they are asked for.

Addresses are names; an empty one asks `listen` to make one up. Who shares a `MemoryNetwork` can dial each
other: `embedded:` connections and tests pass it as the option `network`; without it, a transport is alone.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from pydantic import Field

from gapless import loggers
from gapless.errors import ConfigurationError
from gapless.plugins import hookimpl
from gapless.spi import Link, LinkHandler, Listener, Transport
from gapless_transport.faults import FaultOptions, FaultyWire, Wire
from gapless_transport.memory_link import MemoryLink
from gapless_transport.options import checked

logger = loggers.logger(__name__)


class MemoryNetwork:
    """Who listens where, and who cannot reach whom."""

    def __init__(self) -> None:
        """A network with no listener and no partition."""
        self.listeners: dict[str, MemoryListener] = {}
        """The open listeners by address."""
        self._barred: set[tuple[str, str]] = set()
        self._named = 0

    def cut(self, source: str, target: str) -> None:
        """Loses, from now on, all that the transport named `source` sends to the one named `target`.

        Neither is told: links stay open and silent, as when a cable is pulled. New ones cannot be made.
        """
        self._barred.add((source, target))

    def partition(self, some: Iterable[str], others: Iterable[str]) -> None:
        """Cuts every transport named in `some` from every one in `others`, both ways."""
        theirs = list(others)
        for one in some:
            for other in theirs:
                self.cut(one, other)
                self.cut(other, one)

    def heal(self) -> None:
        """Ends every cut and partition. What was lost stays lost."""
        self._barred.clear()

    def is_barred(self, source: str, target: str) -> bool:
        """Whether what `source` sends to `target` is lost."""
        return (source, target) in self._barred

    def new_address(self) -> str:
        """An address that nobody listens at."""
        while True:
            self._named += 1
            address = f"memory-{self._named}"
            if address not in self.listeners:
                return address


class MemoryOptions(FaultOptions):
    """What can be configured of the transport `memory`."""

    network: MemoryNetwork = Field(default_factory=MemoryNetwork)
    """The network to listen and dial in; its own if none is given."""
    name: str = ""
    """What `MemoryNetwork.cut` calls this transport."""


class MemoryListener:
    """An address that can be dialed; see `gapless.spi.Listener`."""

    def __init__(self, transport: MemoryTransport, address: str, accept: Callable[[Link], LinkHandler]) -> None:
        """Opens `address` in the transport's network."""
        self.address = address
        self.transport = transport
        self.dialed = 0
        """How many links were ever made here: their numbers name their faults."""
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
    asks_certificates = False

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
        other = listener.transport.options
        barred = self.network.is_barred
        if barred(self.options.name, other.name) or barred(other.name, self.options.name):
            raise OSError(errno.EHOSTUNREACH, f"{address!r} cannot be reached")
        near, far = self._pair(listener)
        listener.welcome(far)
        near.begin(near, accept)
        if near.refusal is not None:
            raise near.refusal
        return near

    def _pair(self, listener: MemoryListener) -> tuple[MemoryLink, MemoryLink]:
        """Two joined ends. Each sends with the faults of its own transport's options."""
        ours, theirs = self.options, listener.transport.options
        listener.dialed += 1
        label = f"{listener.address}#{listener.dialed}"
        there = self._wire(ours, f"{label}/there", ours.name, theirs.name)
        back = self._wire(theirs, f"{label}/back", theirs.name, ours.name)
        if isinstance(there, FaultyWire) and isinstance(back, FaultyWire):
            there.other, back.other = back, there
        near = MemoryLink(listener.address, ours, there)
        far = MemoryLink(ours.name or f"{label}/dialer", theirs, back)
        near.other, far.other = far, near
        return near, far

    def _wire(self, options: MemoryOptions, label: str, source: str, target: str) -> Wire:
        is_barred = partial(self.network.is_barred, source, target)
        return FaultyWire(options, label, is_barred) if options.faulty else Wire(is_barred)


@hookimpl
def open_transport(options: Mapping[str, Any]) -> Transport:
    """The transport with these options: see `MemoryOptions`.

    Raises ConfigurationError naming the option that is unknown or wrong.
    """
    return MemoryTransport(checked(MemoryOptions, options, "memory"))
