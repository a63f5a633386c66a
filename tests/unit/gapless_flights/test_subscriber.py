"""A subscriber's database: rows and token, both or neither."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

import gapless
from gapless import CheckpointToken, Event
from gapless_flights.reporting import Stop
from gapless_flights.subscriber import Consuming, Ledger, consumed_flights


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
        self.stop: Any = None

    def then(self, on_stop: Any) -> None:
        self.stop = on_stop


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
        await Consuming(watched, cast("Stop", stop)).run(url, "late", "flights.*", "number = 1 OR number = 3")
    watched.close()

    assert list(consumed_flights(tmp_path / "late.sqlite")) == ["1", "3"]
