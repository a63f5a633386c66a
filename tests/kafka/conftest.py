"""One broker for all tests of this folder; each test has a topic of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from gapless_testing.kafka import KafkaCluster
from kafka_kit import KafkaLog, running_kafka


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def kafka(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[KafkaCluster]:
    """A Kafka with one broker."""
    async with running_kafka(tmp_path_factory.mktemp("kafka"), 1) as cluster:
        yield cluster


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """The name of the test's topic."""
    return "".join(letter if letter.isalnum() else "-" for letter in request.node.name)


@pytest.fixture
async def log(kafka: KafkaCluster, name: str) -> AsyncIterator[KafkaLog]:
    """A topic with one partition."""
    await kafka.create_topic(name)
    async with KafkaLog(kafka, name) as log:
        yield log
