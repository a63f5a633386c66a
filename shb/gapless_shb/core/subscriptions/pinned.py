"""What the offline subscriptions of principals hold back, where a `[[limit]]` says how much that may be.

An SHB knows ticks, and the host of a pubend knows bytes. So every few seconds, a portion in each turn, this finds how
far behind each limited principal is on each pubend, and asks the hosts how many bytes lie above that (protocol:
pinning). What a host has answered last counts until it answers again, or until nothing there is held back any more. It
counts once more if the principal holds back the same there again: somebody has only looked at its subscription.

The hosts are also asked about the positions of the subscriptions themselves, for listings: of each pubend about so many
of them at most that it is one mail more.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container, Iterable, Iterator, Mapping
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
from gapless_shb.core.state.registry import SubscriptionRecord
from gapless_shb.core.subscriptions.holders import Holders

PORTION: Final = 1000
"""So many subscriptions, or principals, are looked at in a turn: that takes some milliseconds."""
SHOWN: Final = 20
"""So many principals get a gauge: those that hold back most."""
LEFT_MAX: Final = 10_000
"""So many answers are kept about what is held back no more."""
POSITIONS_MAX: Final = TICKS_MAX
"""About so many positions of subscriptions a host is asked, of each pubend. An even number; see `Positions`."""


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


class Positions:
    """Where subscriptions stand, for the host to be asked: of too many places every second, and first and last."""

    def __init__(self) -> None:
        self.ticks: dict[Tick, None] = {}

    def add(self, tick: Tick) -> None:
        """A subscription stands there."""
        self.ticks[tick] = None
        if len(self.ticks) > POSITIONS_MAX:
            self.ticks = dict.fromkeys(sorted(self.ticks)[::2])


class Sizes:
    """How many bytes lie above ticks of a pubend, as its host has answered."""

    def __init__(self, above: Mapping[Tick, int], ticks: Iterable[Tick]) -> None:
        self._ticks = sorted(ticks)
        self._above = [above[tick] for tick in self._ticks]

    def above(self, tick: Tick) -> int | None:
        """Returns how many bytes lie above a tick, or above the next lower one of these; None outside of them."""
        if not self._ticks or not self._ticks[0] <= tick <= self._ticks[-1]:
            return None
        return self._above[bisect_right(self._ticks, tick) - 1]


class Pinned:
    """Which principals hold back how much; see the module."""

    def __init__(self, hosting: Hosting, holders: Holders) -> None:
        self._hosting = hosting
        self._holders = holders
        self._work: Iterator[None] | None = None
        """What is left to be done of a round; each step is quick."""
        self._found: dict[str, HeldBack] = {}
        """By principal."""
        self._left: dict[tuple[str, PubendId], tuple[Tick, int]] = {}
        """Up to where principals were done that hold nothing back there any more, and how many bytes lay above that."""
        self._answers: dict[PubendId, dict[Tick, int]] = {}
        """What hosts have answered in this round."""
        self._missing: set[tuple[PubendId, Tick]] = set()
        """The questions of this round that are not answered, by their first ticks."""
        self._above: dict[str, None] = {}
        """The principals of which the operator was told."""
        self._positions: dict[PubendId, Positions] = {}
        """Of subscriptions, as they were found in this round."""
        self._sizes: dict[PubendId, Sizes] = {}
        """How much lies above these, as hosts have answered last."""

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

    def held_back(self, subscription: SubscriptionRecord) -> int | None:
        """Returns about how many bytes of logs a subscription holds back that counts for a limit.

        It is what lies above its position, whether others hold that back as well or not. Where there are very many
        subscriptions it may be what lies above the position of another one that is somewhat further behind. None: it
        counts for no limit, or the answer of a host is not there yet.
        """
        if self._limit_of(subscription) is None:
            return None
        total = 0
        for stream in self._hosting.streams.values():
            position = stream.retention_floor.pinning.get(subscription.sid) if stream.meta.timed else None
            if position is not None:
                sizes = self._sizes.get(stream.pubend)
                size = None if sizes is None else sizes.above(position.done_upto)
                if size is None:
                    return None
                total += size
        return total

    # --------------------------------------------------------------------------------------------- looking

    def _look(self) -> Iterator[None]:
        """Finds who holds back how much, and asks how many bytes that is."""
        found: dict[str, HeldBack] = {}
        self._positions = {}
        for stream in list(self._hosting.streams.values()):
            # Of a log that numbers its records, its own rules decide how long it is kept.
            for sid in tuple(stream.retention_floor) if stream.meta.timed else ():
                self._look_at(stream, sid, found)
                yield
        asked: dict[PubendId, dict[Tick, None]] = {}
        for pubend, positions in self._positions.items():
            asked[pubend] = dict(positions.ticks)
            yield
        for name, held in found.items():
            before = self._found.pop(name, None)  # a few at a time: to free all of them at once would be a long turn
            for pubend, (tick, _) in held.lowest.items():
                asked[pubend][tick] = None
                if before is not None and pubend in before.sizes:
                    held.sizes[pubend] = before.sizes[pubend]
                    continue
                left_at, size = self._left.pop((name, pubend), (tick, None))
                if size is not None and left_at == tick:
                    held.sizes[pubend] = size
            if before is not None:
                self._leave(name, before, held.lowest)
            yield
        while self._found:  # those who hold nothing back any more
            name, before = self._found.popitem()
            self._leave(name, before, {})
            self._hosting.pinned.pop(name, None)
            self._tell(name, before)
            yield
        self._found = found
        yield from self._ask(asked)

    def _leave(self, name: str, before: HeldBack, there: Container[PubendId]) -> None:
        """Keeps what is known of pubends where a principal held something back, and does not any more."""
        for pubend, size in before.sizes.items():
            if pubend not in there:
                self._left[name, pubend] = before.lowest[pubend][0], size
        while len(self._left) > LEFT_MAX:
            del self._left[next(iter(self._left))]

    def _look_at(self, stream: Constream, sid: int, found: dict[str, HeldBack]) -> None:
        subscription, position = self._hosting.registry.get(sid), stream.retention_floor.pinning.get(sid)
        if subscription is None or position is None or (limit := self._limit_of(subscription)) is None:
            return
        self._positions.setdefault(stream.pubend, Positions()).add(position.done_upto)
        held = found.get(subscription.principal)
        if held is None:
            held = found[subscription.principal] = HeldBack(limit, sid)
        elif sid > held.newest:
            held.limit, held.newest = limit, sid
        entry = position.done_upto, sid
        held.lowest[stream.pubend] = min(entry, held.lowest.get(stream.pubend, entry))

    def _limit_of(self, subscription: SubscriptionRecord) -> Limit | None:
        """Returns the limit for which a subscription counts as it is: durable, and consumed by nobody."""
        if not subscription.durable or not subscription.principal:
            return None
        if subscription.sid in self._hosting.consumers or self._holders.lock(subscription.sid) is not None:
            return None
        limit = self._hosting.limits.of(Principal(subscription.principal, frozenset(subscription.groups)))
        return None if limit is None or limit.pinned_bytes is None else limit

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
        yield from self._note_sizes()
        self._answers.clear()

    def _note_sizes(self) -> Iterator[None]:
        """Notes what lies above the positions of subscriptions, of each pubend about which all answers are there."""
        self._sizes = {pubend: sizes for pubend, sizes in self._sizes.items() if pubend in self._positions}
        for pubend, positions in self._positions.items():
            answers = self._answers.get(pubend, {})
            if positions.ticks.keys() <= answers.keys():
                self._sizes[pubend] = Sizes(answers, positions.ticks)
            yield from repeat(None, len(positions.ticks))

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
