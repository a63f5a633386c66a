"""One broker for all tests of this folder in a process; each test has a topic of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
import trustme
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from gapless_testing.kafka import KafkaCluster
from gapless_testing.kafka_node import Secured
from kafka_kit import PASSWORD, KafkaLog, running_kafka


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    """Who signs the broker's certificate."""
    return trustme.CA()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def kafka(tmp_path_factory: pytest.TempPathFactory, authority: trustme.CA) -> AsyncIterator[KafkaCluster]:
    """A Kafka with one broker. Alice may connect to its second listener."""
    chain = tmp_path_factory.mktemp("tls") / "broker.pem"
    chain.write_bytes(pem(authority.issue_cert("127.0.0.1")))
    secured = Secured(chain, {"alice": PASSWORD})
    async with running_kafka(tmp_path_factory.mktemp("kafka"), 1, secured) as cluster:
        yield cluster


def pem(certificate: trustme.LeafCert) -> bytes:
    """A key and its certificates, in the only form that Kafka reads."""
    key = load_pem_private_key(certificate.private_key_pem.bytes(), None)
    parts = [key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())]
    return b"".join([*parts, *(blob.bytes() for blob in certificate.cert_chain_pems)])


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """The name of the test's topic."""
    return "".join(letter if letter.isalnum() else "-" for letter in request.node.name)


@pytest.fixture
async def log(kafka: KafkaCluster, name: str) -> AsyncIterator[KafkaLog]:
    """A topic with one partition, which keeps its records however old they seem."""
    await kafka.create_topic(name, retention_ms=-1)
    async with KafkaLog(kafka, name) as log:
        yield log
