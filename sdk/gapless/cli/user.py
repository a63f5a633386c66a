"""`gapless user`: who may prove himself by a password: in a stopped broker's volume, in a file, or at a broker.

A password comes from a prompt, the standard input or a file. It is never an argument: others on the machine see those.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol, TypeAlias, TypeVar

import typer

from gapless.cli.connecting import connected, credentials_of, run
from gapless.cli.options import DEFAULT_URL, DEFAULT_WAIT, AsJson, Url, User, Wait, naming_what_makes_it
from gapless.cli.output import one_line, print_json, print_listing
from gapless.cli.scrub import ConfigFile, Directory, open_volume
from gapless.errors import ConfigurationError, VolumeAbsentError

if TYPE_CHECKING:
    from gapless.client.connection import Connection
    from gapless.client.credentials import Password
    from gapless.client.users import UserInfo
    from gapless.core.server.users import UserRow
    from gapless.spi import LogVolume

T = TypeVar("T")

Name: TypeAlias = Annotated[str, typer.Argument(metavar="NAME")]
Groups: TypeAlias = Annotated[
    list[str] | None, typer.Option("--group", metavar="GROUP", help="A group that the user is in; any number of them.")
]
UsersFileOption: TypeAlias = Annotated[
    Path | None,
    typer.Option("--file", metavar="FILE", help="A file of users, as the nodes of a network read it, and no volume."),
]
FromStdin: TypeAlias = Annotated[
    bool, typer.Option("--password-stdin", help="Read the password from the standard input: its first line.")
]
FromFile: TypeAlias = Annotated[
    Path | None, typer.Option("--password-file", metavar="FILE", help="Read the password from a file: its first line.")
]

COLUMNS = {"name": "USER", "groups": "GROUPS", "changed": "CHANGED"}
NO_USER = "there is no user"

app = typer.Typer(
    help="Who may prove himself by a password (the authenticator `scram`).\n\nWith --config or --path, in the volume of"
    " a broker that is stopped: so its first user is made. With --file, in a file that the nodes of a network read."
    " Else at the broker of --url, which takes it from its own machine alone; but everybody may change the own"
    " password.",
    no_args_is_help=True,
)


@app.command("add")
def add(
    name: Name,
    *,
    group: Groups = None,
    password_stdin: FromStdin = False,
    password_file: FromFile = None,
    config: ConfigFile = None,
    path: Directory = None,
    create: Annotated[bool, typer.Option("--create", help="Make the volume where there is none.")] = False,
    file: UsersFileOption = None,
    url: Url = DEFAULT_URL,
    user: User = "",
    wait: Wait = DEFAULT_WAIT,
    as_json: AsJson = False,
) -> None:
    """Make a user. The password is asked for, unless an option says where it is."""
    users = _users(config, path, file, url, user, wait, create=create)
    users.add(name, _password(name, password_file, from_stdin=password_stdin), group or ())
    _say(name, "added", f"user {name!r} was added", as_json=as_json)


@app.command("password")
def password(
    name: Name,
    *,
    password_stdin: FromStdin = False,
    password_file: FromFile = None,
    config: ConfigFile = None,
    path: Directory = None,
    file: UsersFileOption = None,
    url: Url = DEFAULT_URL,
    user: User = "",
    wait: Wait = DEFAULT_WAIT,
    as_json: AsJson = False,
) -> None:
    """Give a user another password. It ends the sessions of that user at the broker."""
    users = _users(config, path, file, url, user, wait, create=False)
    users.change_password(name, _password(name, password_file, from_stdin=password_stdin))
    _say(name, "password changed", f"the password of user {name!r} was changed", as_json=as_json)


@app.command("groups")
def groups(
    name: Name,
    *,
    group: Groups = None,
    config: ConfigFile = None,
    path: Directory = None,
    file: UsersFileOption = None,
    url: Url = DEFAULT_URL,
    user: User = "",
    wait: Wait = DEFAULT_WAIT,
    as_json: AsJson = False,
) -> None:
    """Say which groups a user is in: those that are named, and no others. It counts for new sessions."""
    _users(config, path, file, url, user, wait, create=False).change_groups(name, group or ())
    are = ", ".join(map(repr, group or ())) or "no group"
    _say(name, "groups changed", f"user {name!r} is in {are}", as_json=as_json)


@app.command("remove")
def remove(
    name: Name,
    *,
    config: ConfigFile = None,
    path: Directory = None,
    file: UsersFileOption = None,
    url: Url = DEFAULT_URL,
    user: User = "",
    wait: Wait = DEFAULT_WAIT,
    as_json: AsJson = False,
) -> None:
    """Remove a user. It ends the sessions of that user at the broker."""
    _users(config, path, file, url, user, wait, create=False).remove(name)
    _say(name, "removed", f"user {name!r} was removed", as_json=as_json)


@app.command("list")
def list_(
    *,
    config: ConfigFile = None,
    path: Directory = None,
    file: UsersFileOption = None,
    url: Url = DEFAULT_URL,
    user: User = "",
    wait: Wait = DEFAULT_WAIT,
    as_json: AsJson = False,
) -> None:
    """List the users."""
    found = _users(config, path, file, url, user, wait, create=False).all()
    if as_json:
        print_json([_json(info) for info in found])
    else:
        cells = [{**_json(info), "groups": ", ".join(info.groups)} for info in found]
        print_listing(cells, COLUMNS, as_json=False, empty=NO_USER)


def _say(name: str, done: str, sentence: str, *, as_json: bool) -> None:
    """Says what was done."""
    if as_json:
        print_json({"user": name, "done": done})
    else:
        print(sentence)


def _json(info: UserInfo) -> dict[str, object]:
    return {"name": info.name, "groups": list(info.groups), "changed": info.changed.isoformat()}


# ------------------------------------------------------------------------------------ where they are


class UserStore(Protocol):
    """Where users are kept. Each call raises ConfigurationError if it makes no sense there."""

    def all(self) -> Sequence[UserInfo]:
        """Returns the users, by name."""

    def add(self, name: str, password: str, groups: Sequence[str]) -> None:
        """Makes a user."""

    def change_password(self, name: str, password: str) -> None:
        """Gives a user another password."""

    def change_groups(self, name: str, groups: Sequence[str]) -> None:
        """Gives a user other groups."""

    def remove(self, name: str) -> None:
        """Removes a user."""


def _users(
    config: Path | None, path: Path | None, file: Path | None, url: str, user: str, wait: float, *, create: bool
) -> UserStore:
    """The users that the options mean. `user`: who asks the broker."""
    if file is not None and (config is not None or path is not None):
        raise ConfigurationError("--file names a file of users, --config and --path name a volume: only one is meant")
    if file is not None:
        return StoredUsers(FileRows(file))
    if config is not None or path is not None:
        return StoredUsers(VolumeRows(config, path, create=create))
    if create:
        raise ConfigurationError("--create makes a volume: --config or --path says which")
    return BrokerUsers(url, credentials_of(url, user), wait)


class BrokerUsers:
    """The users of a broker, through a connection."""

    def __init__(self, url: str, credentials: Password | None, wait: float) -> None:
        self._url = url
        self._credentials = credentials
        self._wait = wait

    def all(self) -> Sequence[UserInfo]:
        """Returns the users, by name."""
        return self._run(lambda connection: connection.users())

    def add(self, name: str, password: str, groups: Sequence[str]) -> None:
        """Makes a user."""
        self._run(lambda connection: connection.add_user(name, password, groups))

    def change_password(self, name: str, password: str) -> None:
        """Gives a user another password."""
        self._run(lambda connection: connection.change_password(name, password))

    def change_groups(self, name: str, groups: Sequence[str]) -> None:
        """Gives a user other groups."""
        self._run(lambda connection: connection.change_groups(name, groups))

    def remove(self, name: str) -> None:
        """Removes a user."""
        self._run(lambda connection: connection.remove_user(name))

    def _run(self, ask: Callable[[Connection], Awaitable[T]]) -> T:
        async def asked() -> T:
            async with connected(self._url, "", self._wait, self._credentials) as connection:
                return await ask(connection)

        return run(asked())


class Rows(Protocol):
    """Rows of users that are on a disk, and nobody else's meanwhile."""

    def opened(self, change: Callable[[dict[str, UserRow]], T]) -> T:
        """Calls `change` with the rows; what it leaves is there durably. Nothing is changed if it raises."""


