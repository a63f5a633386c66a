"""Two roles of one node host pubends: publishers reach both, a subscriber gets from both, each has its own tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import gapless
from gapless import plugins
from integration.nodes_in_process import running_node

ORDERS = "orders"
"""The name of the second one."""
SECTIONS: dict[str, Any] = {
    "node": {"roles": ["phb", ORDERS, "shb"]},
    "phb": {"pubends": [{"name": "flights", "topics": ["flights"]}]},
    ORDERS: {"pubends": [{"name": "orders", "topics": ["orders"]}]},
}


@pytest.fixture
def _two_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = plugins.load

    def load(kind: str, name: str) -> Any:
        return installed(kind, "phb" if (kind, name) == ("role", ORDERS) else name)

    monkeypatch.setattr(plugins, "load", load)


@pytest.mark.usefixtures("_two_kinds")
@pytest.mark.parametrize("on_disk", [False, True], ids=["memory", "rocksdb"])
async def test_publish_to_both_and_subscribe_to_both(tmp_path: Path, *, on_disk: bool) -> None:
    directory = tmp_path / "volume" if on_disk else None
    async with (
        running_node(directory, **SECTIONS) as node,
        gapless.connect(node.url) as connection,
        connection.session() as session,
        session.subscribe("flights", "orders", name="both", start="earliest") as subscription,
    ):
        loaders = [session.publisher(topic, name=f"{topic} loader") for topic in ("flights", "orders")]
        receipts = [await loader.send(loader.name.encode()) for loader in loaders]
        received = {event.pubend: event.body async for event in first(subscription, 2)}
        pubends = {row.pubend: row for row in await connection.pubends()}

    assert received == {receipts[0].pubend: b"flights loader", receipts[1].pubend: b"orders loader"}
    assert [pubend.partition("@")[0] for pubend in pubends] == ["flights", "orders"]
    assert [row.newest for row in pubends.values()] == [receipt.tick for receipt in receipts]
    if directory is not None:
        await _is_as_it_was(directory, [receipt.pubend for receipt in receipts])


async def _is_as_it_was(directory: Path, pubends: list[str]) -> None:
    """After a restart each host has its own pubend again, and knows its publisher."""
    async with (
        running_node(directory, **SECTIONS) as node,
        gapless.connect(node.url) as connection,
        connection.session() as session,
    ):
        assert [row.pubend for row in await connection.pubends()] == pubends
        for topic in ("flights", "orders"):
            assert (await session.publisher(topic, name=f"{topic} loader").recover()).sequence == 1


async def first(subscription: Any, count: int) -> Any:
    """So many events."""
    async for event in subscription:
        yield event
        count -= 1
        if not count:
            return
