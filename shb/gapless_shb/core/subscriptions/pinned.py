"""What the offline subscriptions of principals hold back, where a `[[limit]]` says how much that may be.

An SHB knows ticks, and the host of a pubend knows bytes. So every few seconds, a portion in each turn, this finds how
far behind each limited principal is on each pubend, and asks the hosts how many bytes lie above that (protocol:
pinning). What a host has answered last counts until it answers again, or until nothing there is held back any more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import nlargest
from itertools import chain, islice, repeat
from typing import Final

from gapless.core.alarms import Alarm, AlarmCode
from gapless.core.gauges import Gauge
from gapless.core.network.bytes_above import HOST, TICKS_MAX, AskBytesAbove, BytesAbove, encode
from gapless.core.network.facts import BrokerId, Post
from gapless.core.principal_limits import Limit
from gapless.core.principals import Principal
from gapless.core.stream.ticks import PubendId, Tick
from gapless_shb.core.hosting import Hosting
from gapless_shb.core.live.constream import Constream
from gapless_shb.core.state import gauges
from gapless_shb.core.subscriptions.holders import Holders

PORTION: Final = 1000
"""So many subscriptions, or principals, are looked at in a turn: that takes some milliseconds."""
SHOWN: Final = 20
"""So many principals get a gauge: those that hold back most."""


@dataclass(slots=True)
class HeldBack:
    """What a principal holds back."""

    limit: Limit
    newest: int
    """The subscription whose creator's groups have decided on the limit: the newest one."""
    lowest: dict[PubendId, tuple[Tick, int]] = field(default_factory=dict)
    """Of each pubend: up to where all of its offline subscriptions are done, and which of them is furthest behind."""
    sizes: dict[PubendId, int] = field(default_factory=dict)
    """Of each pubend: how many bytes lie above that, as its host has answered last."""


