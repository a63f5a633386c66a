"""Gateways over one model Kafka: what they tell of its log, and what becomes of what is published through them.

A world has a topic with one partition, some gateways (PHB cores), publishers, and strangers. Everything happens in an
order that a seed draws: answers of the log are late, appends are lost, late, or doubled; leaders change;
transactions are open, committed and aborted; gateways lose their power, or their volume, and take publishing over. In
the end all that is healed, and `Judge` looks at what was told (KI1 to KI3, KI6).

SHBs, routers and networks are not in it: what they do with such a pubend is what they do with any.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from random import Random
from typing import Any, Final

from gapless.core.network.facts import (
    AskPubend,
    Know,
    Opened,
    OpenRequest,
    Pub,
    Submit,
    SubmitOpen,
    Submitted,
    Verdict,
    Want,
)
from gapless.core.ports import (
    Append,
    Appended,
    Follow,
    Grown,
    Locate,
    Located,
    LogCapabilities,
    LogPiece,
    LogRead,
    LogsFound,
    LogStart,
    NumberedLog,
    OpenLogs,
    ReadLog,
    RoleContext,
    Taken,
    Uncertain,
    Write,
)
from gapless.core.stream.columns import EventColumns
from gapless.core.stream.events import encode_event
from gapless.core.stream.ticks import EPOCH_MS, Tick
from gapless.node.commit import VolumeWriter
from gapless.node.recovery import VolumeReader
from gapless.security.allow_all import AllowAll
from gapless.spi import VolumeIdentity
from gapless_log.kafka.format import KafkaFormat, joined
from gapless_log.kafka.lineage import Lineage, tick_at
from gapless_log.kafka.mapping import Rules
from gapless_log.kafka.messages import Fetch, FetchFrom
from gapless_log.kafka.records import Compression, NewRecord, batches, encode, records
from gapless_log.kafka.tail import PartitionLog, pieces_of
from gapless_phb.core.broker import PublisherHostingBroker
from gapless_phb.core.settings import Settings
from gapless_sim.world.kafka_model import Cluster, Partition, by_producer
from gapless_storage.memory_disk import MemoryDisk

LOG: Final = "orders.0@id"
TOPIC: Final = "orders"
NANOSECONDS: Final = 1_000_000
RECORD_MAX: Final = 4000
STEPS_OF_REST: Final = 4000


@dataclass(frozen=True)
class Assertion:
    """What a gateway told of one tick."""

    gateway: str
    body: bytes | None
    """None: it is silent."""


class Gateway:
    """A PHB core on a disk of its own, and the plugin's side of its conversation with the log."""

    def __init__(self, world: World, name: str, *, publishes: bool) -> None:
        self.world = world
        self.name = name
        self.publishes = publishes
        self.volumes = 0
        self.lives = 0
        self.disk = MemoryDisk(durable=True)
        self.is_up = False
        self.start()

    def start(self) -> None:
        """It recovers from its disk."""
        self.lives += 1
        identity = VolumeIdentity("network", self.name)
        self.volume = self.disk.open(identity)
        self._writer = VolumeWriter(self.volume)
        self.unsynced: deque[Write] = deque()
        self.questions: list[Any] = []
        """What the log was asked and has not answered."""
        self.log = PartitionLog(LOG, self.world.topic_id, 0)
        self._described: object = None
        self.is_up = True
        world = self.world
        context = RoleContext(
            "phb", self.name, "network", f"storage-{self.name}-{self.volumes}", VolumeReader(self.volume),
            world.now, world.wall, b"secret", AllowAll(), roles=frozenset({"phb"}),
        )  # fmt: skip
        self.role = PublisherHostingBroker(context, Settings(pubends=(), logs=(OpenLogs("model", {}, (TOPIC,), {}),)))
        self.role.start(world.now, world.wall)
        self.pump()

    def crash(self, *, with_its_volume: bool) -> None:
        """Its power fails; perhaps its disk is gone, too."""
        self.is_up = False
        self.disk.crash()
        if with_its_volume:
            self.volumes += 1
            self.disk = MemoryDisk(durable=True)

    def feed(self, message: object) -> None:
        """Somebody says something to it."""
        self.role.handlers()[type(message)](message, self.world.now, self.world.wall)
        self.pump()

    def pump(self) -> None:
        """Does what it asks for."""
        while effects := self.role.take_effects(self.world.now, self.world.wall):
            for effect in effects:
                if isinstance(effect, Write):
                    self._writer.write(effect.operations)
                    self.unsynced.append(effect)
                elif isinstance(effect, OpenLogs | Follow | ReadLog | Locate | Append):
                    self.questions.append(effect)
                elif isinstance(effect, Taken):
                    assert self.log.following is not None
                    self.log.following.pending -= effect.size
                elif isinstance(effect, Know):
                    self.world.judge.hear(self.name, effect)
                elif isinstance(effect, Opened):
                    self.world.judge.voids |= set(effect.meta.voids)
                elif isinstance(effect, Submitted):
                    effect.reply_to(effect)  # type: ignore[operator]

    def sync(self) -> None:
        """Its oldest write is durable."""
        write = self.unsynced.popleft()
        self.volume.sync(self.disk.written - sum(bool(each.operations) for each in self.unsynced))
        self.role.on_durable(write.cookie, self.world.now, self.world.wall)
        self.pump()

    def tick(self) -> None:
        """Time has passed."""
        due = self.role.deadline()
        if due is not None and due <= self.world.now:
            self.role.on_deadline(self.world.now, self.world.wall)
            self.pump()

    # -------------------------------------------------------------------------------- the plugin's side

    def describe(self) -> None:
        """Tells of the log, if something of it has changed."""
        log, partition = self.log, self.world.partition
        refuses = "" if self.publishes else "another one publishes"
        found = log.first, log.lineage.voids, refuses
        if found == self._described:
            return
        self._described = found
        decided = max(log.lineage.position(partition.stable), log.first)
        can = LogCapabilities("log", alone=False, atomic=False, timed=False, trims=False, record_max=RECORD_MAX)
        rules = Rules(TOPIC, "key", None, {}, {}).encode()
        numbered = NumberedLog(
            LOG, "orders@id", TOPIC, log.first, decided, log.lineage.voids, can, KafkaFormat(TOPIC), rules, refuses, ()
        )
        self.feed(LogsFound([numbered]))

    def relearn(self) -> None:
        """Asks for the log's start and its lineage anew."""
        partition = self.world.partition
        self.log.start = partition.start
        self.log.lineage = Lineage(partition.begins)
        self.log.leader_epoch = partition.epoch
        self.describe()
        self.log.seek()

    def fetch(self) -> None:
        """Asks for what it follows, once."""
        wanted = self.log.wanted()
        if wanted is None:
            return
        answer = self.world.broker.ask(
            Fetch((wanted,), True, 0, 1, self.world.random.choice([1, 300, 1 << 20])), has_waited=True
        )
        (fetched,) = answer.partitions
        if fetched.diverging is not None or fetched.code.value:
            self.relearn()
            return
        grown, is_other, fault = self.log.grow(fetched)
        assert not fault, fault
        if is_other:
            self.relearn()
        elif grown is None:
            self.describe()
        if grown is not None:
            self.world.judge.fetched(self.name, grown)
            self.feed(grown)

    def answer(self, number: int) -> None:
        """The log answers one of its questions."""
        question = self.questions.pop(number)
        if isinstance(question, OpenLogs):
            self.relearn()
        elif isinstance(question, Follow):
            self.log.follow(question.after, question.window)
        elif isinstance(question, ReadLog):
            self._read(question)
        elif isinstance(question, Locate):
            partition = self.world.partition
            self.relearn()
            offset = partition.high_watermark if question.at is LogStart.LATEST else partition.stable
            self.feed(Located(question.cookie, max(self.log.lineage.position(offset), self.log.first)))
        else:
            self._append(question)

    def _read(self, question: ReadLog) -> None:
        log = self.log
        place = log.place_of(question.after)
        size = self.world.random.choice([1, 400, 1 << 20])
        start = FetchFrom(log.topic_id, 0, place.offset, log.leader_epoch, place.last_epoch, size)
        (fetched,) = self.world.broker.ask(Fetch((start,), True, 0, 1, size), has_waited=True).partitions
        if fetched.diverging is not None or fetched.code.value or self.world.fails("read"):
            self.relearn()
            self.feed(LogRead(question.cookie, question.after, question.after, (), log.first, "not now"))
            return
        log.start = max(log.start, fetched.first)
        found = pieces_of(fetched.records, fetched.aborted, place.offset, log.start)
        covered = max(question.after, log.first) if place.offset <= log.start else question.after
        pieces = []
        for piece in found.pieces:
            if piece.first > question.upto:
                covered = question.upto
                break
            pieces.append(piece)
            covered = max(covered, piece.last)
        covered = max(min(log.lineage.behind(covered), question.upto), question.after)
        self.feed(LogRead(question.cookie, question.after, covered, pieces, log.first, ""))

    def _append(self, append: Append) -> None:
        world, fate = self.world, self.world.fate()
        batch = joined(append.records, world.wall)

        def land() -> Sequence[Tick]:
            first, epoch = world.partition.append(batch), world.partition.epoch
            ends = accumulate((next(batches(raw)).record_count for raw in append.records), initial=first)
            return [tick_at(epoch, end) for end in list(ends)[1:]]

        if fate == "lost":
            self.feed(Uncertain(append.cookie, "nobody answers"))
        elif fate == "late":
            world.late.append(land)
            self.feed(Uncertain(append.cookie, "nobody answers"))
        elif fate == "unanswered":
            land()
            self.feed(Uncertain(append.cookie, "nobody answers"))
        else:
            if fate == "doubled":
                world.late.append(land)
            self.feed(Appended(append.cookie, land()))


