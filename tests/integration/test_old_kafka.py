"""A Kafka that is too old is told of, and another one that is there later is found, without a restart."""

from __future__ import annotations

import asyncio
import json
import os
import struct
import sys
from pathlib import Path
from typing import Any

import pytest

import gapless
from gapless.cli.waiting import reasons
from gapless_log.kafka import plugin
from gapless_log.kafka.requests import Access, Connection
from gapless_log.kafka.requests import connect as connect_to_kafka
from integration.broker_process import CLI, bounded, clean_environment
from integration.model_kafka import PORT, ModelKafka
from integration.model_kafka_broker import connect as connect_to_model
from integration.nodes_in_process import running_node

pytestmark = pytest.mark.timeout(100)
OLD = [(0, 0, 9), (1, 0, 12), (2, 0, 7), (3, 0, 11), (18, 0, 3)]
"""Which versions of which requests Kafka 3.0 knows."""


async def _answer_as_old_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        asked = await reader.readexactly(size)
        answer = struct.pack(">hi", 0, len(OLD)) + b"".join(struct.pack(">hhh", *each) for each in OLD)
        writer.write(struct.pack(">i", len(answer) + 4) + asked[4:8] + answer)
        await reader.read()
    finally:
        writer.close()


async def _doctor(url: str) -> tuple[int | None, dict[str, Any]]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, *CLI, "doctor", "--url", url, "--json", env=clean_environment(), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await bounded(process.communicate(), 60)
    return process.returncode, json.loads(output)


async def test_one_that_is_too_old_is_an_alarm_with_what_is_needed_and_is_looked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    is_old = True

    async def connect(address: str, access: Access) -> Connection:
        return await (connect_to_kafka(address, access) if is_old else connect_to_model(address, access))

    monkeypatch.setattr(plugin, "connect", connect)
    server = await asyncio.start_server(_answer_as_old_one, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    with ModelKafka(orders=1) as kafka:
        monkeypatch.setitem(os.environ, PORT, kafka.environment[PORT])
        kafka.append("orders", [b"one"])
        phb: dict[str, Any] = {"pubends": [], "kafka": [{"servers": [address], "topics": ["orders"]}]}
        async with running_node(tmp_path / "v", phb=phb) as node, gapless.connect(node.url) as connection:
            why: list[str] = []
            for _ in range(300):
                why = why or await bounded(reasons(connection, ["orders"]))
                await asyncio.sleep(0 if why else 0.1)
            status, said = await _doctor(node.url)
            is_old = False
            async with connection.session() as session, session.subscribe("orders", start="earliest") as subscription:
                event = await bounded(anext(aiter(subscription)))
            [over] = [alarm for alarm in (await bounded(connection.status())).alarms if alarm.about == "orders"]
    server.close()

    assert why[0].startswith(f"orders: Kafka at {address}: it is too old: it speaks versions 0 to 11 of Metadata")
    assert why[0].endswith("gapless needs Kafka 4.0 or newer")
    assert status == 1
    assert [finding for finding in said["findings"] if "alarm log_stands_still: orders" in finding]
    assert event.body == b"one"
    assert over.over
    assert "Traceback" not in caplog.text
    assert not [record for record in caplog.records if record.exc_info]
