"""What an oracle can see: everything that happens in a world, as calls of its methods."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gapless.core.alarms import Alarm
    from gapless.core.client import Item
    from gapless.core.client.link.effects import Attached
    from gapless.core.network import facts as routing
    from gapless.core.ports import Operation
    from gapless.core.stream.knowledge import Knowledge
    from gapless.core.stream.ticks import PubendId, Tick
    from gapless.core.wire.messages import Unit
    from gapless.core.wire.tokens import CheckpointToken
    from gapless.errors import GaplessError
    from gapless_sim.world.application import SimClient
    from gapless_sim.world.broker import SimBroker
    from gapless_sim.world.consumer import Consumer, Row
    from gapless_sim.world.producer import Producer, Publication
    from gapless_sim.world.sharing import Holding, SharedConsumer, SharedRow
    from gapless_sim.world.transactions import Transaction
    from gapless_sim.world.transform import Transform
    from gapless_sim.world.world import World


class Violation(AssertionError):  # noqa: N818 - it is the finding, not a mistake of ours
    """The promise is broken: which invariant, and how."""

    def __init__(self, oracle: str, what: str) -> None:
        super().__init__(f"{oracle}: {what}")
        self.oracle = oracle
        """The invariant, as docs/protocol/invariants.md numbers it."""
        self.what = what


class Oracle:
    """Watches what happens, and raises `Violation` where it must not happen. Override the methods that you need."""

    def __init__(self, world: World) -> None:
        self.world = world

    # At the routing seam.

    def known(self, broker: str, knowledge: Knowledge) -> None:
        """A PHB stated this about one of its pubends, unasked or as an answer: the truth itself."""

    def known_beside(self, broker: str, knowledge: Knowledge) -> None:
        """A second process of a PHB's node stated this, on a copy of its volume."""

    def opened(self, broker: str, meta: routing.PubendMeta, members: Mapping[str, Tick]) -> None:
        """A PHB has a pubend, with this durable membership."""

    def delivered(self, broker: str, knowledge: Knowledge) -> None:
        """A router handed this to an SHB."""

    def wanted(self, broker: str, interest: routing.Interest) -> None:
        """An SHB handed its router what its subscriptions match."""

    def progressed(self, broker: str, progress: routing.Progress) -> None:
        """An SHB reported what it is done with."""

    def asked(self, broker: str, want: routing.Want) -> None:
        """A PHB was asked for ranges."""

    # In the brokers.

    def began(self, broker: SimBroker) -> None:
        """A process of a node begins, the first under its name or a second one; it has an incarnation now."""

    def process_over(self, broker: SimBroker) -> None:
        """It is over."""

    def shut_out(self, broker: SimBroker, later: int, peer: str) -> None:
        """It is told, by a neighbour, that a later process of its node counts."""

    def ran_twice(self, broker: SimBroker, other: int) -> None:
        """It is told that another process of its node, which is shut out, ran at the same time as one of it."""

    def copied(self, broker: SimBroker) -> None:
        """A second process of a node with roles is about to begin, on a copy of its volume."""

    def took_copy(self, broker: SimBroker) -> None:
        """The second process is over, and the node goes on with the volume that it had."""

    def booted(self, broker: SimBroker) -> None:
        """A broker has recovered and serves."""

    def crashed(self, broker: SimBroker) -> None:
        """A broker's process is over, in whichever way."""

    def refused(self, broker: SimBroker, error: BaseException) -> None:
        """A broker's volume was refused when it was opened; an operator is needed."""

    def restored(self, broker: SimBroker) -> None:
        """An operator has put an old copy of a broker's disk back."""

    def wiped(self, broker: SimBroker) -> None:
        """An operator has given a broker an empty disk: what it held is lost."""

    def forgotten(self, broker: SimBroker) -> None:
        """A gateway has lost what it knew of the logs of others; its SHB has lost nothing."""

    def spoilt(self, broker: SimBroker, stream: str, records: Sequence[tuple[int, int, bytes]]) -> None:
        """Durable records of a stream cannot be read from now on: the index before, its own, and what was in it."""

    def repaired(self, broker: SimBroker, holes: Sequence[tuple[str, int, int]]) -> None:
        """An operator has given up what could not be read: of a stream what has an index in (after, upto]."""

    def written(self, broker: SimBroker, operations: Sequence[Operation]) -> None:
        """A broker has written a batch; it is not durable yet."""

    def failed_to_write(self, broker: SimBroker, operations: Sequence[Operation]) -> None:
        """A broker could not write a batch; maybe it is there all the same when the disk is opened again."""

    def alarmed(self, broker: SimBroker, alarm: Alarm) -> None:
        """A broker raised an alarm."""

    def retired(self, shb: str) -> None:
        """An operator has retired an SHB: nothing waits for it any more."""

    # Between SHBs and their clients.

    def came(self, broker: str, session: int, client_id: str) -> None:
        """A client's session asks an SHB for something: said before each request that is watched."""

    def received(self, broker: str, session: int, message: Any) -> None:
        """An SHB received this message from a client's session."""

    def sent(self, broker: str, session: int, message: Any) -> None:
        """An SHB sent this message to a client's session."""

    def room(self, broker: str, session: int) -> None:
        """An SHB learns that what waited on the link of a client's session has left."""

    def left(self, broker: str, session: int) -> None:
        """An SHB learnt that a client's session is over."""

    def disconnected(self, client: SimClient, reason: str) -> None:
        """A client's session is over."""

    # In the applications.

    def published(self, producer: Producer, publications: Sequence[Publication]) -> None:
        """An application begins to publish a batch."""

    def receipted(
        self, producer: Producer, publication: Publication, pubend: PubendId, tick: Tick, *, durable: bool
    ) -> None:
        """It has the receipt of one event."""

    def not_published(self, producer: Producer, publications: Sequence[Publication], error: GaplessError) -> None:
        """A batch gets no receipt: it was refused, or nobody knows."""

    def ready(self, producer: Producer, sequence: int) -> None:
        """A publisher is open; its name has logged so many events."""

    def stored(self, producer: Transform, token: CheckpointToken) -> None:
        """A process was told that its position is durable with its publisher."""

    def transacting(self, transaction: Transaction) -> None:
        """A process begins to commit a transaction."""

    def transacted(self, transaction: Transaction) -> None:
        """It was told what became of it."""

    def subscribing(self, consumer: Consumer) -> None:
        """An application asks for a subscription."""

    def attached(self, consumer: Consumer, result: Attached, begins: Mapping[PubendId, Tick]) -> None:
        """It has it, and begins behind these positions."""

    def handed_out(self, consumer: Consumer, item: Item) -> None:
        """It was handed events, a silence or a gap."""

    def committed(self, consumer: Consumer, token: CheckpointToken) -> None:
        """The effects of all that was handed out are in its database, with this token."""

    def acknowledged(self, consumer: Consumer, positions: Mapping[PubendId, Tick]) -> None:
        """It acknowledges everything up to these positions."""

    def attempting(self, consumer: Consumer, unit: Unit) -> None:
        """It asks its home to count an attempt, before it is handed an event that it may have been handed before."""

    def durably_committed(self, consumer: Consumer, positions: Mapping[PubendId, Tick]) -> None:
        """Its home has answered that it keeps these positions."""

    def lost_subscription(self, consumer: Consumer, error: GaplessError) -> None:
        """Its subscription ended with an error, or was not given to it."""

    def sharing(self, consumer: SharedConsumer) -> None:
        """An application asks to take part in a shared subscription."""

    def shared(self, consumer: SharedConsumer, result: Attached) -> None:
        """It takes part."""

    def held(self, consumer: SharedConsumer, holding: Holding) -> None:
        """It was handed an event of a shared subscription, or a gap, and holds it."""

    def settling(self, consumer: SharedConsumer, holding: Holding) -> None:
        """It says something of what it holds."""

    def verdict_answered(self, consumer: SharedConsumer, holding: Holding) -> None:
        """It was told what became of that."""

    def leaving(self, consumer: SharedConsumer) -> None:
        """It says goodbye to a shared subscription."""

    def ending(self, row: SharedRow) -> None:
        """Somebody asks for a shared subscription to be removed."""

    def unsubscribing(self, row: Row) -> None:
        """Somebody asks for a durable subscription to be removed."""

    def changing(self, row: Row) -> None:
        """An application asks for other events under a row's name; another row takes its place."""

    def unsubscribed(self, row: Row) -> None:
        """It is removed."""

    # At the end.

    def checkpoint(self) -> None:
        """Once in a while, for what costs too much at every step."""

    def liveness_begins(self) -> None:
        """The liveness phase begins: faults have stopped for good, and everything must come right."""

    def settled(self) -> bool:
        """After `liveness_begins`, asked again and again: whether everything has come right."""
        return True

    def unsettled(self) -> str:
        """What has not come right yet."""
        return ""

    def ended(self) -> None:
        """The run is over: a last look at all of it."""


