"""Who somebody is: what a link tells of it, what an authenticator says, and what nodes say to each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

SentPrincipal: TypeAlias = str | tuple[str, tuple[str, ...]]
"""A principal as nodes say it to each other: the name alone where there are no groups, because older nodes know names
alone; else both, the groups in order."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Who a client is, as an authenticator established it."""

    name: str
    groups: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return self.name

    @classmethod
    def of(cls, sent: SentPrincipal) -> Principal:
        """The principal that another node has said."""
        return cls(sent) if isinstance(sent, str) else cls(sent[0], frozenset(sent[1]))

    @property
    def sent(self) -> SentPrincipal:
        """The same, as it is said to another node."""
        return (self.name, tuple(sorted(self.groups))) if self.groups else self.name


NOBODY = Principal("")
"""What a role does by itself, and no client has asked for."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """What the verified certificate of the other end of a link says."""

    common_name: str = ""
    """"" if it has none, or several."""
    units: tuple[str, ...] = ()
    """Its organizational units."""
    uris: tuple[str, ...] = ()
    """Of its subject alternative names the URIs …"""
    dns_names: tuple[str, ...] = ()
    """… and the DNS names."""


NO_CERTIFICATE: Final = Certificate()
"""The other end has shown none, or none that was verified."""


@dataclass(frozen=True, slots=True)
class PeerInfo:
    """What is known of the other end of a client's link before it has said anything."""

    address: str
    certificate: Certificate
    secure: bool
    """Whether the link is encrypted, or never leaves this process."""
    is_local: bool
    """Whether only this machine can reach the listener that it came through."""
    binding: bytes
    """The hash of the certificate that the listener has shown on this link (RFC 5929: tls-server-end-point); b"": it
    has shown none, or the certificate has no such hash."""


@dataclass(frozen=True, slots=True)
class Admission:
    """The client is this one."""

    principal: Principal
    until: int | None
    """When that is over, in milliseconds since 1970: then the session ends, unless the client has renewed it. None: it
    is never over."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The client is not let in. It is told that its credentials are not valid here, and no more."""

    reason: str
    """For the broker's log, without any secret."""


@dataclass(frozen=True, slots=True)
class Later:
    """What holds after a while: the client, and nobody else, waits so long for it."""

    wait: int
    """Nanoseconds."""
    then: Admission | Refusal | bytes


Judgement: TypeAlias = Admission | Refusal | Later | bytes
"""Bytes are a challenge, which the client is to answer."""
