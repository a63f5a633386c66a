"""The plugin of docs/howto/write-a-log-plugin.md: its suite, and a node that follows an outbox."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

import gapless
from documents import ROOT, code_blocks, install_programs, saved_module
from gapless import plugins
from gapless.node.config import make_config
from gapless.node.node import Node

PAGE = ROOT / "docs" / "howto" / "write-a-log-plugin.md"


class TestThePage(saved_module(PAGE, "test_outbox_log").TestOutbox):  # type: ignore[misc]
    """All of the suite that can happen to such a log."""


def execute(path: Path, script: str) -> None:
    """What the application does."""
    with closing(sqlite3.connect(path)) as database:
        database.executescript(script)


@pytest.mark.timeout(60)
async def test_a_node_follows_the_outbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the tables, the entry point and the section of the page."""
    install_programs(PAGE, tmp_path, "outbox_log")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "outbox_log", raising=False)
    plugins.load.cache_clear()
    path = tmp_path / "shop.sqlite"
    (tables,) = code_blocks(PAGE, "sql")
    execute(path, tables.code + "INSERT INTO outbox (wall, body) VALUES (1700000000000, 'before');")
    config = {
        "storage": {"plugin": "memory", "path": ""},
        "phb": {"pubends": [{"name": "own", "topics": ["own"]}], "outbox": [{"path": str(path), "topic": "orders"}]},
        "listen": [{"address": "127.0.0.1:0"}],
    }
    node = await Node.start(make_config(config))
    try:
        async with gapless.connect(node.url) as connection, connection.session() as session:
            async with session.subscribe("orders", name="late", start="earliest") as orders:
                events = [await anext(orders)]
                execute(path, "INSERT INTO outbox (wall, body) VALUES (1700000001000, 'a'), (1700000001000, 'b');")
                events += [await anext(orders), await anext(orders)]
    finally:
        await node.stop()

    assert [(event.tick, bytes(event.body)) for event in events] == [(1, b"before"), (2, b"a"), (3, b"b")]
    assert [event.timestamp.timestamp() for event in events] == [1_700_000_000, 1_700_000_001, 1_700_000_001]
