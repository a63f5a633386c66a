"""The users that prove themselves by a password: what is kept of it, and files of users.

A file of users has a line of JSON for each of them. It is for networks, where the volume of one node would not do:
every node has the file, reads it, and looks at it again when it has changed. `gapless user --file` writes it.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Final

import msgspec
from scramp import ScramException, ScramMechanism
from scramp.core import saslprep

from gapless import loggers
from gapless.core.alarms import Alarm, AlarmCode
from gapless.core.server.users import PASSWORD_CHANGED, REMOVED, UserRow, verifier_of
from gapless.core.wire.messages import Verifier
from gapless.core.wire.messages.users import (
    Key,
    Salt,
    groups_problem,
    user_name_problem,
    verifier_problem,
)
from gapless.errors import ConfigurationError
from gapless.security.file_state import FileState, state_of

log = loggers.logger("gapless.security")

ITERATIONS: Final = 15_000
"""How often a new password is hashed: some milliseconds of a client, whenever it connects."""
SALT_BYTES: Final = 16
PASSWORD_BYTES_MAX: Final = 1024
LOOK: Final = 1_000_000_000
"""So many nanoseconds pass at least before a file is looked at again."""
MECHANISM: Final = ScramMechanism("SCRAM-SHA-256")


# ---------------------------------------------------------------------------------------- passwords


def prepared_name(name: str) -> str:
    """Returns the name of a user as it is kept and compared (RFC 4013). Raises ConfigurationError."""
    try:
        prepared: str = saslprep(name)
    except ScramException:
        raise ConfigurationError(f"the user's name {name!a} holds characters that no name may hold") from None
    if problem := user_name_problem(prepared):
        raise ConfigurationError(f"the user's name {problem}")
    return prepared


def prepared_password(password: str) -> str:
    """Returns a password as it is hashed (RFC 4013). Raises ConfigurationError, which does not tell it."""
    if len(password) > PASSWORD_BYTES_MAX:
        raise ConfigurationError(f"a password has at most {PASSWORD_BYTES_MAX:,} bytes")
    try:
        prepared: str = saslprep(password)
    except ScramException:
        raise ConfigurationError(
            "the password holds what no password may hold: a control character, one that Unicode has no use for, or"
            " letters of both directions"
        ) from None
    if not prepared:
        raise ConfigurationError("the password is empty")
    if len(prepared.encode()) > PASSWORD_BYTES_MAX:
        raise ConfigurationError(f"a password has at most {PASSWORD_BYTES_MAX:,} bytes")
    return prepared


def verifier_for(password: str, salt: bytes, iterations: int = ITERATIONS) -> Verifier:
    """Returns what a broker is to know of a password. Raises ConfigurationError, which does not tell it."""
    made = MECHANISM.make_auth_info(prepared_password(password), iteration_count=iterations, salt=salt)
    _, stored_key, server_key, _ = made
    return Verifier(salt, iterations, stored_key, server_key)


def new_verifier(password: str) -> Verifier:
    """The same, with a salt that nobody else has."""
    return verifier_for(password, secrets.token_bytes(SALT_BYTES))


# --------------------------------------------------------------------------------------------- files


class UserLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A user, as a line of a file has it; bytes are base64 there."""

    name: str
    groups: tuple[str, ...]
    salt: Salt
    iterations: int
    stored_key: Key
    server_key: Key
    changed: datetime

    def __repr__(self) -> str:
        return f"UserLine({self.name!r}, …)"

    @classmethod
    def of(cls, name: str, row: UserRow) -> UserLine:
        """The line for a row."""
        verifier = row.verifier
        changed = datetime.fromtimestamp(row.changed / 1000, tz=timezone.utc)
        keys = verifier.salt, verifier.iterations, verifier.stored_key, verifier.server_key
        return cls(name, row.groups, *keys, changed)

    @property
    def row(self) -> UserRow:
        """The row for a line."""
        verifier = Verifier(self.salt, self.iterations, self.stored_key, self.server_key)
        return UserRow(verifier, self.groups, round(self.changed.timestamp() * 1000))

    @property
    def problem(self) -> str:
        """What is wrong with it, as a sentence; "" if nothing is."""
        if problem := user_name_problem(self.name):
            return f"the user's name {problem}"
        return groups_problem(self.groups) or verifier_problem(self.row.verifier)


