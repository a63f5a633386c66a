"""Whatever happens in whatever order, the broker never contradicts itself: I5, I7, I8, I12.

One seed is one run; it also draws which faults there are, and how often. A slow and obvious model hears
everything the broker says, across all its lives, and knows how far the SHBs truly are. Routers come late
and repeat themselves; publishers have rivals; the disk forgets what was not synced, or only some of it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from gapless.core.network.facts import Ending, Enrolled, Held, Know, Opened, Outcome, Released, Submitted, Verdict
from gapless.core.stream.ticks import FOREVER, MILLISECOND, STEP, Tick
from gapless_phb.core.publishers.table import term_of
from gapless_phb.core.records import decode_record, tag_of
from gapless_phb.core.settings import PubendSettings
from gapless_phb.policies import Limits
from unit.gapless_phb.harness import BEGINNING, Harness, TestPublisher, body, epoch

SHBS = ("shb1", "shb2", "shb3")
STEPS = 150


@dataclass
class Model:
    """Everything that was ever said of one pubend."""

    events: dict[Tick, bytes] = field(default_factory=dict)
    """Every D that was ever told."""
    silences: list[tuple[Tick, Tick]] = field(default_factory=list)
    """Intervals without an event, as told."""
    lost: Tick = 0
    acknowledged: dict[tuple[str, int], Tick] = field(default_factory=dict)
    """(publisher, sequence) → tick, of every receipt."""
    horizon: Tick = 0
    """Where the pushed stream of this life ends."""
    told: Tick = 0
    """Up to where anything was told in any life."""

    def hear(self, effect: Know) -> None:
        """I12, first half: no tick has two D's. The pushed stream has no holes and no overlaps."""
        k = effect.knowledge
        assert k.lo < k.hi
        assert list(k.data.ticks) == sorted(set(k.data.ticks))
        assert all(k.lo < tick <= k.hi for tick in k.data.ticks)
        self.lost, self.told = max(self.lost, k.lost), max(self.told, k.hi)
        for tick, event in zip(k.data.ticks, k.data.events, strict=True):
            assert self.events.setdefault(tick, event) == event, "two different events at one tick"
        position = max(k.lo, k.lost)
        for tick in (tick for tick in k.data.ticks if tick > position):
            self.silences.append((position, tick - 1))
            position = tick
        self.silences.append((position, k.hi))
        if not k.reply:
            assert self.horizon in (0, k.lo), "the pushed stream has a hole, or goes back"
            self.horizon = k.hi

    def check(self, log: dict[Tick, bytes]) -> None:
        """I12, second half: no event that is in the log, or ever was told, stands in a silence."""
        self.silences = _union(self.silences)
        for tick in {**log, **self.events}:
            assert not any(lo < tick <= hi for lo, hi in self.silences), "an event in a silence"


def _union(intervals: list[tuple[Tick, Tick]]) -> list[tuple[Tick, Tick]]:
    merged: list[tuple[Tick, Tick]] = []
    for lo, hi in sorted(interval for interval in intervals if interval[0] < interval[1]):
        if merged and lo <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(hi, merged[-1][1]))
        else:
            merged.append((lo, hi))
    return merged


