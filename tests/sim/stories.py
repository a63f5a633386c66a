"""Stories: short schedules without chance, each of which goes straight into one trap of sessions (docs: traps).

A node that hosts everything, a few clients, and somebody who says what they do and when they die. Random worlds find
the same traps, and others; a story shows one to a reader, and finds it within a moment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

from gapless.core.wire.messages import InUse, StartAt
from gapless.core.wire.tokens import CheckpointToken
from gapless_sim.recording.accounts import Logged
from gapless_sim.recording.observation import Oracle
from gapless_sim.recording.trace import Trace
from gapless_sim.search.result import Failure
from gapless_sim.search.run import come_right, watched
from gapless_sim.workloads.churn_application import SecondProcess
from gapless_sim.world.application import SimClient
from gapless_sim.world.choices import Choices
from gapless_sim.world.committing import CommittingConsumer, GatheringConsumer
from gapless_sim.world.consumer import Consumer, Row
from gapless_sim.world.options import MILLISECOND, SECOND, NetworkFaults, Options
from gapless_sim.world.producer import Outbox, Producer, Publication
from gapless_sim.world.transactions import Input, Session
from gapless_sim.world.transform import Recipe, Transform
from gapless_sim.world.world import World
from gapless_sim.world.world_builder import build

LOOK = MILLISECOND // 4
TOPIC = "a"


def _is_input(event: Logged) -> bool:
    return event.publication.topic == TOPIC


class OneByOne(CommittingConsumer):
    """Consumes as `AckMode.AUTO` does, and takes an event when it is told to."""

    def take(self) -> None:
        """Takes the next event, once it may."""
        self.stopped = False
        self.go_on()

    def _take_one(self) -> bool:
        if super()._take_one():
            self.stopped = True
        return False


class Gathering(OneByOne, GatheringConsumer):
    """The same as `AckMode.CLIENT` has it."""


class Stored(Oracle):
    """Hears what transforms are told."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.tokens: list[CheckpointToken] = []
        world.observe.add(self)

    def stored(self, producer: Transform, token: CheckpointToken) -> None:
        """A position is durable with a publisher."""
        self.tokens.append(token)


