"""What all scenarios of a world share: rows and outboxes, what was handed out, and how a sane application acts.

A sane application waits where somebody else holds its subscription, does not fight with whoever took it,
and knows no other errors but those that its scenario expects; unless an operator has lost or put back data,
after which everything may be refused: then it gives the subscription up and begins anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from gapless.core.client import Delivery, Gap, SubscribeOptions
from gapless.core.wire.messages import InUse, StartAt
from gapless.errors import (
    GaplessError,
    SubscriptionInUseError,
    SubscriptionNotFoundError,
)
from gapless_sim.recording.observation import Oracle
from gapless_sim.workloads.scenario_scripts import Answer, ScriptRunner, Wait, attached
from gapless_sim.world.application import SimClient
from gapless_sim.world.consumer import Consumer, Row
from gapless_sim.world.options import MILLISECOND
from gapless_sim.world.producer import Outbox, key_of

if TYPE_CHECKING:
    from gapless.core.client import Item
    from gapless.core.stream.ticks import PubendId, Tick
    from gapless_sim.workloads.scenario_filters import Interest
    from gapless_sim.workloads.scenario_scripts import Script
    from gapless_sim.world.producer import Producer, Publication
    from gapless_sim.world.world import World

Attaching: TypeAlias = "Generator[Wait, None, Consumer | None]"

SOMETIMES = (
    "scenario.in use, tried again",
    "scenario.given up after a loss of data",
    "scenario.an end went on after a crash",
)

TRY_AGAIN = 300 * MILLISECOND


@dataclass(slots=True, eq=False)
class AssignedOutbox:
    """An outbox, and who works it off when all comes to an end."""

    outbox: Outbox
    client: SimClient
    named: bool = True


class Ledger(Oracle):
    """What scenarios want to know of what happened."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.taken: Counter[int] = Counter()
        """Events that were handed out, by the row's number."""
        self.gaps: Counter[int] = Counter()
        """Gaps, likewise."""
        self.keys: dict[int, list[int]] = {}
        """The keys of the publications, for rows that are in here."""
        self.receipts: dict[int, tuple[PubendId, Tick]] = {}
        """By the publication's key."""
        self.rejections: Counter[str] = Counter()
        """Batches that got no receipt, by the publisher's name."""
        self.losses = 0
        """How often a disk was replaced."""

    def handed_out(self, consumer: Consumer, item: Item) -> None:
        """Events, a silence or a gap."""
        number = consumer.row.number
        if isinstance(item, Delivery):
            self.taken[number] += item.count
            if number in self.keys:
                self.keys[number] += [key_of(event.body) for event in item.events()]
        elif isinstance(item, Gap):
            self.gaps[number] += 1

    def receipted(
        self, producer: Producer, publication: Publication, pubend: PubendId, tick: Tick, *, durable: bool
    ) -> None:
        """A publication is logged."""
        self.receipts[publication.key] = (pubend, tick)

    def not_published(self, producer: Producer, publications: Sequence[Publication], error: GaplessError) -> None:
        """A batch gets no receipt."""
        self.rejections[producer.name] += 1

    def wiped(self, broker: Any) -> None:
        """What the broker held is lost."""
        self.losses += 1


class OtherProcess(SimClient):
    """A second process of an application, on another machine: it has the same client id."""

    def __init__(self, first: SimClient) -> None:
        super().__init__(first.world, f"{first.name}-b", first.addresses)
        self.client_id = first.name

    def start(self) -> None:
        """Starts the process; the link that it dials is up only later, so Hello says who it is."""
        if not self.running:
            super().start()
            self.core.client_id = self.client_id


