"""The publishing side of an application: what it has to publish, and a publisher that works that off.

The publications outlive the process, as they would in a database: after a crash a named publisher asks how many
of them were logged, and goes on behind these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gapless.core.client.link import effects as e
from gapless.core.stream.columns import EventColumns
from gapless.core.stream.events import Extras, encode_event

if TYPE_CHECKING:
    from gapless.errors import GaplessError
    from gapless_sim.world.application import SimClient

Properties = Mapping[str, Any]

KEY_BYTES = 8
"""The key of a publication: the beginning of its body."""


@dataclass(slots=True, eq=False)
class Publication:
    """An event as its application sees it: by `key`, which its body begins with, and which no other publication has."""

    key: int
    topic: str
    properties: Properties
    padding: int = 0
    headers: Properties = field(default_factory=dict)
    """The headers that its sender sets, by the names that they have in `gapless.Message`."""
    often: bool = False
    """Whether it is sent many times, maybe by many: each sending is an event of its own, and all are equal."""
    published_at: int = -1
    """The world's time at which it was first handed to a publisher; -1: not yet."""
    sender: str = ""
    """The name of the publisher."""
    body: bytes = field(init=False)
    """What is published."""
    event: bytes = field(init=False)
    """All of it, as it is logged."""

    def __post_init__(self) -> None:
        self.body = self.key.to_bytes(KEY_BYTES, "big") + bytes(self.padding)
        extras = Extras(**self.headers) if self.headers else None
        self.event = encode_event(self.topic, self.properties, extras, self.body)

    def with_properties(self, more: Properties) -> Publication:
        """The same, with more properties."""
        properties = {**self.properties, **more}
        return Publication(self.key, self.topic, properties, self.padding, self.headers, self.often)


def key_of(body: bytes | memoryview) -> int:
    """The key of the publication with this body."""
    return int.from_bytes(body[:KEY_BYTES], "big")


@dataclass(slots=True, eq=False)
class Outbox:
    """What a publisher has to publish, in order, in the application's database."""

    name: str
    topic: str
    publications: list[Publication] = field(default_factory=list)
    handed: int = 0
    """So many have been handed to a publisher, ever; they may or may not be logged."""
    common: bool = False
    """Whether others publish under the name as well: how many events that has logged says nothing of this outbox."""


class Producer:
    """A publisher in a client's process, which works an outbox off."""

    def __init__(self, client: SimClient, outbox: Outbox, *, named: bool = True) -> None:
        """`named`: under the outbox's name, so that it can recover; else under one that nobody knows again."""
        self.client = client
        self.outbox = outbox
        self.named = named
        instance = f"{client.instance}/{client.serial()}"
        self.name = outbox.name if named else f"~{outbox.name}/{instance}"
        self.life = client.life
        self.asked_at = client.world.now
        self.open = False
        self.over = False
        self.next = 0
        """The publication of the outbox to be published next; known once the publisher is open."""
        self.on_ready: Callable[[Producer], None] | None = None
        self.on_over: Callable[[Producer, GaplessError], None] | None = None
        self._tickets: dict[int, Sequence[Publication]] = {}
        now = client.monotonic()
        self.number = client.core.open_publisher(self.name, instance, outbox.topic, now)
        client.own(self.number, self)
        client.schedule_pump()

    @property
    def alive(self) -> bool:
        """Whether it may publish something yet."""
        return not self.over and not self.life.over

    @property
    def waiting(self) -> int:
        """How many publications have no receipt yet."""
        return sum(map(len, self._tickets.values()))

    def publish(self, count: int) -> int:
        """Publishes the next publications of the outbox as one batch, once it is open. Returns how many."""
        publications = self.outbox.publications[self.next : self.next + count]
        if not publications or self.over or not self.open:
            return 0
        client, world = self.client, self.client.world
        self.next += len(publications)
        self.outbox.handed = max(self.outbox.handed, self.next)
        for publication in publications:
            if publication.published_at < 0:
                publication.published_at = world.now
            publication.sender = self.name
        world.observe.published(self, publications)
        events = [publication.event for publication in publications]
        columns = EventColumns.of(events, [len(publication.body) for publication in publications])
        ticket = client.core.publish(self.number, columns, (), client.monotonic())
        self._tickets[ticket] = publications
        client.schedule_pump()
        return len(publications)

    def close(self) -> None:
        """Forgets the publisher; what has no receipt is uncertain."""
        if not self.over:
            self.client.core.close_publisher(self.number, self.client.monotonic())
            self.client.schedule_pump()

    def on_answered(self, ready: e.PublisherReady) -> None:
        """It is open: what was logged under its name is not published again."""
        self.open = True
        self.next = ready.sequence if self.named and not self.outbox.common else self.outbox.handed
        self.client.world.observe.ready(self, ready.sequence)
        if self.on_ready is not None:
            self.on_ready(self)

    def on_receipted(self, receipted: e.Receipted) -> None:
        """A batch is logged."""
        publications = self._tickets.pop(receipted.ticket)
        observe = self.client.world.observe
        for publication, tick in zip(publications, receipted.ticks, strict=True):
            observe.receipted(self, publication, receipted.pubend, tick, durable=receipted.durable)

    def on_not_published(self, refused: e.NotPublished) -> None:
        """A batch gets no receipt."""
        self.client.world.observe.not_published(self, self._tickets.pop(refused.ticket), refused.error)

    def on_failed(self, error: GaplessError) -> None:
        """It is over."""
        self.over = True
        if self.on_over is not None:
            self.on_over(self, error)
