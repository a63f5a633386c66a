"""The token in the application's own database: SQLite by its DB-API and by SQLAlchemy."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import orm
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from gapless import (
    Batch,
    CheckpointToken,
    ConfigurationError,
    Event,
    InvalidTokenError,
    StaleTokenError,
    TokenMismatchError,
    TokenStore,
)

FIRST = CheckpointToken("net", {"a@1": 10})
SECOND = CheckpointToken("net", {"a@1": 20})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A database in which the table is made, and something to have an effect on."""
    path = tmp_path / "application.db"
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE effects (tick INTEGER)")
    TokenStore("other").claim(database, create_table=True)
    database.commit()
    database.close()
    return path


Open = Callable[[], Any]


@pytest.fixture(params=["sqlite3", "connection", "session"])
def opened(request: pytest.FixtureRequest, file: Path) -> Iterator[Open]:
    """Opens the database the way the parameter says; what was opened is closed at the end."""
    engine = sqlalchemy.create_engine(f"sqlite:///{file}")
    kinds: dict[str, Open] = {
        "sqlite3": lambda: sqlite3.connect(file),
        "connection": engine.connect,
        "session": lambda: orm.Session(engine),
    }
    handles: list[Any] = []

    def open_one() -> Any:
        handles.append(kinds[request.param]())
        return handles[-1]

    yield open_one
    for handle in handles:
        handle.close()
    engine.dispose()


def test_a_token_is_what_was_saved(opened: Open) -> None:
    tokens, database = TokenStore("late"), opened()
    assert tokens.claim(database) is None
    tokens.save(database, FIRST)
    tokens.save(database, SECOND)
    database.commit()
    assert TokenStore("late").claim(opened()) == SECOND


def in_a_dict(cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> dict[str, Any]:
    return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}


def test_the_applications_own_kind_of_rows_does_not_matter(file: Path) -> None:
    """`claim` raised KeyError where rows are dictionaries."""
    database = sqlite3.connect(file)
    database.row_factory = in_a_dict
    tokens = TokenStore("late")
    assert tokens.claim(database) is None
    tokens.save(database, FIRST)

    assert TokenStore("late").claim(database) == FIRST
    assert database.execute("SELECT 1 AS one").fetchone() == {"one": 1}
    database.close()


def test_nor_does_what_it_takes_text_for(file: Path) -> None:
    """`claim` raised TypeError where text is bytes."""
    database = sqlite3.connect(file)
    database.text_factory = bytes
    tokens = TokenStore("late")
    assert tokens.claim(database) is None
    tokens.save(database, FIRST)

    assert TokenStore("late").claim(database) == FIRST
    database.close()


def test_a_token_goes_with_its_transaction(opened: Open) -> None:
    tokens, database = TokenStore("late"), opened()
    tokens.claim(database)
    tokens.save(database, FIRST)
    database.commit()
    tokens.save(database, SECOND)
    database.rollback()
    assert TokenStore("late").claim(database) == FIRST


def test_the_one_who_claimed_last_owns_the_token(opened: Open) -> None:
    paused, rival, database = TokenStore("late"), TokenStore("late"), opened()
    paused.claim(database)
    paused.save(database, FIRST)
    assert rival.claim(database) == FIRST
    database.commit()
    with pytest.raises(StaleTokenError, match="belongs to another consumer"):
        paused.save(database, SECOND)
    rival.save(database, SECOND)


def test_a_claim_that_was_rolled_back_owns_nothing(opened: Open) -> None:
    tokens, rival, database = TokenStore("late"), TokenStore("late"), opened()
    tokens.claim(database)
    database.rollback()
    rival.claim(database)
    database.commit()
    with pytest.raises(StaleTokenError):
        tokens.save(database, FIRST)
    rival.save(database, FIRST)


def test_a_token_is_claimed_first(opened: Open) -> None:
    with pytest.raises(StaleTokenError, match="call claim"):
        TokenStore("late").save(opened(), FIRST)


def test_a_token_alone_is_saved(opened: Open) -> None:
    """Anything else would be committed with the effects, and the position would be gone."""
    tokens, database = TokenStore("late"), opened()
    tokens.claim(database)
    batch = Batch("a@1", [], FIRST)

    for wrong in (batch, None, str(FIRST), "x", Event.make("t")):
        with pytest.raises(InvalidTokenError, match="a CheckpointToken is saved, not"):
            tokens.save(database, wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidTokenError, match=r"batch\.token"):
        tokens.save(database, batch)  # type: ignore[arg-type]

    database.commit()
    assert TokenStore("late").claim(opened()) is None


@pytest.mark.parametrize(
    "older",
    [{"a@1": 19, "b@1": 5}, {"a@1": 20, "b@1": 4}, {"a@1": 25, "b@1": 4}, {"a@1": 19}, {"b@1": 4, "c@1": 9}],
    ids=[
        "before",
        "before in one",
        "neither before nor behind",
        "one that is lower",
        "one that is lower, and a new one",
    ],
)
@pytest.mark.parametrize("claims_anew", [False, True])
def test_a_position_never_goes_back(opened: Open, older: dict[str, int], claims_anew: bool) -> None:
    """Neither as a whole nor in one pubend: what had taken effect there would take effect again."""
    tokens, database = TokenStore("late"), opened()
    tokens.claim(database)
    tokens.save(database, CheckpointToken("net", {"a@1": 20, "b@1": 5}))
    if claims_anew:
        tokens = TokenStore("late")
        tokens.claim(database)

    with pytest.raises(StaleTokenError, match="stands before the one that is stored"):
        tokens.save(database, CheckpointToken("net", older))

    database.commit()
    assert TokenStore("late").claim(opened()) == CheckpointToken("net", {"a@1": 20, "b@1": 5})


