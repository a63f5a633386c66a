"""A subscription's token in the application's own database, in the transaction of its effects.

Token and effects are committed together, or neither is: so each event takes effect once, whatever crashes.

    tokens = gapless.TokenStore("late-jfk")

    with engine.begin() as database:                 # a transaction of its own, before anything is consumed
        token = tokens.claim(database, create_table=True)
    async with session.subscribe("flights", name="late-jfk", start=token or "earliest") as subscription:
        async for batch in subscription.batches():
            with engine.begin() as database:
                write_effects(database, batch)
                tokens.save(database, batch.token)   # StaleTokenError if another process has claimed it since

Of two processes that consume the same subscription the one that claimed it last owns the token. The database
decides, in the statement that saves: so a process that was paused, and wakes up, can commit nothing.
"""

from __future__ import annotations

import inspect
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from operator import methodcaller
from typing import Any, Final, NamedTuple, TypeAlias

from gapless.core.wire.tokens import CheckpointToken, following, is_before
from gapless.errors import ConfigurationError, InvalidTokenError, StaleTokenError, TokenMismatchError
from gapless.texts import exact, text_problem

NAME_MAX: Final = 255

_Run: TypeAlias = Callable[[str, Mapping[str, str]], Sequence[Sequence[Any]]]
"""Runs a statement whose parameters are written {so}. Returns the rows of its RETURNING, if it has one."""

_CREATE = (
    "CREATE TABLE IF NOT EXISTS gapless_tokens (name VARCHAR(255) PRIMARY KEY, owner CHAR(32) NOT NULL, token TEXT)"
)
# One statement: with a SELECT and an UPDATE, a rival's save could commit between the two.
_CLAIM = (
    "INSERT INTO gapless_tokens (name, owner) VALUES ({name}, {owner}) "
    "ON CONFLICT (name) DO UPDATE SET owner = excluded.owner RETURNING token"
)
# How many rows it has touched, psycopg does not know within a pipeline; what it returns is waited for.
_SAVE = "UPDATE gapless_tokens SET token = {token} WHERE name = {name} AND owner = {owner} RETURNING name"
_STORED = "SELECT token FROM gapless_tokens WHERE name = {name} AND owner = {owner}"
_BY_NAME = {"named", "pyformat"}
"""The paramstyles whose values are a mapping; the others' are a sequence."""
_DIALECTS = {"postgresql", "sqlite"}
_WHERE = "TokenStore keeps tokens in PostgreSQL, and in SQLite from 3.35 on"