class StoredUsers:
    """Users in a volume or in a file, worked on directly."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def all(self) -> Sequence[UserInfo]:
        """Returns the users, by name."""
        from gapless.client.users import user_info
        from gapless.core.wire.messages import ListedUser

        rows = self._rows.opened(dict)
        return [user_info(ListedUser(name, row.groups, row.changed)) for name, row in sorted(rows.items())]

    def add(self, name: str, password: str, groups: Sequence[str]) -> None:
        """Makes a user."""
        from gapless.client.users import checked_groups
        from gapless.core.server.users import UserRow
        from gapless.security.users import new_verifier, prepared_name

        name, row = prepared_name(name), UserRow(new_verifier(password), checked_groups(groups), _now())

        def put(rows: dict[str, UserRow]) -> None:
            if name in rows:
                raise ConfigurationError(f"there is a user {name!r} already")
            rows[name] = row

        self._rows.opened(put)

    def change_password(self, name: str, password: str) -> None:
        """Gives a user another password."""
        from gapless.security.users import new_verifier

        verifier = new_verifier(password)
        self._change(name, lambda row: type(row)(verifier, row.groups, _now()))

    def change_groups(self, name: str, groups: Sequence[str]) -> None:
        """Gives a user other groups."""
        from gapless.client.users import checked_groups

        taken = checked_groups(groups)
        self._change(name, lambda row: type(row)(row.verifier, taken, _now()))

    def remove(self, name: str) -> None:
        """Removes a user."""
        self._change(name, lambda _row: None)

    def _change(self, name: str, changed: Callable[[UserRow], UserRow | None]) -> None:
        from gapless.security.users import prepared_name

        name = prepared_name(name)

        def change(rows: dict[str, UserRow]) -> None:
            if name not in rows:
                raise ConfigurationError(f"there is no user {name!r}")
            row = changed(rows.pop(name))
            if row is not None:
                rows[name] = row

        self._rows.opened(change)


class FileRows:
    """Rows in a file of users; there need not be one yet."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def opened(self, change: Callable[[dict[str, UserRow]], T]) -> T:
        """Calls `change` with the rows; what it leaves is there durably."""
        from gapless.security.users import read_users, write_users

        before = read_users(self._path) if self._path.exists() else {}
        rows = dict(before)
        result = change(rows)
        if rows != before:
            write_users(self._path, rows)
        return result


