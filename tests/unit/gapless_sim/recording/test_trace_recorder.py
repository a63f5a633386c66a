"""Listening in on a world: everything is heard, and nothing changes by it."""

from __future__ import annotations

from gapless.core.network.frames import Private, encode
from gapless.core.network.seam import RouterBase
from gapless.core.wire.messages import StartAt
from gapless_sim.recording.trace import Line, Trace
from gapless_sim.recording.trace_recorder import LOST, record_trace
from gapless_sim.world.application import SimClient
from gapless_sim.world.choices import Choices
from gapless_sim.world.consumer import Consumer, Row
from gapless_sim.world.options import SECOND, NetworkFaults, Options
from gapless_sim.world.producer import Outbox, Producer, Publication
from gapless_sim.world.world import World
from gapless_sim.world.world_builder import build


class Party:
    """Two brokers, one who publishes and one who subscribes."""

    def __init__(self, *, recorded: bool = True, seed: int = 1, loss: float = 0.0) -> None:
        network = NetworkFaults(bytewise=0.5 if seed > 1 else 0.0, loss=loss)
        options = Options(seed, router="hostile", together=False, clients=0, network=network)
        choices = Choices(seed) if loss or seed > 1 else Choices(seed, {})
        self.world: World = build(options, choices, Trace(keep=recorded))
        if recorded:
            record_trace(self.world)
        for name, home in (("anna", "phb1"), ("bert", "shb1")):
            self.world.clients[name] = SimClient(self.world, name, [home])
        self.outbox = Outbox("loader", "a", [Publication(key, "a", {"k": key}) for key in range(1, 9)])
        self.row = Row(1, "bert", "late", ("#",), "k > 1", lambda *_: True, StartAt.LATEST)
        self.world.clients["anna"].on_start = self._open
        self.world.clients["bert"].on_start = self._subscribe
        for broker in self.world.brokers.values():
            broker.boot()
        self.run(1)
        for client in self.world.clients.values():
            client.start()
        self.run(1)

    def _open(self, client: SimClient) -> None:
        self.producer = Producer(client, self.outbox)

    def _subscribe(self, client: SimClient) -> None:
        self.consumer = Consumer(client, self.row, self.row.wanted())

    def run(self, seconds: float) -> None:
        self.world.run_until(self.world.now + int(seconds * SECOND))

    def publish(self, count: int) -> list[Line]:
        """What is heard of it."""
        before = len(self.world.trace.lines)
        self.producer.publish(count)
        self.run(0.1)
        return self.world.trace.lines[before:]


class Explains(RouterBase):
    """It has words for what it says to its own kind."""

    def explain(self, said: Private) -> str:
        return f"status {said.kind} of p@17, and of q"


def test_what_a_router_says_to_its_own_kind_stands_there_in_its_words_if_it_has_any() -> None:
    party = Party()
    there, private = party.world.brokers["shb1"], encode(Private(3, b"xy"))
    link = next(number for link in party.world.network.links_up() for number in link.numbers[1:])

    there.on_broker_frame(link, private)
    party.world.seam.started("phb1", Explains())
    there.on_broker_frame(link, private)

    lines = [line for line in party.world.trace.lines if line.kind in {"private", "explained"}]
    assert [(line.kind, line.text, line.peer) for line in lines] == [
        ("private", "2 bytes of kind 3", "phb1"),
        ("explained", "status 3 of p, and of q", "phb1"),
    ]


def test_an_event_is_recorded_on_its_whole_way() -> None:
    heard = Party().publish(2)

    ways = [(line.peer, line.lane, line.kind) for line in heard]
    assert ways == [
        ("", "anna", "publishes"),
        ("anna", "phb1", "publish"),
        ("", "phb1", "writes"),
        ("phb1", "anna", "receipt"),
        ("phb1", "shb1", "knowledge"),
        ("shb1", "bert", "session"),
        ("shb1", "bert", "deliver"),
        ("", "bert", "takes"),
        ("", "bert", "commits"),
        ("bert", "shb1", "acknowledge"),
    ]
    assert heard[2].text == "the log of phb1"
    assert "late takes #2@" in heard[7].text


def test_what_is_lost_is_recorded_where_it_left() -> None:
    party = Party()
    party.world.network.cut("phb1", "shb1")

    lost = [line for line in party.publish(2) if line.kind == LOST]

    assert [(line.lane, line.peer) for line in lost] == [("phb1", "shb1")]
    assert "holds #2@" in lost[0].text


def test_nothing_changes_by_it() -> None:
    for seed in (1, 2, 3):
        with_ear, without = Party(seed=seed, loss=0.1), Party(seed=seed, loss=0.1, recorded=False)
        for party in (with_ear, without):
            party.publish(3)
            party.world.brokers["shb1"].crash()
            party.run(5)

        assert with_ear.world.trace.digest() == without.world.trace.digest()
        assert len(with_ear.world.trace.lines) > 30
        assert without.world.trace.lines == []