class TokenStore:
    """The token of one subscription, in the table `gapless_tokens` of the application's database.

    Both methods take what the application's own statements run on, and become part of its transaction: a `Session` or
    `Connection` of SQLAlchemy 2, or a DB-API connection (sqlite3, psycopg). Neither commits. With an `AsyncSession` or
    `AsyncConnection`: `token = await session.run_sync(tokens.claim)`, `await session.run_sync(tokens.save, token)`.

    They are right under READ COMMITTED, REPEATABLE READ and SERIALIZABLE. Under the latter two the database may refuse
    one of two transactions that meet, as it always does there: roll it back and repeat it whole. Errors of the
    database come as its driver raises them. An object belongs to one consumer: threads that consume have one each.
    """

    __slots__ = ("_known", "_name", "_owner")

    def __init__(self, name: str) -> None:
        """`name`: of the row, at most 255 characters; by custom the subscription's name. Raises ConfigurationError."""
        if problem := text_problem(name):
            raise ConfigurationError(f"the name of a token {problem}")
        if not name or len(name) > NAME_MAX:
            raise ConfigurationError(f"the name of a token has 1 to {NAME_MAX} characters, this one {len(name)}")
        self._name = exact(name)
        self._owner = ""
        self._known: CheckpointToken | None = None
        """The token that was claimed or saved last: none that is stored stands further on, whatever was rolled back."""

    def claim(self, db: Any, *, create_table: bool = False) -> CheckpointToken | None:
        """Makes this object the owner of the token, and returns the token: None if none was ever saved.

        Commit it before you subscribe. From that commit on, each earlier owner's `save` raises StaleTokenError; what
        such an owner commits before it is in the token that this returns. If the claim is rolled back, claim again.

        `create_table`: creates the table first, if there is none.

        Raises ConfigurationError if `db` is nothing to run statements on, commits each statement by itself, or is of a
        database that cannot do it in one statement.
        """
        run = _statements_of(db)
        if create_table:
            _create_table(run)
        # Drawn, not counted: a count that was rolled back would be drawn by the next owner as well.
        owner = uuid.uuid4().hex
        rows = run(_CLAIM, {"name": self._name, "owner": owner})
        self._owner = owner
        self._known = _token_of(rows[0][0])
        return self._known

    def save(self, db: Any, token: CheckpointToken) -> None:
        """Stores the token, as a part of the transaction in which its effects are.

        A position that is stored never goes back. A pubend that only the stored token names stays; one that has begun
        anew since, under another epoch, takes the place of its former self.

        Raises StaleTokenError if another owner has claimed it since, or this one never did, and if the token stands
        before the stored one in any pubend: roll back, and end. Raises TokenMismatchError for a token of another
        network, InvalidTokenError for anything but a token, and ConfigurationError as `claim` does. What raises has
        stored nothing.
        """
        given: object = token
        if not isinstance(given, CheckpointToken):
            hint = "; the position after a batch is batch.token" if hasattr(given, "token") else ""
            raise InvalidTokenError(f"a CheckpointToken is saved, not {type(given).__name__}{hint}")
        if not self._owner:
            raise StaleTokenError(f"the token {self._name!r} was not claimed: call claim() before anything is consumed")
        run = _statements_of(db)
        known = self._known
        if known is not None and not _goes_on(known, token):
            # Only then the row is read: what this object saved last may have been rolled back.
            rows = run(_STORED, {"name": self._name, "owner": self._owner})
            stored = _token_of(rows[0][0]) if rows else None
            if stored is not None:
                token = self._after(stored, token)
        if not run(_SAVE, {"token": str(token), "name": self._name, "owner": self._owner}):
            raise StaleTokenError(
                f"the token {self._name!r} belongs to another consumer, which has claimed it since (or the claim was "
                "rolled back): roll this transaction back, and let the other one go on"
            )
        self._known = token

    def _after(self, stored: CheckpointToken, token: CheckpointToken) -> CheckpointToken:
        """Returns what is stored after the stored token. Raises StaleTokenError, TokenMismatchError."""
        anew = f"to begin anew on purpose, delete the row {self._name!r} of gapless_tokens first"
        if stored.network != token.network:
            raise TokenMismatchError(
                f"the stored token is of network {stored.network!r}, this one of {token.network!r}: {anew}"
            )
        if is_before(token, stored):
            raise StaleTokenError(
                f"the token stands before the one that is stored under {self._name!r}: from there, events would take"
                f" effect twice; {anew}"
            )
        return following(stored, token)


def _token_of(text: Any) -> CheckpointToken | None:
    """The token in a row."""
    if isinstance(text, bytes):  # what sqlite3 makes of text is for the application to say, and for all cursors
        text = text.decode()
    return None if text is None else CheckpointToken.parse(text)


def _goes_on(known: CheckpointToken, token: CheckpointToken) -> bool:
    """Whether a token has everything behind it that another one has, in the same pubends."""
    ticks = token.ticks
    return known.network == token.network and all(tick <= ticks.get(p, -1) for p, tick in known.ticks.items())


def _create_table(run: _Run) -> None:
    """Two processes may do so at once: in PostgreSQL one of them fails, which must not spoil its transaction."""
    run("SAVEPOINT gapless_tokens", {})
    try:
        run(_CREATE, {})
    except Exception:
        run("ROLLBACK TO SAVEPOINT gapless_tokens", {})
        try:
            run("SELECT token FROM gapless_tokens WHERE 1 = 0", {})
        except Exception:  # noqa: BLE001 - whatever a driver raises: there is no table
            is_there = False
        else:
            is_there = True
        if not is_there:
            raise
    run("RELEASE SAVEPOINT gapless_tokens", {})


def _statements_of(db: Any) -> _Run:
    """What runs statements in the transaction that `db` is in. Raises ConfigurationError."""
    kind: Any = type(db)  # for mypy, which does not take a class for hashable
    return _way_of(kind)(db)


@lru_cache(maxsize=16)  # each batch comes with the same class
def _way_of(kind: type[Any]) -> Callable[[Any], _Run]:
    """How to run statements on objects of a class. Raises ConfigurationError."""
    orm, engine, asyncio = (sys.modules.get(f"sqlalchemy.{part}") for part in ("orm", "engine", "ext.asyncio"))
    if asyncio is not None and issubclass(kind, (asyncio.AsyncSession, asyncio.AsyncConnection)):
        raise ConfigurationError(f"with an {kind.__name__}: await session.run_sync(tokens.claim), and likewise save")
    if orm is not None and issubclass(kind, (orm.Session, orm.scoped_session)):
        return lambda session: _sqlalchemy(session.connection())
    if engine is not None and issubclass(kind, engine.Connection):
        return _sqlalchemy
    if not (callable(getattr(kind, "cursor", None)) and callable(getattr(kind, "commit", None))):
        raise ConfigurationError(
            "a token is saved by what the transaction runs on: a Session or Connection of SQLAlchemy 2, or a DB-API "
            f"connection; this is a {kind.__module__}.{kind.__qualname__}"
        )
    if inspect.iscoroutinefunction(kind.commit):
        raise ConfigurationError(
            f"{kind.__module__}.{kind.__qualname__} is asynchronous: use it through SQLAlchemy's AsyncSession, and "
            "run_sync"
        )
    return partial(_dbapi, driver=_driver_of(kind))


