"""What the router `delta` promises of copies, and how soon all comes: D1, D5, D6, D7 and D9 (protocol: delta-router).

D1, D7 and D9 are judged where no frame is lost above links and events have room. They count who is away: D1 all
brokers between a pubend and an SHB, D7 those next to each other. Where that is more than `delta`, curiosity has to do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from gapless.core.network import facts as routing
from gapless.core.network.facts import LINK_HIGH, LINK_LOW
from gapless.core.stream.intervals import IntervalSet
from gapless.core.stream.knowledge import Knowledge
from gapless_sim.oracles.delta import TreeJudge
from gapless_sim.recording.delta_frames import reports_in, status_in
from gapless_sim.world.options import MILLISECOND, ROOM_FOR_ALL, SECOND, NetworkFaults, ProcessFaults
from gapless_sim.world.topology import BYPASSING

if TYPE_CHECKING:
    from gapless.core.network.frames import Address, Message
    from gapless.core.network.seam import Effect
    from gapless.core.stream.ticks import PubendId, Tick
    from gapless_routing.delta.copies import Report
    from gapless_sim.recording.accounts import Logged
    from gapless_sim.recording.frame_tap import Hop
    from gapless_sim.recording.model import Model
    from gapless_sim.world.broker import SimBroker
    from gapless_sim.world.options import Options
    from gapless_sim.world.world import World

WINDOW_LEAST: Final = 5
"""With a window of fewer seconds an event may be let go of before it is noticed that somebody is away."""
RECOVERS_WITHIN: Final = 6 * SECOND
"""So long after its start a broker counts as away: nobody in a direction is waited for 3 s, by any clock."""
READY_WITHIN: Final = 12 * SECOND
"""A broker is ready by then: nobody in a direction is waited for 3 s, and a census comes every 5 s."""
SETTLES_WITHIN: Final = 8 * SECOND
"""So long after it was asked for every broker on the way knows of a subscription, if nobody there is away."""
DETECTED_WITHIN: Final = 1600 * MILLISECOND
"""Three heartbeats, by a clock that is slow."""
RING_WAIT: Final = 260 * MILLISECOND
ON_ITS_WAY: Final = 1 * SECOND
"""What a run's network, its turns and its dials take, beyond what is waited for."""
SILENT_WITHIN: Final = 1050 * MILLISECOND
"""Silence waits a second in all, by a clock that is slow."""
FULL_LASTS: Final = 3 * SECOND
"""So long after a link was full what was not pushed there may still be asked for."""
CALM_AFTER: Final = 12 * SECOND
PAST_AN_OUTAGE: Final = "delta.pushed past an outage"
SOMETIMES = (PAST_AN_OUTAGE,)
"""What D1 is about: else it would pass where nobody is ever away."""


def is_lossless(options: Options) -> bool:
    """Whether frames are lost in a run with links alone, and copies have room and time enough.

    Scenarios bring faults of their own, of which nobody knows here.
    """
    network, process = options.network, options.process
    quiet = NetworkFaults(network.delay, network.least, bytewise=network.bytewise, slow_rate=network.slow_rate)
    brief = ProcessFaults(
        process.crash, process.kill, process.fuse, client_crash=process.client_crash, client_pause=process.client_pause
    )
    operated = options.map_changes or options.second_processes or options.second_hosts or options.replacements
    return (
        options.router in BYPASSING
        and options.workload == "churn"
        and network == quiet
        and process == brief
        and not operated
        and network.delay <= 5 * MILLISECOND
        and options.window_seconds >= WINDOW_LEAST
        and options.copies_bytes >= ROOM_FOR_ALL
    )


