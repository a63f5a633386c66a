"""What the suite needs to be told about a transport."""

from __future__ import annotations

import abc
import asyncio
from collections.abc import Sequence

from gapless.spi import Link, Transport
from gapless_testing.running import LoopHarness

LOOPBACK = "127.0.0.1:0"


class TransportHarness(LoopHarness, abc.ABC):
    """Your transport, as the suite sees it.

    Configure it small, so that the tests are quick, and say here how: the numbers are those that the
    transport was really given. If its links begin with a handshake, give that a timeout of about one second.
    """

    address: str
    """Where to listen, so that two listeners at a time do not collide: `127.0.0.1:0`, an empty name, …

    Where it ends in `127.0.0.1:0`, the suite also connects to that port by TCP, dials other people's ports, and asks
    `is_loopback` of other hosts.
    """
    malformed: Sequence[str] = ()
    """Addresses that are refused with ConfigurationError; empty if every text is an address."""
    frame_limit: int = 4096
    """The longest payload accepted before `raise_limit`."""
    high_water: int
    """Above this `pending`, `on_drained` is owed. At least 128 KiB."""
    low_water: int
    """At this `pending`, it is paid."""
    pending_max: int
    """Above this `pending`, the link is closed. At least eight times `high_water`, and 9 MiB."""
    carries_bytes: bool = True
    """Whether there is a stream of bytes below the frames, which `dial_raw` can reach."""
    tells_loss: bool = True
    """Whether a link that lost its connection can tell that from a goodbye of the other end.

    False over plain TCP: the system says goodbye for a process that died.
    """

    follows_files: bool = False
    """Whether the transport reads files again when they change, as certificates; `spoil` and `mend` change them."""

    @abc.abstractmethod
    def transport(self) -> Transport:
        """A fresh transport that listens and dials; it gives a close about one second to send what is pending."""

    @abc.abstractmethod
    def vanish(self, link: Link) -> None:
        """Breaks the connection of `link` without a goodbye, as if the process at its end had died."""

    def shown(self) -> bytes:
        """The certificate, as DER, that its listeners show; b"" without TLS."""
        return b""

    def spoil(self) -> None:
        """Makes a file useless that the transport under test has read."""
        raise NotImplementedError(
            f"{type(self).__name__} has files that are followed, but does not say how to spoil one"
        )

    def mend(self) -> None:
        """Makes it again what it was before."""
        raise NotImplementedError(f"{type(self).__name__} spoils a file, but does not say how to mend it")

    async def dial_raw(self, address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to a listener that speaks no frames, for bytes that no link would send."""
        raise NotImplementedError(f"{type(self).__name__} carries bytes, but does not say how to send some")

    def at(self, host: str, port: int = 0) -> str | None:
        """The address of another host or port, or None where addresses are no hosts and ports."""
        if not self.address.endswith(LOOPBACK):
            return None
        return f"{self.address.removesuffix(LOOPBACK)}{host}:{port}"
