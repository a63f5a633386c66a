"""A fixture that calls oracles as a world would, without a world in which anything happens."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from gapless.core.client import Delivery, Gap, Silence
from gapless.core.client.consuming.subscription import SubscriptionPhase
from gapless.core.client.link.effects import Attached
from gapless.core.network.facts import Interest, Progress, PubendMeta, Want
from gapless.core.ports import Chop, Set
from gapless.core.stream.columns import EventBatch, EventColumns
from gapless.core.stream.events import encode_event
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.stamps import Stamp
from gapless.core.stream.ticks import tick_at
from gapless.core.wire.delivered import DeliveredColumns
from gapless.core.wire.messages import Acknowledge, Acknowledged, StartAt, Subscribed
from gapless.core.wire.tokens import CheckpointToken
from gapless_phb.core import gauges
from gapless_sim.oracles.delivery import I3Gapless
from gapless_sim.recording.accounts import Logged
from gapless_sim.recording.model import Model
from gapless_sim.recording.observation import Oracle, Violation
from gapless_sim.recording.trace import Trace
from gapless_sim.world.choices import Choices
from gapless_sim.world.clocks import WALL_BEGIN
from gapless_sim.world.consumer import Row
from gapless_sim.world.options import Options
from gapless_sim.world.producer import Outbox, Publication
from gapless_sim.world.world_builder import build

P = "p@1"
NODE = "node1"
SHB = "node1@disk"


def violates(oracle: str) -> Any:
    """In there the oracle must find something."""
    return pytest.raises(Violation, match=rf"^{oracle}: ")


class Stand(SimpleNamespace):
    """Stands for a consumer or a producer: only what oracles look at, and equal to nobody else."""

    __eq__ = object.__eq__
    __hash__ = object.__hash__  # type: ignore[assignment]


class ModelFixture:
    """A model and oracles over it, with short methods for all that may happen."""

    def __init__(self, *judges: Any, **options: Any) -> None:
        """`judges`: classes of oracles; they are called behind the model, in this order."""
        self.world = build(Options(1, **options), Choices(1), Trace())
        self.model = Model(self.world)
        self.oracles: dict[type, Oracle] = {}
        self.observe = self.world.observe
        self.observe.add(self.model)
        for judge in judges:
            needs_another = judge.__init__.__code__.co_argcount > 2
            oracle = judge(self.model, self.oracles[I3Gapless]) if needs_another else judge(self.model)
            self.oracles[judge] = oracle
            self.observe.add(oracle)
        self.rows = 0
        self.consumers = 0
        self.producer = self.publisher()
        self.stable = 0
        self.members: dict[str, int] = {}

    # Publishing.

    def publisher(self, name: str = "pub", **fields: Any) -> Any:
        """Somebody who publishes."""
        client = SimpleNamespace(name="client2", running=True, boots=1, addresses=[NODE])
        outbox = Outbox(name, "a.b")
        defaults = {"over": False, "named": True, "waiting": 0, "asked_at": self.world.now}
        return Stand(client=client, outbox=outbox, name=name, **{**defaults, **fields})

    def publication(self, key: int, k: int = 1, topic: str = "a.b") -> Publication:
        """A publication that is published now, unless it was before."""
        if key not in self.model.publications:
            publication = Publication(key, topic, {"k": k}, published_at=self.world.now)
            self.producer.outbox.publications.append(publication)
            self.observe.published(self.producer, [publication])
        return self.model.publications[key]

    def receipt(self, key: int, tick: int, pubend: str = P, *, durable: bool = True) -> None:
        """The publisher is told that a publication is logged."""
        self.observe.receipted(self.producer, self.publication(key), pubend, tick, durable=durable)

    # Pubends and SHBs.

    def opens(self, pubend: str = P, broker: str = NODE, members: Sequence[tuple[str, int]] = ((SHB, 0),)) -> None:
        """A PHB has a pubend, and counts these SHBs."""
        self.observe.opened(broker, PubendMeta(pubend, broker, created=tick_at(WALL_BEGIN)), dict(members))
        self.observe.wanted(NODE, Interest(SHB, 0, 1, {}, full=True))

    def knowledge(
        self,
        lo: int,
        hi: int,
        events: Sequence[tuple[int, int]] = (),
        *,
        pubend: str = P,
        lost: int = 0,
        stamp: Stamp = None,
        reply: bool = False,
    ) -> Knowledge:
        """Something that can be said: events are (tick, key)."""
        return Knowledge(pubend, lo, hi, self.batch(events), lost, stamp, reply)

    def batch(self, events: Sequence[tuple[int, int]]) -> EventBatch:
        """Publications under ticks."""
        publications = [self.publication(key) for _, key in events]
        encoded = [
            encode_event(publication.topic, publication.properties, None, publication.body)
            for publication in publications
        ]
        columns = EventColumns.of(encoded, [len(publication.body) for publication in publications])
        return columns.batch([tick for tick, _ in events]) if events else EventBatch((), (), ())

    def say(self, lo: int, hi: int, *events: tuple[int, int], broker: str = NODE, **fields: Any) -> None:
        """A PHB says something."""
        self.observe.known(broker, self.knowledge(lo, hi, events, **fields))

    def log(self, *events: tuple[int, int], pubend: str = P) -> None:
        """A PHB logs these, one behind the other, and says so."""
        self.say(self.stable, events[-1][0], *events, pubend=pubend)
        self.stable = events[-1][0]

    def deliver(self, lo: int, hi: int, *events: tuple[int, int], broker: str = NODE, **fields: Any) -> None:
        """A router tells an SHB something."""
        self.observe.delivered(broker, self.knowledge(lo, hi, events, **fields))

    def chop(self, upto: int, pubend: str = P) -> None:
        """A PHB writes that a log ends there."""
        self.observe.written(self.world.brokers[NODE], [Chop(f"phb.{pubend}", upto)])

    def progress(self, released: int, delivered: int, shb: str = SHB, pubend: str = P) -> None:
        """An SHB reports."""
        self.observe.progressed(NODE, Progress(shb, pubend, released, delivered))

    def record(self, *keys: int) -> bytes:
        """How publications stand in a log that were published together."""
        return b"head" + b"".join(self.publication(key).event for key in keys)

    def boots(self, *records: tuple[int, bytes], lost: int = 0, pubend: str = P) -> None:
        """A broker starts with this log."""

        def read(stream: str, after: int) -> list[tuple[int, bytes]]:
            assert stream == f"phb.{P}"
            return [(end, raw) for end, raw in records if end > after]

        figures = [gauges.LOST.gauge(lost, pubend)]
        broker: Any = SimpleNamespace(name=NODE, gauges=lambda: figures, disk_driver=SimpleNamespace(records=read))
        self.observe.booted(broker)

    def ask(self, *ranges: tuple[int, int], pubend: str = P, shb: str = SHB) -> None:
        """A PHB is asked. `shb`: "" by a broker that had no room for the answer."""
        self.observe.asked(NODE, Want(pubend, ranges, None, shb, again=False))

    # Subscribers.

    def row(self, k: int | None = None, **fields: Any) -> Row:
        """A subscription to everything, or to publications of one kind."""
        self.rows += 1
        selector = "" if k is None else f"k = {k}"

        def matches(event: Logged) -> bool:
            return k is None or event.publication.properties["k"] == k

        return Row(self.rows, "client1", fields.pop("name", f"s{self.rows}"), ("#",), selector, matches, **fields)

    def attach(self, row: Row, sid: int = 1, *, created: bool | None = None, **begins: int) -> Any:
        """An application has a subscription, from these positions on; `p` stands for the pubend of the scenarios."""
        consumer = self.subscribe(row)
        self.attached(consumer, sid, created=created, **begins)
        return consumer

    def subscribe(self, row: Row) -> Any:
        """An application asks for a subscription."""
        self.consumers += 1
        client = self.world.clients["client1"]
        client.life.over = False
        consumer = Stand(
            by_ranges=False,
            commits=False,
            is_marked=False,
            client=client,
            row=row,
            wanted=row.wanted(),
            number=self.consumers,
            lane=f"client1:{row.name}",
            over=False,
            attached=False,
            stopped=False,
            waits=False,
            error=None,
            core=SimpleNamespace(phase=SubscriptionPhase.ASKING, sid=0, seal=b""),
        )
        client.consumers[consumer.number] = consumer  # type: ignore[assignment]
        self.observe.subscribing(consumer)
        return consumer

    def attached(self, consumer: Any, sid: int = 1, *, created: bool | None = None, **begins: int) -> None:
        """It has it."""
        row = consumer.row
        made = not row.created if created is None else created
        row.created = consumer.attached = True
        consumer.sid = consumer.core.sid = sid
        self.observe.sent(NODE, consumer.number, Subscribed(consumer.number, sid, 1, b"", made, []))
        consumer.core.phase = SubscriptionPhase.ATTACHED
        self.observe.attached(consumer, Attached(sid, 1, made), self.positions(**begins))

    def lapse(self, row: Row, sid: int = 1) -> None:
        """The SHB gives it up: nobody has consumed it for long enough."""
        lapsed = msgspec.msgpack.encode([sid, row.client_id, row.name, 0, {}, {}])
        self.observe.written(self.world.brokers[NODE], [Set("shb/lapsed", b"key", lapsed)])

    def leave(self, consumer: Any) -> None:
        """It consumes no more."""
        consumer.over = True
        consumer.client.consumers.pop(consumer.number)

    def hand_out(self, consumer: Any, *events: tuple[int, int], pubend: str = P) -> None:
        """It is handed events."""
        batch = self.batch(events)
        columns = DeliveredColumns.parse(batch.payload((1 << len(events)) - 1), 0)
        self.observe.handed_out(consumer, Delivery(pubend, [columns], list(batch.ticks)))

    def silence(self, consumer: Any, start: int, end: int, pubend: str = P) -> None:
        """It is told that nothing comes."""
        self.observe.handed_out(consumer, Silence(pubend, start, end))

    def gap(self, consumer: Any, start: int, end: int, pubend: str = P, reason: str = "because") -> None:
        """It is told that something may be lost."""
        self.observe.handed_out(consumer, Gap(pubend, start, end, reason))

    def spoil(self, after: int, end: int, *keys: int, pubend: str = P) -> None:
        """A record of a log cannot be read any more."""
        self.observe.spoilt(self.world.brokers[NODE], f"phb.{pubend}", [(after, end, self.record(*keys))])

    def repair(self, after: int, upto: int, pubend: str = P) -> None:
        """An operator has given up what cannot be read."""
        self.observe.repaired(self.world.brokers[NODE], [(f"phb.{pubend}", after, upto)])

    def commit(self, consumer: Any, **positions: int) -> None:
        """Its effects and its token are in its database."""
        consumer.row.token = self.token(**positions)
        self.observe.committed(consumer, consumer.row.token)

    def acknowledge(self, consumer: Any, *, heard: bool = True, **positions: int) -> None:
        """It says that it is done with this, and its home hears it, or not yet."""
        said = self.positions(**positions)
        self.observe.acknowledged(consumer, said)
        if heard:
            positions_said = [Acknowledged(pubend, tick, tick) for pubend, tick in said.items()]
            self.observe.received(NODE, consumer.number, Acknowledge(consumer.sid, positions_said))

    def token(self, **positions: int) -> CheckpointToken:
        """A position."""
        return CheckpointToken("n", self.positions(**positions), 1, 1, b"seal")

    @staticmethod
    def positions(**positions: int) -> dict[str, int]:
        """`p=7` for the pubend of the scenarios at 7, `q=8` for another."""
        return {f"{name}@1": tick for name, tick in positions.items()}


LATEST, EARLIEST, TOKEN = StartAt.LATEST, StartAt.EARLIEST, StartAt.TOKEN