class D5Copies(TreeJudge):
    """An event goes when it is safe by what is reported of lives that are known last; a run is of what is there.

    What a router lets go of is said in no frame: so this one hears of it from the router itself.
    """

    name = "D5"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._reports: dict[str, dict[tuple[PubendId, str], Report]] = {}
        """By broker: what it was last told of each other one."""
        self._evicted: dict[str, dict[PubendId, list[tuple[int, Tick]]]] = {}
        """By broker and pubend: when it had no room, and up to where it let go of events then."""
        self._has: dict[tuple[str, PubendId], IntervalSet] = {}
        """What a broker was told in its life."""

    def booted(self, broker: SimBroker) -> None:
        """A router begins: it shows what it lets go of."""
        self._reports[broker.name], self._evicted[broker.name] = {}, {}
        for node, pubend in list(self._has):
            if node == broker.name:
                del self._has[node, pubend]
        copies = self.world.seam.router_of(broker.name)._streams.copies  # noqa: SLF001 - it is said nowhere else
        let_go = copies._let_go  # noqa: SLF001

        def show(pubend: Any, begin: Tick, upto: Tick, safe: Mapping[str, IntervalSet] | None) -> None:
            frames = self.world.network.frames
            if frames is not None and self in frames.watchers:  # else there are several maps, or processes of a node
                self._look_at(broker.name, pubend.meta.pubend, upto, safe)
            let_go(pubend, begin, upto, safe)

        copies._let_go = show  # noqa: SLF001

    def known(self, broker: str, knowledge: Knowledge) -> None:
        """A pubend says something to its own broker."""
        self._has.setdefault((broker, knowledge.pubend), IntervalSet()).add(knowledge.lo, knowledge.hi)

    def frame_arrived(self, hop: Hop, message: Message, address: Address) -> None:
        """A broker hears of copies, or of another life."""
        reports = self._reports.setdefault(hop.target, {})
        status = status_in(message)
        if status is not None:
            for key in [key for key, report in reports.items() if key[1] == hop.source and report.life != status.life]:
                del reports[key]
        for report in reports_in(message):
            before = reports.get((report.pubend, report.broker))
            if before is None or before.life != report.life or before.number < report.number:
                reports[report.pubend, report.broker] = report
        if type(message) is Knowledge:
            self._has.setdefault((hop.target, message.pubend), IntervalSet()).add(message.lo, message.hi)

    def frame_sent(self, hop: Hop, message: Message, address: Address, size: int) -> None:
        """A broker reports what it has."""
        for report in reports_in(message):
            if report.broker != hop.source or report.lo >= report.hi:
                continue
            # What it reports in an instant may have been looked up before it had no room.
            times = self._evicted.get(hop.source, {}).get(report.pubend, ())
            evicted = max((upto for at, upto in times if at < self.world.now), default=0)
            if report.lo < evicted:
                self.fail(f"{hop}: a copy of {report.pubend} reaches down to {report.lo}, and {evicted} was evicted")
            has = self._has.get((hop.source, report.pubend), IntervalSet())
            if not has.covers(report.lo, report.hi):
                self.fail(f"{hop}: {hop.source} says that it has ({report.lo}, {report.hi}] of {report.pubend}: {has}")

    def _look_at(self, node: str, pubend: PubendId, upto: Tick, safe: Mapping[str, IntervalSet] | None) -> None:
        if safe is None:
            times = self._evicted[node].setdefault(pubend, [])
            times.append((self.world.now, upto))
            return
        for group, taken in safe.items():
            if self.knows(node, group):
                over = taken - self._safe(node, pubend, group)
                for lo, hi in over.within(0, upto):
                    self.fail(
                        f"{node} takes ({lo}, {hi}] of {pubend} to be safe for who is at {group} or beyond, and not"
                        " all on the way there have it, by what was reported of the lives that they have now"
                    )

    def _safe(self, node: str, pubend: PubendId, group: str) -> IntervalSet:
        reports, topology = self._reports[node], self.world.topology
        assert topology is not None
        path = self.path(node, group)[1:]
        safe, all_have = IntervalSet(), None
        for broker in path:
            report = reports.get((pubend, broker))
            run = IntervalSet([] if report is None else [(report.lo, report.hi)])
            all_have = run if all_have is None else all_have & run
            if report is not None:
                safe |= IntervalSet([(report.lo, min(report.done, report.hi))])
        if all_have is not None:
            safe |= all_have
        own = reports.get((pubend, group))
        if own is not None and "shb" in topology.roles[group]:
            safe |= IntervalSet([(own.lo, own.hi)])
        return safe


