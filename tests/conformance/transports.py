"""Our transports as the conformance suite sees them."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import trustme
import uvloop

from gapless.spi import Link, Transport
from gapless_testing.transport import TransportHarness
from gapless_transport import addresses, memory, tcp
from gapless_transport.links import BaseLink

LIMITS = {
    "frame_limit": 4096,
    "high_water": 128 << 10,
    "low_water": 32 << 10,
    "pending_max": 10 << 20,
    "close_timeout": 1.0,
}

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


class OurHarness(TransportHarness):
    """What our transports have in common."""

    frame_limit = 4096
    high_water = 128 << 10
    low_water = 32 << 10
    pending_max = 10 << 20

    def __init__(self, loop: str) -> None:
        self._loop = loop

    def new_loop(self) -> asyncio.AbstractEventLoop:
        return LOOPS[self._loop]()

    def vanish(self, link: Link) -> None:
        cast("BaseLink[Any]", link).fail("vanished")


class MemoryHarness(OurHarness):
    address = ""
    carries_bytes = False

    def __init__(self, loop: str, **faults: float) -> None:
        super().__init__(loop)
        self._network = memory.MemoryNetwork()
        self._faults = faults

    def transport(self) -> Transport:
        return memory.open_transport(options={**LIMITS, **self._faults, "network": self._network})


class TcpHarness(OurHarness):
    address = "127.0.0.1:0"
    # The system says goodbye for a process that died, and asyncio does not tell whether TLS said it too.
    tells_loss = False
    malformed = ("", "127.0.0.1", ":7400", "127.0.0.1:", "127.0.0.1:65536", "::1:7400", "a b:1", "h\0st:1")

    def transport(self) -> Transport:
        return tcp.open_transport(options=LIMITS)

    async def dial_raw(self, address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(*addresses.parse(address), ssl=self._context())

    def _context(self) -> ssl.SSLContext | None:
        return None


class TlsHarness(TcpHarness):
    follows_files = True

    def __init__(self, loop: str, files: Mapping[str, Path]) -> None:
        super().__init__(loop)
        self._files = files

    def transport(self) -> Transport:
        return tcp.open_transport(options={**LIMITS, **self._files, "tls": True, "handshake_timeout": 1.0})

    def shown(self) -> bytes:
        return ssl.PEM_cert_to_DER_cert(self._files["certificate"].read_text())

    def spoil(self) -> None:
        key = self._files["key"]
        self._whole = key.read_bytes()
        key.write_bytes(self._whole[:100])

    def mend(self) -> None:
        self._files["key"].write_bytes(self._whole)

    def _context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self._files["ca"])


def write_certificates(directory: Path, *names: str) -> dict[str, Path]:
    """Makes an authority and a certificate for `names`; returns the paths of both and of the key."""
    authority = trustme.CA()
    issued = authority.issue_cert(*names)
    files = {name: directory / f"{name}.pem" for name in ("ca", "certificate", "key")}
    authority.cert_pem.write_to_path(str(files["ca"]))
    issued.cert_chain_pems[0].write_to_path(str(files["certificate"]))
    issued.private_key_pem.write_to_path(str(files["key"]))
    return files
