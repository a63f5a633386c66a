"""The command line against a node that reads Kafka, as whoever has a topic uses it: what he is shown, and told."""

from __future__ import annotations

import asyncio
import json
import struct
import sys
from pathlib import Path
from typing import Any

import pytest

import gapless
from gapless_testing.kafka import KafkaCluster
from kafka_front import gateway, pubend_of
from kafka_kit import KafkaLog

pytestmark = pytest.mark.timeout(90)

TYPES = {"n": "int", "f": "float", "b": "bool", "i": "int32", "l": "int64", "d": "float64"}
FIELDS = {"country": "customer.address.country", "größe": "maße.größe"}


async def cli(*arguments: str | Path, url: str, text: str = "") -> tuple[int | None, str, str]:
    """Runs `gapless ARGUMENTS…` to its end; returns its status and what it said."""
    process = await start(*arguments, url=url)
    out, err = await process.communicate(text.encode())
    return process.returncode, out.decode(), err.decode()


async def start(*arguments: str | Path, url: str) -> asyncio.subprocess.Process:
    """The same, without waiting."""
    pipe = asyncio.subprocess.PIPE
    command = [sys.executable, "-m", "gapless.cli", *map(str, arguments), "--url", url]
    return await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe)


async def said_on_stderr(process: asyncio.subprocess.Process, words: str) -> str:
    """Waits until a process has said this, and ends it; returns the line."""
    assert process.stderr is not None
    try:
        while words not in (line := (await process.stderr.readline()).decode()):
            assert line, "it has ended"
        return line
    finally:
        process.kill()
        await process.wait()


async def test_records_of_strangers_are_shown_as_they_are(kafka: KafkaCluster, log: KafkaLog) -> None:
    name = log.topic.name
    numbers = [("i", struct.pack(">i", -5)), ("l", struct.pack(">q", 1 << 40)), ("d", struct.pack(">d", 2.25))]
    value = '{"customer":{"address":{"country":"DE"}},"maße":{"größe":3}}'
    async with log.producer() as producer:

        async def send(value: bytes | None, key: bytes | None = None, *headers: tuple[str, bytes | None]) -> None:
            await producer.send_and_wait(name, value, key, headers=list(headers))

        await send("grüße 😀".encode(), "schlüssel".encode(), ("größe", "ü".encode()), ("n", b"-7"), *numbers)
        await send(value.encode(), b"k1")
        await send(None, b"tombstone")
        await send(b"\xff\xfe", b"\xff\xfe", ("bin", b"\xff\x00"))
        await send(b"twice", None, ("a", b"1"), ("a", b"2"), ("n", b"x"))
        await send(b"plain")
        await send(b"huge", None, ("h", b"y" * 200_000))
        await send(b"ours", None, ("a", None), ("", b"empty"), ("gapless", b"z"), ("gapless.x", b"1"), ("b", b"TRUE"))
        await send(b"", b"")
    topic = {"name": name, "types": TYPES, "fields": FIELDS}
    async with gateway(kafka, topic) as node:
        options = ["--topic", name, "--start", "earliest"]
        status, out, _ = await cli("subscribe", "all", *options, "--count", "9", "--json", url=node.url)
        selector = "country = 'DE' AND größe = 3 AND key = 'k1'"
        found = await cli("subscribe", "one", *options, "--count", "1", "--selector", selector, url=node.url)
        _, pubends, _ = await cli("pubends", url=node.url)
        _, subscriptions, _ = await cli("subscriptions", url=node.url)

    events: list[dict[str, Any]] = [json.loads(line) for line in out.splitlines()]
    assert status == 0
    assert [(event["body"], event["properties"]) for event in events] == [
        ("grüße 😀", {"größe": "ü", "n": -7, "i": -5, "l": 1 << 40, "d": 2.25, "key": "schlüssel"}),
        (value, {"country": "DE", "größe": 3, "key": "k1"}),
        ("", {"key": "tombstone"}),
        ({"base64": "//4="}, {}),
        ("twice", {"a": "2"}),
        ("plain", {}),
        ("huge", {"h": "y" * 200_000}),
        ("ours", {"b": True}),
        ("", {"key": ""}),
    ]
    assert "country=DE größe=3 key=k1" in found[1]
    (row,) = [line for line in pubends.splitlines() if f"{name}.0@" in line]
    assert "offset 0 " in row
    assert "offset 8 " in row
    assert "20" not in row.replace(name, "").partition("offset")[2]  # no year
    assert "all" in subscriptions


async def test_what_is_published_by_hand_comes_back_with_all_its_properties(kafka: KafkaCluster, log: KafkaLog) -> None:
    name = log.topic.name
    line = {"body": "grüße", "properties": {"größe": "ü", "n": 1, "f": 2.5, "b": True, "key": "k"}, "type": "τ"}
    async with gateway(kafka, {"name": name, "publish": True}) as node:
        published = await cli("publish", name, "--json", url=node.url, text=json.dumps(line))
        options = ["--topic", name, "--start", "earliest", "--count", "1", "--json"]
        consumed = await cli("subscribe", "all", *options, "--selector", "n = 1 AND b", url=node.url)

    assert json.loads(published[1])["pubend"].startswith(f"{name}.0@")
    event = json.loads(consumed[1])
    assert {key: event[key] for key in line} == line


async def test_a_topic_that_is_not_there_is_told_to_who_waits_for_it(kafka: KafkaCluster, name: str) -> None:
    """Publishers and subscribers wait, for it may come: and then they go on."""
    topic = {"name": name, "topic": "shop.orders", "publish": True}
    async with gateway(kafka, topic) as node:
        subscriber = await start("subscribe", "all", "--topic", "shop.#", url=node.url)
        told = [await said_on_stderr(subscriber, "waiting")]
        publisher = await start("publish", "shop.orders", url=node.url)
        assert publisher.stdin is not None
        publisher.stdin.write(b'{"body": "x"}\n')
        await publisher.stdin.drain()
        told.append(await said_on_stderr(publisher, "waiting"))
        status, doctor, _ = await cli("doctor", url=node.url)
        await kafka.create_topic(name)
        done = await cli("publish", "shop.orders", url=node.url, text='{"body": "y"}\n')

    assert told == [f"gapless: waiting: shop.orders: Kafka has no topic {name}\n"] * 2
    assert status == 1
    assert f"FOUND: alarm log_stands_still: shop.orders: Kafka has no topic {name}" in doctor
    assert done[0] == 0, done


async def test_doctor_warns_of_a_topic_that_may_lose_what_has_a_receipt(kafka: KafkaCluster, name: str) -> None:
    await kafka.create_topic(name, unclean_leader_election_enable=True)
    async with gateway(kafka, name) as node, gapless.connect(node.url) as connection:
        await pubend_of(connection, name)
        status, out, _ = await cli("doctor", "--json", url=node.url)

    (finding,) = [each for each in json.loads(out)["findings"] if f"{name}.0@" in each]
    assert status == 1
    assert "it has 1 of 3 replicas" in finding
    assert "min.insync.replicas is below 2" in finding
    assert "unclean.leader.election.enable is true" in finding