class Full:
    """As a watcher of the seam: since when no link is full. Where one is, nothing is pushed, and who misses it asks."""

    facts: Sequence[type] = (routing.LinkRoom, routing.LinkDown)
    effects: Sequence[type] = ()

    def __init__(self, world: World) -> None:
        self._world = world
        self._links: dict[tuple[str, int], None] = {}
        self._over_at = -FULL_LASTS

    def is_over(self, since: int) -> bool:
        """Whether no link was full since some time, nor a while before that."""
        return not self._links and self._over_at + FULL_LASTS <= since

    def informed(self, broker: str, now: int, fact: Any) -> None:
        """A router hears how much waits on a link, or that it is gone."""
        if type(fact) is routing.LinkRoom and fact.pending > LINK_HIGH:
            self._links[broker, fact.link] = None
        elif (broker, fact.link) in self._links and (type(fact) is routing.LinkDown or fact.pending <= LINK_LOW):
            del self._links[broker, fact.link]
            self._over_at = self._world.now

    def said(self, broker: str, now: int, effect: Effect) -> None:
        """What routers want is no matter of room."""

    def vanished(self, broker: str) -> None:
        """Its links are gone."""
        for key in [key for key in self._links if key[0] == broker]:
            del self._links[key]
            self._over_at = self._world.now


class D6Ready(TreeJudge):
    """Whoever comes back becomes ready, whoever is away around it; where nothing is lost, soon."""

    name = "D6"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._is_on = is_lossless(self.world.options)
        self._said: dict[str, tuple[object, bool]] = {}
        self._began: dict[str, int] = {}

    def booted(self, broker: SimBroker) -> None:
        """A broker begins, and knows nothing."""
        self._began[broker.name] = self.world.now

    def checkpoint(self) -> None:
        """Looks who is not ready for long, although those are there who can tell it what it has to know."""
        for node in self._unready() if self._is_on else ():
            if self.world.now - self._began.get(node, 0) > READY_WITHIN:
                self.fail(f"{node} is not ready, {READY_WITHIN // SECOND} s after it began")

    def frame_sent(self, hop: Hop, message: Message, address: Address, size: int) -> None:
        """A broker says whether it is ready."""
        said = status_in(message)
        if said is not None:
            self._said[hop.source] = self.world.brokers[hop.source].life, said.ready

    def settled(self) -> bool:
        """Whether all are ready that have said anything."""
        return next(self._unready(), None) is None

    def unsettled(self) -> str:
        """Who is not."""
        return "; ".join(f"{node} is not ready" for node in self._unready())

    def _unready(self) -> Iterator[str]:
        for node, (life, ready) in self._said.items():
            if not ready and self.world.brokers[node].life is life and self.world.brokers[node].running:
                yield node


@dataclass(slots=True, eq=False)
class Outages:
    """When each broker was away: its process, or what it has to know."""

    since: dict[str, int] = field(default_factory=dict)
    """Since when a broker is away, or was the last time."""
    back: dict[str, int] = field(default_factory=dict)
    """When it started again."""

    def is_out(self, node: str, since: int) -> bool:
        """Whether a broker was away, or had just come back, at some time since then."""
        over = self.back.get(node)
        return node in self.since and (over is None or over < self.since[node] or over + RECOVERS_WITHIN >= since)


@dataclass(slots=True, eq=False)
class Owed:
    """An event that is to come to an SHB."""

    event: Logged
    home: str
    shb: str
    at: int
    """When the pubend said it."""


