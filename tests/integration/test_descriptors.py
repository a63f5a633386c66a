"""A broker whose process may open few files: whoever connects is refused, and the storage goes on (L06)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from pathlib import Path

import pytest

import gapless
from integration.broker_process import BrokerProcess

pytest.importorskip("resource")

LIMIT = 128
LIMITING = f"import resource, runpy; resource.setrlimit(resource.RLIMIT_NOFILE, ({LIMIT}, {LIMIT}))"
LIMITED = ("-c", f"{LIMITING}; runpy.run_module('gapless.cli', run_name='__main__')")


async def test_connections_stop_where_the_storage_needs_the_descriptors(tmp_path: Path) -> None:
    """More idle connections than there may be files: events are logged all the while, and new files made for them."""
    broker = BrokerProcess(
        tmp_path, program=LIMITED, storage={"path": str(tmp_path / "v"), "write_buffer_bytes": 1 << 20}
    )
    async with (
        broker,
        gapless.connect(broker.url, client_id="publisher") as connection,
        connection.session() as session,
    ):
        publisher = session.publisher("t")
        await publisher.send(b"before")
        port = int(broker.url.rpartition(":")[2])
        with contextlib.ExitStack() as idle:
            for _ in range(LIMIT + 20):
                idle.enter_context(socket.create_connection(("127.0.0.1", port), 5))
            for _ in range(40):
                await asyncio.wait_for(publisher.send(os.urandom(100_000)), 20)
            status = await connection.status()

        assert "connections_full" in {alarm.code for alarm in status.alarms}
        assert not {"storage_failed", "descriptors_exhausted"} & {alarm.code for alarm in status.alarms}
        async with gapless.connect(broker.url, client_id="later", wait=True):  # there is room again
            pass
