"""A PHB core in a small world: a volume that forgets what was not synced, two clocks, and publishers.

Ticks are written `ms`, `ms.counter` or, off the grid of a pubend's own ticks, `ms.counter+rest`, where ms
counts from the beginning of the world; so a transcript can be read aloud.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from gapless.core.alarms import Alarm
from gapless.core.gauges import values_by
from gapless.core.network.facts import (
    AskPubend,
    Ending,
    Enrol,
    Enrolled,
    Held,
    Hold,
    Know,
    Opened,
    OpenRequest,
    Outcome,
    Probe,
    Pub,
    Released,
    Submit,
    SubmitOpen,
    Submitted,
    Verdict,
    Want,
)
from gapless.core.ports import (
    VOLUME_LOG,
    AllowAll,
    Append,
    Appended,
    Authorizer,
    Chop,
    ClientSession,
    Delete,
    LogCapabilities,
    LogFacts,
    Read,
    ReadResult,
    RoleContext,
    Set,
    Tell,
    Write,
)
from gapless.core.stream.columns import EventColumns
from gapless.core.stream.events import encode_event
from gapless.core.stream.ticks import EPOCH_MS, MILLISECOND, STEP, Tick
from gapless.errors import RecordsDamagedError
from gapless.spi import GivenUp
from gapless_phb.core import gauges, rows
from gapless_phb.core.broker import PublisherHostingBroker
from gapless_phb.core.publishers import term_of
from gapless_phb.core.settings import PubendSettings, Settings

BEGINNING = 1000
"""Milliseconds since 2020 at which every world begins."""
NANOSECONDS = 1_000_000
"""In a millisecond."""
NO_RETENTION = PubendSettings("default", min_retain_seconds=0, min_retain_bytes=0)


# ------------------------------------------------------------------------------------------- the volume


@dataclass
class Stream:
    """What is left of a stream, in order."""

    records: list[tuple[int, bytes]] = field(default_factory=list)
    first: int = 0
    last: int = 0
    unreadable: set[int] = field(default_factory=set)
    """Indexes of records that cannot be read."""
    given_up: list[tuple[int, int]] = field(default_factory=list)

    def read(self, after: int, upto: int, max_bytes: int) -> list[tuple[int, bytes]]:
        """As `gapless.spi.LogStream.read`."""
        return list(GivenUp("s", self.given_up).read(after, upto, partial(self._read, max_bytes=max_bytes)))

    def _read(self, after: int, upto: int, max_bytes: int) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        for index, record in self.records:
            if index > after:
                if index in self.unreadable:
                    if found:
                        break
                    whole = (one for one, _ in self.records if one > index and one not in self.unreadable)
                    raise RecordsDamagedError("it is rotten", after, next(whole, self.last + 1) - 1, given_up=False)
                found.append((index, record))
                if index >= upto or sum(len(raw) for _, raw in found) >= max_bytes:
                    break
        return found


@dataclass
class Content:
    """Everything on a disk; also what a role reads when it is made (`RecoveryReader`)."""

    streams: dict[str, Stream] = field(default_factory=dict)
    tables: dict[str, dict[bytes, bytes]] = field(default_factory=dict)
    capabilities: LogCapabilities = VOLUME_LOG

    def copy(self) -> Content:
        """An independent copy; the bytes are shared."""
        streams = {name: replace(one, records=list(one.records)) for name, one in self.streams.items()}
        return Content(streams, {name: dict(table) for name, table in self.tables.items()})

    def apply(self, write: Write) -> None:
        """Does all of a write."""
        for operation in write.operations:
            if isinstance(operation, Append):
                stream = self.streams.setdefault(operation.log, Stream())
                for index, record in zip(operation.indices or (), operation.records, strict=True):
                    assert index > stream.last, "indices strictly increase"
                    stream.records.append((index, record))
                    stream.last = index
            elif isinstance(operation, Chop):
                stream = self.streams.setdefault(operation.stream, Stream())
                stream.first = max(stream.first, operation.upto)
                stream.records = [record for record in stream.records if record[0] > operation.upto]
            elif isinstance(operation, Set):
                self.tables.setdefault(operation.table, {})[operation.key] = operation.value
            elif isinstance(operation, Delete):
                self.tables.setdefault(operation.table, {}).pop(operation.key, None)

    def scan(self, table: str, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        pairs = sorted(self.tables.get(table, {}).items())
        return iter([(key, value) for key, value in pairs if key.startswith(prefix)])

    def records(self, stream: str, after: int = 0) -> Iterator[tuple[int, bytes]]:
        log = self.streams.get(stream, Stream())
        while found := log.read(after, log.last, 1):
            yield from found
            after = found[-1][0]

    def given_up(self, stream: str) -> Sequence[tuple[int, int]]:
        return self.streams.get(stream, Stream()).given_up

    def facts(self, log: str) -> LogFacts:
        stream = self.streams.get(log, Stream())
        return LogFacts(log, stream.first, stream.last, self.capabilities)

    def size(self, stream: str) -> int:
        return sum(len(record) for _, record in self.streams.get(stream, Stream()).records)


@dataclass
class Volume:
    """A disk. What is written is visible at once, and durable once it is synced; a crash takes the rest."""

    durable: Content = field(default_factory=Content)
    visible: Content = field(default_factory=Content)
    unsynced: list[Write] = field(default_factory=list)

    def write(self, write: Write) -> None:
        """Applies a write; only a sync makes it durable."""
        self.visible.apply(write)
        self.unsynced.append(write)

    def sync(self, count: int) -> list[Write]:
        """The oldest `count` writes are on the disk."""
        synced, self.unsynced = self.unsynced[:count], self.unsynced[count:]
        for write in synced:
            self.durable.apply(write)
        return synced

    def crash(self, keep: int = 0) -> None:
        """Power fails. The oldest `keep` of the unsynced writes happen to be on the disk all the same."""
        self.sync(keep)
        self.unsynced = []
        self.visible = self.durable.copy()


# -------------------------------------------------------------------------------------------- the world


class Harness:
    """A PHB, its volume and its clocks. Effects that leave the process are kept in `said`."""

    def __init__(self, *pubends: PubendSettings, **settings: Any) -> None:
        self.settings = Settings(pubends=pubends or (NO_RETENTION,), **settings)
        self.volume = Volume()
        self.now = 0
        self.wall = EPOCH_MS + BEGINNING
        self.storage_id = "storage-1"
        self.roles = frozenset({"phb"})
        self.rules: Authorizer = AllowAll()
        self.reads: list[Read] = []
        self.said: list[object] = []
        self.phb: PublisherHostingBroker
        self.boot()

    # What the machine does.

    def boot(self) -> None:
        """Makes the broker from what is on the disk, and starts it; nothing is synced yet."""
        context = RoleContext(
            "broker",
            "network",
            self.storage_id,
            self.volume.visible,
            self.now,
            self.wall,
            b"secret",
            self.rules,
            roles=self.roles,
        )
        self.reads.clear()
        self.phb = PublisherHostingBroker(context, self.settings)
        self.phb.start(self.now, self.wall)
        self.settle()

    def crash(self, keep: int = 0) -> None:
        """Power fails, and the broker comes back."""
        self.volume.crash(keep)
        self.boot()

    def sync(self, count: int | None = None) -> list[object]:
        """The oldest writes, or all, become durable, as one group. Returns what is said then."""
        before = len(self.said)
        for write in self.volume.sync(len(self.volume.unsynced) if count is None else count):
            self.written(write, self.now)
        self.settle()
        return self.said[before:]

    def written(self, write: Write, now: int) -> None:
        """The broker hears that a write is durable."""
        for operation in write.operations:
            if isinstance(operation, Append):
                self.phb.handlers()[Appended](Appended(operation.cookie, operation.indices or ()), now, self.wall)
        self.phb.on_durable(write.cookie, now, self.wall)

    def read(self, count: int | None = None) -> list[object]:
        """Answers the oldest reads, or all there will be. Returns what is said then."""
        before = len(self.said)
        while self.reads and (count is None or count > 0):
            self.answer(self.perform(self.reads.pop(0)))
            count = None if count is None else count - 1
        return self.said[before:]

    def perform(self, read: Read) -> ReadResult:
        """Reads; the chop point is sampled as well."""
        stream = self.volume.visible.streams.get(read.stream, Stream())
        try:
            records = stream.read(max(read.after, stream.first), read.upto, read.max_bytes)
        except RecordsDamagedError as error:
            return ReadResult(read.cookie, (), stream.first, str(error), error.upto)
        return ReadResult(read.cookie, records, stream.first)

    def answer(self, result: ReadResult) -> list[object]:
        """A read is answered."""
        before = len(self.said)
        self.phb.on_read(result, self.now, self.wall)
        self.settle()
        return self.said[before:]

    def advance(self, ms: int, *, wall: bool = True, sync: bool = True) -> list[object]:
        """Time passes, and what becomes due is done at its time. `wall` False: that clock stands still."""
        before = len(self.said)
        end = self.now + ms * NANOSECONDS
        while (due := self.phb.deadline()) is not None and due <= end:
            self._pass(max(due, self.now), wall=wall)
            self.phb.on_deadline(self.now, self.wall)
            self.settle()
            if sync:
                self.sync()
        self._pass(end, wall=wall)
        return self.said[before:]

    def _pass(self, now: int, *, wall: bool) -> None:
        if wall:
            self.wall += now // NANOSECONDS - self.now // NANOSECONDS
        self.now = now

    def settle(self) -> None:
        """Does what the broker asks for."""
        for effect in self.phb.take_effects():
            if isinstance(effect, Write):
                self.volume.write(effect)
            elif isinstance(effect, Read):
                self.reads.append(effect)
            else:
                self.said.append(effect)

    # What routers and clients say.

    def tell(self, message: object) -> list[object]:
        """A router says something to the broker. Returns what is said at once."""
        before = len(self.said)
        self.phb.handlers()[type(message)](message, self.now, self.wall)
        self.settle()
        return self.said[before:]

    def request(self, message: object) -> list[object]:
        """A client asks something."""
        before = len(self.said)
        session = ClientSession(1, "client", "instance", "somebody")
        self.phb.requests()[type(message)](session, message, self.now, self.wall)
        self.settle()
        return self.said[before:]

    def ask(self, *ranges: tuple[Tick, Tick], reply_to: str = "shb") -> list[object]:
        """An SHB wants ranges."""
        return self.tell(AskPubend(Want(self.pubend, ranges, None, "shb"), reply_to))

    def enrol(self, shb: str) -> list[object]:
        return self.tell(Enrol(self.pubend, shb))

    def hold(self, shb: str, version: int, at: Mapping[int, Tick]) -> list[object]:
        return self.tell(Hold(shb, self.pubend, version, at))

    def release(self, released: Tick, delivered: Tick | None = None) -> list[object]:
        """The router says minima; if time must pass before the broker chops, it passes."""
        return self.tell(Released(self.pubend, released, released if delivered is None else delivered))

    # Looking.

    @property
    def pubend(self) -> str:
        """The only pubend, or the first."""
        return self.pubends[0]

    @property
    def pubends(self) -> list[str]:
        return list(values_by(self.phb.gauges(), gauges.SEALED, "pubend"))

    def status(self, pubend: str | None = None) -> dict[str, Any]:
        """The gauges of a pubend by what is between `gapless_pubend_` and the unit; those of SHBs by the SHB."""
        status: dict[str, Any] = {"members": {}, "holds": {}, "hold_bytes": {}}
        for gauge in self.phb.gauges():
            labels = dict(gauge.labels)
            if labels.get("pubend") != (pubend or self.pubend):
                continue
            name = gauge.name.removeprefix("gapless_pubend_").removesuffix("_ticks")
            if "shb" in labels:
                status[{"member": "members", "hold": "holds"}.get(name, name)][labels["shb"]] = gauge.value
            else:
                status[name] = gauge.value
        return status

    def stream(self) -> Stream:
        """The visible log of the pubend."""
        return self.volume.visible.streams.get(f"phb.{self.pubend}", Stream())

    def row(self, table: str, name: str = "") -> bytes | None:
        """A durable row of pubend number 0."""
        return self.volume.durable.tables.get(table, {}).get(rows.key(0, name))

    def publisher(self, name: str = "ann") -> TestPublisher:
        """A publisher that is open, durably; ten milliseconds later."""
        publisher = TestPublisher(self, name)
        publisher.open()
        self.sync()
        publisher.opened()
        self.advance(10)
        return publisher


class TestPublisher:
    """An SDK's publisher, reduced: it numbers its events and says whatever it is told to."""

    __test__ = False

    def __init__(self, harness: Harness, name: str, instance: str = "i1") -> None:
        self.harness = harness
        self.name = name
        self.instance = instance
        self.attempt = 0
        self.pubend = ""
        self.epoch = 0
        self.next = 1

    def open(self, topic: str | None = None, *, attempt: int | None = None) -> list[object]:
        """Opens; a newer attempt each time, unless one is given."""
        self.attempt = self.attempt + 1 if attempt is None else attempt
        request = OpenRequest(self.name, self.instance, self.attempt, topic, self.pubend, principal="anonymous")
        return self.harness.tell(SubmitOpen(request, self))

    def end(self, ending: Ending) -> list[object]:
        """Is closed, or its session has ended."""
        request = OpenRequest(
            self.name, self.instance, self.attempt, None, self.pubend, self.epoch, ending, principal="anonymous"
        )
        return self.harness.tell(SubmitOpen(request, "end"))

    def come_back(self) -> list[object]:
        """Opens in another session, naming the epoch that it had."""
        self.opened()
        self.attempt += 1
        request = OpenRequest(
            self.name, self.instance, self.attempt, None, self.pubend, self.epoch, principal="anonymous"
        )
        self.epoch = 0
        return self.harness.tell(SubmitOpen(request, self))

    def take(self, submitted: Submitted) -> None:
        """The answer to an opening."""
        self.pubend, self.epoch = submitted.pubend, submitted.outcome.epoch
        self.next = submitted.outcome.sequence + 1

    def send(self, count: int = 1, *, text: str = "", reply_to: object = "reply") -> list[object]:
        """Sends the next events."""
        self.opened()
        first, self.next = self.next, self.next + count
        return self.repeat(first, count, text=text, reply_to=reply_to)

    def repeat(self, first: int, count: int = 1, *, text: str = "", reply_to: object = "reply") -> list[object]:
        """Sends events under given sequences."""
        self.opened()
        return self.harness.tell(Submit(self.batch(first, count, text), reply_to))

    def batch(self, first: int, count: int, text: str = "") -> Pub:
        """The batch of these sequences; its content follows from them."""
        events = columns([body(self.name, sequence, text) for sequence in range(first, first + count)])
        return Pub(self.name, self.epoch, first, events, self.pubend, principal="anonymous")

    def opened(self) -> None:
        """Takes the answer to its opening, if there is one and it was not taken."""
        if not self.epoch:
            answers = [one for one in self.harness.said if isinstance(one, Submitted) and one.reply_to is self]
            if answers and answers[-1].outcome.verdict is Verdict.OK:
                self.take(answers[-1])


