"""A node that is a gateway to a real Kafka: what strangers append is consumed, and what is published comes back."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import trustme

import gapless
from gapless_testing.kafka import KafkaCluster
from kafka_front import consume, gateway, given, pubend_of, session_at
from kafka_kit import PASSWORD, KafkaLog, add_partitions


@pytest.mark.timeout(60)
async def test_what_strangers_append_is_consumed(kafka: KafkaCluster, log: KafkaLog) -> None:
    name = log.topic.name
    await log.publish(b"before")
    async with gateway(kafka, name) as node, gapless.connect(node.url) as connection, connection.session() as session:
        pubend, began = await pubend_of(connection, name), datetime.now(timezone.utc)
        async with session.subscribe(name, name="all") as everything:
            await log.publish(b"a")
            await log.publish(b"b", b"c")
            events = [await anext(everything) for _ in range(3)]
            token = everything.token
        await log.publish(b"d")
        async with session.subscribe(name, name="all", start=token) as again:
            events.append(await anext(again))
        async with session.subscribe(name, name="past", start="earliest") as past:
            events.append(await anext(past))
        async with session.subscribe(name, name="other", selector="kind = 'other'", start=token, silence=True) as other:
            async for silence in other:
                assert isinstance(silence, gapless.Silence)
                if silence.pubend == pubend:
                    break

    assert [event.body for event in events] == [b"a", b"b", b"c", b"d", b"before"]
    assert [(event.properties, event.tick) for event in events] == [
        ({"kind": "test"}, tick) for tick in (2, 3, 4, 5, 1)
    ]
    assert all(abs(event.timestamp - began) < timedelta(minutes=5) for event in events)
    assert token.ticks[pubend] == 4
    assert isinstance(silence, gapless.Silence)
    assert (silence.start, silence.end) == (4, 5)


@pytest.mark.timeout(60)
async def test_what_is_published_has_its_receipt_when_it_comes_back(kafka: KafkaCluster, log: KafkaLog) -> None:
    name = log.topic.name
    topic = {"name": name, "publish": True}
    async with gateway(kafka, topic) as node, gapless.connect(node.url) as connection, connection.session() as session:
        await pubend_of(connection, name)
        publisher = session.publisher(name, name="loader")
        receipts = [await publisher.send(b"%d" % number, properties={"n": number}) for number in range(3)]
        async with session.subscribe(name, name="all", start="earliest") as everything:
            events = [await anext(everything) for _ in range(3)]

    assert [event.body for event in events] == [b"0", b"1", b"2"]
    assert [event.properties for event in events] == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert [receipt.tick for receipt in receipts] == [1, 2, 3]
    assert await log.values(0) == [b"0", b"1", b"2"]


@pytest.mark.timeout(60)
async def test_a_token_of_one_node_goes_on_at_another(kafka: KafkaCluster, log: KafkaLog) -> None:
    """Neither knows of the other: what they have in common is the topic, and the name of the network."""
    name = log.topic.name
    await log.publish(*[b"%d" % number for number in range(10)])
    async with gateway(kafka, name, own="own-a") as one, gateway(kafka, name, own="own-b") as other:
        async with gapless.connect(one.url) as connection, connection.session() as session:
            await pubend_of(connection, name)
            async with session.subscribe(name, name="all", start="earliest") as everything:
                events = [await anext(everything) for _ in range(4)]
                token = everything.token
        async with gapless.connect(other.url) as connection, connection.session() as session:
            await pubend_of(connection, name)
            async with session.subscribe(name, name="all", start=token) as rest:
                events += [await anext(rest) for _ in range(6)]

    assert [event.body for event in events] == [b"%d" % number for number in range(10)]
    assert [event.tick for event in events] == list(range(1, 11))


@pytest.mark.timeout(90)
async def test_a_gateway_that_has_lost_its_volume_knows_its_publishers_from_the_log(
    kafka: KafkaCluster, log: KafkaLog
) -> None:
    name = log.topic.name
    topic = {"name": name, "publish": True}
    async with gateway(kafka, topic) as node, gapless.connect(node.url) as connection, connection.session() as session:
        await pubend_of(connection, name)
        publisher = session.publisher(name, name="loader")
        for number in range(3):
            await publisher.send(b"%d" % number)

    async with gateway(kafka, topic) as node, gapless.connect(node.url) as connection, connection.session() as session:
        await pubend_of(connection, name)
        publisher = session.publisher(name, name="loader")
        done = (await publisher.recover()).sequence
        await publisher.send(b"3")
        async with session.subscribe(name, name="all", start="earliest") as everything:
            events = [await anext(everything) for _ in range(4)]

    assert done == 3
    assert [event.body for event in events] == [b"0", b"1", b"2", b"3"]


@pytest.mark.timeout(60)
async def test_a_kafka_that_asks_for_tls_and_a_password(
    kafka: KafkaCluster,
    log: KafkaLog,
    authority: trustme.CA,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("gapless_log.kafka.logs.PATIENCE_SECONDS", 0.0)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    (tmp_path / "secret").write_text("guessed\n", "utf-8")
    name = log.topic.name
    sasl = {"mechanism": "SCRAM-SHA-256", "user": "alice", "password_file": str(tmp_path / "secret")}
    tls = {"ca": str(tmp_path / "ca.pem")}
    section: dict[str, Any] = {"servers": [kafka.secured_address()], "tls": tls, "sasl": sasl}

    async with gateway(kafka, name, **section) as node, gapless.connect(node.url) as connection:
        while "uthentication" not in caplog.text:
            await connection.pubends()
        assert not [each for each in await connection.pubends() if each.pubend.startswith(name)]
    (tmp_path / "secret").write_text(f"{PASSWORD}\n", "utf-8")
    async with gateway(kafka, name, **section) as node, gapless.connect(node.url) as connection:
        await pubend_of(connection, name)

    assert "guessed" not in caplog.text
    assert PASSWORD not in caplog.text


@pytest.mark.timeout(60)
async def test_nodes_that_map_a_topic_by_other_rules_show_another_number(kafka: KafkaCluster, log: KafkaLog) -> None:
    """They have no link to each other: whoever watches both sees it."""
    name, numbers = log.topic.name, []
    for topic in (name, {"name": name}, {"name": name, "types": {"kind": "int"}}):
        async with gateway(kafka, topic) as node, gapless.connect(node.url) as connection:
            pubend = await pubend_of(connection, name)
            numbers.append((await connection.status()).value("gapless_pubend_rules", pubend=pubend))

    assert numbers[0] == numbers[1] != numbers[2]
    assert 0 < numbers[0] < 1 << 53


@pytest.mark.timeout(60)
async def test_a_publisher_that_has_gone_to_another_gateway_is_fenced_at_the_former_one(
    kafka: KafkaCluster, log: KafkaLog
) -> None:
    """Both publish, which nobody should configure: still no event is there twice, and none that was refused."""
    name = log.topic.name
    topic = {"name": name, "publish": True}
    async with (
        gateway(kafka, topic) as one,
        gateway(kafka, topic) as other,
        session_at(one) as (connection, former),
        session_at(other) as (_, later),
    ):
        pubend = await pubend_of(connection, name)
        stays = former.publisher(name, name="loader")
        receipts = [await stays.send(b"0")]
        moved = later.publisher(name, name="loader")
        done = (await moved.recover()).sequence
        receipts.append(await moved.send(b"1"))
        with pytest.raises(gapless.PublisherFencedError):
            await stays.send(b"late")
        receipts.append(await moved.send(b"2"))
        end = receipts[-1].tick
        async with (
            consume(former, name, "all", start="earliest") as here,
            consume(later, name, "all", start="earliest") as there,
        ):
            of_here, of_there = await given(here, pubend, end), await given(there, pubend, end)

    assert done == 1
    assert of_here == of_there == [(receipt.tick, b"%d" % number) for number, receipt in enumerate(receipts)]


@pytest.mark.timeout(60)
async def test_a_takeover_behind_an_open_transaction_of_others(kafka: KafkaCluster, name: str) -> None:
    """What was sent before is hidden by it, and with more partitions the publisher's name leads to another one."""
    await kafka.create_topic(name, partitions=2, retention_ms=-1)
    topic = {"name": name, "publish": True}
    async with contextlib.AsyncExitStack() as stack:
        log = await stack.enter_async_context(KafkaLog(kafka, name))
        stranger = await stack.enter_async_context(log.producer(transactional_id=name))
        _, before = await stack.enter_async_context(session_at(await stack.enter_async_context(gateway(kafka, topic))))
        publisher = before.publisher(name, name="ann")
        await publisher.recover()
        await stranger.begin_transaction()
        for partition in (0, 1):
            await stranger.send_and_wait(name, b"x", partition=partition)
        sending = asyncio.ensure_future(publisher.send(b"first"))
        while not any([await end_of(kafka, name, partition) > 1 for partition in (0, 1)]):
            pass
        await add_partitions(kafka, name, 5)
        connection, after = await stack.enter_async_context(
            session_at(await stack.enter_async_context(gateway(kafka, topic)))
        )
        while len(await connection.pubends()) < 5:
            pass
        again = after.publisher(name, name="ann")
        recovering = asyncio.ensure_future(again.recover())
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.shield(recovering), 1)
        await stranger.commit_transaction()
        recovered = (await recovering).sequence
        first, second = await sending, await again.send(b"second")

    assert recovered == 1
    assert second.pubend == first.pubend
    assert second.tick > first.tick


async def end_of(kafka: KafkaCluster, name: str, partition: int) -> int:
    """The offset behind the last record of a partition, decided or not."""
    async with KafkaLog(kafka, name, partition=partition) as log:
        return (await log.offset_of()).offset
