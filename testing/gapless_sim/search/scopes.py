"""The smallest systems: what they are made of, and the little that is done with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from gapless_sim.world.consumer import Consumer, Row
from gapless_sim.world.options import MILLISECOND, SECOND, NetworkFaults, Options
from gapless_sim.world.producer import Outbox, Producer, Publication
from gapless_sim.world.topology import SINGLES, Topology

if TYPE_CHECKING:
    from gapless_sim.world.application import SimClient
    from gapless_sim.world.world import World

BEGIN = SECOND
"""When the applications start; by then the brokers serve."""
INTERVAL = 200 * MILLISECOND
"""Between two events."""
TOPIC = "scope"


@dataclass(frozen=True, slots=True)
class Scope:
    """A system as small as it gets, and what is done with it."""

    phbs: int
    shbs: int
    publishes: int
    subscribers: int
    ibs: int = 0
    """How many IBs stand between the PHB and the SHB, in one cell; none: all nodes have links to each other."""
    router: str = "knowledge"
    """With IBs, the router; without them any will do."""
    in_chain: bool = False
    """Whether they stand one behind the other instead, under a router that bypasses one that is away."""

    def __str__(self) -> str:
        between = "-".join("1" * self.ibs) if self.in_chain else str(self.ibs)
        chain = "chain-" if self.in_chain else ""
        nodes = f"{chain}{self.phbs}-{between}-{self.shbs}" if self.ibs else f"{self.phbs}/{self.shbs}"
        return f"{nodes}/{self.publishes}/{self.subscribers}"

    @property
    def together(self) -> bool:
        """Whether it is one node that hosts both roles."""
        return self.phbs == self.shbs == 1 and not self.ibs

    @property
    def brokers(self) -> int:
        """How many nodes there are."""
        return self.phbs + self.ibs + self.shbs - self.together

    @property
    def links(self) -> int:
        """How many links there are between brokers on the map; none without IBs, where routers make them."""
        return len(self._topology.links) if self.ibs else 0

    @property
    def _topology(self) -> Topology:
        ibs = [f"ib{number + 1}" for number in range(self.ibs)]
        if self.in_chain:
            above = ["phb1", *ibs]
            chain = " ".join(f"{ib}<{up}" for ib, up in zip(ibs, above, strict=False))
            return Topology.parse(f"phb1:phb {chain} shb1:shb<{above[-1]}", SINGLES)
        return Topology.parse(f"phb1:phb {'+'.join(ibs)}<phb1 shb1:shb<ib1")

    @property
    def clients(self) -> int:
        """How many applications there are: the last one publishes."""
        return self.subscribers + 1

    def options(self) -> Options:
        """The world's: nothing goes wrong by itself, and every draw is benign."""
        router = "local" if self.together else self.router if self.ibs else "hostile"
        return Options(
            seed=0,
            router=router,
            topology=self._topology.kind if self.ibs else "",
            cells=str(self._topology) if self.ibs else "",
            delta=int(self.in_chain),
            phbs=self.phbs,
            shbs=self.shbs,
            together=self.together,
            clients=self.clients,
            network=NetworkFaults(bytewise=0.0),
        )


SCOPES = tuple(
    Scope(phbs, shbs, publishes, subscribers)
    for publishes, subscribers, phbs, shbs in product((1, 2, 3), (1, 2), (1, 2), (1, 2))
)
"""All of them without IBs, the smallest first."""

CELL_SCOPES = tuple(
    Scope(1, 1, publishes, subscribers, ibs) for publishes, subscribers, ibs in product((1, 2), (1, 2), (1, 2))
)
"""PHB–IB–SHB and PHB–{IB, IB}–SHB, for routers that work by cells."""

CHAIN_SCOPES = tuple(
    Scope(1, 1, publishes, subscribers, ibs, "delta", in_chain=True)
    for publishes, subscribers, ibs in product((1, 2), (1, 2), (1, 2))
)
"""Chains of three and of four, for routers of trees of single nodes."""


def scope_named(name: str) -> Scope:
    """The scope that is written like that: PHBs/SHBs/events/subscribers, or PHBs-IBs-SHBs/… Raises KeyError."""
    return {str(scope): scope for scope in (*SCOPES, *CELL_SCOPES, *CHAIN_SCOPES)}[name]


class Script:
    """What happens in a scope: subscribers to everything or to half of it, events one by one."""

    def __init__(self, world: World, scope: Scope) -> None:
        self._world = world
        self._scope = scope
        clients = list(world.clients.values())
        self._writer, readers = clients[-1], clients[: scope.subscribers]
        self._outbox = Outbox(
            "letters", TOPIC, [Publication(key, TOPIC, {"k": key % 2}) for key in range(scope.publishes)]
        )
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

    def begin_liveness(self) -> None:
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
            return Row(
                number, reader.name, f"s{number}", (TOPIC,), "k = 1", lambda e: e.publication.properties["k"] == 1
            )
        return Row(number, reader.name, f"s{number}", (TOPIC,), "", lambda _: True, silence=True)

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
