"""Addresses of brokers: `gapless://HOST:PORT`, one or several, with TLS, or a broker in this process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from gapless.errors import ConfigurationError
from gapless.texts import text_problem

PORT = 7400
"""The default port of a broker."""

TLS_FILES = ("ca", "certificate", "key")
"""The parameters of a `gapless+tls://` address that name files in PEM."""
_EXAMPLES = "'gapless://127.0.0.1:7400', 'gapless+tls://broker.example:7400' or 'embedded:./data'"


@dataclass(frozen=True, slots=True)
class Remote:
    """Brokers behind a transport. Each is tried in turn."""

    transport: str
    addresses: tuple[str, ...]
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Embedded:
    """A broker in this process, on the volume at `path`. "": in memory, for this connection alone."""

    path: str


def parse(address: str) -> Remote | Embedded:
    """Parses an address.

    `gapless://host:port,host:port` is TCP, `gapless+tls://` the same with TLS. `gapless+NAME://` is any other transport
    plugin, which parses the rest itself. After the hosts, `gapless+tls://` takes
    `?ca=FILE&certificate=FILE&key=FILE&server_name=NAME`: the authorities to trust instead of the system's, the
    certificate to show to a broker that asks for one, and the name in the broker's certificate if it is not the host.
    Raises ConfigurationError, which shows how to write it.
    """
    if problem := text_problem(address):
        raise ConfigurationError(f"an address {problem}: write {_EXAMPLES}")
    if address.startswith("embedded:"):
        return Embedded(address.removeprefix("embedded:"))
    scheme, separator, rest = address.partition("://")
    base, plus, transport = scheme.partition("+")
    if not separator or base != "gapless" or (plus and not transport):
        raise ConfigurationError(f"{address!r} is no address of a broker: write {_EXAMPLES}")
    query = ""
    if transport == "tls":
        rest, _, query = rest.partition("?")
    hosts = tuple(host.strip() for host in rest.rstrip("/").split(","))
    if not all(hosts):
        raise ConfigurationError(f"{address!r} names no host, or an empty one: write {_EXAMPLES}")
    if transport == "tls":
        return Remote("tcp", tuple(map(_with_port, hosts)), {"tls": True, **_tls_options(query)})
    if transport in {"", "tcp"}:
        return Remote("tcp", tuple(map(_with_port, hosts)))
    return Remote(transport, hosts)


def _tls_options(query: str) -> dict[str, str]:
    known = (*TLS_FILES, "server_name")
    options: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in known or not value or name in options:
            raise ConfigurationError(
                f"'?{query}': behind the hosts of gapless+tls:// may stand {', '.join(known)}, each once, with a value"
            )
        options[name] = str(Path(value).expanduser()) if name in TLS_FILES else value
    return options


def _with_port(host: str) -> str:
    if "/" in host or "@" in host or "?" in host:
        raise ConfigurationError(f"{host!r} is no host with a port: after them nothing may follow")
    has_port = "]:" in host if host.startswith("[") else ":" in host
    if has_port and host.rpartition(":")[2] == "0":
        raise ConfigurationError(f"{host!r}: nobody can be dialled at port 0; a broker prints the one that it got")
    return host if has_port else f"{host}:{PORT}"
