"""A broker to connect to, without sockets and without a process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from gapless import plugins
from unit.gapless.client.fake_network import FakeNetwork

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
