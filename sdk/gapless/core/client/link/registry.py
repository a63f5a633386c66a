"""Registries: what lives on through all sessions of a client (publishers, subscriptions, requests), by number."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from operator import attrgetter
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from gapless.core.client.link.outbox import ClientOutbox
from gapless.errors import GaplessError


class ClientTimer(Enum):
    """The kinds of deadline."""

    CONNECT = "connect"
    """Dial again; or give up credentials, a dial or a greeting that take too long."""
    RENEWAL = "renewal"
    """Renew the credentials, or try again."""
    HEARTBEAT = "heartbeat"
    """Send something, if nothing was sent."""
    SILENCE = "silence"
    """Judge the link dead, if nothing was received."""
    ACKNOWLEDGE = "acknowledge"
    """Send the acknowledgements that have gathered."""
    PUBLISHER = "publisher"
    """Send or open again what the broker refused for now."""
    SUBSCRIPTION = "subscription"
    """Attach again."""
    REQUEST = "request"
    """Ask again."""
    HOST = "host"
    """Look again for a pubend's host."""


Key: TypeAlias = "tuple[ClientTimer, int]"
"""The kind, and the number of the publisher, subscription or request (0: the connection)."""


class Member(Protocol):
    """One publisher, subscription or request."""

    @property
    def number(self) -> int:
        """The number by which the application knows it."""

    @property
    def over(self) -> bool:
        """Whether it has come to its end."""

    def on_session(self) -> None:
        """A session is open."""

    def on_session_over(self) -> None:
        """The session is over, and everything that was on its way in it is lost."""

    def on_deadline(self) -> None:
        """The delay before a repetition is over."""

    def fail(self, error: GaplessError) -> None:
        """Ends it, and reports the reason to the application."""


M = TypeVar("M", bound=Member)


class ClientRegistry(Generic[M]):
    """All members of one kind, by the client's number. A member that is over is forgotten, and gets no messages."""

    def __init__(self, outbox: ClientOutbox) -> None:
        self._outbox = outbox
        self._members: dict[int, M] = {}
        self.get: Callable[[int], M | None] = self._members.get
        """Returns the member with this number, unless it is over."""

    def __iter__(self) -> Iterator[M]:
        return iter(self._members.values())

    def __contains__(self, number: int) -> bool:
        return number in self._members

    def add(self, member: M) -> None:
        """Adds a member. If there is a session, it begins at once."""
        self._members[member.number] = member
        if self._outbox.open:
            member.on_session()
            self._forget_if_over(member)

    def pop(self, number: int) -> M | None:
        """Forgets a member, and returns it if it was not over."""
        return self._members.pop(number, None)

    def forward(self, handle: Callable[[M, Any], None], number: str = "request") -> Callable[[Any], None]:
        """Returns a handler that passes each message to the member whose number is in that field."""
        number_of = attrgetter(number)

        def on_message(message: Any) -> None:
            member = self._members.get(number_of(message))
            if member is not None:
                handle(member, message)
                if member.over:
                    self._members.pop(member.number, None)

        return on_message

    def on_session(self) -> None:
        """A session is open."""
        for member in list(self._members.values()):
            member.on_session()
            self._forget_if_over(member)

    def on_session_over(self) -> None:
        """The session is over."""
        for member in self._members.values():
            member.on_session_over()

    def on_deadline(self, number: int) -> None:
        """The delay of one of the members is over."""
        member = self._members.get(number)
        if member is not None:
            member.on_deadline()
            self._forget_if_over(member)

    def fail(self, number: int, error: GaplessError) -> None:
        """Ends a member, if it is not over."""
        member = self._members.pop(number, None)
        if member is not None:
            member.fail(error)

    def fail_all(self, error: GaplessError) -> None:
        """Ends all members."""
        for number in list(self._members):
            self.fail(number, error)

    def _forget_if_over(self, member: M) -> None:
        if member.over:
            self._members.pop(member.number, None)