EVENTS = tuple(name for name in vars(Oracle) if not name.startswith("_") and name not in {"settled", "unsettled"})


class Observation:
    """Calls all oracles of a world; of each only the methods that it overrides."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.oracles: list[Oracle] = []
        self._listeners: dict[str, list[Callable[..., None]]] = {name: [] for name in EVENTS}
        for name, listeners in self._listeners.items():
            setattr(self, name, _caller(listeners))

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Callable[..., None]:
            """Every event of `Oracle` is a method of this."""

    def add(self, oracle: Oracle) -> None:
        """From now on this oracle is called."""
        self.oracles.append(oracle)
        for name, listeners in self._listeners.items():
            if getattr(type(oracle), name) is not getattr(Oracle, name):
                listeners.append(getattr(oracle, name))

    def remove(self, oracle: Oracle) -> None:
        """This oracle is not called any more."""
        self.oracles.remove(oracle)
        for listeners in self._listeners.values():
            listeners[:] = [call for call in listeners if getattr(call, "__self__", None) is not oracle]


def _caller(listeners: list[Callable[..., None]]) -> Callable[..., None]:
    def call(*arguments: Any, **options: Any) -> None:
        if options:
            for listener in listeners:
                listener(*arguments, **options)
            return
        for listener in listeners:
            listener(*arguments)

    return call
