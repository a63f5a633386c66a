"""Who somebody is, as a broker knows him, and as nodes say it to each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

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
