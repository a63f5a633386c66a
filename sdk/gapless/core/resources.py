"""What actions are about that need permission: topics, and what else whoever decides is told by its name."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias


class Durable(NamedTuple):
    """A durable subscription, as it is named to whoever decides about it."""

    client_id: str
    name: str

    def __str__(self) -> str:
        return f"{self.name!r} of client {self.client_id!r}"


class Publisher(NamedTuple):
    """A publisher with a name, or a producer under keys: the same one whatever it publishes."""

    name: str


class AnyTopic(NamedTuple):
    """At least one of the topics that a pattern matches."""

    pattern: str


Resource: TypeAlias = str | Durable | Publisher | AnyTopic
"""What an action is about."""
