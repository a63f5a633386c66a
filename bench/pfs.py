"""The PFS beside the two ways of old: the microbenchmark of the durable-subscriptions paper (DSN'03).

80,000 events of 418 bytes, 800 a second; 100 subscriptions, of which 25 at random match each event; a sync
each second of events; what is older than five seconds is removed. Who matched is drawn beforehand, and not
part of what is timed. The same RocksDB volume, on a new directory for each way and round:

- per subscriber: each match puts the event and its 12-byte key into a log of the subscription's own;
- paper: one record a tick, `8 + 16 n` bytes;
- blocks: the PFS itself, in steps of `STEP` events as a busy broker's network hands them over.

    python -m bench pfs [--json]
"""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import TypeAlias

from bench.processes import medians, table
from gapless.core.ports import Operation, Put, Set
from gapless.core.stream.ticks import MILLISECOND, SECOND, Tick
from gapless.spi import Create, LogVolume, VolumeIdentity
from gapless_shb.core.pfs.index import Pfs, stream_name
from gapless_storage.rocksdb import open_storage

EVENTS = 80_000
RATE = 800
SUBSCRIPTIONS = 100
MATCHES = 25
EVENT = random.Random(2).randbytes(418)  # noqa: S311  # the same event in every run
KEEP = 5
"""How many seconds of events are kept."""
STEP = 16
ROUNDS = 3
KEY_BYTES = 12
"""What the volume adds to each record: its stream, and its index."""
_HEAD = Struct("<Q")
_PAIR = Struct("<QQ")
_BEGINNING = 200_000_000 * SECOND


@dataclass(frozen=True)
class Second:
    """What one second brings: its ticks, and who matches each."""

    ticks: Sequence[Tick]
    matched: Sequence[Sequence[int]]
    steps: Sequence[tuple[Sequence[Tick], dict[int, int]]]
    """The same as the matcher tells it: for some ticks together, which of them each subscription matches."""


