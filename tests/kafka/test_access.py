"""A broker that asks for TLS and a password: who has both gets in, and who is refused is told why."""

from __future__ import annotations

import ssl

import pytest
import trustme

from gapless_log.kafka.requests import Access, connect
from gapless_testing.kafka import KafkaCluster
from kafka_kit import PASSWORD


@pytest.fixture
def trusting(authority: trustme.CA) -> ssl.SSLContext:
    """Of who trusts who signed the broker's certificate."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_who_has_the_password_gets_in(kafka: KafkaCluster, trusting: ssl.SSLContext, mechanism: str) -> None:
    """And is told of the brokers' addresses that ask for it, too."""
    access = Access(tls=trusting, mechanism=mechanism, user="alice", password=PASSWORD)  # type: ignore[arg-type]
    connection = await connect(kafka.secured_address(), access)
    metadata = await connection.metadata()
    await connection.close()

    assert [broker.address for broker in metadata.brokers] == [kafka.secured_address()]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
@pytest.mark.parametrize("user", ["alice", "mallory"])
async def test_who_has_another_password_is_refused(
    kafka: KafkaCluster, trusting: ssl.SSLContext, mechanism: str, user: str
) -> None:
    access = Access(tls=trusting, mechanism=mechanism, user=user, password="guessed")  # type: ignore[arg-type]

    with pytest.raises(ConnectionError, match=r"cannot connect to Kafka at .*uthentication") as refused:
        await connect(kafka.secured_address(), access)

    assert "guessed" not in str(refused.value)


async def test_a_mechanism_that_the_broker_does_not_have(kafka: KafkaCluster, trusting: ssl.SSLContext) -> None:
    access = Access(tls=trusting, mechanism="SCRAM-SHA-512", user="alice", password=PASSWORD)

    with pytest.raises(ConnectionError, match=r"SCRAM-SHA-512|Unsupported"):
        await connect(kafka.secured_address(), access)


async def test_a_certificate_that_is_not_trusted(kafka: KafkaCluster) -> None:
    access = Access(tls=ssl.create_default_context(), mechanism="PLAIN", user="alice", password=PASSWORD)

    with pytest.raises(ConnectionError, match="CERTIFICATE_VERIFY_FAILED"):
        await connect(kafka.secured_address(), access)
