"""The users of a node's volume, as they are managed through a connection (protocol: users)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Final, TypeAlias

import msgspec

from gapless.core.wire.messages.asking import in_parts
from gapless.core.wire.messages.base import ClientMessage, Number, Number32, ServerMessage
from gapless.texts import name_problem

KEY_BYTES: Final = 32
SALT_BYTES_MIN: Final = 12
SALT_BYTES_MAX: Final = 64
GROUPS_MAX: Final = 64
"""So many groups a user is in at most."""
GROUPS_BYTES_MAX: Final = 2048
"""So long the names of all groups of a user are together, at most: a user fits into any frame."""

ITERATIONS_MIN: Final = 10_000
ITERATIONS_MAX: Final = 1_000_000
"""More would take a client longer than it may be busy with one thing."""
NOBODY_IN_PARTICULAR: Final = "anonymous"
"""What everybody is called who has not proved who he is; so no user is called that."""

Key: TypeAlias = Annotated[bytes, msgspec.Meta(min_length=KEY_BYTES, max_length=KEY_BYTES)]
Salt: TypeAlias = Annotated[bytes, msgspec.Meta(min_length=SALT_BYTES_MIN, max_length=SALT_BYTES_MAX)]


class Verifier(msgspec.Struct, array_like=True, frozen=True):
    """What a broker knows of a password (RFC 5802): enough to check a proof of it, and to prove that it knows this.

    The password does not follow from it, but can be tried out with it; so it is shown to nobody.
    """

    salt: Salt
    iterations: Number32
    stored_key: Key
    server_key: Key

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"


def user_name_problem(name: str) -> str:
    """Returns what is wrong with the name of a user, as the end of a sentence; "" if nothing is."""
    if name == NOBODY_IN_PARTICULAR:
        return "is what everybody is called who has not proved who he is"
    return name_problem(name)


def groups_problem(groups: Sequence[str]) -> str:
    """Returns what is wrong with the groups of a user, as a sentence; "" if nothing is."""
    for group in groups:
        if problem := name_problem(group):
            return f"the group's name {problem}"
    if len(groups) > GROUPS_MAX:
        return f"{len(groups):,} groups; at most {GROUPS_MAX} are taken"
    if len(set(groups)) < len(groups):
        return "a group is named twice"
    if sum(len(group.encode()) for group in groups) > GROUPS_BYTES_MAX:
        return f"the names of all groups are longer than {GROUPS_BYTES_MAX:,} bytes together"
    return ""


def verifier_problem(verifier: Verifier) -> str:
    """Returns what is wrong with a verifier, as a sentence; "" if nothing is."""
    if ITERATIONS_MIN <= verifier.iterations <= ITERATIONS_MAX:
        return ""
    return f"a password is hashed {ITERATIONS_MIN:,} to {ITERATIONS_MAX:,} times, not {verifier.iterations:,}"


class AddUser(ClientMessage, frozen=True, tag=36):
    """Makes a user. Done answers it, also if the same user is there with this very verifier."""

    request: Number
    name: str
    verifier: Verifier
    groups: tuple[str, ...]


class ChangeUser(ClientMessage, frozen=True, tag=37):
    """Gives a user another password, or other groups. Done answers it."""

    request: Number
    name: str
    verifier: Verifier | None
    """None: the password stays."""
    groups: tuple[str, ...] | None
    """None: they stay."""


class RemoveUser(ClientMessage, frozen=True, tag=38):
    """Removes a user. Done answers it."""

    request: Number
    name: str


class ListUsers(ClientMessage, frozen=True, tag=39):
    """Asks for the users of the node that the client is connected to. UserList answers it."""

    request: Number


class ListedUser(msgspec.Struct, array_like=True, frozen=True):
    """One user. Nothing of its verifier is told."""

    name: str
    groups: tuple[str, ...]
    changed: int
    """When it was made, or changed last, in milliseconds since 1970."""


class UserList(ServerMessage, frozen=True, tag=36):
    """Answers ListUsers."""

    request: int
    rows: list[ListedUser]
    more: bool = False
    """Whether another message with more rows follows."""


def user_lists(request: int, rows: Iterable[ListedUser], part_bytes: int) -> Iterator[UserList]:
    """Yields the answer in parts, whose rows take about so many bytes each; at least one part."""
    for part, more in in_parts(rows, part_bytes):
        yield UserList(request, part, more)
