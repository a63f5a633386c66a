"""What durable subscriptions cost one SHB: its real core, driven as a node drives it, with a disk that is always quick.

Subscriptions are registered until there are `--count`, of which `--connected` stay attached, a hundred to a
session. On the way, at a hundredth, a tenth and the whole of the count, is measured what one more costs, and an
event that matches five of them however many there are. Three kinds of subscription, each in a broker of its own:

- equality: `account = 'A17' AND amount > 3`;
- range: `price BETWEEN 17 AND 21.5`;
- topic: an own topic for each five.

Times are processor time. At the end, of the first kind: a checkpoint with nothing to say, one while every
subscription has an event that it has not acknowledged, a list of all, and a restart.

    python -m bench subscriptions [--json] [--count 100000] [--connected 10000]
"""

from __future__ import annotations

import gc
import random
import sqlite3
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from bench.processes import table
from gapless.core.network import facts as r
from gapless.core.ports import (
    VOLUME_LOG,
    Chop,
    ClientSession,
    Delete,
    LogFacts,
    Operation,
    Put,
    Read,
    ReadResult,
    RoleContext,
    Set,
    Tell,
    Transmit,
    Write,
)
from gapless.core.principals import NOBODY
from gapless.core.stream.columns import EventBatch
from gapless.core.stream.events import encode_event
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.ticks import SECOND, STEP, tick_at
from gapless.core.wire import messages as m
from gapless.security.allow_all import AllowAll
from gapless_shb.core.broker import SubscriberHostingBroker, Timing

MATCHES = 5
"""How many subscriptions match an event."""
PER_SESSION = 100
SAMPLES = 200
"""How many subscriptions are registered and removed for a figure."""
ROUNDS = 30
BATCH = 64
PUBEND = "bench@1"
WALL = 1_800_000_000_000


@dataclass(frozen=True)
class Kind:
    """A kind of subscription, and the events that match."""

    topic: Callable[[int], str]
    selector: Callable[[int], str]
    event: Callable[[int], tuple[str, dict[str, float | str]]]
    """The event that the n-th subscription matches, with four others."""


KINDS = {
    "equality": Kind(
        lambda _: "orders",
        lambda n: f"account = 'A{n // MATCHES}' AND amount > {n % MATCHES}",
        lambda n: ("orders", {"account": f"A{n // MATCHES}", "amount": 10}),
    ),
    "range": Kind(
        lambda _: "orders",
        lambda n: f"price BETWEEN {n} AND {n + MATCHES - 0.5}",
        lambda n: ("orders", {"price": max(n, MATCHES) + 0.25}),
    ),
    "topic": Kind(
        lambda n: f"orders.{n // MATCHES}",
        lambda _: "",
        lambda n: (f"orders.{n // MATCHES}", {"amount": 10}),
    ),
}