def body(publisher: str, sequence: int, text: str = "") -> bytes:
    """The body of a test's event."""
    return f"{publisher}/{sequence}{text}".encode()


def columns(bodies: Sequence[bytes], topic: str = "topic") -> EventColumns:
    """Events with these bodies."""
    events = [encode_event(topic, {"size": len(one)}, None, one) for one in bodies]
    return EventColumns.of(events, map(len, bodies))


# ------------------------------------------------------------------------------------------ what is said


def at(ms: int, counter: int = 0) -> Tick:
    """The tick of a millisecond of the world."""
    return ms * MILLISECOND + counter * STEP


def spell(tick: Tick) -> str:
    """A tick, written as this module says."""
    ms, rest = divmod(tick, MILLISECOND)
    counter, rest = divmod(rest, STEP)
    return f"{ms}" + (f".{counter}" if counter or rest else "") + (f"+{rest}" if rest else "")


def epoch(term: int, opening: int = 0) -> int:
    """The epoch of an opening of the instance with a term; the first one is 0."""
    return (term << 24) + opening


def spell_epoch(number: int) -> str:
    """An epoch as `term`, or as `term.opening` of an instance that has opened again."""
    opening = number - epoch(term_of(number))
    return f"{term_of(number)}" + (f".{opening}" if opening else "")


