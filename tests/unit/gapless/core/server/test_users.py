"""Users of a volume: who may change them, when a change counts, and whose sessions end (protocol: users)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gapless.core.alarms import Note
from gapless.core.ports import Action, Authorizer, ClientSession, Delete, Set, Tell, Write
from gapless.core.principals import Principal
from gapless.core.resources import Resource
from gapless.core.server.users import USERS, EndSessionsOf, UserRow, Users, row_of, verifier_of
from gapless.core.wire.messages import (
    AddUser,
    ChangeUser,
    Code,
    Done,
    ListedUser,
    ListUsers,
    RemoveUser,
    RequestFailed,
    UserList,
    Verifier,
)
from gapless.errors import VolumeCorruptError
from gapless.security.allow_all import AllowAll

WALL = 1_700_000_000_000


def verifier(byte: bytes = b"a") -> Verifier:
    return Verifier(byte * 16, 15_000, byte * 32, byte * 32)


ADA = UserRow(verifier(), ("ops",), 5)
NOBODY: Mapping[str, UserRow] = {}


class World:
    """The users of a node, and a disk that is as slow as tests want."""

    def __init__(
        self,
        elsewhere: str = "",
        part_bytes: int = 65_536,
        rows: Mapping[str, UserRow] = NOBODY,
        authorizer: Authorizer | None = None,
    ) -> None:
        self.rows = {name: row.stored for name, row in rows.items()}
        self.users = Users(self.rows, elsewhere, part_bytes, authorizer or AllowAll())
        self.table = dict(self.rows)
        self.cookies: list[Any] = []
        self.effects: list[Any] = []

    def ask(self, message: Any, *, name: str = "anonymous", is_local: bool = True, session: int = 1) -> Any:
        """What the client hears at once; None if it has to wait for the disk."""
        client = ClientSession(session, "desk", "i", Principal(name))
        told = None
        for effect in self.users.on_request(client, message, WALL, is_local=is_local):
            if isinstance(effect, Write):
                self.cookies.append(effect.cookie)
                for operation in effect.operations:
                    assert isinstance(operation, (Set, Delete))
                    assert operation.table == USERS
                    if isinstance(operation, Set):
                        self.table[operation.key.decode()] = operation.value
                    else:
                        del self.table[operation.key.decode()]
            else:
                assert isinstance(effect, Tell)
                assert effect.session == session
                told = effect.message
        return told

    def durable(self) -> list[Any]:
        """What follows when everything that was written is durable; without what is for the log."""
        said = [effect for cookie in self.cookies for effect in self.users.on_durable(cookie)]
        self.cookies.clear()
        assert self.rows == self.table
        return [effect for effect in said if not isinstance(effect, Note)]


def refused(told: Any) -> RequestFailed:
    assert isinstance(told, RequestFailed)
    return told


# ----------------------------------------------------------------------------------- what changes


def test_a_user_is_there_when_it_is_durable_and_not_before() -> None:
    world = World()

    assert world.ask(AddUser(7, "ada", verifier(), ("ops",))) is None
    assert world.rows == {}
    assert world.durable() == [Tell(1, Done(7))]
    assert row_of("ada", world.rows["ada"]) == UserRow(verifier(), ("ops",), WALL)


def test_a_user_that_is_there_is_not_made_again_unless_it_is_the_same() -> None:
    """A client repeats what it has asked when its link was lost before the answer."""
    world = World(rows={"ada": ADA})

    assert "is a user 'ada' already" in refused(world.ask(AddUser(7, "ada", verifier(b"b"), ("ops",)))).reason
    assert "is a user 'ada' already" in refused(world.ask(AddUser(8, "ada", verifier(), ()))).reason
    assert world.ask(AddUser(9, "ada", verifier(), ("ops",))) is None
    assert world.durable() == [Tell(1, Done(9))]


def test_of_two_who_add_the_same_user_at_a_time_one_is_told_so() -> None:
    world = World()

    assert world.ask(AddUser(1, "ada", verifier(), ()), session=1) is None
    assert refused(world.ask(AddUser(2, "ada", verifier(b"b"), ()), session=2)).code is Code.CONFIGURATION
    assert world.durable() == [Tell(1, Done(1))]


def test_changes_follow_each_other_before_the_first_one_is_durable() -> None:
    world = World()
    world.ask(AddUser(1, "ada", verifier(), ()))
    world.ask(ChangeUser(2, "ada", None, ("ops",)))
    world.ask(RemoveUser(3, "ada"))
    world.ask(AddUser(4, "ada", verifier(b"b"), ()))

    told = [effect.message for effect in world.durable() if isinstance(effect, Tell)]
    assert told == [Done(1), Done(2), Done(3), Done(4)]
    assert verifier_of(world.rows["ada"]) == verifier(b"b")


def test_a_new_password_ends_the_other_sessions_of_the_user() -> None:
    world = World(rows={"ada": ADA})
    world.ask(ChangeUser(1, "ada", verifier(b"b"), None), session=3)

    told, end = world.durable()
    assert told == Tell(3, Done(1))
    assert isinstance(end, EndSessionsOf)
    assert (end.name, end.but) == ("ada", 3)
    assert "password" in end.reason
    assert row_of("ada", world.rows["ada"]) == UserRow(verifier(b"b"), ("ops",), WALL)


def test_the_same_password_and_other_groups_end_no_session() -> None:
    world = World(rows={"ada": ADA})
    world.ask(ChangeUser(1, "ada", verifier(), None))
    world.ask(ChangeUser(2, "ada", None, ("dev", "ops")))

    assert world.durable() == [Tell(1, Done(1)), Tell(1, Done(2))]
    assert row_of("ada", world.rows["ada"]).groups == ("dev", "ops")
    world.ask(ChangeUser(3, "ada", None, ()))
    world.durable()
    assert row_of("ada", world.rows["ada"]).groups == ()


def test_who_is_removed_has_to_go_even_if_it_was_by_himself() -> None:
    world = World(rows={"ada": ADA})
    world.ask(RemoveUser(1, "ada"), name="ada", session=3)

    told, end = world.durable()
    assert told == Tell(3, Done(1))
    assert (end.name, end.but) == ("ada", 0)
    assert world.rows == {}


@pytest.mark.parametrize(
    "message", [ChangeUser(1, "bob", verifier(), None), ChangeUser(1, "bob", None, ()), RemoveUser(1, "bob")]
)
def test_who_is_not_there_is_not_changed(message: Any) -> None:
    world = World(rows={"ada": ADA})

    assert "no user 'bob'" in refused(world.ask(message)).reason
    assert world.cookies == []


# ----------------------------------------------------------------------------------- who may

MANAGING = {
    "add": AddUser(1, "bob", verifier(), ()),
    "password": ChangeUser(1, "ada", verifier(b"b"), None),
    "groups": ChangeUser(1, "ada", None, ("admin",)),
    "remove": RemoveUser(1, "ada"),
    "list": ListUsers(1),
}


@pytest.mark.parametrize("message", MANAGING.values(), ids=MANAGING)
def test_from_other_machines_nobody_manages_users(message: Any) -> None:
    world = World(rows={"ada": ADA})
    failed = refused(world.ask(message, name="bob", is_local=False))

    assert failed.code is Code.FORBIDDEN
    assert "own password" in failed.reason
    assert world.cookies == []


@pytest.mark.parametrize(
    "message",
    [
        ChangeUser(1, "ada", verifier(b"b"), ("admin",)),
        ChangeUser(1, "ada", None, ("admin",)),
        ChangeUser(1, "ada", None, None),
        RemoveUser(1, "ada"),
        AddUser(1, "ada", verifier(b"b"), ("ops",)),
    ],
)
def test_nobody_changes_more_of_himself_than_the_password(message: Any) -> None:
    world = World(rows={"ada": ADA})

    assert refused(world.ask(message, name="ada", is_local=False)).code is Code.FORBIDDEN


def test_everybody_changes_the_own_password_from_anywhere() -> None:
    world = World(rows={"ada": ADA})

    assert world.ask(ChangeUser(1, "ada", verifier(b"b"), None), name="ada", is_local=False) is None
    assert verifier_of(world.table["ada"]) == verifier(b"b")


@pytest.mark.parametrize("message", MANAGING.values(), ids=MANAGING)
def test_where_users_are_in_a_file_those_of_the_volume_are_not_changed(message: Any) -> None:
    """It would look as if something had come of it."""
    world = World("they are in the file X", rows={"ada": ADA})

    failed = refused(world.ask(message))
    assert (failed.code, failed.reason) == (Code.CONFIGURATION, "they are in the file X")


# ----------------------------------------------------------------------------------- what is told


def test_the_list_tells_nothing_of_passwords_and_comes_in_parts() -> None:
    rows = {f"user{number}": UserRow(verifier(), ("g" * 200,), number) for number in range(30)}
    world = World(part_bytes=1000, rows=rows)
    client = ClientSession(1, "desk", "i", Principal("x"))
    parts: list[UserList] = [
        effect.message  # type: ignore[union-attr, misc]
        for effect in world.users.on_request(client, ListUsers(4), WALL, is_local=True)
    ]

    listed = [row for part in parts for row in part.rows]
    assert [row.name for row in listed] == sorted(rows)
    assert [part.more for part in parts] == [True] * (len(parts) - 1) + [False]
    assert len(parts) > 5
    assert all(type(row) is ListedUser for row in listed)


def test_nothing_shows_a_verifier() -> None:
    shown = repr(AddUser(1, "ada", verifier(), ())) + repr(ADA) + repr(Write((), 1))

    assert "aaaa" not in shown
    assert "ada" in shown


def test_a_row_that_was_garbled_is_named() -> None:
    with pytest.raises(VolumeCorruptError, match="user 'ada'"):
        row_of("ada", b"\xc1")


def test_a_row_of_a_newer_version_is_read_as_far_as_it_is_known() -> None:
    stored = bytearray(ADA.stored)
    stored[0] += 1  # one more field

    assert row_of("ada", bytes(stored) + b"\x07") == ADA
    assert verifier_of(bytes(stored) + b"\x07") == verifier()


# ---------------------------------------------------------------------------------- where there are rules


class Rules:
    """Lets an administrator manage users."""

    asks = True

    def refusal(self, principal: Principal, action: Action, resource: Resource) -> str:
        allowed = (principal.name, action, resource) == ("admin", Action.MANAGE, "users")
        return "" if allowed else f"{principal} may not {action.value} {resource}"


@pytest.mark.parametrize("is_local", [True, False])
@pytest.mark.parametrize("message", MANAGING.values(), ids=MANAGING)
def test_where_there_are_rules_they_say_who_manages_users_from_wherever(message: Any, is_local: bool) -> None:
    world = World(rows={"ada": ADA}, authorizer=Rules())

    failed = refused(world.ask(message, name="bob", is_local=is_local))
    assert (failed.code, failed.reason) == (Code.FORBIDDEN, "bob may not manage users")
    assert not isinstance(world.ask(message, name="admin", is_local=is_local), RequestFailed)


def test_with_rules_too_everybody_changes_the_own_password_and_no_more() -> None:
    world = World(rows={"ada": ADA}, authorizer=Rules())

    assert world.ask(ChangeUser(1, "ada", verifier(b"b"), None), name="ada", is_local=False) is None
    for message in (ChangeUser(1, "ada", verifier(b"b"), ("ops",)), RemoveUser(1, "ada")):
        assert refused(world.ask(message, name="ada", is_local=True)).code is Code.FORBIDDEN