class WithinDelta(TreeJudge):
    """Looks at the way of each event to each SHB that wants it, where that is not too much to ask for."""

    def __init__(self, model: Model, full: Full) -> None:
        super().__init__(model)
        self._full = full
        self._is_on = is_lossless(self.world.options)
        self._outages = Outages()
        self._owed: dict[tuple[PubendId, str], list[Owed]] = {}
        self._seen: set[tuple[PubendId, Tick]] = set()

    def known(self, broker: str, knowledge: Knowledge) -> None:
        """A pubend says something that was not said before, it is to come to all who want it."""
        if not self._is_on or knowledge.reply or not self.knows(broker):
            return
        for tick in knowledge.data.ticks:
            if (knowledge.pubend, tick) not in self._seen:
                self._seen.add((knowledge.pubend, tick))
                event = self.model.histories[knowledge.pubend].events[tick]
                for shb in self._who_want(broker, event):
                    owed = Owed(event, broker, shb, self.world.now)
                    self._owed.setdefault((knowledge.pubend, shb), []).append(owed)

    def delivered(self, broker: str, knowledge: Knowledge) -> None:
        """An SHB is told something."""
        waiting = self._owed.get((knowledge.pubend, broker))
        if not waiting:
            return
        left = []
        for owed in waiting:
            if not knowledge.lo < owed.event.tick <= knowledge.hi:
                left.append(owed)
            elif not self.is_excused(owed):
                self.judge(owed, asked=knowledge.reply)
        self._owed[knowledge.pubend, broker] = left

    def crashed(self, broker: SimBroker) -> None:
        """A broker is away from now on."""
        self._outages.since[broker.name] = self.world.now
        self._look()
        for key in list(self._owed):
            if key[1] == broker.name:
                del self._owed[key]

    def booted(self, broker: SimBroker) -> None:
        """It is back, and has much to learn."""
        self._outages.back[broker.name] = self.world.now

    def checkpoint(self) -> None:
        """Looks for what has not come."""
        self._look()

    def settled(self) -> bool:
        """Looks again."""
        self._look()
        return True

    def judge(self, owed: Owed, *, asked: bool) -> None:
        """It has come: pushed, or because it was `asked` for."""
        raise NotImplementedError

    def is_late(self, owed: Owed) -> str:
        """Says why it should have come by now; "": it need not."""
        raise NotImplementedError

    def is_excused(self, owed: Owed) -> bool:
        """Whether so many were away meanwhile that it need not come of its own accord."""
        path = self.path(owed.home, owed.shb)
        since = owed.at - DETECTED_WITHIN
        if self._outages.is_out(owed.home, since) or self._outages.is_out(owed.shb, since):
            return True
        if not self._full.is_over(owed.at):
            return True
        return self.are_too_many([self._outages.is_out(node, since) for node in path[1:-1]])

    def are_too_many(self, out: list[bool]) -> bool:
        """Of the brokers on the way, in their order, these were away: whether that is more than is promised for."""
        raise NotImplementedError

    def _look(self) -> None:
        for key, waiting in self._owed.items():
            kept = []
            for owed in waiting:
                why = self.is_late(owed)
                if not why:
                    kept.append(owed)
                elif not self.is_excused(owed):
                    self.fail(f"{owed.event.pubend} has an event at {owed.event.tick} that {owed.shb} wants: {why}")
            self._owed[key] = kept

    def _who_want(self, home: str, event: Logged) -> Iterator[str]:
        """The nodes of SHBs that have wanted such an event for long enough, while nobody on the way was away.

        What is not durable counts for nothing: it ends with its session, and who asked for it need not tell its home.
        """
        now = self.world.now
        found: dict[str, None] = {}
        for account in self.model.accounts.values():
            if account.broker in found or account.broker == home or not self.knows(account.broker):
                continue
            lasts = account.durable and account.exists and not account.row.ended
            is_old = lasts and account.attached_at + SETTLES_WITHIN <= now
            if is_old and account.shb in self.model.members.get(event.pubend, {}) and account.row.matches(event):
                path = self.path(home, account.broker)
                if not any(self._outages.is_out(node, now - SETTLES_WITHIN) for node in (path[0], path[-1])):
                    found[account.broker] = None
        yield from found


class D1Copy(WithinDelta):
    """While at most so many brokers between a pubend and an SHB go away, events come by pushes alone."""

    name = "D1"

    def judge(self, owed: Owed, *, asked: bool) -> None:
        """It has to be pushed."""
        if asked:
            self.fail(
                f"{owed.event.pubend} has an event at {owed.event.tick}, which {owed.shb} had to ask for, although at"
                f" most {self.world.options.delta} brokers on the way were away"
            )
        if any(self._outages.is_out(node, owed.at) for node in self.path(owed.home, owed.shb)[1:-1]):
            self.world.sometimes(PAST_AN_OUTAGE)

    def is_late(self, owed: Owed) -> str:
        """Pushed or not, it comes some time."""
        return "it never came" if self.world.now - owed.at > 30 * SECOND else ""

    def are_too_many(self, out: list[bool]) -> bool:
        """All count."""
        return sum(out) > self.world.options.delta


