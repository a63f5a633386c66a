"""Stories of the router `delta`: trees in which somebody goes away at the wrong moment, without chance (docs: traps).

Brokers, an application that publishes at the pubend's broker, and one at each SHB that takes everything. All oracles
look on, and at the end everything must have come right. A story says of how many brokers it is the way: those that
keep to what the router promises want nothing, which D1 and D7 see to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from gapless.core.wire.messages import StartAt
from gapless_sim.recording.trace import Trace
from gapless_sim.search.run import come_right, watched
from gapless_sim.world.application import SimClient
from gapless_sim.world.choices import Choices
from gapless_sim.world.consumer import Consumer, Row
from gapless_sim.world.options import MILLISECOND, SECOND, NetworkFaults, Options
from gapless_sim.world.producer import Outbox, Producer, Publication
from gapless_sim.world.topology import SINGLES, Topology, pair_of
from gapless_sim.world.world_builder import build

if TYPE_CHECKING:
    from gapless_sim.recording.accounts import Logged
    from gapless_sim.search.result import Failure

TOPIC = "a"
FOR_EVER = 1 << 60
CHAIN = "phb1:phb ib1<phb1 ib2<ib1 shb1:shb<ib2"
LONG = "phb1:phb ib1<phb1 ib2<ib1 ib3<ib2 shb1:shb<ib3"
HUB = "ib0 phb1:phb<ib0 ib1<ib0 ib2<ib0 ib3<ib0 shb1:shb<ib1 shb2:shb<ib2 shb3:shb<ib3"
SIDES = "phb1:phb ib1<phb1 shb1:shb<ib1 ib2<ib1 shb2:shb<ib2 ib3<ib2 shb3:shb<ib3"


def _everything(_event: Logged) -> bool:
    return True


class Stage:
    """A tree in which nothing goes wrong by itself."""

    def __init__(self, cells: str, delta: int = 1, **fields: int) -> None:
        roles = Topology.parse(cells, SINGLES).roles.values()
        options = Options(
            1,
            router="delta",
            together=False,
            topology=SINGLES,
            cells=cells,
            phbs=sum("phb" in hosted for hosted in roles),
            shbs=sum("shb" in hosted for hosted in roles),
            delta=delta,
            link_cores=True,
            clients=0,
            network=NetworkFaults(bytewise=0.0),
        )
        self.world = build(replace(options, **fields), Choices(1, {}), Trace(keep=True))  # type: ignore[arg-type]
        self.writer = SimClient(self.world, "writer", ["phb1"])
        self.world.clients["writer"] = self.writer
        self._outbox = Outbox("letters", TOPIC)
        self._keys = 0
        self.producer: Producer | None = None
        self.rows: list[Row] = []
        for name, broker in self.world.brokers.items():
            if "shb" in broker.roles:
                reader = self.world.clients[f"reader of {name}"] = SimClient(self.world, f"reader of {name}", [name])
                row = Row(len(self.rows), reader.name, "s", (TOPIC,), "", _everything, StartAt.LATEST)
                self.rows.append(row)
                reader.on_start = _consuming(row)
        self.writer.on_start = self._open

    def begin(self) -> None:
        """Everything runs, and it has been known for long who wants what."""
        for broker in self.world.brokers.values():
            broker.boot()
        for client in self.world.clients.values():
            client.start()
        self.run(20_000)

    def _open(self, client: SimClient) -> None:
        self.producer = Producer(client, self._outbox)

    def run(self, milliseconds: int) -> None:
        """Time passes, and whoever looks from time to time does."""
        end = self.world.now + milliseconds * MILLISECOND
        while self.world.now < end:
            self.world.run_until(min(self.world.now + SECOND // 2, end))
            self.world.observe.checkpoint()

    def publish(self, count: int = 1) -> None:
        """So many events, one after the other."""
        producer = self.producer
        assert producer is not None
        assert not producer.over
        self._outbox.publications += [Publication(self._keys + at, TOPIC, {}) for at in range(1, count + 1)]
        self._keys += count
        for _ in range(count):
            producer.publish(1)
            self.run(5)

    def away(self, *names: str, silent: bool = False) -> None:
        """These go, and do not come back by themselves. `silent`: their machines, which nobody is told."""
        for name in names:
            self.world.brokers[name].go_away(FOR_EVER, silent=silent)

    def back(self, *names: str) -> None:
        """They come back; without roles they have kept nothing."""
        for name in names:
            self.world.brokers[name].away_until = 0
            self.world.brokers[name].boot()

    def slow(self, source: str, target: str, rate: int = 1) -> None:
        """So many bytes a second get from one broker to another one; 0: as many as there are."""
        for link in self.world.network.links_up():
            for index in (0, 1):
                if (link.ends[1 - index].name, link.ends[index].name) == (source, target):
                    link.rates[index] = rate

    def breaks(self, one: str, other: str) -> None:
        """There is no link between two any more."""
        layer = self.world.network.layer
        assert layer is not None
        assert layer.kill(pair_of(one, other))

    def replace(self, name: str) -> None:
        """The machine of a broker is lost, and another one takes its place."""
        broker = self.world.brokers[name]
        broker.kill()
        broker.replace_disk()
        self.run(1_000)


def _consuming(row: Row) -> Callable[[SimClient], None]:
    def consume(client: SimClient) -> None:
        Consumer(client, row, row.wanted())

    return consume


Story = Callable[[Stage], None]


def failure_of(name: str) -> Failure | None:
    """Plays a story to its end, after which everything must come right."""
    return played(name)[0]


def played(name: str) -> tuple[Failure | None, Counter[str]]:
    """The same; returns also what happened that should happen sometimes, and how often."""
    story, cells, fields = STORIES[name]
    stage = Stage(cells, **fields)

    def play(_: object) -> None:
        stage.begin()
        story(stage)
        for broker in stage.world.brokers.values():
            broker.away_until = 0
            broker.boot()
        for client in stage.world.clients.values():
            client.start()
        stage.world.in_liveness = True
        come_right(stage.world)

    return watched(stage.world, play), stage.world.hits


def dies_with_the_push_in_its_queue(stage: Stage) -> None:
    """A broker has events for the next one on its link, and dies: they come from the copies of the one before."""
    for dying, below in (("ib1", "ib2"), ("ib2", "shb1")):
        for silent in (False, True):
            stage.slow(dying, below, 300)
            stage.publish(5)
            stage.run(900)
            stage.away(dying, silent=silent)
            stage.publish(5)
            stage.run(6_000)
            stage.back(dying)
            stage.run(15_000)


def returns_while_its_children_lag(stage: Stage) -> None:
    """It was bypassed, and comes back empty while what was pushed past it is still on its way; events go on."""
    stage.away("ib1")
    stage.publish(5)
    stage.run(5_000)
    stage.slow("phb1", "ib2", 5_000)
    for _ in range(3):
        stage.publish(3)
        stage.run(200)
    stage.back("ib1")
    for _ in range(20):
        stage.publish(1)
        stage.run(200)
    stage.run(15_000)


def returns_without_a_way(stage: Stage) -> None:
    """It was bypassed, and comes back without a link to the one above it: nobody is served by it before."""
    network = stage.world.network
    stage.away("ib1")
    stage.publish(5)
    stage.run(5_000)
    for way in (("phb1", "ib1"), ("ib1", "phb1")):
        network.cut(*way)
    stage.back("ib1")
    for _ in range(20):
        stage.publish(1)
        stage.run(300)
    for way in (("phb1", "ib1"), ("ib1", "phb1")):
        network.heal(*way)
    stage.run(15_000)
    stage.publish(2)
    stage.run(2_000)


def recover_around_a_dead_hub(stage: Stage) -> None:
    """The hub is dead, and all its neighbours without roles come back at the same moment: no one waits for another."""
    stage.away("ib0", "ib1", "ib2", "ib3")
    stage.run(5_000)
    stage.back("ib1", "ib2", "ib3")
    stage.run(15_000)
    stage.publish(5)
    stage.run(5_000)
    stage.back("ib0")
    stage.run(15_000)
    stage.publish(5)
    stage.run(2_000)


def a_link_breaks_between_two_that_live(stage: Stage) -> None:
    """The lower one is served past the upper one, which is there and cannot be reached."""
    stage.publish(5)
    stage.breaks("ib1", "ib2")
    stage.run(5_000)
    stage.publish(5)
    stage.run(15_000)
    stage.publish(5)
    stage.run(2_000)


def an_shb_is_wiped_again_and_again(stage: Stage) -> None:
    """It comes back as another one each time: the names of those before it are forgotten."""
    for _ in range(4):
        stage.publish(2)
        stage.replace("shb1")
        stage.run(3_000)
    stage.publish(2)
    stage.run(2_000)


def the_broker_of_the_pubend_dies(stage: Stage) -> None:
    """Events are in the tree, and no farther: they go on without it."""
    stage.slow("ib2", "ib3", 5_000)
    stage.publish(8)
    stage.away("phb1")
    stage.run(6_000)
    stage.back("phb1")
    stage.run(10_000)


def a_server_is_evicted_below_the_run_of_its_child(stage: Stage) -> None:
    """What is let go of for lack of room was had by who is served: then all above that goes away, and comes back."""
    stage.publish(30)
    stage.run(3_000)
    stage.away("shb1")
    stage.publish(40)
    stage.run(1_000)
    stage.away("ib1")
    stage.run(3_000)
    stage.back("ib1")
    stage.publish(30)
    stage.run(2_000)
    stage.back("shb1")
    stage.run(10_000)


def is_bypassed_in_a_row(stage: Stage) -> None:
    """As many as may be go at the same moment, and come back in another order."""
    stage.publish(3)
    stage.away("ib1", "ib2", silent=True)
    stage.publish(3)
    stage.run(8_000)
    stage.back("ib2")
    stage.publish(3)
    stage.run(10_000)
    stage.back("ib1")
    stage.publish(3)
    stage.run(20_000)


def events_turn_off_on_the_way(stage: Stage) -> None:
    """Silence goes on behind each broker at which an event was for somebody, and does not wait at each anew."""
    for _ in range(30):
        stage.publish(1)
        stage.run(370)


def an_shb_is_away_for_long(stage: Stage) -> None:
    """What is published meanwhile is kept at the two brokers before it, and nowhere else when the window is over."""
    stage.publish(5)
    stage.run(1_000)
    stage.away("shb1")
    stage.run(8_000)
    stage.publish(10)
    stage.run(30_000)
    stage.back("shb1")
    stage.run(15_000)
    stage.publish(2)
    stage.run(2_000)


STORIES: Mapping[str, tuple[Story, str, dict[str, int]]] = {
    "dies with the push in its queue": (dies_with_the_push_in_its_queue, CHAIN, {"delta": 1}),
    "returns while its children lag": (returns_while_its_children_lag, CHAIN, {"delta": 1}),
    "returns without a way": (returns_without_a_way, CHAIN, {"delta": 1}),
    "recover around a dead hub": (recover_around_a_dead_hub, HUB, {"delta": 1}),
    "a link breaks between two that live": (a_link_breaks_between_two_that_live, CHAIN, {"delta": 1}),
    "an SHB is wiped again and again": (an_shb_is_wiped_again_and_again, SIDES, {"delta": 1}),
    "the broker of the pubend dies": (the_broker_of_the_pubend_dies, LONG, {"delta": 2}),
    "a server is evicted below the run of its child": (
        a_server_is_evicted_below_the_run_of_its_child,
        CHAIN,
        {"delta": 1, "copies_bytes": 3_000},
    ),
    "is bypassed in a row": (is_bypassed_in_a_row, LONG, {"delta": 2}),
    "an SHB is away for long": (an_shb_is_away_for_long, LONG, {"delta": 1}),
    "events turn off on the way": (events_turn_off_on_the_way, SIDES, {"delta": 1}),
}
"""Each with its tree, and what is special there."""
