"""Other systems whose consumers share work, for `python -m bench shared --peers`.

A rival says how its server is filled, and how one consumer takes batches and settles them. The loop around that, how
many settlements may be under way, what is checked and what is counted are the same for ours and for every rival
(`bench.shared`). The server is the one of the race, from `bench.peers.systems`. Favours are done to the rivals: their
events have the body alone, they may hold as much as they like, and what a server would tidy up in a round is tidied up
between rounds.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.peers.system import Server, System
from bench.peers.systems import SYSTEMS
from bench.peers.systems.nats import Nats as NatsServer
from bench.peers.systems.redis import PIPELINE

TIMEOUT_SECONDS = 60
READ_AHEAD = 4
"""So many batches of 64 are asked for ahead: as many events as a consumer of ours has on their way or buffered."""
HELD_MAX = 20_000
"""So many events may be out to the consumers of a group and not acknowledged, where a server wants to know."""
HELD_SECONDS = 600
"""Nothing is handed out a second time because a busy machine is slow."""
PUBLISHED_AT_ONCE = 4_096


class Jobs(ABC):
    """What one consumer is given, and gives back as settled."""

    ahead = 1
    """How many batches it asks for before it hands one out: while that is looked at, they are under way."""

    async def batches(self, max_events: int) -> AsyncIterator[Sequence[Any]]:
        """One after the other, without an end."""
        asked = deque(asyncio.ensure_future(self.take(max_events)) for _ in range(self.ahead))
        try:
            while True:
                batch = await asked.popleft()
                asked.append(asyncio.ensure_future(self.take(max_events)))
                if batch:
                    yield batch
        finally:
            for each in asked:
                each.cancel()

    @abstractmethod
    async def take(self, max_events: int) -> Sequence[Any]:
        """A batch; an empty one where there was nothing for a while."""

    @abstractmethod
    def bodies(self, batch: Sequence[Any]) -> Sequence[bytes]:
        """Of the events of a batch."""

    @abstractmethod
    async def settle(self, batch: Sequence[Any]) -> None:
        """Acknowledges each of them; returns when the server has them all."""


class Rival(ABC):
    """A system whose consumers can share."""

    system: str
    """Whose server it is, as the race knows it."""
    promise: str
    """What holds when a settlement is answered."""

    @property
    def racer(self) -> System:
        """The system of the race that has the server."""
        return SYSTEMS[self.system]

    @contextlib.contextmanager
    def filled(self, directory: Path, fill: Callable[[str], Any]) -> Iterator[Server]:
        """A server that `fill`, called with an address, has filled."""
        with self.racer.running(directory) as server:
            fill(server.address)
            yield server

    @abstractmethod
    async def fill(self, address: str, topic: str, body: bytes, events: int) -> None:
        """Publishes so many events with this body."""

    @abstractmethod
    def consumer(self, address: str, topic: str, name: str, who: str) -> contextlib.AbstractAsyncContextManager[Jobs]:
        """One of those who share what `name` is given, which is everything; the first makes it."""

    @abstractmethod
    async def forget(self, address: str, topic: str, name: str) -> None:
        """Nobody shares that any more; what comes next begins as this one did."""


# ------------------------------------------------------------------------------------------------- Redis


class _RedisJobs(Jobs):
    def __init__(self, client: Any, topic: str, name: str, who: str, ahead: int) -> None:
        self.ahead = ahead
        self._client = client
        self._topic = topic
        self._name = name
        self._who = who

    async def take(self, max_events: int) -> Sequence[Any]:
        """Entries as hiredis has parsed them."""
        answer = await self._client.xreadgroup(self._name, self._who, {self._topic: ">"}, count=max_events, block=1000)
        return answer[0][1] if answer else ()

    def bodies(self, batch: Sequence[Any]) -> Sequence[bytes]:
        """The value of the only field."""
        return [fields[1] for _, fields in batch]

    async def settle(self, batch: Sequence[Any]) -> None:
        """One command for all."""
        await self._client.xack(self._topic, self._name, *[identity for identity, _ in batch])


class RedisGroups(Rival):
    """A consumer group: `XREADGROUP`, and an `XACK` for each batch."""

    system = "redis"
    promise = "A settlement is on the disk: the log is synced before XACK is answered, and before XREADGROUP is."

    def __init__(self, ahead: int) -> None:
        self._ahead = ahead

    async def fill(self, address: str, topic: str, body: bytes, events: int) -> None:
        """In pipelines; then the log is written anew, so that it has no reason to do that in a round."""
        async with _redis(address) as client:
            for start in range(0, events, PIPELINE):
                pipeline = client.pipeline(transaction=False)
                for _ in range(start, min(start + PIPELINE, events)):
                    pipeline.xadd(topic, {"body": body})
                await pipeline.execute()
            await _rewritten(client)

    @contextlib.asynccontextmanager
    async def consumer(self, address: str, topic: str, name: str, who: str) -> AsyncIterator[Jobs]:
        """As many connections as it has commands under way, for Redis answers one after the other on each."""
        from redis.exceptions import ResponseError

        async with _redis(address) as client:
            try:
                await client.xgroup_create(topic, name, id="0")
            except ResponseError as error:
                if "BUSYGROUP" not in str(error):
                    raise
            yield _RedisJobs(client, topic, name, who, self._ahead)

    async def forget(self, address: str, topic: str, name: str) -> None:
        """Removes the group, and what the log has of it."""
        async with _redis(address) as client:
            await client.xgroup_destroy(topic, name)
            await _rewritten(client)


def _redis(address: str) -> Any:
    """A client that hands entries on as they were parsed."""
    from redis.asyncio import Redis as Client

    client = Client.from_url(address, protocol=2, socket_timeout=TIMEOUT_SECONDS)
    client.set_response_callback("XREADGROUP", lambda answer, **_: answer)
    return client


async def _rewritten(client: Any) -> None:
    """Has the append-only file rewritten, and waits for that."""
    await client.bgrewriteaof()
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        told = await client.info("persistence")
        if not (told["aof_rewrite_in_progress"] or told["aof_rewrite_scheduled"]):
            return
        assert time.monotonic() < deadline, "the append-only file is still being rewritten"
        await asyncio.sleep(0.05)


# -------------------------------------------------------------------------------------------------- NATS


class _NatsJobs(Jobs):
    def __init__(self, subscription: Any, *, each: bool) -> None:
        self._subscription = subscription
        self._each = each

    async def take(self, max_events: int) -> Sequence[Any]:
        """One request for so many messages."""
        from nats.errors import TimeoutError as NothingCameError

        try:
            messages: Sequence[Any] = await self._subscription.fetch(max_events, timeout=TIMEOUT_SECONDS)
        except NothingCameError:
            return ()
        return messages

    def bodies(self, batch: Sequence[Any]) -> Sequence[bytes]:
        """What each message has."""
        return [message.data for message in batch]

    async def settle(self, batch: Sequence[Any]) -> None:
        """Acknowledges each; the server answers for each, or for the last one, which it comes to last."""
        if self._each:
            await asyncio.gather(*[message.ack_sync(timeout=TIMEOUT_SECONDS) for message in batch])
            return
        for message in batch[:-1]:
            await message.ack()
        await batch[-1].ack_sync(timeout=TIMEOUT_SECONDS)


class NatsPull(Rival):
    """A durable pull consumer with explicit acknowledgement: `fetch`, and `ack_sync` for the last or each of a batch.

    An acknowledgement is one message for one event. The server comes to those of a connection one after the other, so
    when it answers the last one of a batch it has all of them: for half of what it costs to have each answered. To have
    several requests under way did not make it faster, tried out: its clients are what is busy.
    """

    system = "nats-always"
    promise = (
        "A settlement is in the memory of the server, which writes and syncs what a consumer has settled ten times a "
        "second (its source, 2.15): a crash within that time takes it, and nothing tells when it is on the disk."
    )

    def __init__(self, *, each: bool) -> None:
        self._each = each

    @contextlib.contextmanager
    def filled(self, directory: Path, fill: Callable[[str], Any]) -> Iterator[Server]:
        """Filled without a sync for each event, which would take minutes; then started again with it."""
        with NatsServer().running(directory) as server:
            fill(server.address)
        with self.racer.running(directory) as server:
            yield server

    async def fill(self, address: str, topic: str, body: bytes, events: int) -> None:
        """Many at once."""
        import nats

        async with await nats.connect(address) as connection:
            jetstream = connection.jetstream(timeout=TIMEOUT_SECONDS)
            await jetstream.add_stream(name=_stream(topic), subjects=[topic])
            for start in range(0, events, PUBLISHED_AT_ONCE):
                count = min(PUBLISHED_AT_ONCE, events - start)
                for receipt in [await jetstream.publish_async(topic, body) for _ in range(count)]:
                    await receipt

    @contextlib.asynccontextmanager
    async def consumer(self, address: str, topic: str, name: str, who: str) -> AsyncIterator[Jobs]:
        """A connection of its own."""
        import nats
        from nats.js.api import AckPolicy, ConsumerConfig

        async with await nats.connect(address, name=who, connect_timeout=TIMEOUT_SECONDS) as connection:
            config = ConsumerConfig(ack_policy=AckPolicy.EXPLICIT, max_ack_pending=HELD_MAX, ack_wait=HELD_SECONDS)
            jetstream = connection.jetstream(timeout=TIMEOUT_SECONDS)
            subscription = await jetstream.pull_subscribe(topic, durable=name, stream=_stream(topic), config=config)
            yield _NatsJobs(subscription, each=self._each)

    async def forget(self, address: str, topic: str, name: str) -> None:
        """Removes the consumer."""
        import nats

        async with await nats.connect(address) as connection:
            await connection.jetstream(timeout=TIMEOUT_SECONDS).delete_consumer(_stream(topic), name)


def _stream(topic: str) -> str:
    """Names of streams have no dots."""
    return topic.replace(".", "-")


RIVALS: dict[str, Rival] = {
    "redis_groups": RedisGroups(READ_AHEAD),
    "redis_groups_one_ahead": RedisGroups(1),
    "nats_pull": NatsPull(each=False),
    "nats_pull_each_answered": NatsPull(each=True),
}
"""By the names that the figures know them by. Those of one system share its server."""