def workload() -> list[Second]:
    """The same in every run."""
    generator = random.Random(1)  # noqa: S311
    seconds = []
    for second in range(EVENTS // RATE):
        ticks = [_BEGINNING + second * SECOND + at * SECOND // RATE // MILLISECOND * MILLISECOND for at in range(RATE)]
        ticks = [tick + (at & 1) * 1024 for at, tick in enumerate(ticks)]
        matched = [sorted(generator.sample(range(SUBSCRIPTIONS), MATCHES)) for _ in ticks]
        steps = [(ticks[at : at + STEP], _masks(matched[at : at + STEP])) for at in range(0, RATE, STEP)]
        seconds.append(Second(ticks, matched, steps))
    return seconds


def _masks(matched: Sequence[Sequence[int]]) -> dict[int, int]:
    masks: dict[int, int] = {}
    for at, sids in enumerate(matched):
        for sid in sids:
            masks[sid] = masks.get(sid, 0) | 1 << at
    return masks


class PerSubscriber:
    """A log of events for each subscription."""

    def __init__(self) -> None:
        self._streams = [f"subscription/{sid}" for sid in range(SUBSCRIPTIONS)]

    def write(self, second: Second) -> Iterable[Operation]:
        """Each event once per subscription that matches it."""
        streams = self._streams
        return [
            Put(streams[sid], tick, EVENT)
            for tick, sids in zip(second.ticks, second.matched, strict=True)
            for sid in sids
        ]

    def chop(self, volume: LogVolume, before: Tick) -> None:
        """Every log."""
        for stream in self._streams:
            volume.stream(stream).chop(before)


class PaperRecords:
    """The paper's record: a tick, and n times a subscription and where its record before is."""

    def __init__(self) -> None:
        self._previous = [0] * SUBSCRIPTIONS

    def write(self, second: Second) -> Iterable[Operation]:
        """A record each tick."""
        return [
            Put("pfs/paper", tick, self._record(tick, sids))
            for tick, sids in zip(second.ticks, second.matched, strict=True)
        ]

    def _record(self, tick: Tick, sids: Sequence[int]) -> bytes:
        previous, pack = self._previous, _PAIR.pack
        record = _HEAD.pack(tick) + b"".join([pack(sid, previous[sid]) for sid in sids])
        for sid in sids:
            previous[sid] = tick
        return record

    def chop(self, volume: LogVolume, before: Tick) -> None:
        """The one log."""
        volume.stream("pfs/paper").chop(before)


class Blocks:
    """What an SHB does."""

    def __init__(self) -> None:
        self._pfs = Pfs("bench@1", MILLISECOND, 0, 0)
        self._last = dict.fromkeys(range(SUBSCRIPTIONS), _BEGINNING)

    def write(self, second: Second) -> Iterable[Operation]:
        """Steps, and then a checkpoint."""
        for ticks, masks in second.steps:
            if masks:
                self._pfs.append(ticks, dict(masks))
        return self._pfs.close(second.ticks[-1], self._last.__getitem__)

    def chop(self, volume: LogVolume, before: Tick) -> None:
        """The one log."""
        volume.stream(stream_name("bench@1")).chop(before)


Way: TypeAlias = "PerSubscriber | PaperRecords | Blocks"
WAYS: dict[str, Callable[[], Way]] = {"per_subscriber": PerSubscriber, "paper": PaperRecords, "blocks": Blocks}


def run(*, json: bool) -> dict[str, float]:
    """The medians of several rounds, the ways taking turns, and their ratios."""
    seconds = workload()
    rounds = []
    for _ in range(ROUNDS):
        figures: dict[str, float] = {}
        for name, way in WAYS.items():
            figures |= {f"{name}_{key}": value for key, value in _measured(way(), seconds).items()}
        rounds.append(figures | _ratios(figures))
    found = medians(rounds)
    if not json:
        table(f"PFS: {EVENTS:,} events, {MATCHES} of {SUBSCRIPTIONS} subscriptions match each", found)
    return found


def _measured(way: Way, seconds: Sequence[Second]) -> dict[str, float]:
    directory = tempfile.mkdtemp(prefix="gapless-bench-")
    try:
        volume = open_storage(f"{directory}/volume", VolumeIdentity("bench", "bench"), {}, Create.WHERE_NOTHING_IS)
        written, logical = _written_bytes(), 0
        cpu, wall = time.process_time(), time.perf_counter()
        for at, second in enumerate(seconds):
            logical += _commit(volume, way.write(second))
            if at >= KEEP:
                way.chop(volume, seconds[at - KEEP].ticks[-1])
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        volume.close()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    matches = EVENTS * MATCHES
    return {
        "seconds": wall,
        "cpu_us_per_match": 1e6 * cpu / matches,
        "bytes_per_match": logical / matches,
        "device_bytes_per_match": (_written_bytes() - written) / matches,
    }


def _commit(volume: LogVolume, operations: Iterable[Operation]) -> int:
    """One write and one sync; returns the bytes of keys and values."""
    size = 0
    for operation in operations:
        if isinstance(operation, Put):
            volume.stream(operation.stream).put(operation.index, operation.record)
            size += KEY_BYTES + len(operation.record)
        elif isinstance(operation, Set):
            volume.table(operation.table).put(operation.key, operation.value)
            size += len(operation.key) + len(operation.value)
    volume.write()
    volume.sync()
    return size


def _ratios(figures: dict[str, float]) -> dict[str, float]:
    def ratio(way: str, beside: str, key: str) -> float:
        return figures[f"{beside}_{key}"] / figures[f"{way}_{key}"]

    return {
        "bytes_ratio_vs_per_subscriber_log": ratio("blocks", "per_subscriber", "bytes_per_match"),
        "device_bytes_ratio_vs_per_subscriber_log": ratio("blocks", "per_subscriber", "device_bytes_per_match"),
        "time_ratio_vs_per_subscriber_log": ratio("blocks", "per_subscriber", "seconds"),
        "bytes_ratio_vs_paper_record": ratio("blocks", "paper", "bytes_per_match"),
        "time_ratio_vs_paper_record": ratio("blocks", "paper", "seconds"),
        "paper_bytes_ratio_vs_per_subscriber_log": ratio("paper", "per_subscriber", "bytes_per_match"),
    }


def _written_bytes() -> int:
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("write_bytes:"):
            return int(line.split()[1])
    return 0
