"""The transport `tcp`: links over TCP, with TLS if it is configured.

Addresses are `HOST:PORT`; the host is a name, an IPv4 address, or an IPv6 address in brackets.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gapless import loggers
from gapless.core.alarms import Alarm
from gapless.plugins import hookimpl
from gapless.spi import Certificate, Link, LinkHandler, Listener, Transport
from gapless_transport import addresses, sockets, tls
from gapless_transport.options import checked
from gapless_transport.tcp_link import TcpLink
from gapless_transport.tcp_listener import TcpListener
from gapless_transport.tcp_options import TcpOptions
from gapless_transport.tls_files import TlsFiles, dialing_files, listening_files

logger = loggers.logger(__name__)

is_loopback = addresses.is_loopback

CLOSED_DURING_TLS = "the other end closed the connection during the TLS handshake: it may not speak TLS"


class TcpTransport:
    """Listens and dials with one set of options; see `gapless.spi.Transport`."""

    scheme = "tcp"

    def __init__(self, options: TcpOptions) -> None:
        """Reads the certificates; raises ConfigurationError when one cannot be used."""
        self._options = options
        self._listening: TlsFiles | None = None
        if options.certificate is not None:
            self._listening = listening_files(options.certificate, options.key, options.client_ca)
        self._dialing = dialing_files(options.ca, options.certificate, options.key) if options.tls else None
        self.tls_files = [files for files in (self._listening, self._dialing) if files is not None]
        """Those of listeners, if they have any, and then those for dialing."""
        self._logged = ""
        """What was last logged of files for dialing."""
        self.encrypts = self._listening is not None
        self.asks_certificates = options.client_ca is not None
        # The loop keeps a link alive only while it reads or writes for it; a paused one must live too.
        self._dialed: set[TcpLink] = set()

    def is_loopback(self, address: str) -> bool:
        """Whether only this machine can reach a listener at `address`."""
        return is_loopback(address)

    async def listen(self, address: str, accept: Callable[[Link], LinkHandler]) -> Listener:
        """Binds every address that the host of `address` means; with port 0, the first of them."""
        bound, real = await self.bind(address)
        return TcpListener(bound, real, accept, self._options, self._listening, self._look)

    async def dial(self, address: str, accept: Callable[[Link], LinkHandler]) -> Link:
        """Connects to the first address that answers of those which the host of `address` means.

        Where the files that TLS needs cannot be used any more, what was read of them before is used. Raises OSError.
        """
        host, port = addresses.parse(address)
        loop = asyncio.get_running_loop()
        context = None if self._dialing is None else await self._context_to_dial(self._dialing)
        secure = context is not None
        link = TcpLink(accept, self._options, self._dialed.discard, peer=address, secure=secure, room=None)
        self._dialed.add(link)
        try:
            if context is None:
                await loop.create_connection(lambda: link, host, port)
            else:
                await self._dial_tls(link, host, port, context)
        except OSError as error:
            self._dialed.discard(link)
            raise _naming(address, error) from error
        except BaseException:
            self._dialed.discard(link)
            raise
        if link.refusal is not None:
            raise link.refusal
        return link

    def troubles(self) -> Sequence[Alarm]:
        """What is wrong with the files of certificates; see `gapless.spi.TellsTroubles`."""
        found = [alarm for files in self.tls_files for alarm in files.troubles()]
        # Both ends may have the same certificate.
        return list({(alarm.code, alarm.about): alarm for alarm in found}.values())

    # For a server of another protocol: see `gapless.spi.LendsSockets`.

    async def bind(self, address: str) -> tuple[Sequence[socket.socket], str]:
        """Binds as `listen` does, and accepts nothing."""
        host, port = addresses.parse(address)
        bound = await sockets.bind(address, host, port, self._options.backlog)
        return bound, addresses.render(host, bound[0].getsockname()[1])

    def tls(self) -> ssl.SSLContext | None:
        """The context for the next connection. Here clients need not show a certificate."""
        if self._listening is None:
            return None
        context = self._listening.look().context
        if self.asks_certificates:
            context.verify_mode = ssl.CERT_OPTIONAL
        return context

    def certificate_of(self, told: Any) -> Certificate:
        """What a certificate says."""
        return tls.certificate_of(told)

    def _look(self) -> None:
        """Looks whether files have changed. Blocks."""
        for files in self.tls_files:
            files.look()

    async def _context_to_dial(self, files: TlsFiles) -> ssl.SSLContext:
        """Of the files as they are now. They are read in a thread, as the system's authorities are many."""
        version = await asyncio.to_thread(files.look)
        if files.trouble != self._logged:
            self._logged = files.trouble
            if self._logged:  # a client has nobody else to tell
                logger.warning("%s; what was read before is used to dial", self._logged)
        return version.context

    async def _dial_tls(self, link: TcpLink, host: str, port: int, context: ssl.SSLContext) -> None:
        """Connects first and then starts TLS, because only so can each step be cancelled.

        Both loops lose the connection if a `create_connection` that does both is cancelled in between.
        """
        loop = asyncio.get_running_loop()
        plain, _ = await loop.create_connection(asyncio.Protocol, host, port)
        try:
            encrypted = await loop.start_tls(
                plain,
                link,
                context,
                server_hostname=self._options.server_name or host,
                ssl_handshake_timeout=self._options.handshake_timeout,
            )
        except ConnectionError as error:  # of which the loops do not say what it was
            plain.abort()
            raise OSError(CLOSED_DURING_TLS) from error
        except BaseException:
            plain.abort()
            raise
        if encrypted is None or encrypted.is_closing() or link.ended:
            plain.abort()
            raise OSError(CLOSED_DURING_TLS)
        link.shown = encrypted.get_extra_info("ssl_object").getpeercert(binary_form=True)
        link.connection_made(encrypted)


def _naming(address: str, error: OSError) -> OSError:
    """The same error, saying whom we could not reach; the loops word it differently or not at all."""
    if isinstance(error, ssl.SSLError):
        return type(error)(error.errno or 1, f"{address}: {tls.reason_of(error)}")
    if isinstance(error, socket.gaierror):
        return socket.gaierror(error.errno, f"{error.strerror}: {address}")
    if error.errno is None:
        return OSError(f"{address}: {error}")
    # An OSError that is made with a number takes the class that belongs to it.
    return OSError(error.errno, f"{os.strerror(error.errno)}: {address}")


@hookimpl
def open_transport(options: Mapping[str, Any]) -> Transport:
    """The transport with these options: see `gapless_transport.tcp_options`.

    Raises ConfigurationError naming the option that is unknown or wrong.
    """
    return TcpTransport(checked(TcpOptions, options, "tcp"))