class Pinned:
    """Which principals hold back how much; see the module."""

    def __init__(self, hosting: Hosting, holders: Holders) -> None:
        self._hosting = hosting
        self._holders = holders
        self._work: Iterator[None] | None = None
        """What is left to be done of a round; each step is quick."""
        self._found: dict[str, HeldBack] = {}
        """By principal."""
        self._answers: dict[PubendId, dict[Tick, int]] = {}
        """What hosts have answered in this round."""
        self._missing: set[tuple[PubendId, Tick]] = set()
        """The questions of this round that are not answered, by their first ticks."""
        self._above: dict[str, None] = {}
        """The principals of which the operator was told."""

    @property
    def is_working(self) -> bool:
        """Whether `work` has something to do."""
        return self._work is not None

    def on_beat(self) -> None:
        """Called every few seconds: begins a round, if there are limits and the last one is done."""
        if self._hosting.limits.pins and self._work is None:
            self._work = chain(self._judge_all(), self._look())

    def work(self) -> None:
        """Does a portion."""
        assert self._work is not None, "there is something to do"
        if sum(1 for _ in islice(self._work, PORTION)) < PORTION:
            self._work = None
            if self._answers and not self._missing:
                self._work = self._judge_all()

    def on_answer(self, node: BrokerId, answer: BytesAbove, _now: int, _wall: int) -> None:
        """The host of a pubend has answered. When all have, it is judged at once, and else with the next round."""
        question = answer.pubend, answer.ticks[0] if answer.ticks else 0
        if question not in self._missing or self._hosting.streams[answer.pubend].meta.broker != node:
            return
        self._answers.setdefault(answer.pubend, {}).update(zip(answer.ticks, answer.above, strict=False))
        self._missing.discard(question)
        if not self._missing and self._work is None:
            self._work = self._judge_all()

    def gauges(self) -> Iterator[Gauge]:
        """Yields how much principals hold back: those that hold back most."""
        for size, name in nlargest(SHOWN, ((size, name) for name, size in self._hosting.pinned.items())):
            yield gauges.PINNED.gauge(size, name)

    # --------------------------------------------------------------------------------------------- looking

    def _look(self) -> Iterator[None]:
        """Finds who holds back how much, and asks how many bytes that is."""
        found: dict[str, HeldBack] = {}
        for stream in list(self._hosting.streams.values()):
            # Of a log that numbers its records, its own rules decide how long it is kept.
            for sid in tuple(stream.retention_floor) if stream.meta.timed else ():
                self._look_at(stream, sid, found)
                yield
        asked: dict[PubendId, dict[Tick, None]] = {}
        for name, held in found.items():
            before = self._found.pop(name, None)  # a few at a time: to free all of them at once would be a long turn
            for pubend, (tick, _) in held.lowest.items():
                asked.setdefault(pubend, {})[tick] = None
                if before is not None and pubend in before.sizes:
                    held.sizes[pubend] = before.sizes[pubend]
            yield
        while self._found:  # those who hold nothing back any more
            name, before = self._found.popitem()
            self._hosting.pinned.pop(name, None)
            self._tell(name, before)
            yield
        self._found = found
        yield from self._ask(asked)

    def _look_at(self, stream: Constream, sid: int, found: dict[str, HeldBack]) -> None:
        subscription, position = self._hosting.registry.get(sid), stream.retention_floor.pinning.get(sid)
        if subscription is None or position is None or not subscription.durable or not subscription.principal:
            return
        if sid in self._hosting.consumers or self._holders.lock(sid) is not None:
            return
        limit = self._hosting.limits.of(Principal(subscription.principal, frozenset(subscription.groups)))
        if limit is None or limit.pinned_bytes is None:
            return
        held = found.get(subscription.principal)
        if held is None:
            held = found[subscription.principal] = HeldBack(limit, sid)
        elif sid > held.newest:
            held.limit, held.newest = limit, sid
        entry = position.done_upto, sid
        held.lowest[stream.pubend] = min(entry, held.lowest.get(stream.pubend, entry))

    def _ask(self, asked: dict[PubendId, dict[Tick, None]]) -> Iterator[None]:
        self._answers.clear()
        self._missing.clear()
        for pubend, ticks in asked.items():
            host, left = self._hosting.streams[pubend].meta.broker, iter(ticks)
            while portion := tuple(islice(left, TICKS_MAX)):
                self._missing.add((pubend, portion[0]))
                self._hosting.outbox.emit(Post(host, HOST, encode(AskBytesAbove(pubend, portion))))
                yield from repeat(None, len(portion))

    # --------------------------------------------------------------------------------------------- judging

    def _judge_all(self) -> Iterator[None]:
        """Judges by the answers that are there."""
        for name, held in list(self._found.items()):
            for pubend, (tick, _) in held.lowest.items():
                size = self._answers.get(pubend, {}).get(tick)
                if size is not None:
                    held.sizes[pubend] = size
            self._hosting.pinned[name] = sum(held.sizes.values())
            self._tell(name, held)
            yield
        self._answers.clear()

    def _tell(self, name: str, held: HeldBack) -> None:
        """Tells the operator if a principal has come above its limit, or below it again."""
        size, most = self._hosting.pinned.get(name, 0), held.limit.pinned_bytes
        assert most is not None, "who has no limit is not looked at"
        if (size > most) is (name in self._above):
            return
        who, allowed = f"principal {name!r}", f"may be {most:,} ({held.limit.called('pinned_bytes')})"
        if size <= most:
            del self._above[name]
            text = f"the offline subscriptions of {who} hold back {size:,} bytes of logs, which {allowed}"
            self._hosting.outbox.emit(Alarm(AlarmCode.PINNED_BYTES, text, name, over=True))
            return
        self._above[name] = None
        _, sid = held.lowest[max(held.sizes, key=lambda pubend: held.sizes[pubend])]
        behind = self._hosting.registry.get(sid)
        last = f"; {behind.called} is furthest behind" if behind is not None else ""
        text = f"the offline subscriptions of {who} hold back {size:,} bytes of logs, which {allowed}{last}"
        self._hosting.outbox.emit(Alarm(AlarmCode.PINNED_BYTES, text, name))