def _sqlalchemy(connection: Any) -> _Run:
    if connection.dialect.name not in _DIALECTS:
        raise ConfigurationError(f"{_WHERE}; this one is {connection.dialect.name}")
    if not connection.in_transaction():
        connection.begin()  # as any statement would: only then the driver's connection says whether it is in one
    _refuse_autocommit(connection.connection.dbapi_connection)
    text = sys.modules["sqlalchemy"].text

    def run(statement: str, parameters: Mapping[str, str]) -> Sequence[Sequence[Any]]:
        placed = text(_placed(statement, tuple(parameters), "named"))
        result = connection.execute(placed, dict(parameters))
        return result.all() if _returns_rows(statement) else ()

    return run


class _Driver(NamedTuple):
    """A DB-API module."""

    style: str
    """How it writes parameters (PEP 249)."""
    cursor: Callable[[Any], Any]
    """Makes a cursor. Of psycopg and sqlite3 its rows are tuples, whatever the application wants for its own."""


def _driver_of(kind: type[Any]) -> _Driver:
    """The driver of a class of connections. Raises ConfigurationError."""
    for base in kind.__mro__:  # an application may have made a class of its own
        name = base.__module__
        while name:
            style = getattr(sys.modules.get(name), "paramstyle", None)
            if isinstance(style, str):
                if name == "sqlite3" and sys.modules[name].sqlite_version_info < (3, 35):
                    raise ConfigurationError(f"{_WHERE}; this one is SQLite {sys.modules[name].sqlite_version}")
                return _Driver(style, _CURSORS.get(name, methodcaller("cursor")))
            name = name.rpartition(".")[0]
    raise ConfigurationError(f"{kind.__module__} has no paramstyle: is this a DB-API connection (PEP 249)?")


def _cursor_of_psycopg(connection: Any) -> Any:
    return connection.cursor(row_factory=sys.modules["psycopg.rows"].tuple_row)


def _cursor_of_sqlite(connection: Any) -> Any:
    cursor = connection.cursor()
    cursor.row_factory = None
    return cursor


_CURSORS: Mapping[str, Callable[[Any], Any]] = {"psycopg": _cursor_of_psycopg, "sqlite3": _cursor_of_sqlite}


def _dbapi(connection: Any, driver: _Driver) -> _Run:
    _refuse_autocommit(connection)
    style = driver.style

    def run(statement: str, parameters: Mapping[str, str]) -> Sequence[Sequence[Any]]:
        placed = _placed(statement, tuple(parameters), style)
        cursor = driver.cursor(connection)
        try:
            cursor.execute(placed, parameters if style in _BY_NAME else tuple(parameters.values()))
            return cursor.fetchall() if _returns_rows(statement) else ()
        finally:
            cursor.close()

    return run


def _returns_rows(statement: str) -> bool:
    return statement.startswith("SELECT ") or " RETURNING " in statement


@lru_cache(maxsize=16)
def _placed(statement: str, parameters: tuple[str, ...], style: str) -> str:
    """The statement as a driver wants it. Each parameter stands in it once, in their order."""
    write = {"named": ":{}", "pyformat": "%({})s", "numeric": ":{1}", "format": "%s", "qmark": "?"}[style]
    return statement.format_map({name: write.format(name, place) for place, name in enumerate(parameters, start=1)})


def _refuse_autocommit(connection: Any) -> None:
    """Raises ConfigurationError if each statement of a DB-API connection is a transaction by itself."""
    by_itself = getattr(connection, "autocommit", None)
    if not isinstance(by_itself, bool):  # SQLite, whose driver also knows a way of its own, in which this is -1
        by_itself = getattr(connection, "isolation_level", "") is None
    if not by_itself:
        return
    # Either driver says whether a transaction was begun by hand.
    status = getattr(getattr(connection, "info", None), "transaction_status", 0)
    if not getattr(connection, "in_transaction", False) and not int(status):
        raise ConfigurationError(
            "this connection commits each statement by itself: token and effects would part; begin a transaction, or "
            "connect without autocommit"
        )