class Stage:
    """A world in which nothing goes wrong by itself."""

    def __init__(self) -> None:
        options = Options(1, router="local", clients=2, min_retain_seconds=60.0, network=NetworkFaults(bytewise=0.0))
        self.world = build(options, Choices(1, {}), Trace(keep=True))
        self.node = self.world.brokers["node1"]
        self.first, self.writer = self.world.clients.values()
        self.rival = SecondProcess(self.first)
        """Another process of the first client."""
        self.world.clients[self.rival.name] = self.rival
        self.producer: Producer | None = None
        self.transactions = count(1)
        self.stored = Stored(self.world).tokens
        """The positions that transforms were told are stored."""
        self._outbox = Outbox("letters", TOPIC)
        self._rows = 0

    def begin(self) -> None:
        """Everything runs, and the publisher is open."""
        self.node.boot()
        for client in self.world.clients.values():
            client.start()
        self.producer = Producer(self.writer, self._outbox)
        assert self.until(lambda: self.producer is not None and self.producer.open)

    def lose_link(self) -> None:
        """The first process loses its connection, and may connect again."""
        links = list(self.world.network.client_links.values())
        for link in links:
            if link.client is self.first:
                link.reset("connection reset")

    def run(self, milliseconds: int) -> None:
        """Time passes."""
        self.world.run_until(self.world.now + milliseconds * MILLISECOND)

    def stall(self) -> None:
        """For a while nothing becomes durable."""
        self.node.stall(self.world.now + SECOND // 2)

    def until(self, come: Callable[[], object], seconds: int = 20) -> bool:
        """Until something has come about, to a fraction of a millisecond. Returns whether it has."""
        end = self.world.now + seconds * SECOND
        while self.world.now < end and not come():
            self.world.run_until(self.world.now + LOOK)
        return bool(come())

    def row(self, name: str = "s") -> Row:
        """A subscription whose position the broker keeps; it is there when this returns."""
        self._rows += 1
        row = Row(self._rows, self.first.name, name, (TOPIC,), "", _is_input, StartAt.LATEST)
        row.keeps_token = False
        maker = Consumer(self.first, row, row.wanted(), acknowledges="never")
        assert self.until(lambda: maker.attached)
        maker.leave()
        self.run(100)
        return row

    def publish(self, *keys: int) -> None:
        """Events with these keys, all of them durable."""
        producer = self.producer
        assert producer is not None
        self._outbox.publications += [Publication(key, TOPIC, {}) for key in keys]
        assert self.until(lambda: not producer.over and producer.open)
        producer.publish(len(keys))
        assert self.until(lambda: not producer.waiting)

    def consume(self, row: Row, client: SimClient | None = None, kind: type[OneByOne] = OneByOne) -> OneByOne:
        """A process consumes it, and takes nothing yet."""
        asked: Mapping[str, Any] = {"commits": True, "gathers": kind is Gathering}
        consumer = kind(client or self.first, row, row.wanted(in_use=InUse.TAKEOVER, **asked), portion=1)
        consumer.stopped = True
        self.until(lambda: consumer.attached)
        return consumer

    def take(self, consumer: OneByOne) -> None:
        """A consumer takes an event; it has it in hand when this returns."""
        handed = consumer.in_hand
        consumer.take()
        self.until(lambda: consumer.stopped and (consumer.in_hand or handed))

    def die(self, *clients: SimClient, node: bool = True) -> None:
        """Processes die, in one moment with the node that they talk to; what was not synced is gone. They come back."""
        if node:
            self.node.crash()
        for client in clients or (self.first,):
            client.crash()
        self.run(100)
        self.node.boot()
        for client in clients or (self.first,):
            client.start()
        self.until(lambda: self.node.listening)


Story = Callable[[Stage], None]


def failure_of(story: Story) -> Failure | None:
    """Plays a story to its end, after which everything must come right."""
    stage = Stage()

    def play(_: object) -> None:
        stage.begin()
        story(stage)
        come_right(stage.world)

    return watched(stage.world, play)


# ----------------------------------------------------------------------------------- the position at the broker


def a_commit_is_repeated(stage: Stage) -> None:
    """TS1: its link breaks, it is done with what it has in hand, comes back, and dies with the node."""
    row = stage.row()
    consumer = stage.consume(row)
    stage.publish(1, 2)
    stage.take(consumer)
    stage.world.network.cut(stage.first.name, stage.node.name)
    stage.world.network.reset_some(lambda _: 0)
    stage.run(50)
    consumer.take()
    stage.run(50)
    stage.world.network.heal(stage.first.name, stage.node.name)
    stage.until(lambda: consumer.in_hand)
    stage.die()
    read_on(stage, row)


def an_answer_comes_first(stage: Stage) -> None:
    """TS2: client and node die together, with the first event in hand."""
    row = stage.row()
    stage.publish(1)
    stage.stall()
    stage.take(stage.consume(row))
    stage.die()
    read_on(stage, row)


def an_event_kills(stage: Stage) -> None:
    """TS3, TS4: it is in hand whenever client and node die together."""
    row = stage.row()
    stage.publish(1)
    for _ in range(4):
        consumer = stage.consume(row)
        stage.stall()
        stage.take(consumer)
        stage.die()
    read_on(stage, row)


def somebody_looks_in(stage: Stage) -> None:
    """TS3: a process dies with an event in hand, and the next one leaves before it has taken anything."""
    row = stage.row()
    stage.publish(1)
    stage.take(stage.consume(row))
    stage.die(node=False)
    stage.consume(row).leave()
    stage.run(100)
    read_on(stage, row)


def processes_die_while_they_start(stage: Stage) -> None:
    """TS5: they never see the event that was taken once."""
    row = stage.row()
    stage.publish(1)
    for _ in range(2):
        stage.take(stage.consume(row))
        stage.die(node=False)
    for _ in range(3):
        stage.consume(row)
        stage.die(node=False)
    read_on(stage, row)


def read_on(stage: Stage, row: Row) -> None:
    """A process takes all there is."""
    consumer = CommittingConsumer(stage.first, row, row.wanted(in_use=InUse.TAKEOVER, commits=True))
    stage.until(lambda: consumer.attached)
    stage.run(1_000)


# ------------------------------------------------------------------------------------------------- transforms


def transforming(stage: Stage) -> Recipe:
    """A program that makes one output of event 1, two of event 2, and none of event 3."""
    row = stage.row()
    return Recipe(1, row, Outbox("made", "output", common=True))


def transform(stage: Stage, client: SimClient, recipe: Recipe, portion: int = 1) -> Transform:
    """A process runs it."""
    made = Transform(client, recipe, portion=portion, pace=0)
    made.on_over = lambda *_: None
    stage.until(lambda: made.working)
    return made


def receipts_are_lost(stage: Stage) -> None:
    """TS6: two batches are logged, and sent again because their receipts did not arrive."""
    recipe = transforming(stage)
    made = transform(stage, stage.first, recipe)
    stage.world.network.cut(stage.node.name, stage.first.name)
    assert made.consumer is not None
    made.consumer.stopped = True
    stage.world.network.heal(stage.node.name, stage.first.name)
    stage.publish(1, 2)
    stage.run(50)
    stage.world.network.cut(stage.node.name, stage.first.name)
    made.consumer.go_on()
    stage.run(50)
    stage.lose_link()
    stage.world.network.heal(stage.node.name, stage.first.name)
    stage.run(2_000)


def rivals_make_the_same(stage: Stage) -> None:
    """TS7: one makes it of events 1 and 3, stands still before it sends it, and the other one makes it of event 1."""
    recipe = transforming(stage)
    slow = transform(stage, stage.first, recipe, portion=2)
    slow.on_made = lambda: stage.first.pause(SECOND)
    stage.publish(1, 3)
    stage.run(50)
    transform(stage, stage.rival, recipe)
    stage.run(3_000)


def a_rival_begins_while_a_batch_is_written(stage: Stage) -> None:
    """TS8, TS9: it opens the publisher, and attaches the input, before the batch of the other one is durable."""
    recipe = transforming(stage)
    made = transform(stage, stage.first, recipe)
    assert made.consumer is not None
    made.consumer.stopped = True
    stage.publish(1)
    stage.stall()
    made.consumer.go_on()
    stage.run(2)
    stage.first.crash()  # or else it acknowledges the input before the rival has confirmed that it takes it over
    transform(stage, stage.rival, recipe)
    stage.run(1_000)


def a_transform_dies(stage: Stage) -> None:
    """TS10, TS11: with its node, when it has the receipt of what it made."""
    recipe = transforming(stage)
    transform(stage, stage.first, recipe)
    stage.publish(1)
    stage.until(lambda: stage.stored)
    stage.die()
    transform(stage, stage.first, recipe)
    stage.run(1_000)


# ----------------------------------------------------------------------------------------------- transactions


def session_of(stage: Stage, client: SimClient, *rows: Row) -> Session:
    """A transacted session, which consumes these and takes an event of each as it comes."""
    numbers = stage.transactions
    session = Session(client, ["output.x"], lambda: next(numbers))
    for row in rows:
        Input(session, row, row.wanted(in_use=InUse.TAKEOVER, commits=True), pace=0, portion=1)
    stage.until(lambda: all(each.attached for each in session.inputs.values()))
    return session


def took(stage: Stage, session: Session, inputs: int = 1) -> None:
    """A session has something of so many inputs in hand."""
    stage.until(lambda: len(session.transaction.consumed) >= inputs)


def commit(stage: Stage, session: Session, outputs: int) -> None:
    """A session commits what it has in hand."""
    session.commit(outputs, 0)
    stage.until(lambda: not session.is_committing)


def a_home_dies_behind_a_commit(stage: Stage) -> None:
    """TS12, TS13: before it hears of the first transaction that was stored with outputs."""
    row = stage.row()
    session = session_of(stage, stage.first, row)
    stage.publish(1)
    took(stage, session)
    commit(stage, session, 1)
    stage.die()
    commit_the_rest(stage, row)


def a_commit_comes_late(stage: Stage) -> None:
    """TS13: a process stands still with its commit unsent, and its rival consumes and commits the same."""
    row = stage.row()
    slow = session_of(stage, stage.first, row)
    stage.publish(1)
    took(stage, slow)
    commit(stage, slow, 1)
    stage.publish(2)
    took(stage, slow)
    stage.first.pause(SECOND)
    slow.commit(1, 0)
    rival = session_of(stage, stage.rival, row)
    took(stage, rival)
    commit(stage, rival, 1)
    stage.run(3_000)


def a_receipt_of_tokens_is_lost(stage: Stage) -> None:
    """TS6: a transaction of two inputs is stored; its process is not told so, and its rival takes over meanwhile."""
    rows = [stage.row("s"), stage.row("t")]
    session = session_of(stage, stage.first, *rows)
    stage.publish(1)
    took(stage, session, 2)
    commit(stage, session, 0)
    stage.publish(2)
    took(stage, session, 2)
    stage.world.network.cut(stage.node.name, stage.first.name)
    session.commit(0, 0)
    stage.run(50)
    rival = session_of(stage, stage.rival, *rows)
    stage.lose_link()
    stage.world.network.heal(stage.node.name, stage.first.name)
    stage.run(3_000)
    commit(stage, rival, 0)


def commit_the_rest(stage: Stage, row: Row) -> None:
    """A process takes all there is, and commits it."""
    session = session_of(stage, stage.first, row)
    stage.run(500)
    commit(stage, session, 0)


STORIES: Mapping[str, Story] = {
    "repeated_commit_is_not_durable": a_commit_is_repeated,
    "commit_record_written_after_the_answer": an_answer_comes_first,
    "no_doubt_after_an_unclean_end": an_event_kills,
    "attempt_is_not_durable": an_event_kills,
    "doubt_ends_with_who_found_it": somebody_looks_in,
    "attachments_count_as_attempts": processes_die_while_they_start,
    "token_before_repetition": receipts_are_lost,
    "hash_without_tokens": rivals_make_the_same,
    "tokens_at_opening": a_rival_begins_while_a_batch_is_written,
    "input_attached_before_opening": a_rival_begins_while_a_batch_is_written,
    "input_acknowledged_early": a_transform_dies,
    "token_in_a_write_of_its_own": a_transform_dies,
    "enlisted_before_durable": a_home_dies_behind_a_commit,
    "position_of_the_home_alone": a_home_dies_behind_a_commit,
    "claims_fence_nobody": a_commit_comes_late,
    "tokens_alone_not_recognised": a_receipt_of_tokens_is_lost,
}
"""By the switch that each is to find. Two switches of TS11 and TS13 need more chance than a story has."""