class World:
    """One broker with one pubend, two publishers and their rivals, three SHBs and a careless router."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.counts: Counter[str] = Counter()
        draw = self.random
        self.max_retain_ms = draw.choice([None, None, 1500])
        min_retain = draw.choice([0, 0, 0.7])
        policy = None if self.max_retain_ms is None else Limits(self.max_retain_ms / 1000)
        options = PubendSettings(min_retain_seconds=min_retain, min_retain_bytes=draw.choice([0, 400]), policy=policy)
        self.harness = Harness(
            options,
            members=SHBS[: draw.randint(0, 2)],
            checkpoint_bytes=draw.choice([1, 400, 1 << 20]),
            publisher_expiry_seconds=draw.choice([0.3, 3, 900]),
            max_publishers=draw.choice([2, 3, 100]),
        )
        self.model = Model()
        self.heard = 0
        self.publishers = [TestPublisher(self.harness, name) for name in ("ann", "~bob")]
        self.sent: dict[str, list[tuple[int, int]]] = {publisher.name: [] for publisher in self.publishers}
        self.closed: list[TestPublisher] = []
        """Publishers without a name that are over, and of which copies may come late."""
        self.names = 0
        self.receipted: dict[tuple[str, int], int] = {}
        """The term of the instance that had the last receipt for an event."""
        self.epochs: dict[str, int] = {}
        """What a publisher knows of its last opening: more than the broker, after a crash of that."""
        self.progress: dict[str, tuple[Tick, Tick]] = {}
        """SHB → (released, delivered), durable there: the truth that no release may overtake."""
        self.reported: set[str] = set()
        """The members that the router has heard of since it was told of them."""
        self.late: list[Released] = []
        """Minima on their way within the node, which are gone with the turn."""
        self.holds: dict[str, dict[int, Tick]] = {}
        """SHB → what it may count on: the answer to the last row that it sent."""
        self.holds_asked: dict[str, int] = {}
        self.latest: Tick = 0
        self.steps: list[Callable[[], None]] = [
            step
            for step, most in (
                (self.open, 2), (self.publish, 12), (self.repeat, 3), (self.rival, 2), (self.sync, 8),
                (self.end, 1), (self.repeat_late, 1),
                (self.advance, 8), (self.move_wall_clock, 1), (self.crash, 1), (self.space, 1), (self.ask, 5),
                (self.read, 5), (self.enrol, 2), (self.go_on, 8), (self.say_minima, 5), (self.hold, 2),
            )
            for _ in range(draw.randint(0 if most < 3 else 1, most))
        ]  # fmt: skip

    def run(self) -> None:
        """Takes its steps, and checks after each."""
        self.harness.sync()
        self.check()
        for _ in range(STEPS):
            self.random.choice(self.steps)()
            self.check()
        self.harness.crash()
        self.model.horizon = 0
        self.harness.sync()
        self.harness.ask((0, FOREVER))
        self.harness.read()
        self.check()

    # What is heard.

    def listen(self) -> None:
        for effect in self.harness.said[self.heard :]:
            self.hear(effect)
        self.heard = len(self.harness.said)

    def hear(self, effect: object) -> None:
        self.counts[type(effect).__name__] += 1
        if isinstance(effect, Know):
            self.model.hear(effect)
        elif isinstance(effect, Submitted):
            self.counts[effect.outcome.verdict.value] += 1
            if isinstance(effect.reply_to, tuple):
                self.hear_answer(effect.reply_to, effect.outcome)
        elif isinstance(effect, Opened):
            self.reported.clear()
            for shb, at in effect.members.items():
                self.progress.setdefault(shb, (at, at))
        elif isinstance(effect, Enrolled):
            self.progress.setdefault(effect.shb, (effect.at, effect.at))
        elif isinstance(effect, Held) and effect.version == self.holds_asked.get(effect.shb):
            self.holds[effect.shb] = dict(effect.at)

    def hear_answer(self, reply_to: Any, outcome: Outcome) -> None:
        name, sent_in, first, count = reply_to
        if outcome.verdict is Verdict.OK and outcome.ticks:
            ticks = [run.first + index * run.step for run in outcome.ticks for index in range(run.count)]
            for sequence, tick in zip(range(first, first + count), ticks, strict=True):
                assert self.model.acknowledged.setdefault((name, sequence), tick) == tick
                self.receipted[name, sequence] = term_of(sent_in)

    # What publishers do.

    def open(self) -> None:
        """Opens; one without a name has a single instance, which says what epoch it had."""
        publisher = self.random.choice(self.publishers)
        if publisher.name.startswith("~"):
            publisher.opened()
            before = len(self.harness.said)
            publisher.epoch = publisher.epoch or self.epochs.get(publisher.name, 0)
            publisher.come_back()
            if self.random.random() < 0.8:
                self.harness.sync()
            answers = [one for one in self.harness.said[before:] if isinstance(one, Submitted)]
            if any(one.reply_to is publisher and one.outcome.verdict is Verdict.FORGOTTEN for one in answers):
                self.replace(publisher)
            return
        publisher.instance = self.random.choice(["i1", "i1", "i2"])
        publisher.epoch = 0
        publisher.open()
        if self.random.random() < 0.8:
            self.harness.sync()

    def end(self) -> None:
        """A publisher is closed, or its session is over."""
        publisher = self.random.choice(self.publishers)
        ending = self.random.choice(list(Ending))
        publisher.opened()
        publisher.end(ending)
        if publisher.name.startswith("~") and ending is Ending.CLOSED:
            self.replace(publisher)

    def replace(self, publisher: TestPublisher) -> None:
        """One without a name is over, and a new one begins."""
        self.epochs[publisher.name] = publisher.epoch = publisher.epoch or self.epochs.get(publisher.name, 0)
        self.closed.append(publisher)
        self.names += 1
        new = TestPublisher(self.harness, f"~bob{self.names}")
        self.publishers[self.publishers.index(publisher)] = new
        self.sent[new.name] = []

    def repeat_late(self) -> None:
        """A copy of what a publisher sent that is over."""
        publisher = self.random.choice(self.closed) if self.closed else None
        if publisher is not None and publisher.epoch and self.sent[publisher.name]:
            batch = self.random.choice(self.sent[publisher.name])
            publisher.repeat(*batch, reply_to=(publisher.name, publisher.epoch, *batch))

    def publish(self) -> None:
        publisher = self.random.choice(self.publishers)
        publisher.opened()
        if publisher.epoch:
            batch = (publisher.next, self.random.randint(1, 5))
            self.sent[publisher.name].append(batch)
            self.epochs[publisher.name] = publisher.epoch
            publisher.send(batch[1], reply_to=(publisher.name, publisher.epoch, *batch))

    def repeat(self) -> None:
        """A batch again: one that waits for its answer, or was answered long ago."""
        publisher = self.random.choice(self.publishers)
        publisher.opened()
        if publisher.epoch and self.sent[publisher.name]:
            batch = self.random.choice(self.sent[publisher.name][-8:])
            publisher.repeat(*batch, reply_to=(publisher.name, publisher.epoch, *batch))

    def rival(self) -> None:
        """A paused rival wakes up with an old epoch, and content of its own; or the same, which means nothing."""
        publisher = self.random.choice(self.publishers)
        term = term_of(publisher.epoch)
        if term > 1:
            older, newer = epoch(self.random.randrange(1, term)), publisher.epoch
            publisher.epoch = older
            batches = self.sent[publisher.name][-3:]
            if batches and self.random.random() < 0.7:
                batch = self.random.choice(batches)
                publisher.repeat(*batch, reply_to=(publisher.name, older, *batch))
            else:
                first = publisher.next - self.random.randint(0, 2)
                publisher.repeat(first, text="!", reply_to=(publisher.name, older, first, 1))
            publisher.epoch = newer

    # What the machine does.

    def sync(self) -> None:
        self.harness.sync(self.random.choice([None, None, 0, 1, 2]))
        self.late.clear()

    def advance(self) -> None:
        ms = self.random.choice([0, 1, 10, 400, 1000, 2500, 6000])
        self.harness.advance(ms, wall=self.random.random() < 0.8, sync=self.random.random() < 0.7)
        self.late.clear()

    def move_wall_clock(self) -> None:
        self.harness.wall += self.random.choice([-6000, -1000, -10, 500, 3000])

    def crash(self) -> None:
        self.listen()
        self.harness.crash(self.random.choice([0, 0, 1, 2, 9]))
        self.model.horizon = 0
        self.late.clear()
        for publisher in self.publishers:
            publisher.epoch = 0
        self.harness.said.append(None)  # what was said before answers nobody any more
        if self.random.random() < 0.7:
            self.harness.sync()

    def space(self) -> None:
        low = self.random.random() < 0.3
        self.harness.role.on_space(self.harness.now, self.harness.wall, low=low)

    # What SHBs and routers do.

    def ask(self) -> None:
        """Everything, or some ranges around what was told, single ticks among them.

        None begins above that: whoever knows more was told it by another process, and the log gives up where that was.
        """
        ticks = sorted(self.model.events)
        end = self.random.choice(ticks) - 1 if ticks else BEGINNING * MILLISECOND
        ranges = []
        for _ in range(self.random.randint(1, 5)):
            width = self.random.choice([1, STEP, 4 * STEP, 400 * MILLISECOND])
            ranges.append((end, end + width))
            end += width + self.random.choice([0, STEP, 1000 * MILLISECOND])
        ranges = [(lo, hi) for lo, hi in ranges if lo <= self.model.told]
        self.harness.ask(*(ranges if self.random.random() < 0.8 and ranges else [(0, FOREVER)]))

    def read(self) -> None:
        self.harness.read(self.random.choice([None, 1, 2]))
        self.late.clear()

    def enrol(self) -> None:
        self.harness.enrol(self.random.choice(SHBS))

    def go_on(self) -> None:
        """SHBs make durable progress, and the router hears of it."""
        self.listen()
        for shb in sorted(self.progress):
            if self.random.random() < 0.7:
                ticks = [*sorted(self.model.events)[-6:], *[self.model.horizon] * 3, 0]
                before = self.progress[shb]
                delivered = max(before[1], self.random.choice(ticks))
                released = min(max(before[0], self.random.choice(ticks)), delivered)
                self.progress[shb] = (released, delivered)
                self.reported.add(shb)

    def say_minima(self) -> None:
        """The router says minima once it heard of every member that it was told of (C4).

        What it computed before it was told of another member may come after that, but only in the same turn.
        """
        self.listen()
        members = [shb for shb in self.harness.status()["members"] if shb in self.progress]
        if members and self.reported.issuperset(members):
            released = min(self.progress[shb][0] for shb in members)
            delivered = min(self.progress[shb][1] for shb in members)
            self.late.append(Released(self.harness.pubend, released, delivered))
            if self.random.random() < 0.5:
                enrolling = self.random.choice([0, 1, None])
                before = self.heard
                self.harness.sync(enrolling or 0)
                assert before == self.heard
            for minima in self.late:
                self.harness.feed(minima)

    def hold(self) -> None:
        """An SHB sends a row: a new one, which gives up the one before, or an old one again, which does nothing."""
        shb = self.random.choice(SHBS)
        known = self.holds_asked.get(shb, 0)
        version = known + self.random.choice([-1, 0, 1, 1])
        if version > known:
            self.holds.pop(shb, None)
            self.holds_asked[shb] = version
        ticks = [0, *sorted(self.model.events)[-5:]]
        at = {sid: self.random.choice(ticks) for sid in range(self.random.randint(0, 2))}
        self.harness.hold(shb, version, at)

    # What is always true.

    def check(self) -> None:
        self.listen()
        log: dict[Tick, bytes] = {}
        where: dict[tuple[str, int], Tick] = {}
        tag = tag_of("network", self.harness.pubend)
        for index, raw in self.harness.logged:
            record = decode_record(tag, index, raw)
            batch = record.within(0, FOREVER)
            for offset, (tick, event) in enumerate(zip(batch.ticks, batch.events, strict=True)):
                log[tick] = event
                key = (record.publisher, record.first_sequence + offset)
                told = self.receipted.get(key, term_of(record.epoch))
                assert told == term_of(record.epoch), "I7: a receipt for what another instance has logged"
                assert where.setdefault(key, tick) == tick, "I7: logged twice"
                assert event.endswith(body(*key)), "I7: other content than was sent"
        self.model.check(log)
        lost = max(self.harness.status()["lost"], self.harness.chopped, self.model.lost)
        for key, tick in self.model.acknowledged.items():
            assert where.get(key) == tick or tick <= lost, "I7: an acknowledged event is gone, or moved"
        self.check_release(lost)

    def check_release(self, lost: Tick) -> None:
        """I8, and I5 for holds: L only below what every member released, or where early release allows it."""
        pubend = self.harness.role._pubends[self.harness.pubend]
        (clock,) = self.harness.role._clocks
        self.latest = max(self.latest, clock.latest)
        if not lost:
            return
        self.counts["lost"] += 1
        members = [self.progress[shb] for shb in pubend.release.members if shb in self.progress]
        assert members, "released though nobody is counted"
        early = 0
        if self.max_retain_ms is not None:
            delivered = min(progress[1] for progress in members)
            early = min(delivered, self.latest - self.max_retain_ms * MILLISECOND)
        held = min((tick for at in self.holds.values() for tick in at.values()), default=FOREVER)
        assert lost <= max(min(progress[0] for progress in members), early), "I8: not everybody was done"
        assert lost <= max(held, early), "I5: released under a hold"


@pytest.mark.parametrize("chunk", range(3))
def test_nothing_is_ever_contradicted(chunk: int) -> None:
    counts: Counter[str] = Counter()
    for seed in range(40 * chunk, 40 * chunk + 40):
        world = World(seed)
        try:
            world.run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        counts += world.counts

    for what in ("Know", "Enrolled", "Held", "Opened", "lost", *(one.value for one in Verdict)):
        assert counts[what] > 0 or what in {"rejected", "forbidden", "uncertain", "elsewhere", "stale"}, (
            f"no seed ever met {what}"
        )
