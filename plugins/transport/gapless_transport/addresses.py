"""Addresses of the form `HOST:PORT`, with IPv6 in brackets: `127.0.0.1:7400`, `[::1]:7400`."""

from __future__ import annotations

import ipaddress
from functools import lru_cache

from gapless.errors import ConfigurationError


@lru_cache(maxsize=256)  # a client asks for the same few with each connection
def parse(address: str) -> tuple[str, int]:
    """The host, without brackets, and the port of `address`.

    Raises ConfigurationError, naming the address and what to write instead, when it is malformed.
    """
    host, colon, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ConfigurationError(f"address {address!r}: IPv6 stands in brackets, as in '[::1]:7400'")
    if not colon or not _is_port(port):
        raise ConfigurationError(f"address {address!r} does not end in a port, as '127.0.0.1:7400' does")
    if not _is_host(host):
        raise ConfigurationError(
            f"address {address!r} has no valid host; for every interface, write '0.0.0.0' or '[::]'"
        )
    return host, int(port)


def render(host: str, port: int) -> str:
    """The address of a host and a port: what `parse` takes apart."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach a listener at `address`.

    Names other than `localhost` are not looked up: what they mean may change. Raises ConfigurationError
    when the address is malformed.
    """
    host, _ = parse(address)
    if host.lower() == "localhost":
        return True
    try:
        number = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = number.ipv4_mapped if isinstance(number, ipaddress.IPv6Address) else None
    return (mapped or number).is_loopback


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 5 and int(text) < 65536


def _is_host(text: str) -> bool:
    """Whether a resolver can be asked for it; asked for other things it raises what is no OSError."""
    try:
        text.encode("idna")
    except UnicodeError:
        return False
    return bool(text) and text.isprintable() and not any(char in text for char in " []/@")