class D7Delay(WithinDelta):
    """While at most so many next to each other are away, an event comes as soon as that is noticed, and bypassed."""

    name = "D7"

    def judge(self, owed: Owed, *, asked: bool) -> None:
        """Whoever asks for it may be given it sooner."""
        why = self.is_late(owed)
        if why:
            self.fail(f"{owed.event.pubend} has an event at {owed.event.tick} that {owed.shb} wants: {why}")

    def is_late(self, owed: Owed) -> str:
        """It comes within what is promised."""
        path = self.path(owed.home, owed.shb)
        since = owed.at - DETECTED_WITHIN
        limit = ON_ITS_WAY + len(path) * self.world.options.network.delay * 4
        away = _longest_row([self._outages.is_out(node, since) for node in path])
        if away:
            limit += DETECTED_WITHIN + away * RING_WAIT
        waits = self.world.now - owed.at
        return f"it has taken {waits // MILLISECOND} ms" if waits > limit else ""

    def are_too_many(self, out: list[bool]) -> bool:
        """Those next to each other count."""
        return _longest_row(out) > self.world.options.delta


def _longest_row(out: list[bool]) -> int:
    longest = count = 0
    for is_out in out:
        count = count + 1 if is_out else 0
        longest = max(longest, count)
    return longest


class D9Idle(TreeJudge):
    """Where nobody comes or goes, what is silent is told to every SHB within a second and the way, at any depth.

    The last that a pubend said before its volume was lost nobody may ever hear.
    """

    name = "D9"

    def __init__(self, model: Model, full: Full) -> None:
        super().__init__(model)
        self._full = full
        self._is_on = is_lossless(self.world.options)
        self._changed_at = 0
        """When somebody came or went the last time."""
        self._decided: dict[PubendId, list[tuple[int, Tick]]] = {}
        """How far a pubend was decided, and when that was said."""
        self._told: dict[tuple[PubendId, str], Tick] = {}

    def known(self, broker: str, knowledge: Knowledge) -> None:
        """A pubend says something."""
        if self._is_on and not knowledge.reply:
            decided = self._decided.setdefault(knowledge.pubend, [])
            decided.append((self.world.now, knowledge.hi))

    def delivered(self, broker: str, knowledge: Knowledge) -> None:
        """An SHB is told something."""
        if self._is_on:
            key = knowledge.pubend, broker
            limit = self._limit(knowledge.pubend, broker)
            due = self._due(knowledge.pubend, limit)
            if key in self._told and self._told[key] < due <= knowledge.hi and self._is_calm(limit):
                self._late(knowledge.pubend, broker, due)
            self._told[key] = max(self._told.get(key, 0), knowledge.hi)

    def crashed(self, broker: SimBroker) -> None:
        """Somebody goes."""
        self._changed_at = self.world.now
        for key in [key for key in self._told if key[1] == broker.name]:
            del self._told[key]

    def booted(self, broker: SimBroker) -> None:
        """Somebody comes."""
        self._changed_at = self.world.now

    def checkpoint(self) -> None:
        """Looks who was told how far."""
        for (pubend, broker), told in self._told.items():
            limit = self._limit(pubend, broker)
            due = self._due(pubend, limit)
            if self._is_calm(limit) and told < due:
                self._late(pubend, broker, due)

    def settled(self) -> bool:
        """Looks again."""
        self.checkpoint()
        return True

    def _is_calm(self, limit: int) -> bool:
        is_long_ago = self.world.now - self._changed_at > CALM_AFTER + limit
        are_there = all(broker.running for broker in self.world.brokers.values())
        return is_long_ago and are_there and self._full.is_over(self.world.now - limit)

    def _late(self, pubend: PubendId, broker: str, due: Tick) -> None:
        limit = self._limit(pubend, broker) // MILLISECOND
        self.fail(f"{broker} was told nothing of {pubend} up to {due}, which was decided {limit} ms ago")

    def _limit(self, pubend: PubendId, broker: str) -> int:
        home = self.home(pubend)
        hops = len(self.path(home, broker)) if home and self.knows(broker) else 0
        return SILENT_WITHIN + 200 * MILLISECOND + hops * (4 * self.world.options.network.delay + MILLISECOND)

    def _due(self, pubend: PubendId, limit: int) -> Tick:
        """How far a pubend was decided so long ago; 0 of one that is gone."""
        history = self.model.histories.get(pubend)
        if history is None or history.gone:
            return 0
        decided = self._decided.get(pubend, [])
        while len(decided) > 1 and decided[1][0] <= self.world.now - 10 * SECOND:
            decided.pop(0)
        return max((hi for at, hi in decided if at <= self.world.now - limit), default=0)
