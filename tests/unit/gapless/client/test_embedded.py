"""Brokers in this process, shared by the connections that name them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import gapless
from gapless.node import node as node_module
from unit.gapless.client.fake_network import FakeNetwork


class FakeNode:
    """A node that serves over hand-made links."""

    nodes: list[FakeNode]
    failure: Exception | None = None

    def __init__(self, config: Any) -> None:
        self.config = config
        self.network = FakeNetwork()
        self.stopped = False
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @classmethod
    async def start(cls, config: Any) -> FakeNode:
        await asyncio.sleep(0)
        if cls.failure is not None:
            raise cls.failure
        node = cls(config)
        cls.nodes.append(node)
        return node

    async def dial(self, accept: Any) -> Any:
        return await self.network.dial("", accept)

    async def wait(self) -> None:
        await self.ended

    async def stop(self) -> None:
        self.stopped = True


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> list[FakeNode]:
    monkeypatch.setattr(node_module, "Node", FakeNode)
    monkeypatch.setattr(FakeNode, "failure", None)
    FakeNode.nodes = []
    return FakeNode.nodes


async def test_one_in_memory_is_the_connections_own(nodes: list[FakeNode]) -> None:
    async with gapless.connect("embedded:"), gapless.connect("embedded:"):
        assert len(nodes) == 2
        assert {node.config.storage.plugin for node in nodes} == {"memory"}
        assert [node.config.listen for node in nodes] == [(), ()]
    assert [node.stopped for node in nodes] == [True, True]


async def test_one_on_a_volume_is_shared_by_all_that_name_it(nodes: list[FakeNode], tmp_path: Path) -> None:
    address, same = f"embedded:{tmp_path}/data", f"embedded:{tmp_path}/./data"
    first, second = await asyncio.gather(_connected(address), _connected(same))
    async with gapless.connect(f"embedded:{tmp_path}/other"):
        assert len(nodes) == 2
    assert nodes[0].config.storage.plugin == "rocksdb"
    assert nodes[0].config.storage.path == str(tmp_path / "data")
    await first.close()
    assert [node.stopped for node in nodes] == [False, True]
    assert second.connected
    await second.close()
    assert [node.stopped for node in nodes] == [True, True]

    async with gapless.connect(address):
        assert len(nodes) == 3


async def _connected(address: str) -> gapless.Connection:
    return await gapless.connect(address)


async def test_one_that_does_not_start_says_why_and_may_be_tried_again(
    nodes: list[FakeNode], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for address in ("embedded:", f"embedded:{tmp_path}"):
        monkeypatch.setattr(FakeNode, "failure", gapless.VolumeLockedError("in use"))
        with pytest.raises(gapless.VolumeLockedError):
            await gapless.connect(address)
        monkeypatch.setattr(FakeNode, "failure", None)
        async with gapless.connect(address):
            pass
    assert all(node.stopped for node in nodes)


async def test_one_that_refuses_is_stopped(nodes: list[FakeNode], monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(self: FakeNode, accept: Any) -> Any:
        raise OSError("no")

    monkeypatch.setattr(FakeNode, "dial", refuse)
    with pytest.raises(gapless.ConnectionClosedError):
        await gapless.connect("embedded:")
    assert [node.stopped for node in nodes] == [True]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        pytest.param(gapless.VolumeAbsentError("the volume went"), gapless.VolumeAbsentError, id="the-storage's"),
        pytest.param(RuntimeError("a bug"), gapless.ConnectionClosedError, id="a-bug"),
    ],
)
async def test_one_that_has_given_up_ends_its_connections_with_the_reason(
    nodes: list[FakeNode], error: Exception, told: type[Exception]
) -> None:
    """Nobody starts it again: whoever waited for it would wait for ever."""
    connection = await gapless.connect("embedded:")
    waiting = asyncio.ensure_future(connection.pubends())
    await asyncio.sleep(0)
    nodes[0].ended.set_exception(error)

    with pytest.raises(told, match=str(error)):
        await waiting
    with pytest.raises(told, match=str(error)):
        connection.session()
    await connection.close()
