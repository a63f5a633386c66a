"""The users of a node's volume: who may change them, and how a change becomes durable and then counts.

    client ──▶ may it? ──▶ Write ──▶ durable ──▶ the rows change ──▶ Done, and the user's other sessions end
                 └─ no ──▶ RequestFailed

A change counts for nobody before it is durable. What is asked meanwhile is judged by what will be durable then, so that
of two clients that add the same user one is told that it is there.

Where there are rules, they say who may manage users, from wherever that is done. Where there are none, users are
managed through listeners that only this machine can reach. Everybody may change the own password. Pure: the machine
hosts it, and carries out what it returns (protocol: users).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from gapless.core.alarms import Note, Subject
from gapless.core.foreign import UNREADABLE
from gapless.core.ports import Action, Authorizer, ClientSession, Delete, Set, Tell, Write
from gapless.core.wire.messages import (
    AddUser,
    ChangeUser,
    Code,
    Done,
    ListedUser,
    ListUsers,
    RemoveUser,
    RequestFailed,
    Verifier,
)
from gapless.core.wire.messages.users import user_lists
from gapless.errors import VolumeCorruptError

USERS: Final = "node/users"
"""The table of the users of a volume; the keys are their names."""
USERS_RESOURCE: Final = "users"
"""What an authorizer is asked about."""
REQUESTS: Final = (AddUser, ChangeUser, RemoveUser, ListUsers)
MANAGED_LOCALLY: Final = (
    "users are managed through a listener that only the broker's own machine can reach (127.0.0.1), or with the broker"
    " stopped: `gapless user --config FILE`. Everybody may change the own password"
)
PASSWORD_CHANGED: Final = "the password of user {!r} was changed: connect with the new one"
REMOVED: Final = "user {!r} was removed"

Change: TypeAlias = AddUser | ChangeUser | RemoveUser


class UserRow(msgspec.Struct, array_like=True, frozen=True):
    """A user, as a volume keeps it. There is no password in it."""

    verifier: Verifier
    groups: tuple[str, ...]
    changed: int
    """When, in milliseconds since 1970."""

    @property
    def stored(self) -> bytes:
        """The bytes of the row."""
        return msgspec.msgpack.encode(self)


class _VerifierOfRow(msgspec.Struct, array_like=True, frozen=True):
    """What of a row comes first; the rest is not looked at."""

    verifier: Verifier


def row_of(name: str, stored: bytes) -> UserRow:
    """Returns a row of the volume. Raises VolumeCorruptError."""
    try:
        return msgspec.msgpack.decode(stored, type=UserRow)
    except UNREADABLE as error:
        raise VolumeCorruptError(f"the row of user {name!r} in table {USERS} is damaged: {error}") from error


def verifier_of(stored: bytes) -> Verifier:
    """Returns the verifier in a row that can be read. It takes as long whatever else is in the row."""
    return msgspec.msgpack.decode(stored, type=_VerifierOfRow).verifier


@dataclass(frozen=True, slots=True)
class EndSessionsOf:
    """End the sessions of a user, who is told why."""

    name: str
    reason: str
    but: int
    """This session goes on; 0: none does."""


UserEffect: TypeAlias = Write | Tell | EndSessionsOf | Note


@dataclass(frozen=True, slots=True)
class _Pending:
    """A change that is not durable yet."""

    change: Change
    session: int
    stored: bytes | None
    """The row as it will be; None: there will be none."""
    ends: str
    """Why the sessions of the user end; "" if they go on."""
    told: str
    """What the operator may want to read of it."""


class Users:
    """The users of one node, and the requests about them."""

    def __init__(self, rows: dict[str, bytes], elsewhere: str, part_bytes: int, authorizer: Authorizer) -> None:
        """`rows`: what authenticators look at; this changes it.

        `elsewhere`: why users of the volume do not count here; "" if they do. `part_bytes`: of an answer go into one
        frame.
        """
        self._authorizer = authorizer
        self._rows = rows
        self._elsewhere = elsewhere
        self._part_bytes = part_bytes
        self._coming: dict[str, bytes | None] = {}
        """The users that are being changed, as they will be."""
        self._pending: dict[int, _Pending] = {}
        self._count = 0

    # What happened.

    def on_request(
        self, client: ClientSession, message: Change | ListUsers, wall: int, *, is_local: bool
    ) -> Iterator[UserEffect]:
        """A client asks. `is_local`: whether only this machine can reach the listener that it came through."""
        refused = self._refusal(client, message, is_local=is_local)
        if refused is not None:
            yield Tell(client.number, refused)
        elif isinstance(message, ListUsers):
            rows = (self._listed(name) for name in sorted(self._rows))
            for part in user_lists(message.request, rows, self._part_bytes):
                yield Tell(client.number, part)
        else:
            yield self._begin(client, message, wall)

    def on_durable(self, cookie: int) -> Iterator[UserEffect]:
        """A change is durable: it counts from now on."""
        pending = self._pending.pop(cookie)
        change, name = pending.change, pending.change.name
        if all(other.change.name != name for other in self._pending.values()):
            del self._coming[name]
        if pending.stored is None:
            self._rows.pop(name, None)
        else:
            self._rows[name] = pending.stored
        yield Note(Subject.CLIENT, pending.told)
        yield Tell(pending.session, Done(change.request))
        if pending.ends:
            # Whoever has given himself another password stays; whoever has removed himself has to go.
            yield EndSessionsOf(name, pending.ends, 0 if isinstance(change, RemoveUser) else pending.session)

    # How it is judged.

    def _refusal(self, client: ClientSession, message: Change | ListUsers, *, is_local: bool) -> RequestFailed | None:
        if not _is_own_password(client, message):
            reason = "" if is_local else MANAGED_LOCALLY
            if self._authorizer.asks:
                reason = self._authorizer.refusal(client.principal, Action.MANAGE, USERS_RESOURCE)
            if reason:
                return RequestFailed(message.request, Code.FORBIDDEN, reason)
        if self._elsewhere:
            return RequestFailed(message.request, Code.CONFIGURATION, self._elsewhere)
        return None

    def _begin(self, client: ClientSession, change: Change, wall: int) -> Tell | Write:
        planned = self._plan(client, change, wall)
        if isinstance(planned, RequestFailed):
            return Tell(client.number, planned)
        self._count += 1
        self._pending[self._count] = planned
        self._coming[change.name] = planned.stored
        key = change.name.encode()
        return Write((Delete(USERS, key) if planned.stored is None else Set(USERS, key, planned.stored),), self._count)

    def _plan(self, client: ClientSession, change: Change, wall: int) -> _Pending | RequestFailed:
        """What a change comes to, or why it cannot be."""
        name = change.name
        stored = self._coming[name] if name in self._coming else self._rows.get(name)
        row = None if stored is None else row_of(name, stored)
        by = f"by client {client.client_id!r}, as {client.principal}"
        if isinstance(change, AddUser):
            made = UserRow(change.verifier, change.groups, wall)
            if row is not None and (row.verifier, row.groups) != (made.verifier, made.groups):
                return RequestFailed(change.request, Code.CONFIGURATION, f"there is a user {name!r} already")
            return _Pending(change, client.number, made.stored, "", f"user {name!r} was added {by}")
        if row is None:
            return RequestFailed(change.request, Code.CONFIGURATION, f"there is no user {name!r}")
        if isinstance(change, RemoveUser):
            return _Pending(change, client.number, None, REMOVED.format(name), f"user {name!r} was removed {by}")
        verifier, groups = change.verifier or row.verifier, row.groups if change.groups is None else change.groups
        is_same = verifier == row.verifier
        ends = "" if is_same else PASSWORD_CHANGED.format(name)
        changed = replace(row, verifier=verifier, groups=groups, changed=wall)
        what = "groups" if is_same else "password"
        return _Pending(change, client.number, changed.stored, ends, f"the {what} of user {name!r} changed {by}")

    def _listed(self, name: str) -> ListedUser:
        row = row_of(name, self._rows[name])
        return ListedUser(name, row.groups, row.changed)


def _is_own_password(client: ClientSession, message: Change | ListUsers) -> bool:
    """Whether somebody gives himself another password, and nothing else."""
    if not isinstance(message, ChangeUser) or message.name != client.principal.name:
        return False
    return message.verifier is not None and message.groups is None
