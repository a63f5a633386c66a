"""What two processes of one PHB have logged, on copies of its volume (protocol: forks)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from gapless.core.client import Gap
from gapless.core.gauges import values_by
from gapless.core.network.facts import Know, Progress, Seen
from gapless.core.stream.intervals import IntervalSet
from gapless.core.stream.ticks import FOREVER
from gapless.core.wire.messages import GapReason
from gapless_shb.core.state.gauges import HEAD
from gapless_sim.oracles.judge import Judge

if TYPE_CHECKING:
    from gapless.core.client import Item
    from gapless.core.network.facts import PubendMeta
    from gapless.core.stream.intervals import Ranges
    from gapless.core.stream.knowledge import Knowledge
    from gapless.core.stream.ticks import PubendId, ShbId, Tick
    from gapless_sim.oracles.delivery import I3Gapless
    from gapless_sim.recording.accounts import Logged
    from gapless_sim.recording.model import Model
    from gapless_sim.world.broker import SimBroker
    from gapless_sim.world.consumer import Consumer
    from gapless_sim.world.disk import Disk
    from gapless_sim.world.world import Life


class N2Told(Judge):
    """An event that either process of a PHB has logged is delivered, or lies in or below a gap that says so.

    Below: ticks only rise. What one process has logged below a place that a subscription had from the other one cannot
    be delivered to it any more; it is told at the present, by which all subscriptions come.

    What the process that is gone has logged above that present, its clock being ahead, is told if an SHB was told so
    much of it in the life in which it hears that there were two. Otherwise nobody is left who could know. Nor is
    anybody left if those who have shut it out began anew before they could say so to the process that counts.
    """

    name = "N2"
    facts: Sequence[type] = ()
    effects: Sequence[type] = (Seen,)

    def __init__(self, model: Model, gapless: I3Gapless) -> None:
        super().__init__(model)
        self._disks: dict[tuple[PubendId, Tick], tuple[Disk, int]] = {}
        """On which each event is, and since when: each process has its own."""
        self._heard: dict[tuple[str, PubendId], Tick] = {}
        """How far each SHB was told, in this life."""
        self._forks: dict[tuple[str, PubendId], Ranges] = {}
        """What it was told of forks, in this life."""
        self._forked: dict[PubendId, tuple[Ranges, int]] = {}
        """What each PHB gives up, and since when."""
        self._given_up: dict[PubendId, Tick] = {}
        """The highest tick of forks, and of what those SHBs were told that have heard of one."""
        self._passed: dict[tuple[int, PubendId], tuple[Consumer, Logged]] = {}
        """By the number of a row: the last event that it has passed, and who had the row."""
        self._told: dict[tuple[int, PubendId], Tick] = {}
        """Up to where it was told."""
        self._shut_out: dict[Disk, list[tuple[int, int, Life]]] = {}
        """By the disk of a process that was shut out: when, its incarnation, and the life of who has told it so."""
        self._named: dict[tuple[str, int], None] = {}
        """The processes of which one of their node was told that they were shut out."""
        gapless.passed.append(self.passed)

    def shut_out(self, broker: SimBroker, later: int, peer: str) -> None:
        """A neighbour knows of both processes, as long as it lives."""
        told = self.world.now, broker.incarnation, self.world.brokers[peer].life
        self._shut_out.setdefault(broker.disk, []).append(told)

    def ran_twice(self, broker: SimBroker, other: int) -> None:
        """The process that counts knows."""
        self._named[broker.name, other] = None

    def known(self, broker: str, knowledge: Knowledge) -> None:
        """A PHB says what it has."""
        if self.world.options.second_hosts:
            self._note(knowledge, self.world.brokers[broker].disk)

    def known_beside(self, broker: str, knowledge: Knowledge) -> None:
        """The second process of its node does."""
        for second in self.world.second_processes:
            if second.name == broker:
                self._note(knowledge, second.disk)

    def opened(self, broker: str, meta: PubendMeta, members: Mapping[ShbId, Tick]) -> None:
        """A PHB says what it gives up."""
        if meta.forks != self._forked.get(meta.pubend, ((), 0))[0]:
            self._forked[meta.pubend] = meta.forks, self.world.now
            self._give_up(meta.pubend, max((hi for _, hi in meta.forks), default=0))

    def delivered(self, broker: str, knowledge: Knowledge) -> None:
        """An SHB is told."""
        key = broker, knowledge.pubend
        self._heard[key] = max(knowledge.hi, self._heard.get(key, 0))

    def said(self, broker: str, now: int, effect: Any) -> None:
        """It hears that there were two: it asks for what follows all that it was told, as far as it has that still."""
        assert isinstance(effect, Seen)
        meta, key = effect.meta, (broker, effect.meta.pubend)
        if meta.forks != self._forks.get(key, ()):
            self._forks[key] = meta.forks
            heads = values_by(self.world.brokers[broker].gauges(), HEAD, "pubend")
            self._give_up(meta.pubend, max(int(heads.get(meta.pubend, 0)), self._heard.get(key, 0)))

    def informed(self, broker: str, now: int, fact: Any) -> None:
        """What routers are told is of no concern."""

    def vanished(self, broker: str) -> None:
        """An SHB begins anew: it forgets what it has not written."""
        self._heard = {key: upto for key, upto in self._heard.items() if key[0] != broker}
        self._forks = {key: forks for key, forks in self._forks.items() if key[0] != broker}

    def passed(self, consumer: Consumer, event: Logged) -> None:
        """A consumer stands above an event that it matches, and was not handed it."""
        key = consumer.row.number, event.pubend
        before = self._passed.get(key)
        if before is None or before[1].tick <= event.tick:
            self._passed[key] = consumer, event

    def handed_out(self, consumer: Consumer, item: Item) -> None:
        """It is told."""
        if isinstance(item, Gap) and item.reason == GapReason.TWICE.value:
            key = consumer.row.number, item.pubend
            self._told[key] = max(item.end, self._told.get(key, 0))

    def settled(self) -> bool:
        """Whether all who live were told."""
        return not self._untold()

    def unsettled(self) -> str:
        """Who was not."""
        return "; ".join(
            f"{consumer.lane} has passed publication {event.publication.key} of {event.pubend} at {event.tick}, which "
            "one of two processes has logged, and was not told that there were two"
            for consumer, event in self._untold()
        )

    def _untold(self) -> list[tuple[Consumer, Logged]]:
        return [
            (consumer, event)
            for key, (consumer, event) in self._passed.items()
            if event.tick > self._told.get(key, 0)
            and self.model.alive(consumer)
            and self.model.histories[event.pubend].answered_for
            and not self._is_beyond(event)
            and not self._is_forgotten(event)
        ]

    def _is_beyond(self, event: Logged) -> bool:
        """Whether nobody is left who could know of an event, but publishers that have receipts."""
        pubend, tick = event.pubend, event.tick
        if tick <= self._given_up.get(pubend, 0) or not self._is_gone(event):
            return False
        return self._disks[pubend, tick][1] <= self._forked.get(pubend, ((), -1))[1]

    def _is_forgotten(self, event: Logged) -> bool:
        """Whether the process that had it is gone, and nobody lives who has shut that out, or was told of it."""
        if not self._is_gone(event):
            return False
        node, (disk, since) = self.model.histories[event.pubend].broker, self._disks[event.pubend, event.tick]
        shut_out = [(other, life) for at, other, life in self._shut_out.get(disk, ()) if at >= since]
        return bool(shut_out) and all(life.over and (node, other) not in self._named for other, life in shut_out)

    def _is_gone(self, event: Logged) -> bool:
        """Whether the disk that an event is on is not that of its node any more."""
        found = self._disks.get((event.pubend, event.tick))
        return found is not None and found[0] is not self.world.brokers[self.model.histories[event.pubend].broker].disk

    def _note(self, knowledge: Knowledge, disk: Disk) -> None:
        self._disks.update(((knowledge.pubend, tick), (disk, self.world.now)) for tick in knowledge.data.ticks)

    def _give_up(self, pubend: PubendId, upto: Tick) -> None:
        self._given_up[pubend] = max(upto, self._given_up.get(pubend, 0))


class N2Again(Judge):
    """What an SHB passes once it has heard of a second process of a PHB, it was told since then, or has the event.

    Above its head, that is: what it had been told to be silence there may be the word of the process that is shut out.
    """

    name = "N2"
    facts: Sequence[type] = (Progress,)
    effects: Sequence[type] = (Know, Seen)

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._forks: dict[tuple[str, PubendId], Ranges] = {}
        """What each SHB was told of forks."""
        self._events: dict[tuple[str, PubendId], IntervalSet] = {}
        """The places of the events that each SHB was told of, and what it was told to be given up."""
        self._again: dict[tuple[str, PubendId], tuple[Tick, IntervalSet]] = {}
        """From where on it has to be told again, and what it was told since."""
        self._hears: dict[tuple[str, PubendId], tuple[int, Tick]] = {}
        """When it was told of a fork, and where that begins, until its head is looked at: the head may rise by what it
        was told before in that instant."""
        self._instant: dict[tuple[str, PubendId], tuple[int, list[tuple[Tick, Tick]]]] = {}
        """What it was told in the last instant: it may come to the SHB behind what was said after it."""

    def wiped(self, broker: SimBroker) -> None:
        """What begins there on an empty disk is another SHB: it has been told nothing, and begins where it counts."""
        tables = self._forks, self._events, self._again, self._hears, self._instant
        for table in cast("tuple[dict[tuple[str, PubendId], Any], ...]", tables):
            for key in [key for key in table if key[0] == broker.name]:
                del table[key]

    def said(self, broker: str, now: int, effect: Any) -> None:
        """A router tells an SHB something of a pubend."""
        if isinstance(effect, Know):
            self._told((broker, effect.knowledge.pubend), now, effect.knowledge)
            return
        assert isinstance(effect, Seen)
        meta, key = effect.meta, (broker, effect.meta.pubend)
        before = self._forks.get(key)
        self._forks[key] = meta.forks
        new = [lo for lo, hi in meta.forks if before is not None and (lo, hi) not in before]
        if new:
            at, ranges = self._instant.get(key, (-1, []))
            self._again[key] = FOREVER, IntervalSet(ranges if at == now else ())
            self._hears[key] = self.world.now, min(new)

    def informed(self, broker: str, now: int, fact: Any) -> None:
        """An SHB has passed everything up to a tick."""
        assert isinstance(fact, Progress)
        key = broker, fact.pubend
        history = self.model.histories.get(fact.pubend)
        if key not in self._again or history is None or history.gone or history.damaged:
            return
        self._look_at_head(key)
        after, again = self._again[key]
        believed = (
            (IntervalSet([(after, fact.delivered)]) - again - self._events[key]) if after < fact.delivered else ()
        )
        if believed:
            self.fail(
                f"{broker} has passed {list(believed)[:3]} of {fact.pubend} as it was told before it heard that another"
                " process of its host has run"
            )

    def vanished(self, broker: str) -> None:
        """An SHB that begins anew forgets what is above its head, and is told again."""

    def _look_at_head(self, key: tuple[str, PubendId]) -> None:
        """Where an SHB stands that has heard of a fork: what is above that, and above where the fork begins, counts."""
        at, begins = self._hears.get(key, (self.world.now, 0))
        if at < self.world.now:
            del self._hears[key]
            heads = values_by(self.world.brokers[key[0]].gauges(), HEAD, "pubend")
            self._again[key] = max(int(heads.get(key[1], FOREVER)), begins), self._again[key][1]

    def _told(self, key: tuple[str, PubendId], now: int, knowledge: Knowledge) -> None:
        if not self.world.options.second_hosts:
            return
        self._look_at_head(key)
        lo, hi = knowledge.lo, knowledge.hi
        events = self._events.setdefault(key, IntervalSet())
        for tick in knowledge.data.ticks:
            events.add(tick - 1, tick)
        if knowledge.damaged:
            events.add(lo, hi)
        if key in self._again:
            self._again[key][1].add(lo, hi)
        at, ranges = self._instant.get(key, (-1, []))
        self._instant[key] = now, [*(ranges if at == now else ()), (lo, hi)]
