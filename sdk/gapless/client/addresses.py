"""Addresses of brokers: `gapless://HOST:PORT`, one or several, with TLS, or a broker in this process."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, quote, unquote

from gapless.errors import ConfigurationError
from gapless.texts import text_problem

PORT = 7400
"""The default port of a broker."""

TLS_FILES = ("ca", "certificate", "key")
"""The parameters of a `gapless+tls://` address that name files in PEM."""
LOGIN_FILES = ("password_file", "token_file")
"""The parameters that name a file with a secret."""
NO_SECRETS: Final = (
    "an address with a password or a token in it is not taken: whoever lists processes, settings or logs would read it."
    " Write gapless+tls://USER@HOST?password_file=FILE or ?token_file=FILE"
)
_PARAMETERS: Final = re.compile(rf"\?(?:{'|'.join((*TLS_FILES, 'server_name', *LOGIN_FILES))})=")
_SECRETS: Final = re.compile(r"(?i)[?&;#/](?:password|passwd|pwd|pass|token|secret|access_token)=")
_MORE: Final = frozenset("@?=")
"""An address without any of these says where a broker is, and no more. Most are such, and are looked at no further."""
_SCHEME: Final = re.compile(r"[A-Za-z0-9+.-]+://|gapless(?:\+[a-z]+)?:")
"""What stands before the user; whoever forgets it, or half of it, shows no password either."""
_EXAMPLES = "'gapless://127.0.0.1:7400', 'gapless+tls://broker.example:7400' or 'embedded:./data'"


@dataclass(frozen=True, slots=True)
class Login:
    """Who an address says that the client is."""

    user: str
    """"" where a token says it."""
    password_file: str = ""
    token_file: str = ""


@dataclass(frozen=True, slots=True)
class Remote:
    """Brokers behind a transport. Each is tried in turn."""

    transport: str
    addresses: tuple[str, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    login: Login | None = None


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
    With TCP and TLS, a user may stand before the hosts, and `?password_file=FILE` or `?token_file=FILE` behind them.
    Raises ConfigurationError, which shows how to write it, and no secret that somebody has written there.
    """
    if problem := text_problem(address):
        raise ConfigurationError(f"an address {problem}: write {_EXAMPLES}")
    says_more = not _MORE.isdisjoint(address)
    if says_more and _has_secret(address):
        raise ConfigurationError(NO_SECRETS)
    if address.startswith("embedded:"):
        return Embedded(address.removeprefix("embedded:"))
    scheme, separator, rest = address.partition("://")
    base, plus, transport = scheme.partition("+")
    if not separator or base != "gapless" or (plus and not transport):
        raise ConfigurationError(f"{address!r} is no address of a broker: write {_EXAMPLES}")
    query = user = ""
    if transport in {"", "tcp", "tls"}:
        rest, _, query = rest.partition("?")
        user, at, hosts_alone = rest.rpartition("@")
        rest = hosts_alone if at else rest
        if at and not user:
            raise ConfigurationError(f"{address!r} names an empty user: write gapless+tls://USER@HOST")
    hosts = tuple(host.strip() for host in rest.rstrip("/").split(","))
    if not all(hosts):
        raise ConfigurationError(f"{address!r} names no host, or an empty one: write {_EXAMPLES}")
    if transport not in {"", "tcp", "tls"}:
        return Remote(transport, hosts)
    parameters: dict[str, str] = {}
    login = None
    if says_more:
        parameters = _parameters(query, has_tls=transport == "tls")
        login = _login(unquote(user), *(parameters.pop(name, "") for name in LOGIN_FILES))
    options = {"tls": True, **parameters} if transport == "tls" else {}
    return Remote("tcp", tuple(map(_with_port, hosts)), options, login)


def with_login(address: str, login: Login) -> str:
    """Returns the address with a user and files in it, for whoever hands addresses on, to other processes perhaps.

    Raises ConfigurationError if it has a login already, or is of a transport that has none in its addresses.
    """
    target = parse(address)
    if not isinstance(target, Remote) or target.transport != "tcp":
        raise ConfigurationError(f"{address!r}: only addresses of TCP and TLS have users, passwords and tokens")
    if target.login is not None:
        raise ConfigurationError("a user or a file is given, and the address names one of its own, too")
    scheme, _, rest = address.partition("://")
    hosts, _, query = rest.partition("?")
    files = {"password_file": login.password_file, "token_file": login.token_file}
    given = [f"{name}={quote(str(Path(file).expanduser().absolute()))}" for name, file in files.items() if file]
    user = f"{quote(login.user, safe='')}@" if login.user else ""
    parameters = "&".join(([query] if query else []) + given)
    made = f"{scheme}://{user}{hosts}{'?' if parameters else ''}{parameters}"
    parse(made)
    return made


def _has_secret(address: str) -> bool:
    """Whether something in an address looks like a secret: then nothing of it is shown."""
    found = _PARAMETERS.search(address)
    before = address[: found.start()] if found else address
    scheme = _SCHEME.match(before)
    user, at, _ = before[scheme.end() if scheme else 0 :].rpartition("@")
    if at and ":" in user and not address.startswith("embedded:"):
        return True
    return _SECRETS.search(unquote(address)) is not None


def _parameters(query: str, *, has_tls: bool) -> dict[str, str]:
    known = (*TLS_FILES, "server_name", *LOGIN_FILES) if has_tls else LOGIN_FILES
    parameters: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in known or not value or name in parameters:
            scheme = "gapless+tls" if has_tls else "gapless"
            raise ConfigurationError(
                f"'?{name}=…': behind the hosts of {scheme}:// may stand {', '.join(known)}, each once, with a value"
            )
        parameters[name] = value if name == "server_name" else str(Path(value).expanduser())
    return parameters


def _login(user: str, password_file: str, token_file: str) -> Login | None:
    if token_file and (user or password_file):
        raise ConfigurationError("?token_file=… stands alone: a token says itself who shows it, and needs no password")
    if password_file and not user:
        raise ConfigurationError("?password_file=… needs a user: write gapless+tls://USER@HOST?password_file=FILE")
    return Login(user, password_file, token_file) if user or token_file else None


def _with_port(host: str) -> str:
    if "/" in host or "@" in host or "?" in host:
        raise ConfigurationError(f"{host!r} is no host with a port: after them nothing may follow")
    has_port = "]:" in host if host.startswith("[") else ":" in host
    if has_port and host.rpartition(":")[2] == "0":
        raise ConfigurationError(f"{host!r}: nobody can be dialled at port 0; a broker prints the one that it got")
    return host if has_port else f"{host}:{PORT}"