class VolumeRows:
    """Rows in the volume of a broker that is stopped."""

    def __init__(self, config: Path | None, path: Path | None, *, create: bool) -> None:
        self._config = config
        self._path = path
        self._create = create

    def opened(self, change: Callable[[dict[str, UserRow]], T]) -> T:
        """Calls `change` with the rows; what it leaves is there durably."""
        from gapless.core.server.users import USERS, row_of

        self._check_that_they_count()
        with closing(self._open()) as volume:
            table = volume.table(USERS)
            before = {key.decode(): row_of(key.decode(), value) for key, value in table.scan()}
            rows = dict(before)
            result = change(rows)
            for name in before.keys() - rows.keys():
                table.delete(name.encode())
            for name, row in rows.items():
                if before.get(name) != row:
                    table.put(name.encode(), row.stored)
            volume.write()
            volume.sync()
        return result

    def _open(self) -> LogVolume:
        try:
            return open_volume(self._config, self._path, create=self._create)
        except VolumeAbsentError as error:
            what_makes_it = naming_what_makes_it(str(error), "user add NAME", config=self._config, path=self._path)
            raise VolumeAbsentError(what_makes_it) from error

    def _check_that_they_count(self) -> None:
        """Raises ConfigurationError if the configuration has a file of users, so that nobody would look at these."""
        import os

        from gapless.node.assembly import users_elsewhere
        from gapless.node.config import load_config

        if elsewhere := users_elsewhere(load_config(self._config, os.environ)):
            raise ConfigurationError(f"{self._config or 'configuration'}: {elsewhere}")


def _now() -> int:
    return time.time_ns() // 1_000_000


# -------------------------------------------------------------------------------------- passwords


def _password(name: str, file: Path | None, *, from_stdin: bool) -> str:
    """The new password of a user."""
    if from_stdin and file is not None:
        raise ConfigurationError("--password-stdin and --password-file: one of them says where the password is")
    if from_stdin:
        with _as_text("the standard input"):
            return sys.stdin.readline().rstrip("\r\n")
    if file is not None:
        with _as_text(str(file)), file.open(encoding="utf-8") as lines:
            return lines.readline().rstrip("\r\n")
    if not is_interactive():
        raise ConfigurationError(
            "nobody is there to be asked for the password; --password-stdin or --password-file says where it is"
        )
    asked: str = typer.prompt(f"New password of {one_line(name)}", hide_input=True, confirmation_prompt=True, err=True)
    return asked


@contextmanager
def _as_text(where: str) -> Iterator[None]:
    """Raises ConfigurationError, which tells nothing of what is there, if that is no text."""
    try:
        yield
    except UnicodeDecodeError:
        raise ConfigurationError(f"the password in {where} is no text in UTF-8") from None


def is_interactive() -> bool:
    """Whether somebody can be asked."""
    return sys.stdin.isatty()