def test_what_was_rolled_back_is_not_what_a_position_is_measured_by(opened: Open) -> None:
    tokens, database = TokenStore("late"), opened()
    tokens.claim(database)
    tokens.save(database, FIRST)
    database.commit()
    tokens.save(database, CheckpointToken("net", {"a@1": 30}))
    database.rollback()

    tokens.save(database, SECOND)
    database.commit()

    assert TokenStore("late").claim(opened()) == SECOND


def test_the_same_token_can_be_saved_again(opened: Open) -> None:
    """Whoever was paused asks by that whether the token is still its own."""
    tokens, database = TokenStore("late"), opened()
    tokens.claim(database)
    tokens.save(database, SECOND)
    tokens.save(database, SECOND)
    database.commit()

    assert TokenStore("late").claim(opened()) == SECOND


def test_a_pubend_that_only_the_stored_token_names_stays(opened: Open) -> None:
    tokens, database = TokenStore("late"), opened()
    tokens.claim(database)
    tokens.save(database, CheckpointToken("net", {"a@1": 20, "b@1": 5, "c@1": 7}))
    tokens.save(database, CheckpointToken("net", {"a@1": 21, "c@2": 1}))
    database.commit()

    assert TokenStore("late").claim(opened()) == CheckpointToken("net", {"a@1": 21, "b@1": 5, "c@2": 1})


def test_a_token_of_another_network_takes_no_place(opened: Open) -> None:
    tokens, database = TokenStore("late"), opened()
    tokens.claim(database)
    tokens.save(database, FIRST)

    with pytest.raises(TokenMismatchError, match="delete the row 'late'"):
        tokens.save(database, CheckpointToken("elsewhere", {"a@1": 20}))


def test_names_are_apart(opened: Open) -> None:
    one, other, database = TokenStore("one"), TokenStore("it's; --"), opened()
    one.claim(database)
    other.claim(database)
    one.save(database, FIRST)
    assert TokenStore("it's; --").claim(database) is None


def test_a_table_is_made_only_if_asked_for(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "new.db")
    with pytest.raises(sqlite3.OperationalError, match="gapless_tokens"):
        TokenStore("late").claim(database)
    assert TokenStore("late").claim(database, create_table=True) is None
    database.rollback()  # the claim; and the table may stay
    database.close()


def test_a_reason_why_no_table_can_be_made_is_told(file: Path) -> None:
    database = sqlite3.connect(f"file:{file.with_name('empty.db')}?mode=rwc", uri=True)
    database.execute("PRAGMA query_only = ON")
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        TokenStore("late").claim(database, create_table=True)
    database.close()


def test_autocommit_is_refused(file: Path) -> None:
    database = sqlite3.connect(file, isolation_level=None)
    with pytest.raises(ConfigurationError, match="commits each statement by itself"):
        TokenStore("late").claim(database)
    engine = sqlalchemy.create_engine(f"sqlite:///{file}", isolation_level="AUTOCOMMIT")
    with engine.connect() as connection, pytest.raises(ConfigurationError, match="commits each statement by itself"):
        TokenStore("late").claim(connection)
    tokens = TokenStore("late")
    database.execute("BEGIN")  # a transaction by hand is one
    tokens.claim(database)
    database.execute("COMMIT")
    with pytest.raises(ConfigurationError, match="commits each statement by itself"):
        tokens.save(database, FIRST)
    database.close()
    engine.dispose()


def test_engines_that_begin_by_an_event_are_in_a_transaction(file: Path) -> None:
    """SQLAlchemy's own advice for SQLite: the driver in autocommit, and BEGIN sent where a transaction begins."""
    engine = sqlalchemy.create_engine(f"sqlite:///{file}", connect_args={"isolation_level": None})
    sqlalchemy.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    with engine.connect() as connection:
        tokens = TokenStore("late")
        tokens.claim(connection)
        tokens.save(connection, FIRST)
        connection.rollback()
        assert tokens.claim(connection) is None
    engine.dispose()


async def test_an_async_session_runs_it(file: Path) -> None:
    engine = create_async_engine(f"sqlite+aiosqlite:///{file}")
    tokens = TokenStore("late")
    async with AsyncSession(engine) as session:
        with pytest.raises(ConfigurationError, match="run_sync"):
            tokens.claim(session)
        assert await session.run_sync(tokens.claim) is None
        await session.run_sync(tokens.save, SECOND)
        await session.commit()
        for wrong, error in ((FIRST, StaleTokenError), (None, InvalidTokenError)):
            with pytest.raises(error):
                await session.run_sync(tokens.save, wrong)  # type: ignore[arg-type]
        assert await session.run_sync(TokenStore("late").claim) == SECOND
    await engine.dispose()


def test_what_is_no_database_is_said(file: Path) -> None:
    engine = sqlalchemy.create_engine(f"sqlite:///{file}")
    database = sqlite3.connect(file)
    for wrong in (engine, str(file), database.cursor()):
        with pytest.raises(ConfigurationError, match="a Session or Connection of SQLAlchemy 2, or a DB-API connection"):
            TokenStore("late").claim(wrong)
    database.close()
    engine.dispose()


def test_a_database_that_cannot_is_said(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = sqlalchemy.create_engine(f"sqlite:///{file}")
    with engine.connect() as connection:
        monkeypatch.setattr(connection.dialect, "name", "mysql")
        with pytest.raises(ConfigurationError, match=r"PostgreSQL, and in SQLite from 3\.35 on; this one is mysql"):
            TokenStore("late").claim(connection)
    engine.dispose()


@pytest.mark.parametrize("name", ["", "x" * 256])
def test_a_name_is_neither_empty_nor_endless(name: str) -> None:
    with pytest.raises(ConfigurationError, match="1 to 255 characters"):
        TokenStore(name)
