"""Tokens of many pubends, as an application keeps them: in a file, in a database, over a growing topic."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import gapless
from gapless.cli.subscribe import read_token, write_token
from integration.broker_process import BrokerProcess, bounded


def pubends(count: int) -> dict[str, Any]:
    return {"pubends": [{"name": "wide", "count": count, "topics": ["wide.#"]}]}


async def publish(url: str, count: int) -> None:
    """Each by a publisher of its own name, so they come to many pubends."""
    async with gapless.connect(url) as connection, connection.session() as session:
        for number in range(count):
            await bounded(session.publisher("wide.a", name=f"of {number}").send(b"%d" % number))


async def take(url: str, count: int, start: Any) -> tuple[set[bytes], gapless.CheckpointToken]:
    async with (
        gapless.connect(url, client_id="c") as connection,
        connection.session() as session,
        session.subscribe("wide.#", name="s", start=start) as subscription,
    ):
        bodies = set()
        for _ in range(count):
            event = await bounded(anext(subscription))
            bodies.add(event.body)
            assert gapless.CheckpointToken.parse(str(subscription.token)) == subscription.token
        return bodies, subscription.token


async def test_a_position_on_hundreds_of_pubends_is_kept_and_gone_on_from(tmp_path: Path) -> None:
    """Over 140 of them there was no text, which showed when a position had to be stored."""
    async with BrokerProcess(tmp_path, phb=pubends(300)) as broker:
        await publish(broker.url, 40)
        bodies, token = await take(broker.url, 40, "earliest")
        assert bodies == {b"%d" % number for number in range(40)}
        assert len(token.ticks) > 140
        assert len(str(token)) < 8192

        write_token(tmp_path / "token", token)
        assert read_token(tmp_path / "token") == token
        with closing(sqlite3.connect(tmp_path / "effects")) as db:
            tokens = gapless.TokenStore("s")
            tokens.claim(db, create_table=True)
            tokens.save(db, token)
            db.commit()
            kept = gapless.TokenStore("s").claim(db)
            db.commit()
        assert kept == token

        broker.sections["phb"] = pubends(400)  # the topic grows while the application is away
        await broker.kill()
        await broker.start()
        await publish(broker.url, 50)
        more, grown = await take(broker.url, 50, kept)
        assert more == {b"%d" % number for number in range(50)}
        assert token <= grown
        assert set(token.ticks) < set(grown.ticks)