def bodies(data: Any) -> str:
    """The bodies of a batch and their ticks."""
    pairs = zip(data.ticks, data.events, data.body_lengths, strict=True)
    return " ".join(f"{spell(tick)}={event[len(event) - length :].decode()}" for tick, event, length in pairs)


def lines(effects: Sequence[object]) -> list[str]:
    """Effects as lines to read."""
    return [line(effect) for effect in effects]


def line(effect: object) -> str:
    """An effect as a line to read."""
    if isinstance(effect, Know):
        k = effect.knowledge
        what = [f"({spell(k.lo)}, {spell(k.hi)}]", bodies(k.data) or "silence"]
        lost = [f"lost={spell(k.lost)}"] if k.lost else []
        return " ".join([f"answer {effect.reply_to}:" if k.reply else "know", *what, *lost])
    if isinstance(effect, Submitted):
        return _submitted(effect.reply_to, effect.outcome)
    if isinstance(effect, Opened):
        members = " ".join(f"{shb}@{spell(tick)}" for shb, tick in effect.members.items())
        return f"opened stable={spell(effect.meta.stable)} members: {members or 'none'}"
    if isinstance(effect, Enrolled):
        return f"enrolled {effect.shb} at {spell(effect.at)}"
    if isinstance(effect, Held):
        held = " ".join(f"{sid}@{spell(tick)}" for sid, tick in effect.at.items())
        return f"held {effect.shb} version {effect.version}: {held or 'nothing'}"
    if isinstance(effect, Probe):
        return f"probe up to {spell(effect.upto)}"
    if isinstance(effect, Alarm):
        return f"alarm: {effect.text}"
    assert isinstance(effect, Tell)
    return f"tell {effect.session}: {effect.message}"


def _submitted(reply_to: object, outcome: Outcome) -> str:
    who = reply_to.name if isinstance(reply_to, TestPublisher) else str(reply_to)
    runs = ",".join(spell(run.first) + (f"×{run.count}" if run.count > 1 else "") for run in outcome.ticks)
    parts = [f"{who}: {outcome.verdict.value}"]
    parts += [f"epoch {spell_epoch(outcome.epoch)}"] if outcome.epoch else []
    parts += [f"sequence {outcome.sequence}"]
    parts += [f"ticks {runs}"] if runs else []
    parts += [f"({outcome.reason})"] if outcome.reason else []
    return " ".join(parts)


def knows(effects: Sequence[object]) -> list[Know]:
    """The knowledge among effects."""
    return [effect for effect in effects if isinstance(effect, Know)]


def outcomes(effects: Sequence[object]) -> list[Outcome]:
    """The outcomes among effects."""
    return [effect.outcome for effect in effects if isinstance(effect, Submitted)]


def with_settings(harness: Harness, **changes: Any) -> None:
    """Changes the configuration: the next boot takes it."""
    harness.settings = replace(harness.settings, **changes)