def read_users(path: Path) -> dict[str, UserRow]:
    """Returns the users of a file. Raises ConfigurationError, which names the line."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from error
    users: dict[str, UserRow] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            user = msgspec.json.decode(line, type=UserLine)
        except (msgspec.MsgspecError, UnicodeDecodeError, ValueError) as error:
            raise ConfigurationError(f"{path}: line {number} is no user: {error}") from None
        if problem := user.problem:
            raise ConfigurationError(f"{path}: line {number}: {problem}")
        if user.name in users:
            raise ConfigurationError(f"{path}: line {number}: user {user.name!r} is there already")
        users[user.name] = user.row
    return users


def write_users(path: Path, users: Mapping[str, UserRow]) -> None:
    """Writes a file of users, which only its owner can read. Whoever reads it meanwhile finds what was there before.

    Raises OSError.
    """
    target = path.resolve()
    lines = b"".join(msgspec.json.encode(UserLine.of(name, users[name])) + b"\n" for name in sorted(users))
    fresh = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())
            if target.exists() and os.geteuid() == 0:  # who administers as root does not take it from the broker
                owner = target.stat()
                os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
        fresh.replace(target)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class UsersFile(Mapping[str, bytes]):
    """The rows of a file, as it is now. While it cannot be used, those count that it had before.

    Whoever is not in it any more, or has another password there, loses his sessions, as with users of a volume.
    """

    def __init__(self, path: Path, now: Callable[[], int], end: Callable[[str, str], None]) -> None:
        """`end`: as in `gapless.core.ports.AuthContext`. Raises ConfigurationError."""
        self._path = path
        self._now = now
        self._end = end
        self._looked_at = now()
        self._state = state_of(self._path)
        self._doubted: FileState = None
        """A state of the file in which users are missing: who writes it may not have done with it yet."""
        self._trouble = ""
        """Why it cannot be used as it is."""
        self._rows = self._read()

    def __getitem__(self, name: str) -> bytes:
        self._look()
        return self._rows[name]

    def __iter__(self) -> Iterator[str]:
        self._look()
        return iter(self._rows)

    def __len__(self) -> int:
        self._look()
        return len(self._rows)

    def troubles(self) -> Sequence[Alarm]:
        """What is wrong with the file; see `gapless.spi.TellsTroubles`."""
        self._look()
        if not self._trouble:
            return ()
        text = f"{self._trouble}; the users that the file had before count"
        return (Alarm(AlarmCode.CREDENTIALS_UNUSABLE, text, str(self._path)),)

    def _look(self) -> None:
        """Reads the file again if it has changed: some milliseconds for some thousand users."""
        now = self._now()
        if now - self._looked_at < LOOK:
            return
        self._looked_at = now
        state = state_of(self._path)
        if state == self._state and not self._trouble:
            return
        try:
            rows = self._read()
        except ConfigurationError as error:
            self._state, self._trouble = state, str(error)
            return
        if self._rows.keys() - rows.keys() and state != self._doubted:
            self._doubted = state
            return
        before, self._rows = self._rows, rows
        self._state, self._trouble = state, ""
        log.info("the file of users %s has changed: there are %d", self._path, len(rows))
        for name, row in before.items():
            if name not in rows:
                self._end(name, REMOVED.format(name))
            elif verifier_of(rows[name]) != verifier_of(row):
                self._end(name, PASSWORD_CHANGED.format(name))

    def _read(self) -> dict[str, bytes]:
        return {name: row.stored for name, row in read_users(self._path).items()}
