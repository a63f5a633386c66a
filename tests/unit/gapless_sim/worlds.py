"""Small worlds for tests of the simulator's parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gapless.core.client import Delivery, Item
from gapless_sim.recording.accounts import Logged
from gapless_sim.recording.observation import Oracle
from gapless_sim.recording.trace import Trace
from gapless_sim.world.application import SimClient
from gapless_sim.world.choices import Choices
from gapless_sim.world.consumer import Consumer, Row
from gapless_sim.world.options import SECOND, Options
from gapless_sim.world.producer import Outbox, Producer, Publication, key_of
from gapless_sim.world.world import World
from gapless_sim.world.world_builder import build

TOPIC = "a.b"


def everything(_event: Logged) -> bool:
    """Matches all."""
    return True


def row(number: int = 1, client_id: str = "client1", **fields: Any) -> Row:
    """A subscription to everything."""
    return Row(number, client_id, fields.pop("name", "s"), ("#",), "", everything, **fields)


def publications(count: int, first: int = 0) -> list[Publication]:
    """So many publications."""
    return [Publication(first + number, TOPIC, {"k": number % 2}) for number in range(count)]


class Ear(Oracle):
    """Keeps what applications were told."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.keys: dict[str, list[int]] = {}
        self.receipts: list[tuple[int, str, int]] = []
        self.items: list[Item] = []
        self.errors: list[Exception] = []
        self.calls: list[str] = []

    def handed_out(self, consumer: Consumer, item: Item) -> None:
        self.items.append(item)
        if isinstance(item, Delivery):
            keys = self.keys.setdefault(consumer.client.name, [])
            keys += [key_of(event.body) for event in item.events()]

    def receipted(self, producer: Producer, publication: Publication, pubend: str, tick: int, *, durable: bool) -> None:
        self.receipts.append((publication.key, pubend, tick))

    def lost_subscription(self, consumer: Consumer, error: Exception) -> None:
        self.errors.append(error)

    def retired(self, shb: str) -> None:
        self.calls.append(f"retired {shb}")

    def crashed(self, broker: Any) -> None:
        self.calls.append(f"crashed {broker.name}")

    def booted(self, broker: Any) -> None:
        self.calls.append(f"booted {broker.name}")


class Small:
    """One world with an application that publishes on client 2, and one that consumes on client 1."""

    def __init__(self, seed: int = 1, *, choice_sequences: Any = None, count: int = 40, **fields: Any) -> None:
        self.world = build(Options(seed, **fields), Choices(seed, choice_sequences), Trace(keep=True))
        self.ear = Ear(self.world)
        self.world.observe.add(self.ear)
        self.row = row()
        self.outbox = Outbox("letters", TOPIC, publications(count))
        self.consumer: Consumer
        self.producer: Producer
        self.reader.on_start = self._consume
        self.writer.on_start = self._produce

    @property
    def reader(self) -> SimClient:
        return self.world.clients["client1"]

    @property
    def writer(self) -> SimClient:
        return self.world.clients["client2"]

    def begin(self) -> Small:
        for broker in self.world.brokers.values():
            broker.boot()
        self.reader.start()
        self.writer.start()
        self.world.run_until(self.world.now + 3 * SECOND)
        return self

    def publish(self, *portions: int, pause: int = SECOND // 10) -> None:
        for portion in portions:
            self.producer.publish(portion)
            self.world.run_until(self.world.now + pause)

    def rest(self, seconds: int = 5) -> None:
        self.world.run_until(self.world.now + seconds * SECOND)

    @property
    def told(self) -> Sequence[int]:
        return self.ear.keys.get("client1", [])

    def _consume(self, client: SimClient) -> None:
        self.consumer = Consumer(client, self.row, self.row.wanted())

    def _produce(self, client: SimClient) -> None:
        self.producer = Producer(client, self.outbox)
