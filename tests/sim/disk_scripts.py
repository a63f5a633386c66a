"""Histories of a disk: some that are to show one thing each, and as many random ones as wanted.

A step is a tuple; `disk_player.Player` has those that need an open volume, `disk_real.RealDisk` the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from sim.disk_cuts import CUTS
from sim.disk_player import STREAMS, TABLES, Step

SMALL_BUFFERS = {"write_buffer_bytes": 64 << 10}
"""So that several logs and data files occur in a short history."""
MEDIUM_BUFFERS = {"write_buffer_bytes": 1 << 20}
"""So that neither does, and RocksDB reserves little space ahead."""


@dataclass(frozen=True)
class History:
    """What to do, and how the volume is set up."""

    steps: Sequence[Step]
    options: dict[str, Any] = field(default_factory=MEDIUM_BUFFERS.copy)


OPEN, WRITE, SYNC, CLOSE, KILL, RECLAIM = ("open",), ("write",), ("sync",), ("close",), ("kill",), ("reclaim",)
FILL, ROOM = ("fill",), ("room",)


def batch(number: int, size: int = 10) -> list[Step]:
    """A batch that leaves its traces in streams and tables."""
    return [("put", "a", 1, size), ("put", "b", number, size), ("set", "t", b"n", b"%d" % number), WRITE]


def batches(*numbers: int) -> list[Step]:
    """Several."""
    return [step for number in numbers for step in batch(number)]


DURABLE = [OPEN, *batches(1, 2), SYNC]
"""What most histories begin with."""
ON: list[Step] = [OPEN, *batch(9), SYNC]
"""What they end with: the volume goes on as if nothing had been …"""
AFTERWARDS = [*ON, CLOSE, OPEN]
"""… and opens a second time."""


def histories() -> dict[str, History]:
    """Those that are to show one thing each."""
    found = {name: History(steps) for name, steps in _plain()}
    for index, count in [(5, 10), (100, 160), (158, 160)]:
        found[f"record {index} of {count} is damaged"] = History(_damaged(index, count), {"compression": "none"})
    for how in CUTS:
        for seed in _seeds(how, 2):
            steps = [OPEN, *_large(20), ("power", how, seed), *AFTERWARDS]
            found[f"power is cut among several logs, {how} {seed}"] = History(steps, SMALL_BUFFERS)
    return found


def _seeds(how: str, count: int) -> range:
    """Where chance has no say, once is enough."""
    return range(count if how in {"batches", "torn"} else 1)


def _plain() -> Iterator[tuple[str, Sequence[Step]]]:
    yield "all is synced", [*DURABLE, CLOSE, *AFTERWARDS]
    yield "what is staged is dropped", [*DURABLE, ("put", "a", 1, 9), ("chop", "b", 50), CLOSE, *AFTERWARDS]
    yield from _ends()
    yield from _failing_syncs()
    yield from _failing_writes()
    yield from _two_syncs()
    yield from _copies()
    yield from _lies()
    yield from _owners()


def _ends() -> Iterator[tuple[str, Sequence[Step]]]:
    unsynced = [*DURABLE, *batches(3, 4, 5)]
    chopped = [*DURABLE, ("chop", "a", 50), WRITE, RECLAIM, *batches(3)]
    yield "killed", [*unsynced, KILL, *AFTERWARDS]
    yield "killed after a chop", [*chopped, KILL, *AFTERWARDS]
    yield "killed right after it was made", [OPEN, KILL, *AFTERWARDS]
    yield "killed twice", [*unsynced, KILL, OPEN, *batches(6), KILL, *AFTERWARDS]
    for file in (".log", "fence"):
        yield f"killed in a sync of the {file}", [*unsynced, ("kill", file), *AFTERWARDS]
    for how in CUTS:
        for seed in _seeds(how, 3):
            yield f"power is cut, {how} {seed}", [*unsynced, ("power", how, seed), *AFTERWARDS]
        yield f"power is cut after a kill, {how}", [*unsynced, KILL, ("power", how, 7), *AFTERWARDS]
        yield f"power is cut after a chop, {how}", [*chopped, ("power", how, 7), *AFTERWARDS]
        for file in (".log", "fence"):
            yield f"power is cut in a sync of the {file}, {how}", [*unsynced, ("power", how, 7, file), *AFTERWARDS]


def _failing_syncs() -> Iterator[tuple[str, Sequence[Step]]]:
    unsynced = [*DURABLE, *batches(3, 4)]
    for file in (".log", "fence"):
        failed = [*unsynced, ("eio", file, SYNC), SYNC, *batches(5), SYNC]
        yield f"a sync of the {file} fails", [*failed, CLOSE, *AFTERWARDS]
        yield f"a sync of the {file} fails, then a kill", [*failed, KILL, *AFTERWARDS]
        yield f"a sync of the {file} fails in an opening", [*unsynced, KILL, ("eio", file, OPEN), *AFTERWARDS]
        yield f"a sync of the {file} fails in a closing", [*unsynced, ("eio", file, CLOSE), *AFTERWARDS]
        for how in CUTS:
            yield f"a sync of the {file} fails, then power, {how}", [*failed, ("power", how, 3), *ON]
    yield "nothing to sync, nothing fails", [*DURABLE, ("eio", "", SYNC), *batches(3), SYNC, CLOSE, *AFTERWARDS]
    yield (
        "a sync fails and the kernel forgets",
        [*unsynced, ("eio", ".log", SYNC), CLOSE, ("evict",), *AFTERWARDS],
    )
    yield "a sync fails when it is made", [("eio", ".log", OPEN), *AFTERWARDS]
    yield (
        "a sync fails when space is given back",
        [*DURABLE, ("chop", "a", 90), WRITE, SYNC, ("eio", "", RECLAIM), SYNC, CLOSE, *AFTERWARDS],
    )


def _failing_writes() -> Iterator[tuple[str, Sequence[Step]]]:
    staged = [("put", "a", 3, 10), ("set", "t", b"n", b"!")]
    large = [OPEN, *batch(1, 200_000), SYNC, *batches(2)]
    failed = [*DURABLE, *batches(3), *staged, ("unwritable", WRITE), *batches(5), SYNC]
    for end in (CLOSE, KILL, ("power", "least", 0), ("power", "most", 0)):
        name = " ".join(map(str, end))
        yield f"a write fails, {name}", [*failed, end, *ON]
        yield f"the disk is full, {name}", [*DURABLE, FILL, *batches(3), SYNC, ROOM, *batches(4), end, *ON]
        yield f"the disk is full before a sync, {name}", [*DURABLE, *batches(3), FILL, SYNC, ROOM, SYNC, end, *ON]
        for more in (0, 60):
            torn = [*large, ("limit", more), *batches(3), SYNC, end, *ON]
            yield f"a write is torn after {more} bytes, {name}", torn
    yield "a sync needs no space", [*large, ("limit", 0), SYNC, *batches(3), CLOSE, *AFTERWARDS]
    yield "the disk stays full", [*DURABLE, FILL, *batches(3), CLOSE, OPEN, OPEN, ROOM, *AFTERWARDS]
    yield "the disk is full when it is made", [FILL, OPEN, OPEN, ROOM, *AFTERWARDS]
    yield (
        "the disk is full when space is given back",
        [*DURABLE, ("chop", "a", 90), WRITE, SYNC, FILL, RECLAIM, SYNC, ROOM, CLOSE, *AFTERWARDS],
    )


def _two_syncs() -> Iterator[tuple[str, Sequence[Step]]]:
    for hold in (".log", "fence"):
        for fail in ("", ".log", "fence"):
            for end in (CLOSE, ("power", "least", 1)):
                both = ("two_syncs", hold, fail, *batches(4))
                yield (
                    f"two syncs, {hold} waits, {fail or 'nothing'} fails, {end[0]}",
                    [*DURABLE, *batches(3), both, end, *ON],
                )


def _copies() -> Iterator[tuple[str, Sequence[Step]]]:
    copied = [*DURABLE, CLOSE, ("copy", "old")]
    newer = [*copied, OPEN, *batches(3, 4), SYNC, CLOSE]
    hot = [*DURABLE, *batches(3), ("copy", "old"), *batches(4), SYNC, CLOSE]
    anew = [*copied, ("wipe", "all"), OPEN, *batches(3), SYNC, CLOSE]
    went_on = ("beside", "old", OPEN, *batches(5, 6, 7, 8), SYNC, CLOSE)
    for part in ("all", "database", "fence"):
        back = [("copy", "new"), ("restore", "old", part), OPEN]
        mended = [("restore", "new", "all"), *ON]
        yield f"an old copy, {part}", [*newer, *back, KILL, *mended]
        yield f"an old copy of a running volume, {part}", [*hot, *back, KILL, *mended]
        yield f"a copy that went on, {part}", [*newer, went_on, *back, KILL, *mended]
        yield f"a much older copy, {part}", [*newer, OPEN, CLOSE, OPEN, *batches(5), CLOSE, *back, KILL, *mended]
        wiped = [*DURABLE, CLOSE, ("copy", "old"), ("wipe", part), OPEN, KILL]
        yield f"wiped, {part}", [*wiped, ("restore", "old", "all"), *ON]
        yield f"wiped, opened, and that part of an old copy, {part}", [*wiped, ("restore", "old", part), OPEN]
        yield f"wiped, made anew, and an old copy, {part}", [*anew, ("restore", "old", part), OPEN]
    yield "a copy of nothing but the database", [*copied, ("wipe", "all"), ("restore", "old", "database"), OPEN]
    yield "two processes on two copies", [*DURABLE, ("copy", "old"), went_on, *batches(3), SYNC, CLOSE, *AFTERWARDS]


def _lies() -> Iterator[tuple[str, Sequence[Step]]]:
    lied = [*DURABLE, *batches(3), ("lie",), *batches(4), SYNC, *batches(5), SYNC, *batches(6)]
    for how in CUTS:
        for seed in range(2):
            yield f"a lying disk, {how} {seed}", [*lied, ("power", how, seed), OPEN]


def _owners() -> Iterator[tuple[str, Sequence[Step]]]:
    yield "another process", [*DURABLE, ("other",), *batches(3), SYNC, KILL, *ON]
    yield "the same process again", [*DURABLE, ("again",), *batches(3), SYNC, CLOSE, *AFTERWARDS]
    yield "another node", [*DURABLE, CLOSE, ("open", "another"), ("open", ""), CLOSE, *AFTERWARDS]


def _damaged(index: int, count: int) -> list[Step]:
    """Of records with 5 kB each, one. At most the last 256 KiB are read when the stream is opened."""
    steps: list[Step] = [OPEN, *[("put", "a", 1, 5_000)] * count, WRITE, SYNC, CLOSE, ("damage", "a", index), OPEN]
    steps += [("read", "a", 0, index - 1), ("read", "a", index + 3, count), ("read", "a", index - 1, index)]
    return [*steps, ("put", "a", 1, 10), WRITE, CLOSE, OPEN]


def _large(count: int) -> list[Step]:
    """Batches of 20 kB, a third of them synced at once."""
    return [step for number in range(1, count + 1) for step in [*batch(number, 20_000), *([SYNC] * (number % 7 == 3))]]


# ------------------------------------------------------------------------------------------------- random


def random_history(seed: int) -> History:
    """Between five and fifteen turns, and whatever may go wrong in between."""
    random = Random(seed)
    small = random.random() < 0.4
    writer = _Writer(random, size_max=30_000 if small else 300)
    for _ in range(random.randint(5, 15)):
        writer.turn()
    writer.end()
    return History(writer.steps, SMALL_BUFFERS if small else MEDIUM_BUFFERS)


class _Writer:
    """Writes a history down; knows whether a volume is open, and whether it may have failed."""

    def __init__(self, random: Random, size_max: int) -> None:
        self.steps: list[Step] = [OPEN]
        self._random = random
        self._size_max = size_max
        self._copied = False

    def turn(self) -> None:
        """A turn of an owner, or something that happens to it. The volume is open before and after it."""
        happens = self._random.choices([self._work, self._fault, self._ending], [6, 2, 3])[0]
        happens()

    def end(self) -> None:
        """Closes and opens once more."""
        self.steps += [CLOSE, OPEN]

    def _work(self) -> None:
        for _ in range(self._random.randint(1, 4)):
            self.steps.append(self._staging())
        self.steps.append(WRITE)
        if self._random.random() < 0.3:
            self.steps.append(SYNC)
        if self._random.random() < 0.1:
            self.steps.append(RECLAIM)

    def _staging(self) -> Step:
        stream, table = self._random.choice(STREAMS), self._random.choice(TABLES)
        key = self._random.choice([b"", b"k", b"\xff"])
        return self._random.choice(
            [
                ("put", stream, self._random.randint(1, 9), self._random.randint(0, self._size_max)),
                ("put", stream, 1, 10),
                ("chop", stream, self._random.randint(0, 120)),
                ("set", table, key, self._random.randbytes(2)),
                ("delete", table, key),
            ]
        )

    def _fault(self) -> None:
        file = self._random.choice([".log", "fence"])
        kind = self._random.randrange(5)
        if kind == 0:
            self.steps += [("eio", file, SYNC)]
        elif kind == 1:
            self.steps += [self._staging(), ("unwritable", WRITE)]
        elif kind == 2:
            self.steps += [FILL, self._staging(), WRITE, SYNC, ROOM]
        elif kind == 3:
            fail = self._random.choice(["", ".log", "fence"])
            self.steps += [*batch(1), ("two_syncs", file, fail, self._staging(), WRITE)]
        else:
            self.steps.append(("other",))
        if kind != 4:
            self._work()
            self._ending()  # it has failed, perhaps

    def _ending(self) -> None:
        how, seed = self._random.choice(CUTS), self._random.randrange(1000)
        kind = self._random.randrange(6)
        if kind == 0:
            self.steps.append(KILL)
        elif kind in (1, 2, 3):
            self.steps.append(("power", how, seed))
        else:
            self.steps.append(CLOSE)
        if not self._copied and self._random.random() < 0.2:
            self.steps.append(("copy", "old"))
            self._copied = True
        elif self._copied and self._random.random() < 0.3:
            self.steps.append(("restore", "old", "all"))
        self.steps.append(OPEN)
