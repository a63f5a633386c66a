"""The fake broker of the asyncio tests; it lives in the thread of whoever connects."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import gapless
from unit.gapless.client.conftest import ADDRESS, network
from unit.gapless.client.fake_network import FakeNetwork

__all__ = ["network"]


class World:
    """A connection and its broker, which lives in the connection's thread."""

    def __init__(self, network: FakeNetwork, connection: gapless.sync.Connection) -> None:
        self.network = network
        self.connection = connection

    def log(self, *bodies: bytes) -> list[int]:
        return self.network.do(lambda: self.network.log(*bodies))

    def silence(self) -> int:
        return self.network.do(self.network.silence)


@pytest.fixture
def world(network: FakeNetwork) -> Iterator[World]:
    with gapless.sync.connect(ADDRESS) as connection:
        yield World(network, connection)