class Publisher:
    """An application with a name: it sends the next batch when the one before is answered, or some ahead."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.lives = 0
        self.sent = 0
        """How many batches all its lives have made."""
        self.begin_anew()

    def begin_anew(self) -> None:
        """Another process of the application opens the name."""
        self.lives += 1
        self.attempt = 0
        self.epoch = 0
        self.is_open = False
        self.is_opening = False
        self.unanswered: deque[tuple[int, list[bytes]]] = deque()
        """First sequence and bodies of batches that have no receipt."""
        self.next = 0
        self.at: Gateway | None = None
        self.at_life = 0
        """Which life of that gateway it is at."""

    @property
    def instance(self) -> str:
        """Of this life."""
        return f"{self.name}-{self.lives}"

    @property
    def is_connected(self) -> bool:
        """Whether the gateway that it is at still runs, and publishes."""
        return self.at is not None and self.at.is_up and self.at.publishes and self.at.lives == self.at_life

    def open(self) -> None:
        """Opens its name at the gateway that publishes."""
        gateway = self.world.publishing
        if gateway is None or (self.is_opening and self.is_connected):
            return
        self.at, self.at_life, self.is_opening, self.is_open = gateway, gateway.lives, True, False
        self.attempt += 1
        life, attempt = self.lives, self.attempt
        pubend = LOG if self.epoch else ""
        request = OpenRequest(self.name, self.instance, self.attempt, TOPIC, pubend, self.epoch, principal="")
        gateway.feed(SubmitOpen(request, lambda submitted: self._opened(life, attempt, submitted)))

    def _opened(self, life: int, attempt: int, submitted: Submitted) -> None:
        if life != self.lives or attempt != self.attempt:
            return
        self.is_opening = False
        outcome = submitted.outcome
        if outcome.verdict is Verdict.FENCED:
            self.begin_anew()
        if outcome.verdict is not Verdict.OK:
            return
        self.is_open, self.epoch = True, outcome.epoch
        self.next = self.next or outcome.sequence + 1
        if self.unanswered and self.unanswered[0][0] > outcome.sequence + 1:
            if not self.world.judge.cut:
                text = f"KI6: {self.name} is told {outcome.sequence}, and waits for {self.unanswered[0][0]} on"
                self.world.judge.fail(text)
            self.begin_anew()  # what it had receipts for was cut off
        for first, bodies in list(self.unanswered):
            self._submit(first, bodies)

    def send(self) -> None:
        """Makes a batch, and sends it."""
        if not self.is_open or len(self.unanswered) >= 3:
            return
        self.sent += 1
        count = self.world.random.choice([1, 1, 2, 5])
        bodies = [f"{self.name}/{self.lives}/{self.sent}/{number}".encode() for number in range(count)]
        self.unanswered.append((self.next, bodies))
        self.next += count
        self._submit(*self.unanswered[-1])

    def _submit(self, first: int, bodies: list[bytes]) -> None:
        if self.at is None or not self.is_connected:
            self.is_open = False
            return
        columns = EventColumns.of([encode_event(TOPIC, {}, None, body) for body in bodies], map(len, bodies))
        pub = Pub(self.name, self.epoch, first, columns, LOG, b"", principal="")
        life, attempt = self.lives, self.attempt
        self.at.feed(Submit(pub, lambda submitted: self._answered(life, attempt, first, bodies, submitted)))

    def _answered(self, life: int, attempt: int, first: int, bodies: list[bytes], submitted: Submitted) -> None:
        outcome = submitted.outcome
        if outcome.verdict is Verdict.OK:
            self.world.judge.receipted(self.name, first, bodies, outcome.ticks)
        if life != self.lives:
            return
        if outcome.verdict is Verdict.OK:
            self.unanswered = deque(each for each in self.unanswered if each[0] != first)
        elif outcome.verdict in {Verdict.FENCED, Verdict.INVALID}:
            self.begin_anew()  # its events may be lost to another attempt: the application looks what is there
        elif attempt == self.attempt:
            self.is_open = False


class World:
    """All of it, in an order that follows from the seed."""

    def __init__(self, seed: int, *, unclean: bool) -> None:
        """`unclean`: elections may cut the end of the log."""
        self.random = Random(seed)  # noqa: S311 - no secret
        self.unclean = unclean
        self.now = 0
        self.wall = EPOCH_MS + 1000
        self.cluster = Cluster(2)
        topic = self.cluster.create(TOPIC, 1, {})
        self.topic_id = topic.id
        self.partition: Partition = topic.partitions[0]
        for broker in self.cluster.brokers:
            broker.learn()
        self.late: list[Callable[[], object]] = []
        """Appends that arrive late."""
        self.healed = False
        self.judge = Judge(self)
        self.gateways = [Gateway(self, "a", publishes=True), Gateway(self, "b", publishes=False)]
        self.publishers = [Publisher(self, f"p{number}") for number in range(2)]
        self._transactions = 0

    @property
    def broker(self) -> Any:
        """The leader."""
        return next(broker for broker in self.cluster.brokers if broker.id == self.partition.leader)

    @property
    def publishing(self) -> Gateway | None:
        """The gateway that publishes, if it is up and has found the log."""
        found = [each for each in self.gateways if each.publishes and each.is_up and each.log.following is not None]
        return found[0] if found else None

    def fails(self, _what: str) -> bool:
        """Whether something fails now."""
        return not self.healed and self.random.random() < 0.05

    def fate(self) -> str:
        """What becomes of an append."""
        return "good" if self.healed else self.random.choice(["good"] * 6 + ["lost", "late", "unanswered", "doubled"])

    def run(self, steps: int) -> list[str]:
        """Runs it, heals it, and returns what is wrong."""
        for _ in range(steps):
            self._step()
            self._fault()
            if self.judge.faults:
                return self.judge.faults
        self._heal()
        for _ in range(STEPS_OF_REST):
            self._step()
            if self.judge.faults or self._is_quiet():
                break
        else:
            self.judge.fail("KI4: it does not come to rest")
        self._ask_for_all()
        self.judge.judge()
        return self.judge.faults

    def _step(self) -> None:
        """One of all that can happen."""
        self.now += self.random.choice([1, 5, 50, 500]) * NANOSECONDS
        self.wall += 10
        can: list[Callable[[], object]] = []
        for gateway in self.gateways:
            if gateway.is_up:
                can.append(gateway.fetch)
                can.append(gateway.tick)
                if gateway.unsynced:
                    can += [gateway.sync] * 2
                if gateway.questions:
                    number = self.random.randrange(len(gateway.questions))
                    if isinstance(gateway.questions[0], OpenLogs):
                        number = 0
                    can += [lambda gateway=gateway, number=number: gateway.answer(number)] * 2  # type: ignore[misc]
            elif self.healed or self.random.random() < 0.3:
                can.append(gateway.start)
        for publisher in self.publishers:
            if not publisher.is_open or not publisher.is_connected:
                can.append(publisher.open)
            elif not self.healed:
                can.append(publisher.send)
        if not self.healed:
            can.append(self._strange)
            can += self.late and [self._arrive]
            can.append(lambda: self.judge.ask(self.random))
        elif self.late:
            can.append(self._arrive)
        self.random.choice(can)()

    def _arrive(self) -> None:
        self.late.pop(self.random.randrange(len(self.late)))()

    def _strange(self) -> None:
        """A stranger appends, within a transaction or not; or one of the transactions ends."""
        partition, kind = self.partition, self.random.randrange(5)
        raw = encode([NewRecord(self.wall, None, b"stranger", ())] * self.random.choice([1, 3]), Compression.NONE)
        if kind == 0:
            self._transactions += 1
            partition.append(by_producer(raw, self._transactions))
        elif kind == 1 and partition.open:
            producer = self.random.choice(sorted(partition.open))
            partition.end_transaction(producer, commits=self.random.random() < 0.5)
        elif kind == 2:
            partition.append(raw)

    def _fault(self) -> None:
        drawn = self.random.random()
        gateway = self.random.choice(self.gateways)
        if drawn < 0.006 and gateway.is_up:
            gateway.crash(with_its_volume=self.random.random() < 0.3)
        elif drawn < 0.010:
            self.cluster.elect(self.partition, is_clean=True)
        elif drawn < 0.013 and self.unclean:
            if self.partition.copied is None:
                self.partition.lag(waits=False)
            else:
                self.judge.note_cut()
                self.cluster.elect(self.partition, is_clean=False)
        elif drawn < 0.015:
            for each in self.gateways:
                each.publishes = not each.publishes
                if each.is_up and each.log.following is not None:
                    each.describe()
        elif drawn < 0.018:
            self.random.choice(self.publishers).begin_anew()

    def _heal(self) -> None:
        self.healed = True
        self.partition.copy()
        for producer in list(self.partition.open):
            self.partition.end_transaction(producer, commits=True)
        for gateway in self.gateways:
            if gateway.is_up and gateway.log.following is not None:
                gateway.relearn()

    def _ask_for_all(self) -> None:
        """Everybody is asked for the whole log once more."""
        for gateway in self.gateways:
            if gateway.is_up and gateway.log.following is not None:
                ranges = ((0, gateway.log.following.reached),)
                gateway.feed(AskPubend(Want(LOG, ranges, None, "shb", again=False), "all"))
            for _ in range(STEPS_OF_REST):
                if gateway.questions:
                    gateway.answer(0)

    def _is_quiet(self) -> bool:
        return (
            not self.late
            and all(each.is_up and not each.questions and not each.unsynced for each in self.gateways)
            and all(
                each.log.following is not None
                and not each.log.following.pending
                and each.log.following.reached >= each.log.lineage.position(self.partition.stable)
                for each in self.gateways
            )
            and all(each.is_open and each.is_connected and not each.unanswered for each in self.publishers)
        )


@dataclass
class Judge:
    """Notes what was told, and compares it with the log."""

    world: World
    faults: list[str] = field(default_factory=list)
    told: dict[Tick, bytes] = field(default_factory=dict)
    """Every event that was told, by its tick."""
    silent: list[tuple[str, Tick, Tick, frozenset[Tick]]] = field(default_factory=list)
    """Every range that was told, by whom, and the ticks of its events."""
    receipts: dict[tuple[str, int], tuple[bytes, Tick]] = field(default_factory=dict)
    cut: set[Tick] = field(default_factory=set)
    """The ticks of records that an election has cut off."""
    voids: set[tuple[Tick, Tick]] = field(default_factory=set)
    bytes_followed: dict[str, int] = field(default_factory=dict)
    by_gateway: dict[str, set[Tick]] = field(default_factory=dict)
    """The ticks of all events that each gateway has told."""

    def fail(self, what: str) -> None:
        """Something is wrong."""
        self.faults.append(what)

    def hear(self, gateway: str, know: Know) -> None:
        """A gateway tells something."""
        knowledge = know.knowledge
        data = knowledge.data
        for tick, event, length in zip(data.ticks, data.events, data.body_lengths, strict=True):
            body = event[len(event) - length :]
            before = self.told.setdefault(tick, body)
            if before != body:
                self.fail(f"KI1: {gateway} tells {body!r} of tick {tick}, which was {before!r}")
        self.by_gateway.setdefault(gateway, set()).update(data.ticks)
        self.silent.append((gateway, knowledge.lo, knowledge.hi, frozenset(data.ticks)))

    def fetched(self, gateway: str, grown: Grown) -> None:
        """A gateway has fetched what it follows."""
        self.bytes_followed[gateway] = self.bytes_followed.get(gateway, 0) + grown.size

    def ask(self, random: Random) -> None:
        """An SHB asks a gateway for some of the past."""
        gateway = random.choice(self.world.gateways)
        if not gateway.is_up or gateway.log.following is None:
            return
        reached = gateway.log.following.reached
        ticks = sorted(tick for tick in self.told if tick <= reached)
        if len(ticks) < 2:
            return
        at = random.randrange(len(ticks) - 1)
        lo = ticks[at] - random.randrange(3)
        gateway.feed(
            AskPubend(
                Want(
                    LOG,
                    ((max(lo, 0), ticks[min(at + random.randrange(1, 6), len(ticks) - 1)]),),
                    None,
                    "shb",
                    again=False,
                ),
                "shb",
            )
        )

    def receipted(self, name: str, first: int, bodies: list[bytes], ticks: Sequence[Any]) -> None:
        """A publisher has a receipt."""
        places = [run.first + number * run.step for run in ticks for number in range(run.count)]
        for number, body in enumerate(bodies):
            tick = places[number] if places else 0
            known, known_tick = self.receipts.get((name, first + number), (body, tick))
            if known_tick in self.cut or (self.cut and not known_tick):
                known, known_tick = body, tick  # what it was a receipt for is gone
            self.receipts[name, first + number] = known, known_tick or tick
            if known != body:
                self.fail(f"KI6: {name} has two receipts for {first + number}: {known!r} and {body!r}")
            if tick and known_tick and tick != known_tick:
                self.fail(f"KI6: {name} has receipts for {first + number} at {known_tick} and at {tick}")

    def note_cut(self) -> None:
        """The end of the log, of which no other broker has a copy, is about to be cut off.

        With a marker the decision about its transaction is gone: another one may follow, as if none had been told.
        """
        partition = self.world.partition
        if partition.copied is None:
            return
        gone = [batch for batch in partition.log if batch.last >= partition.copied]
        undecided = {batch.producer_id for batch in gone if batch.is_control}
        gone += [batch for batch in partition.log if batch.is_transactional and batch.producer_id in undecided]
        for batch in gone:
            self.cut |= {tick_at(batch.leader_epoch, offset + 1) for offset in range(batch.first, batch.last + 1)}

    def judge(self) -> None:
        """Compares all that was told with the log as it is in the end."""
        truth = dict(self._truth())
        for tick, body in self.told.items():
            if tick not in self.cut and truth.get(tick) != body:
                self.fail(f"KI3: {body!r} was told of tick {tick}, where the log has {truth.get(tick)!r}")
        ticks = sorted(truth)
        for gateway, lo, hi, events in self.silent:
            missed = [tick for tick in ticks if lo < tick <= hi and tick not in events and tick not in self.cut]
            if missed:
                self.fail(f"KI1: {gateway} tells silence of tick {missed[0]}, where the log has {truth[missed[0]]!r}")
        for tick in ticks:
            if any(tick not in told for told in self.by_gateway.values()):
                self.fail(f"KI4: a gateway does not tell {truth[tick]!r} of tick {tick}")
        by_body: dict[bytes, list[Tick]] = {}
        for tick, body in truth.items():
            if body != b"stranger":
                by_body.setdefault(body, []).append(tick)
        for body, found in by_body.items():
            if len(found) > 1:
                self.fail(f"KI6: {body!r} is in the log {len(found)} times: {found}")
        for (name, sequence), (body, tick) in self.receipts.items():
            if tick in self.cut or (not tick and self.cut):
                continue
            if body not in by_body or (tick and by_body[body] != [tick]):
                self.fail(f"KI6: {name} has a receipt for event {sequence}, {body!r}, at {tick}: {by_body.get(body)}")

    def _truth(self) -> list[tuple[Tick, bytes]]:
        """Every event that the log has, with its tick: what is committed, and in no duplicate."""
        found: list[tuple[Tick, bytes]] = []
        met: list[tuple[Tick, Any]] = []
        form = KafkaFormat(TOPIC)
        rules = Rules(TOPIC, "key", None, {}, {}).encode()
        for batch, counts in self.world.partition.committed():
            if not counts:
                continue
            low = tick_at(batch.leader_epoch, batch.first + 1)
            _, marks = form.decode(LogPiece(low, low + batch.record_count - 1, batch.raw), rules)
            silent: set[Tick] = set()
            for tick, mark in marks:
                is_duplicate = any(
                    mark.after < at < tick
                    and other.publisher == mark.publisher
                    and (
                        other.epoch > mark.epoch
                        or (other.first + other.count > mark.first and (mark.begins or other.epoch == mark.epoch))
                    )
                    for at, other in met
                )
                met.append((tick, mark))
                silent |= set(range(tick, tick + mark.count)) if is_duplicate else set()
            for record in records(batch):
                tick = tick_at(batch.leader_epoch, record.offset + 1)
                if tick not in silent:
                    found.append((tick, record.value or b""))
        return found
