"""Small scopes, exhaustively: one fault, then two, at every position of a short run.

A position is a step of the world: a frame that arrives, a sync that ends, a timer, a turn. What bugs there
are in three operations and one fault (and most there are need no more) is found here for certain, where
seeds find it by luck.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations, product
from typing import TYPE_CHECKING

from gapless.testing.sim.application import Consumer, Letter, Outbox, Producer, Row, SimClient
from gapless.testing.sim.building import build
from gapless.testing.sim.choices import Choices
from gapless.testing.sim.options import MILLISECOND, SECOND, NetworkFaults, Options
from gapless.testing.sim.run import come_right, watched
from gapless.testing.sim.trace import Trace

if TYPE_CHECKING:
    from gapless.testing.sim.broker import SimBroker
    from gapless.testing.sim.result import Failure
    from gapless.testing.sim.world import World

BEGIN = SECOND
"""When the applications start; by then the brokers serve."""
INTERVAL = 200 * MILLISECOND
"""Between two events."""
CUT = 3 * SECOND
TOPIC = "scope"


@dataclass(frozen=True, slots=True)
class Scope:
    """A system as small as it gets, and what is done with it."""

    phbs: int
    shbs: int
    publishes: int
    subscribers: int

    def options(self) -> Options:
        """The world's: nothing goes wrong by itself, and every draw is benign."""
        together = self.phbs == self.shbs == 1
        return Options(
            seed=0,
            router="local" if together else "hostile",
            phbs=self.phbs,
            shbs=self.shbs,
            together=together,
            clients=self.subscribers + 1,
            network=NetworkFaults(bytewise=0.0),
        )


SCOPES = tuple(
    Scope(phbs, shbs, publishes, subscribers)
    for publishes, subscribers, phbs, shbs in product((1, 2, 3), (1, 2), (1, 2), (1, 2))
)
"""All of them, the smallest first."""


class Script:
    """What happens in a scope: subscribers to everything or to half of it, events one by one."""

    def __init__(self, world: World, scope: Scope) -> None:
        self._world = world
        self._scope = scope
        clients = list(world.clients.values())
        self._writer, readers = clients[-1], clients[: scope.subscribers]
        self._outbox = Outbox("letters", TOPIC, [Letter(key, TOPIC, {"k": key % 2}) for key in range(scope.publishes)])
        self._wanted = 0
        self._producer: Producer | None = None
        self._rows = [self._row(number, reader) for number, reader in enumerate(readers)]
        self._writer.on_start = self._open
        for row, reader in zip(self._rows, readers, strict=True):
            reader.on_start = _consuming(row)

    @property
    def end(self) -> int:
        """When all is done, if nothing goes wrong."""
        return BEGIN + (self._scope.publishes + 2) * INTERVAL + SECOND

    def begin(self) -> None:
        """Brokers first, then subscribers, then events."""
        world = self._world
        for broker in world.brokers.values():
            world.at(0, broker.name, "boot", broker.boot)
        for client in world.clients.values():
            world.at(BEGIN, client.name, "start", client.start)
        for number in range(self._scope.publishes):
            world.at(BEGIN + (number + 2) * INTERVAL, self._writer.name, "publish", self._publish, number + 1)

    def calm(self) -> None:
        """Everybody is there, and what could not be published is published now."""
        self._wanted = self._scope.publishes
        for broker in self._world.brokers.values():
            if broker.given_up:
                broker.replace_disk()
            broker.boot()
        for client in self._world.clients.values():
            client.start()
        self._work_off()

    def _row(self, number: int, reader: SimClient) -> Row:
        if number % 2:
            return Row(number, reader.name, f"s{number}", (TOPIC,), "k = 1", lambda _, properties: properties["k"] == 1)
        return Row(number, reader.name, f"s{number}", (TOPIC,), "", lambda _topic, _properties: True, silence=True)

    def _open(self, client: SimClient) -> None:
        self._producer = Producer(client, self._outbox)
        self._producer.on_ready = lambda _: self._work_off()

    def _publish(self, wanted: int) -> None:
        self._wanted = wanted
        self._work_off()

    def _work_off(self) -> None:
        producer = self._producer
        while producer is not None and producer.next < self._wanted and producer.publish(1):
            pass


def _consuming(row: Row) -> Callable[[SimClient], None]:
    def consume(client: SimClient) -> None:
        Consumer(client, row, row.wanted())

    return consume