class Disk:
    """What a broker has written, in a file: so it is no part of the memory that is measured."""

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path, isolation_level=None)
        self._database.execute("PRAGMA synchronous = OFF")
        self._database.execute("PRAGMA journal_mode = MEMORY")
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS pairs (space, key, value, PRIMARY KEY (space, key)) WITHOUT ROWID"
        )

    def apply(self, operation: Operation) -> None:
        """One operation of a write."""
        if isinstance(operation, Set):
            row = (operation.table, operation.key, operation.value)
            self._database.execute("INSERT OR REPLACE INTO pairs VALUES (?, ?, ?)", row)
        elif isinstance(operation, Put):
            row = (operation.stream, operation.index.to_bytes(8, "big"), operation.record)
            self._database.execute("INSERT INTO pairs VALUES (?, ?, ?)", row)
        elif isinstance(operation, Delete):
            self._database.execute("DELETE FROM pairs WHERE space = ? AND key = ?", (operation.table, operation.key))
        else:
            assert isinstance(operation, Chop)
            self.apply(Set("chopped", operation.stream.encode(), operation.upto.to_bytes(8, "big")))

    def close(self) -> None:
        """It is not needed any more."""
        self._database.close()

    # What a role may read while it is made.

    def scan(self, table: str, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """All pairs of a table; nobody asks for a prefix here."""
        assert not prefix
        yield from self._database.execute("SELECT key, value FROM pairs WHERE space = ? ORDER BY key", (table,))

    def records(self, stream: str, after: int = 0) -> Iterator[tuple[int, bytes]]:
        """All records of a stream above `after`."""
        for key, record in self.scan(stream):
            if int.from_bytes(key, "big") > max(after, self._first(stream)):
                yield int.from_bytes(key, "big"), record

    def _first(self, stream: str) -> int:
        return int.from_bytes(dict(self.scan("chopped")).get(stream.encode(), b""), "big")

    def given_up(self, stream: str) -> tuple[tuple[int, int], ...]:
        """Nothing was given up."""
        return ()

    def facts(self, log: str) -> LogFacts:
        """Where a stream begins and ends."""
        return LogFacts(log, self._first(log), max((index for index, _ in self.records(log)), default=0), VOLUME_LOG)

    def size(self, stream: str) -> int:
        """A stream's bytes."""
        return sum(len(record) for _, record in self.records(stream))


class Host:
    """One SHB core with one pubend, and what is around it."""

    def __init__(self, disk: Disk) -> None:
        self.now, self.wall = 10**9, WALL
        self.stable = tick_at(WALL)
        self._disk = disk
        self._enrolled = False
        self.sids: dict[tuple[int, int], int] = {}
        """What the broker answered to a request of a session."""
        self.delivered = 0
        self.listed = 0
        context = RoleContext("shb", "bench", "bench", "volume", disk, self.now, self.wall, b"secret", AllowAll())
        self.core = SubscriberHostingBroker(context, Timing())
        self._requests = self.core.requests()
        self._handlers = self.core.handlers()
        self.core.start(self.now, self.wall)
        self._pump()

    def ask(self, session: int, request: m.ClientMessage) -> None:
        """A client asks, in a turn of the node for itself, and everything that follows happens."""
        self.now += 1
        self._requests[type(request)](
            ClientSession(session, "bench", f"i{session}", NOBODY), request, self.now, self.wall
        )
        self._pump()

    def publish(self, rows: list[tuple[str, dict[str, float | str]]]) -> None:
        """Events come, in one piece of knowledge."""
        lo, ticks = self.stable, [self.stable + (at + 1) * STEP for at in range(len(rows))]
        self.stable = ticks[-1]
        events = [encode_event(topic, properties, None, b"x" * 100) for topic, properties in rows]
        batch = EventBatch(ticks, events, [100] * len(rows))
        knowledge = Knowledge(PUBEND, lo, self.stable, batch)
        self._handlers[r.Know](r.Know(knowledge), self.now, self.wall)
        self._pump()

    def silence(self) -> None:
        """A second in which nothing is published."""
        lo, self.stable = self.stable, self.stable + SECOND
        self._handlers[r.Know](r.Know(Knowledge(PUBEND, lo, self.stable)), self.now, self.wall)
        self.pass_time(1_000)

    def pass_time(self, milliseconds: int) -> None:
        """Deadlines come."""
        self.now += milliseconds * 1_000_000
        self.wall += milliseconds
        while (due := self.core.deadline()) is not None and due <= self.now:
            self.core.on_deadline(self.now, self.wall)
            self._pump()

    def _pump(self) -> None:
        while effects := self.core.take_effects(self.now, self.wall):
            for effect in effects:
                if isinstance(effect, Write):
                    self._write(effect)
                elif isinstance(effect, Read):
                    self.core.on_read(ReadResult(effect.cookie, self._read(effect), 0), self.now, self.wall)
                elif isinstance(effect, Transmit):
                    self.delivered += len(effect.payloads)
                elif isinstance(effect, Tell):
                    self._told(effect.session, effect.message)
                elif isinstance(effect, r.Interest):
                    self._see()
                elif isinstance(effect, r.Hold):
                    held = r.Held(effect.shb, effect.pubend, effect.version, dict(effect.at))
                    self._handlers[r.Held](held, self.now, self.wall)

    def _write(self, write: Write) -> None:
        for operation in write.operations:
            self._disk.apply(operation)
        if write.cookie is not None:
            self.core.on_durable(write.cookie, self.now, self.wall)

    def _read(self, read: Read) -> list[tuple[int, bytes]]:
        records: list[tuple[int, bytes]] = []
        for index, record in self._disk.records(read.stream, read.after):
            records.append((index, record))
            if index >= read.upto or len(records) >= 64:
                break
        return records

    def _told(self, session: int, message: object) -> None:
        if isinstance(message, m.Subscribed):
            self.sids[session, message.request] = message.sid
        elif isinstance(message, m.SubscriptionList):
            self.listed += len(message.rows)
        assert not isinstance(message, m.RequestFailed), message

    def _see(self) -> None:
        if not self._enrolled:
            self._enrolled = True
            meta = r.PubendMeta(PUBEND, "bench", created=self.stable, stable=self.stable)
            self._handlers[r.Seen](r.Seen(meta, self.stable), self.now, self.wall)


class Work:
    """Subscriptions of one kind at one host."""

    def __init__(self, kind: Kind, host: Host) -> None:
        self.kind = kind
        self.host = host
        self.count = 0
        self._generator = random.Random(1)  # noqa: S311  # the same events in every run

    def register(self, *, stays: bool) -> float:
        """One more subscription, whose consumer stays or goes; returns how long that took, in microseconds."""
        number, self.count = self.count, self.count + 1
        session = 1 + number // PER_SESSION
        request = subscribe(number + 1, self.kind.topic(number), self.kind.selector(number), f"subscription-{number}")
        started = time.process_time()
        self.host.ask(session, request)
        if not stays:
            self.host.ask(session, m.Detach(self.host.sids.pop((session, number + 1))))
        return 1e6 * (time.process_time() - started)

    def remove(self) -> float:
        """Removes the newest one."""
        self.count -= 1
        request = m.Unsubscribe(1, f"subscription-{self.count}", "bench")
        started = time.process_time()
        self.host.ask(1, request)
        return 1e6 * (time.process_time() - started)

    def publish(self, events: int) -> None:
        """Events, each of which matches five."""
        self.host.publish([self.kind.event(self._generator.randrange(self.count)) for _ in range(events)])

    def publish_and_checkpoint(self) -> None:
        """An event, and what follows it at the next checkpoint."""
        self.publish(1)
        self.host.pass_time(250)

    def list_all(self) -> None:
        """A list of all, in as many parts as it takes."""
        self.host.ask(1, m.ListSubscriptions(1))
        while self.host.listed < self.count:
            self.host.pass_time(1)

    def publish_to_all(self) -> None:
        """Each subscription gets one event, or a few."""
        for first in range(0, self.count, MATCHES * BATCH):
            self.host.publish([self.kind.event(n) for n in range(first, min(first + MATCHES * BATCH, self.count), 5)])


def subscribe(request: int, topic: str, selector: str, name: str) -> m.Subscribe:
    """A request to create a durable subscription."""
    start, in_use = m.StartAt.LATEST, m.InUse.ERROR
    return m.Subscribe(request, name, (topic,), selector, start, 0, None, 0, 0, b"", [], in_use, 1 << 30, 1 << 40)


def add_options(parser: ArgumentParser) -> None:
    """How many."""
    parser.add_argument("--count", type=int, default=100_000, metavar="N", help="durable subscriptions")
    parser.add_argument("--connected", type=int, default=10_000, metavar="N", help="how many of them are consumed")
    parser.add_argument("--kinds", default=",".join(KINDS), metavar="A,B", help=f"of {', '.join(KINDS)}")


def run(*, json: bool, count: int, connected: int, kinds: str) -> dict[str, float]:
    """Measures each kind, and what concerns them all with the first; each in a process of its own."""
    figures: dict[str, float] = {}
    for at, name in enumerate(kinds.split(",")):
        with TemporaryDirectory(prefix="gapless-bench-") as directory:
            path = Path(directory) / "disk"
            found = _in_process(_measured, name, path, count, connected, whole=at == 0)
            if at == 0:
                found |= _in_process(_restart, path, count)
        figures |= {f"{name}_{key}": value for key, value in found.items()}
    if not json:
        table(f"{count:,} durable subscriptions at one SHB, {connected:,} of them connected", figures)
    return figures


def _in_process(work: Callable[..., dict[str, float]], *arguments: object, **options: bool) -> dict[str, float]:
    """Memory that another part has used and given back would not be seen to be taken."""
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(work, arguments, options)


def _measured(name: str, path: Path, count: int, connected: int, *, whole: bool) -> dict[str, float]:
    disk = Disk(path)
    work = Work(KINDS[name], Host(disk))
    before = _resident_bytes()
    figures: dict[str, float] = {}
    for size in (count // 100, count // 10, count):
        while work.count < size:
            work.register(stays=work.count % (count // connected) == 0)
            if work.count % 1_000 == 0:
                work.host.silence()
        work.host.silence()
        taken = (_resident_bytes() - before) / size
        figures |= {f"{key}_at_{size}": value for key, value in _one_more(work).items()}
    figures |= _ratios(figures, count)
    figures["memory_bytes_per_subscription"] = taken
    figures["memory_bytes_per_subscription_after_events"] = (_resident_bytes() - before) / count
    if whole:
        figures |= _of_all(work)
    disk.close()
    return figures


def _one_more(work: Work) -> dict[str, float]:
    """What one more subscription costs, and what an event, alone and in a batch."""
    for _ in range(3):
        work.publish(1)
        work.publish(BATCH)
    registering = [work.register(stays=False) for _ in range(SAMPLES)]
    churn = []
    for _ in range(SAMPLES // 10):
        work.register(stays=False)
        churn.append(_microseconds(lambda: work.publish(1)))
    removing = [work.remove() for _ in range(len(registering) + len(churn))]
    work.host.silence()
    return {
        "register_us": median(registering),
        "remove_us": median(removing),
        "event_alone_us": min(_microseconds(lambda: work.publish(1)) for _ in range(ROUNDS)),
        "event_in_batch_us": min(_microseconds(lambda: work.publish(BATCH)) / BATCH for _ in range(ROUNDS)),
        "event_after_change_us": median(churn),
    }


def _ratios(figures: dict[str, float], count: int) -> dict[str, float]:
    names = ("register_us", "remove_us", "event_alone_us", "event_in_batch_us", "event_after_change_us")
    return {
        f"{name[:-3]}_ratio": figures[f"{name}_at_{count}"] / figures[f"{name}_at_{count // 100}"] for name in names
    }


def _of_all(work: Work) -> dict[str, float]:
    """Checkpoints, and a list."""
    host = work.host
    host.pass_time(10_000)
    idle = [_microseconds(lambda: host.pass_time(5_000)) for _ in range(5)]
    work.publish_to_all()
    host.pass_time(10_000)
    pinned = [_microseconds(work.publish_and_checkpoint) for _ in range(5)]
    listing = _microseconds(work.list_all)
    return {
        "checkpoint_of_nothing_ms": median(idle) / 1e3,
        "event_and_checkpoint_while_all_are_pinned_ms": median(pinned) / 1e3,
        "list_s": listing / 1e6,
    }


def _restart(path: Path, count: int) -> dict[str, float]:
    disk = Disk(path)
    before = _resident_bytes()
    started = time.process_time()
    host = Host(disk)
    recovering = time.process_time() - started
    taken = (_resident_bytes() - before) / count
    host.silence()
    return {"restart_s": recovering, "memory_bytes_per_subscription_after_restart": taken}


def _microseconds(call: Callable[[], object]) -> float:
    started = time.process_time()
    call()
    return 1e6 * (time.process_time() - started)


def _resident_bytes() -> int:
    gc.collect()
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return 1024 * int(line.split()[1])
    return 0
