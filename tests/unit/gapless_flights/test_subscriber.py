"""A subscriber's database: rows and token, both or neither."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

import gapless
from gapless import CheckpointToken, Event
from gapless_flights.reporting import Stop
from gapless_flights.subscriber import Consuming, Consumption, Ledger, consume_all, consumed_flights


def event(body: str) -> Event:
    return Event("flights", {}, None, body.encode())


def token(tick: int) -> CheckpointToken:
    return CheckpointToken("here", {"p@1": tick})


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """An empty one."""
    ledger = Ledger(tmp_path / "late.sqlite", "late")
    yield ledger
    ledger.close()


def test_what_was_committed_is_there_for_the_next_life(ledger: Ledger, tmp_path: Path) -> None:
    ledger.commit([event("a"), event("b")], token(1))
    ledger.commit([], token(2))
    ledger.commit([event("c")], token(3))
    ledger.close()

    again = Ledger(tmp_path / "late.sqlite", "late")
    assert again.token() == token(3)
    assert again.count == 3
    again.close()
    assert list(consumed_flights(tmp_path / "late.sqlite")) == ["a", "b", "c"]


def test_a_new_one_has_no_token(ledger: Ledger) -> None:
    assert ledger.token() is None
    assert ledger.count == 0


def test_rows_and_token_are_committed_both_or_neither(ledger: Ledger, tmp_path: Path) -> None:
    """The token's write is made to fail after the rows' own."""
    ledger.commit([event("a")], token(1))
    with sqlite3.connect(tmp_path / "late.sqlite") as db:
        db.execute("CREATE TRIGGER fail BEFORE INSERT ON position BEGIN SELECT RAISE(ABORT, 'no'); END")
    db.close()

    with pytest.raises(sqlite3.IntegrityError):
        ledger.commit([event("b")], token(2))

    assert ledger.token() == token(1)
    assert ledger.count == 1
    assert list(consumed_flights(tmp_path / "late.sqlite")) == ["a"]


def test_who_never_ran_has_consumed_nothing(tmp_path: Path) -> None:
    assert list(consumed_flights(tmp_path / "never.sqlite")) == []


class FakeStop:
    """Stops when it is told to, by the test."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def then(self, on_stop: Any) -> None:
        self.told.append(on_stop)

    def stop(self) -> None:
        for on_stop in self.told:
            on_stop()


async def test_it_consumes_what_it_selects_until_it_is_stopped(ledger: Ledger, tmp_path: Path) -> None:
    url = f"embedded:{tmp_path / 'volume'}"
    stop = FakeStop()

    class Watched(Ledger):
        def commit(self, events: Any, token: CheckpointToken) -> None:
            super().commit(events, token)
            if self.count == 2:
                stop.stop()

    watched = Watched(tmp_path / "late.sqlite", "late")
    async with gapless.connect(url) as connection, connection.session() as session:
        publisher = session.publisher("flights.JFK")
        for number in range(4):
            await publisher.send(b"%d" % number, {"number": number})
        wanted = Consumption("late", "flights.*", "number = 1 OR number = 3", "")
        await Consuming(watched, 0).run(session, wanted, cast("Stop", stop))
    watched.close()

    assert list(consumed_flights(tmp_path / "late.sqlite")) == ["1", "3"]


async def until(reached: Callable[[], bool]) -> None:
    """Lets others go on until something is so; the test's own time limit ends it."""
    while not reached():  # noqa: ASYNC110 - nobody else hears of it
        await asyncio.sleep(0.001)


async def test_a_process_consumes_many_each_with_a_database_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They gather what comes for one transaction, and commit all of it when they are stopped."""
    monkeypatch.setattr("gapless_flights.subscriber.COMMITS_A_SECOND", 5)
    url, stop = f"embedded:{tmp_path / 'volume'}", FakeStop()
    wanted = [
        Consumption(f"by-{number}", "flights", f"number = {number}", str(tmp_path / f"{number}.sqlite"))
        for number in range(3)
    ]
    async with gapless.connect(url) as connection, connection.session() as session:
        consuming = asyncio.create_task(consume_all(url, wanted, cast("Stop", stop)))
        await until(lambda: len(stop.told) == len(wanted))
        publisher = session.publisher("flights")
        for number in range(6):
            await publisher.send(b"%d" % number, {"number": number % 3})
        await until(lambda: [len(list(consumed_flights(Path(one.database)))) for one in wanted] == [2, 2, 2])
        stop.stop()
        await consuming

    assert [list(consumed_flights(Path(one.database))) for one in wanted] == [["0", "3"], ["1", "4"], ["2", "5"]]
