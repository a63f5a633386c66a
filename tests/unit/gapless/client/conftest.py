"""A broker to connect to, without sockets and without a process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

import gapless
from gapless import plugins
from unit.gapless.client.fake_network import FakeNetwork
from unit.gapless.client.shared_work import Work
from unit.gapless.client.sharing_broker import SharingBroker

ADDRESS = "gapless+fake://here"


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> FakeNetwork:
    """What `connect(ADDRESS)` reaches."""
    network = FakeNetwork()
    load = plugins.load

    def load_fake(kind: str, name: str) -> Any:
        return (lambda **_: network) if (kind, name) == ("transport", "fake") else load(kind, name)

    monkeypatch.setattr(plugins, "load", load_fake)
    return network


def is_connected(connection: Any) -> bool:
    """Whether it is just now: a function, because a checker takes a property's answer to last."""
    return bool(connection.connected)


def die(subscription: Any) -> None:
    """The application's process is gone: its connection ends, and says nothing."""
    driver = subscription._driver
    driver.core.close(driver.now())
    driver.pump()


async def until(holds: Callable[[], object]) -> None:
    """Waits until something holds: how long that takes is the machine's affair."""
    while not holds():  # noqa: ASYNC110 - nothing tells
        await asyncio.sleep(0.005)


@pytest.fixture
def broker(network: FakeNetwork) -> SharingBroker:
    """The broker of `network`, which has shared subscriptions."""
    broker = network.broker = SharingBroker()
    return broker


@pytest.fixture
async def work(network: FakeNetwork, broker: SharingBroker) -> AsyncIterator[Work]:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        yield Work(network, connection, session)


@pytest.fixture
async def automatic(network: FakeNetwork, broker: SharingBroker) -> AsyncIterator[Work]:
    async with gapless.connect(ADDRESS) as connection, connection.session(gapless.AckMode.AUTO) as session:
        yield Work(network, connection, session)
