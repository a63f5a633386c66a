"""The token in PostgreSQL, beside rivals that run at the same time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import psycopg
import pytest
import sqlalchemy
from psycopg.rows import class_row, dict_row, scalar_row
from sqlalchemy import orm
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from gapless import CheckpointToken, ConfigurationError, StaleTokenError, TokenStore
from integration.postgres import Postgres, programs, running

TOKENS = [CheckpointToken("net", {"a@1": tick}) for tick in range(1, 4)]
LEVELS = [level.name for level in psycopg.IsolationLevel]


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    folder = programs()
    if folder is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    with running(folder) as server:
        with psycopg.connect(server.address) as database:
            TokenStore("made").claim(database, create_table=True)
        yield server


def connected(postgres: Postgres, level: str) -> psycopg.Connection[Any]:
    database = psycopg.connect(postgres.address)
    database.isolation_level = psycopg.IsolationLevel[level]
    return database


@pytest.mark.parametrize("level", LEVELS)
def test_a_rival_that_saves_meanwhile_is_waited_for_or_refused(postgres: Postgres, level: str) -> None:
    """Whoever claims gets what a rival commits meanwhile, or the database refuses one of the two."""
    name = f"meanwhile {level}"
    first, second = TokenStore(name), TokenStore(name)
    with connected(postgres, level) as saver, connected(postgres, level) as claimer, ThreadPoolExecutor(1) as thread:
        first.claim(saver)
        first.save(saver, TOKENS[0])
        saver.commit()
        claimer.execute("SELECT 1")  # the snapshot of a whole transaction, above READ COMMITTED, is taken here
        first.save(saver, TOKENS[1])
        claim = thread.submit(second.claim, claimer)
        assert not wait([claim], timeout=0.3).done  # for it waits for the row
        saver.commit()
        if level in {"READ_COMMITTED", "READ_UNCOMMITTED"}:
            assert claim.result(timeout=10) == TOKENS[1]
        else:
            with pytest.raises(psycopg.errors.SerializationFailure):
                claim.result(timeout=10)
            claimer.rollback()
            assert second.claim(claimer) == TOKENS[1]
        claimer.commit()
        with pytest.raises(StaleTokenError):
            first.save(saver, TOKENS[2])
        saver.rollback()


@pytest.mark.parametrize("level", LEVELS)
def test_a_claim_that_is_under_way_is_waited_for_by_a_save(postgres: Postgres, level: str) -> None:
    name = f"under way {level}"
    first, second = TokenStore(name), TokenStore(name)
    with connected(postgres, level) as saver, connected(postgres, level) as claimer, ThreadPoolExecutor(1) as thread:
        first.claim(saver)
        saver.commit()
        second.claim(claimer)
        save = thread.submit(first.save, saver, TOKENS[0])
        assert not wait([save], timeout=0.3).done
        claimer.commit()
        with pytest.raises((StaleTokenError, psycopg.errors.SerializationFailure)):
            save.result(timeout=10)
        saver.rollback()
        assert TokenStore(name).claim(claimer) is None


def test_many_make_the_table_at_once(postgres: Postgres) -> None:
    with psycopg.connect(postgres.address, autocommit=True) as database:
        database.execute("DROP SCHEMA IF EXISTS crowd CASCADE; CREATE SCHEMA crowd")
    begin = threading.Barrier(8)

    def claim(number: int) -> CheckpointToken | None:
        with psycopg.connect(postgres.address + " options=-csearch_path=crowd") as database:
            begin.wait()
            return TokenStore(f"{number % 2}").claim(database, create_table=True)

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(claim, range(8))) == [None] * 8


def test_within_a_pipeline_of_the_driver(postgres: Postgres) -> None:
    """There a statement's result comes later, unless it is waited for: every save seemed to be a stale one."""
    owner, rival = TokenStore("pipeline"), TokenStore("pipeline")
    with psycopg.connect(postgres.address) as database:
        with database.pipeline():
            assert owner.claim(database, create_table=True) is None
            owner.save(database, TOKENS[0])
        database.commit()
        assert rival.claim(database) == TOKENS[0]
        database.commit()
        with database.pipeline(), pytest.raises(StaleTokenError):
            owner.save(database, TOKENS[1])


@pytest.mark.parametrize("rows", [dict_row, scalar_row, class_row(object)], ids=["dict", "scalar", "class"])
def test_the_applications_own_kind_of_rows_does_not_matter(postgres: Postgres, rows: Any) -> None:
    """`claim` raised KeyError on a connection with `row_factory=dict_row`."""
    name = f"rows of {rows}"
    with psycopg.connect(postgres.address, row_factory=rows) as database:
        owner = TokenStore(name)
        assert owner.claim(database) is None
        owner.save(database, TOKENS[0])
        database.commit()
        assert TokenStore(name).claim(database) == TOKENS[0]
        with pytest.raises(StaleTokenError):
            owner.save(database, TOKENS[1])
        database.rollback()


def test_autocommit_is_refused(postgres: Postgres) -> None:
    tokens = TokenStore("autocommit")
    with psycopg.connect(postgres.address, autocommit=True) as database:
        with pytest.raises(ConfigurationError, match="commits each statement by itself"):
            tokens.claim(database)
        with database.transaction():
            tokens.claim(database)
        with pytest.raises(ConfigurationError, match="commits each statement by itself"):
            tokens.save(database, TOKENS[0])
    engine = sqlalchemy.create_engine(postgres.url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection, pytest.raises(ConfigurationError, match="commits each statement by itself"):
        tokens.claim(connection)
    engine.dispose()


async def test_sessions_of_sqlalchemy(postgres: Postgres) -> None:
    tokens, rival = TokenStore("orm"), TokenStore("orm")
    engine = sqlalchemy.create_engine(postgres.url)
    with orm.Session(engine) as session:
        tokens.claim(session)
        tokens.save(session, TOKENS[0])
        session.commit()
    engine.dispose()
    async_engine = create_async_engine(postgres.url)
    async with AsyncSession(async_engine) as async_session:
        assert await async_session.run_sync(rival.claim) == TOKENS[0]
        await async_session.run_sync(rival.save, TOKENS[1])
        await async_session.commit()
        with pytest.raises(StaleTokenError):
            await async_session.run_sync(tokens.save, TOKENS[2])
    await async_engine.dispose()


async def test_an_async_connection_of_the_driver_is_refused(postgres: Postgres) -> None:
    database = await psycopg.AsyncConnection.connect(postgres.address)
    with pytest.raises(ConfigurationError, match="asynchronous"):
        TokenStore("async").claim(database)
    await database.close()