# ---------------------------------------------------------------------------------------- the faults


def _each_broker(strike: Callable[[SimBroker], None]) -> Callable[[World, int], None]:
    def strike_one(world: World, number: int) -> None:
        brokers = list(world.brokers.values())
        broker = brokers[number % len(brokers)]
        if broker.running:
            strike(broker)

    return strike_one


def _crash_client(world: World, number: int) -> None:
    clients = list(world.clients.values())
    client = clients[number % len(clients)]
    client.crash()
    world.after(100 * MILLISECOND, client.name, "start", client.start)


def _cut(world: World, number: int) -> None:
    places = [*world.brokers, *world.clients]
    one = places[number % len(places)]
    for other in places:
        if other != one:
            world.network.cut(one, other)
            world.after(CUT, "world", "heal", world.network.heal, one, other)


def _lose(world: World, _number: int) -> None:
    """The next frame between brokers is lost; one of a client's link takes the link with it."""
    _, kind = world.next_kind()
    if kind == "frame":
        world.drop_one()
    elif kind == "frames":
        world.network.reset_some(lambda _count: 0)


FAULTS: dict[str, Callable[[World, int], None]] = {
    "crash, nothing unsynced survives": _each_broker(lambda broker: broker.crash(0)),
    "crash, all but the last survive": _each_broker(lambda broker: broker.crash(max(0, broker.disk.unsynced - 1))),
    "kill": _each_broker(lambda broker: broker.kill()),
    "crash at the next effect": _each_broker(lambda broker: setattr(broker, "fuse", 1)),
    "crash at the second effect": _each_broker(lambda broker: setattr(broker, "fuse", 2)),
    "sync fails, batch kept": _each_broker(lambda broker: broker.fail_disk("sync", "kept")),
    "sync fails, batch lost": _each_broker(lambda broker: broker.fail_disk("sync", "lost")),
    "write fails, batch kept": _each_broker(lambda broker: broker.fail_disk("write", "kept")),
    "pause": _each_broker(lambda broker: broker.pause(2 * SECOND)),
    "client crashes": _crash_client,
    "cut off": _cut,
    "lost": _lose,
}
"""What can happen at a position; the number says to whom."""


@dataclass(frozen=True, slots=True)
class Strike:
    """A fault at a position."""

    position: int
    fault: str
    number: int


@dataclass(frozen=True, slots=True)
class Case:
    """A scope and what goes wrong in it."""

    scope: Scope
    strikes: tuple[Strike, ...]


def length(scope: Scope) -> tuple[int, int]:
    """The first position at which the applications act, and the one behind the last, without any fault."""
    world, script = _world(scope)
    script.begin()
    world.run_until(BEGIN - 1)
    first = world.trace.steps
    world.run_until(script.end)
    return first, world.trace.steps


def cases(scope: Scope, depth: int, stride: int = 1) -> Iterator[Case]:
    """Every combination of so many faults at every `stride`-th position, each at every place."""
    first, last = length(scope)
    places = scope.phbs + scope.shbs - (scope.phbs == scope.shbs == 1)
    strikes = [
        Strike(position, fault, number)
        for position in range(first, last, stride)
        for fault in FAULTS
        for number in range(_targets(fault, scope, places))
    ]
    for chosen in combinations(strikes, depth):
        yield Case(scope, chosen)


def _targets(fault: str, scope: Scope, brokers: int) -> int:
    clients = scope.subscribers + 1
    return {"client crashes": clients, "cut off": brokers + clients, "lost": 1}.get(fault, brokers)


def run_case(case: Case) -> Failure | None:
    """Runs one case, and says what was wrong."""
    world, script = _world(case.scope)
    return watched(world, lambda world: _run(world, script, case))


def _world(scope: Scope) -> tuple[World, Script]:
    world = build(scope.options(), Choices(0, {}), Trace())
    return world, Script(world, scope)


def _run(world: World, script: Script, case: Case) -> None:
    script.begin()
    strikes = list(case.strikes)
    while True:
        while strikes and world.trace.steps >= strikes[0].position:
            strike = strikes.pop(0)
            FAULTS[strike.fault](world, strike.number)
        if not world.carry_out_one(script.end):
            break
    world.network.heal_all()
    for broker in world.brokers.values():
        broker.fuse = 0
        broker.heal_disk()
    script.calm()
    come_right(world)
