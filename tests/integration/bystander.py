"""Somebody who is at work with a broker while others misbehave, and must not notice."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import gapless
from gapless.node.node import Node
from integration.nodes_in_process import running_node


class Bystander:
    """A client at work: it publishes to itself. Whatever others do, it must not notice."""

    def __init__(
        self, node: Node, connection: gapless.Connection, publisher: gapless.Publisher, subscription: Any
    ) -> None:
        self.node = node
        self.before: Any = None
        """What was listed before anything bad came in."""
        self._connection = connection
        self._publisher = publisher
        self._subscription = subscription
        self._shell = node._shell
        self.number = 0

    @property
    def address(self) -> str:
        """Where the broker listens."""
        return self.node.address

    async def works(self) -> None:
        """Publishes an event and gets it, as the very next one."""
        self.number += 1
        body = b"%d" % self.number
        receipt = await asyncio.wait_for(self._publisher.send(body), 10)
        event = await asyncio.wait_for(self._subscription.__anext__(), 10)
        assert (event.body, event.tick) == (body, receipt.tick)

    async def listing(self) -> Any:
        """All that the broker says of its subscriptions and pubends, but for what moves by itself."""
        subscriptions = await self._connection.subscriptions()
        pubends = await self._connection.pubends()
        return (
            [(info.client_id, info.name, info.topics, info.selector, info.connected) for info in subscriptions],
            [(info.pubend, info.topics, info.lost, info.newest, info.log_bytes) for info in pubends],
        )

    async def pubends(self) -> list[gapless.PubendInfo]:
        """The broker's pubends."""
        return await self._connection.pubends()

    def is_undisturbed(self) -> bool:
        """Whether neither the broker nor this session has started over."""
        return self.node.serving and self.node._shell is self._shell and self._connection.connected


@contextlib.asynccontextmanager
async def bystanding(directory: Path, **sections: dict[str, Any]) -> AsyncIterator[Bystander]:
    """A broker with somebody at work."""
    async with (
        running_node(directory, **sections) as node,
        gapless.connect(node.url, client_id="bystander") as connection,
        connection.session() as session,
        session.subscribe("work", name="s") as subscription,
    ):
        bystander = Bystander(node, connection, session.publisher("work", name="p"), subscription)
        await bystander.works()
        yield bystander
