"""An application whose workers share a subscription, and its broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import gapless
from unit.gapless.client.fake_network import FakeNetwork
from unit.gapless.client.sharing_broker import SharingBroker


class Work:
    """An application with workers, and its broker."""

    def __init__(self, network: FakeNetwork, connection: gapless.Connection, session: gapless.Session) -> None:
        self.network = network
        self.connection = connection
        self.session = session

    @property
    def broker(self) -> SharingBroker:
        assert isinstance(self.network.broker, SharingBroker)
        return self.network.broker

    def subscribe(self, **options: Any) -> Any:
        return self.session.subscribe("t", name="workers", shared=True, **options)

    def do(self, act: Callable[[], object]) -> None:
        """The broker does something, and says so."""
        act()
        self.network.settle()


async def turns(count: int = 20) -> None:
    """Lets everything that is ready happen."""
    for _ in range(count):
        await asyncio.sleep(0)


async def is_waiting(call: Any) -> asyncio.Task[Any]:
    """A task that has begun, and waits."""
    task: asyncio.Task[Any] = asyncio.ensure_future(call)
    await turns()
    assert not task.done()
    return task