class ScenarioState:
    """All scenarios of one world have this one."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.ledger = Ledger(world)
        world.observe.add(self.ledger)
        self.runner = ScriptRunner(world)
        self.clients = list(world.clients.values())
        """The first processes."""
        self.rows: list[Row] = []
        self.outboxes: list[AssignedOutbox] = []
        self.producers: list[Producer] = []
        self.leaving: dict[int, Row] = {}
        """Rows whose removal was begun, by number; nobody attaches to them any more."""
        self.walls: dict[int, int] = {}
        """For rows that begin at a time: which."""
        self.staying: dict[int, Consumer] = {}
        """By the row's number: consumers that go on as they are when all comes to an end."""
        self.parts: list[tuple[SimClient, str, Callable[[SimClient], Script]]] = []
        self._keys = 0

    # The cast.

    def part(self, client: SimClient, lane: str, script: Callable[[SimClient], Script]) -> None:
        """A script that begins whenever this client's process starts."""
        self.parts.append((client, lane, script))

    def other_process(self, first: SimClient) -> SimClient:
        """The second process of that client."""
        name = f"{first.name}-b"
        clients = self.world.clients
        if name not in clients:
            clients[name] = OtherProcess(first)
        return clients[name]

    def begin(self, client: SimClient) -> None:
        """Tells all parts of a process that has just started."""
        for owner, lane, script in self.parts:
            if owner is client:
                self.runner.run(script(client), lane, client)

    def crash(self, client: SimClient, away: int) -> None:
        """A process kills itself, and somebody starts it again after a while."""
        client.crash()
        self.world.after(away, client.name, "start", client.start)

    # What is in the databases.

    def key(self) -> int:
        """A key that no other publication has."""
        self._keys += 1
        return self._keys

    def row(self, client: SimClient, name: str | None, interest: Interest, **more: Any) -> Row:
        """A subscription that an application means to have."""
        client_id = client.client_id if isinstance(client, OtherProcess) else client.name
        row = Row(len(self.rows) + 1, client_id, name, *interest, **more)
        self.rows.append(row)
        return row

    def new_outbox(self, client: SimClient, name: str, topic: str, *, named: bool = True) -> Outbox:
        """An outbox, which this client works off in the end."""
        outbox = Outbox(name, topic)
        self.outboxes.append(AssignedOutbox(outbox, client, named))
        return outbox

    # How sane applications act.

    @property
    def has_lost_data(self) -> bool:
        """Whether some broker has lost data for good: then there are errors that nobody could expect."""
        return bool(self.ledger.losses or self.world.hits["operator.restore"])

    def check(self, error: GaplessError | None, *expected: type) -> None:
        """Raises AssertionError for what no sane application has to expect."""
        assert isinstance(error, expected) or self.has_lost_data, f"a scenario did not expect {error!r}"

    def wanted(self, row: Row, in_use: InUse = InUse.WAIT, window: int = 0) -> SubscribeOptions:
        """What to ask for. `window`: how many events may be on their way, if not as many as usual."""
        wanted = row.wanted(in_use=in_use)
        if window:
            wanted = replace(wanted, window_events=window)
        if wanted.start is StartAt.TIME:
            wanted = replace(wanted, start_wall=self.walls[row.number])
        return wanted

    def attach(
        self,
        client: SimClient,
        row: Row,
        *,
        in_use: InUse = InUse.WAIT,
        window: int = 0,
        kind: Any = None,
        **habits: Any,
    ) -> Attaching:
        """Attaches, however often it takes. None: the row is not there any more."""
        while not row.ended:
            if row.number in self.leaving:
                yield TRY_AGAIN
                continue
            consumer: Consumer = (kind or Consumer)(client, row, self.wanted(row, in_use, window), **habits)
            yield attached(consumer)
            if consumer.attached or not consumer.over:
                return consumer  # it may have been taken over at once
            yield from self._after_refusal(client, row, consumer.error)
            yield TRY_AGAIN
        return None

    def _after_refusal(self, client: SimClient, row: Row, error: GaplessError | None) -> Script:
        if isinstance(error, SubscriptionInUseError):
            self.world.sometimes("scenario.in use, tried again")
        elif isinstance(error, SubscriptionNotFoundError) and row.number in self.leaving:
            pass
        else:
            self.check(error)
            self.world.sometimes("scenario.given up after a loss of data")
            yield from self.unsubscribe(client, row)

    def unsubscribe(self, client: SimClient, row: Row) -> Script:
        """Removes a subscription; that a crash interrupts it is remembered."""
        if row.ended:
            return  # the other process of a service gave it up, and may have the next one of its name by now
        number = row.number
        again = number in self.leaving
        if again:
            self.world.sometimes("scenario.an end went on after a crash")
        self.leaving[number] = row
        if row.name is not None:
            self.world.observe.unsubscribing(row)
            answer = Answer(client, client.core.unsubscribe(row.name, row.client_id, client.monotonic()))
            yield answer.come
            if answer.error is not None:
                assert isinstance(answer.error, SubscriptionNotFoundError), f"unsubscribing: {answer.error!r}"
                assert again or self.has_lost_data or not row.created, f"{row.name} was not there any more"
        self.leaving.pop(number, None)
        if not row.ended:  # else both processes of a service gave it up
            row.ended = True
            self.world.observe.unsubscribed(row)


class Scenario:
    """One life: what it draws, where it plays."""

    kind = ""
    """What its *sometimes* assertions call it."""
    label = ""
    """Begins its name, if the kind does not. Seeds and regressions know the name: it labels their choice sequences."""

    def __init__(self, state: ScenarioState, number: int) -> None:
        self.state = state
        self.world = state.world
        self.name = f"{self.label or self.kind}{number}"
        self.draws = state.world.choices.stream(f"workload.{self.name}")
        self.client = self.draws.pick(state.clients)
        """Where it plays."""
        self.rounds = 0
        """How often it came round."""
        self.plan()

    def plan(self) -> None:
        """Draws what is fixed for a whole life, and says who plays which part."""
        raise NotImplementedError

    def part(self, script: Callable[[SimClient], Script], client: SimClient | None = None) -> None:
        """A script that begins whenever a process starts."""
        self.state.part(client or self.client, self.name, script)

    def sometimes(self, what: str) -> None:
        """A rare turn of this kind of scenario."""
        self.world.sometimes(f"scenario.{self.kind}.{what}")

    def time(self, least_ms: int, most_ms: int) -> int:
        """Some time in between, mostly coarse."""
        return self.draws.between(least_ms, most_ms) * MILLISECOND

    def retain(self) -> int:
        """The longest time for which the brokers are sure to keep what is not acknowledged; 0: for ever."""
        seconds = self.world.options.max_retain_seconds
        return 0 if seconds is None else int(seconds * 1000) * MILLISECOND
