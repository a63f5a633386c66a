"""Three brokers for all tests of this folder; each test has topics of its own, and leaves all brokers running."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from gapless_testing.kafka import KafkaCluster
from kafka_kit import running_kafka


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[KafkaCluster]:
    """A Kafka with three brokers."""
    async with running_kafka(tmp_path_factory.mktemp("kafka3"), 3) as cluster:
        yield cluster


@pytest_asyncio.fixture
async def kafka(cluster: KafkaCluster) -> AsyncIterator[KafkaCluster]:
    """The same, with all brokers again at the end."""
    yield cluster
    await cluster.start()
