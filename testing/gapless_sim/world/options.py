"""What a run is made of: which faults there are, how often, how many nodes, which policies.

They are drawn from the seed, as in swarm testing: first which classes of faults are on at all, then how often each
comes. So some runs are gentle and long, some have one kind of fault only, and some have all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from gapless_sim.hostile.hostility import BEHAVIOURS
from gapless_sim.world.choices import Choices, Stream

MICROSECOND = 1_000
MILLISECOND = 1_000_000
SECOND = 1_000_000_000

ROOM_FOR_ALL = 64 << 20
"""So many bytes of events no run has."""
FAULTS = ("network", "disk", "process", "clock", "operator")
"""The classes of faults that `--faults` can name."""

SCENARIOS: Mapping[str, Mapping[str, Any]] = {
    "beacon": {"shbs": 1},
    "archive": {"shbs": 1, "min_retain_seconds": 3.0},
    "newcomer": {"shbs": 2, "min_retain_seconds": 0.0},
    "outage": {"shbs": 1},
    "steady": {"shbs": 1, "min_retain_seconds": 0.0},
    "oneway": {"shbs": 2},
    "behind": {"shbs": 2},
    "replaced": {"shbs": 2, "min_retain_seconds": 0.0},
    "restorer": {"shbs": 1},
    "exchange": {"shbs": 1},
    "usurper": {"shbs": 1, "min_retain_seconds": 0.0},
    "crowd": {"shbs": 1, "catchup_bytes": 1_000},
}
"""Scenarios that a whole run can be about, and what they need. They bring their own faults."""


@dataclass(frozen=True, slots=True)
class NetworkFaults:
    """Rates per frame, unless it says otherwise; times in nanoseconds."""

    delay: int = 300 * MICROSECOND
    """The mean of what is added to the least latency."""
    least: int = 50 * MICROSECOND
    """The least latency."""
    loss: float = 0.0
    """Between brokers."""
    repeat: float = 0.0
    """Between brokers; a third of them much later."""
    bytewise: float = 0.05
    """Clients' links that go through the real framing, in pieces."""
    garble: float = 0.0
    """Sends on such a link in which a bit is flipped."""
    slow: float = 0.0
    """Clients' links that are slow towards the client, and links between brokers that are slow in a direction."""
    slow_rate: int = 20_000
    """Bytes a second of such a link."""
    stale: float = 0.0
    """New links of clients on which the last frames of the session before turn up."""
    late: float = 0.0
    """Frames of any earlier link that turn up on the one that the same two have now, a second: on clients' links, and
    between brokers unless those are streams."""
    frames_lost: float = 0.0
    """Frames that vanish on some client's link, a second: the transport breaks its word."""
    resets: float = 0.0
    """Resets of some client's link, a second."""
    flaps: float = 0.0
    """Breaks of some link between brokers, a second."""
    lies: float = 0.0
    """Frames between brokers that name a tick which no pubend can have reached, a second."""
    cuts: float = 0.0
    """Cuts, one-way or both ways, of one pair or around one place, a second."""
    dead: float = 0.0
    """In a tree: links that never come up, as long as a path remains."""
    deaths: float = 0.0
    """In a tree: links that die for ever, a second, likewise."""
    one_ways: float = 0.0
    """In a tree: links that let nothing through in one direction for a while, a second."""
    stalls: float = 0.0
    """In a tree: links on which everything waits for a while, a second."""
    slow_phases: float = 0.0
    """In a tree: links that are slow in one direction for a while, a second."""
    strangers: float = 0.0
    """In a tree: somebody who calls itself a node, and does not know the network's secret, a second."""


@dataclass(frozen=True, slots=True)
class DiskFaults:
    """Times in nanoseconds; events a second."""

    sync_time: int = MILLISECOND
    read_time: int = 200 * MICROSECOND
    stall: float = 0.0
    """Syncs that take up to four seconds."""
    fail_sync: float = 0.0
    fail_write: float = 0.0
    full: float = 0.0
    low: float = 0.0
    wipe: float = 0.0
    phb_wipe: float = 0.0
    """Disks of nodes that host pubends and no subscriptions, whose publishers and subscribers stay."""
    restore: float = 0.0
    """Old copies that an operator puts back."""
    damage: float = 0.0
    """Records of a pubend's log that cannot be read any more, until an operator gives them up; once a run."""


@dataclass(frozen=True, slots=True)
class ProcessFaults:
    """Events a second."""

    crash: float = 0.0
    """Loss of power."""
    kill: float = 0.0
    """The process alone dies."""
    fuse: float = 0.0
    """Crashes at the so manieth effect from then on."""
    crash_in_recovery: float = 0.0
    """The share of boots that crash in the middle."""
    pause: float = 0.0
    slow: float = 0.0
    """Phases in which every turn is late."""
    client_crash: float = 0.0
    client_pause: float = 0.0


@dataclass(frozen=True, slots=True)
class ClockFaults:
    """What clocks do."""

    drift_ppm: int = 0
    """Up to so much, either way."""
    offset_ms: int = 0
    """Wall clocks differ by up to so much."""
    jumps: float = 0.0
    """Jumps of some wall clock, a second."""
    jump_ms: int = 0
    """How far, either way."""


@dataclass(frozen=True, slots=True)
class Options:
    """Everything that a seed decides before the run begins."""

    seed: int
    router: str = "local"
    workload: str = "churn"
    beside: tuple[str, ...] = ()
    """The workloads whose applications live in the same world as those of `churn`, with clients of their own."""
    scenario: str = ""
    """The scenario that the run is about, which has the world for itself; "": none."""
    phbs: int = 1
    shbs: int = 1
    together: bool = True
    """Whether a node hosts both roles, as far as there are as many."""
    topology: str = ""
    """How nodes hang together: a `tree` of cells, a `mesh` of the same nodes, or a tree of single `nodes`.

    "": a mesh of PHBs and SHBs alone."""
    cells: str = ""
    """The nodes of such a network, as `gapless_sim.world.topology` writes them."""
    delta: int = 0
    """So many nodes next to each other may be away: of a router that bypasses them; of others none."""
    window_seconds: int = 10
    """So long such a router keeps every event, unless there is no room for it."""
    copies_bytes: int = ROOM_FOR_ALL
    """So much room it has for them."""
    link_weight: int = 512
    """Events are small here: so many times over, each byte that waits on a link between brokers is said to wait."""
    outages: float = 0.0
    """Brokers that go away for a while, a second: no more at a time than may be away next to each other."""
    roaming: bool = False
    """Whether subscriptions are consumed at any SHB of a tree or mesh."""
    link_cores: bool = False
    """Whether the links between brokers have the cores of production at their ends; else a model of them."""
    pubends: int = 1
    """Of each PHB."""
    clients: int = 3
    subscriptions: int = 4
    """About how many there may be at a time."""
    duration: int = 20 * SECOND
    """Of the phase with faults."""
    rate: float = 8.0
    """About how many operations of applications a second."""
    max_retain_seconds: float | None = None
    max_retain_bytes: int | None = None
    release_policy: str = ""
    """The plugin of another release policy; "": the one that ships, with the limits above."""
    min_retain_seconds: float = 0.0
    publisher_expiry_seconds: float = 900.0
    """How long a publisher without a name is known after its session."""
    subscription_expiry_seconds: float | None = None
    retires: float = 0.0
    """Retirements of an SHB that is down, a second."""
    replacements: float = 0.0
    """In a tree: SHBs whose machine is lost and replaced, a second."""
    interest_turn: int = 400
    """In a tree: more subscriptions than that are said, and read, in several turns; with 1, each in one of its own."""
    additions: float = 0.0
    """Pubends that an operator adds to a PHB, which starts anew for it, a second."""
    policy_changes: float = 0.0
    """Changes of `max_retain_seconds`, likewise."""
    ordered: float = 0.0
    """The share of subscriptions in total order; with any, all pubends are one group."""
    group_silence_ms: int = 200
    """How soon a member of the group says that it is silent."""
    map_changes: float = 0.0
    """Changes of the network's map, a second: where there are cells with link cores."""
    second_processes: float = 0.0
    """Second processes of a node without roles, a second: likewise."""
    second_hosts: float = 0.0
    """Second processes of a node that is a PHB and nothing else, likewise."""
    rule_changes: float = 0.0
    """Changes of the rules about who may consume, a second: with any, there are rules."""
    wants_silence: float = 0.3
    catchup_bytes: int = 48 << 20
    """What an SHB keeps of what its readers share: with less, they ask the PFS and the network again."""
    pfs: str = "precise"
    catchup_turn_events: int = 16_384
    """After so many events of readers an SHB lets what is live have its turn."""
    link_bytes: int = 16 << 20
    """How many bytes of events may wait on a client's link, in either direction, until its subscriptions wait, or its
    publishers."""
    memory_bytes: int = 128 << 20
    """What an SHB may hold of all that is read for clients or waits for them."""
    network: NetworkFaults = field(default_factory=NetworkFaults)
    disk: DiskFaults = field(default_factory=DiskFaults)
    process: ProcessFaults = field(default_factory=ProcessFaults)
    clock: ClockFaults = field(default_factory=ClockFaults)
    hostility: tuple[tuple[str, float], ...] = ()

    @property
    def is_churn_alone(self) -> bool:
        """Whether all applications bear what operators do: events are released early, and SHBs given up."""
        return self.workload == "churn" and not self.beside

    @property
    def early_release(self) -> bool:
        """Whether events may be released that somebody still needs, at some time of the run."""
        limits = self.max_retain_seconds, self.max_retain_bytes
        return limits != (None, None) or bool(self.release_policy) or self.policy_changes > 0

    def describe(self) -> str:
        """Only what is on, for people: what this run is about."""
        shown: list[str] = []
        _describe(asdict(self), asdict(Options(self.seed)), "", shown)
        return " ".join(shown)


def _describe(values: dict[str, Any], plain: dict[str, Any], prefix: str, shown: list[str]) -> None:
    for name, value in values.items():
        if isinstance(value, dict):
            _describe(value, plain[name], f"{prefix}{name}.", shown)
        elif name == "hostility":
            shown += [f"{kind}={_short(rate)}" for kind, rate in value if rate]
        elif value != plain[name]:
            shown.append(f"{prefix}{name}={_short(value)}")


def _short(value: Any) -> str:
    """Times in the unit in which they are few, rates with two digits."""
    if isinstance(value, float):
        return f"{value:.2g}"
    if isinstance(value, int) and not isinstance(value, bool) and value >= MICROSECOND:
        for unit, size in (("s", SECOND), ("ms", MILLISECOND), ("us", MICROSECOND)):
            if value % size == 0:
                return f"{value // size}{unit}"
    return str(value)


STORY_SHARE = 0.25
"""Of all runs so many are about one scenario."""
LATE_SHARE = 0.2
"""In so many of the others frames are late beyond their link."""
LIES_SHARE = 0.15
"""In so many of those with several nodes a broker says of a tick what cannot be."""
FRAMES_LOST_SHARE = 0.2
"""In so many of them frames vanish on the way to clients and from them."""
MEETING_NO_GAP = ("transforms", "transactions")
"""The workloads whose applications know of no gap: nothing is released early, and no disk is lost."""
BESIDE: Sequence[tuple[str, ...]] = (*((name,) for name in MEETING_NO_GAP), MEETING_NO_GAP)
"""What lives beside `churn` where anything does."""
BESIDE_SHARE = 0.12
"""In so many of those about nothing but `churn`."""
DAMAGE_SHARE = 0.15
"""In so many of those about nothing but `churn` some records of a log cannot be read any more."""


PHB_WIPE_SHARE = 0.2
"""In so many of those where PHBs are nodes of their own they lose their disks, and nobody else does."""


class _Draws:
    """Draws whether a class of faults is on, and how often it comes."""

    def __init__(self, stream: Stream, faults: tuple[str, ...]) -> None:
        self._stream = stream
        self._faults = faults

    def on(self, kind: str, share: float) -> bool:
        """Whether something of this class is on."""
        wanted = self._stream.chance(share)
        return wanted and kind in self._faults

    def rate(self, kind: str, most: float, share: float = 0.4) -> float:
        """How often it comes, in eighths of the most; 0 if it is off."""
        return most * (1 + self._stream.draw(8)) / 8 if self.on(kind, share) else 0.0


def draw_options(
    seed: int, choices: Choices, *, router: str, workload: str | None = None, faults: tuple[str, ...] = FAULTS
) -> Options:
    """The options of a seed. Only these classes of faults can be on."""
    draws = choices.stream("options")
    drawn = _draw_any(seed, draws, router, workload, faults)
    if draws.chance(STORY_SHARE):
        scenarios = [name for name, needs in SCENARIOS.items() if router != "local" or needs["shbs"] == 1]
        scenario = draws.pick(scenarios)
        if workload in {None, "scenarios"} and faults == FAULTS:
            return about(drawn, scenario)
    # From streams of their own, for they came later: the seeds that do not draw them are what they were.
    expiry = choices.stream("options/publishers").pick((900.0, 900.0, 0.3, 2.0))
    drawn = replace(drawn, publisher_expiry_seconds=expiry)
    late = _Draws(choices.stream("options/late"), faults).rate("network", 2.0, LATE_SHARE)
    lost = _Draws(choices.stream("options/frames lost"), faults).rate("network", 1.0, FRAMES_LOST_SHARE)
    lies = _Draws(choices.stream("options/lies"), faults).rate("network", 1.0, LIES_SHARE) if router != "local" else 0.0
    drawn = replace(drawn, network=replace(drawn.network, late=late, frames_lost=lost, lies=lies))
    beside = choices.stream("options/beside")
    if drawn.workload == "churn" and beside.chance(BESIDE_SHARE):
        drawn = replace(drawn, beside=beside.pick(BESIDE))
    if drawn.beside or drawn.workload in MEETING_NO_GAP:
        disk = replace(drawn.disk, wipe=0.0, restore=0.0)
        drawn = replace(drawn, max_retain_seconds=None, retires=0.0, policy_changes=0.0, disk=disk)
        return replace(drawn, roaming=True) if drawn.workload == "transactions" else drawn
    if drawn.workload == "kafka":
        # Gateways side by side, each a node with both roles; or one gateway for SHBs elsewhere. Nothing is released
        # early, for retention is Kafka's.
        nodes = choices.stream("options/kafka").between(1, 2)
        disk = replace(drawn.disk, wipe=0.0, restore=0.0)
        drawn = replace(drawn, phbs=nodes, shbs=nodes, together=True, topology="", disk=disk)
        if router != "local":
            drawn = replace(drawn, phbs=1, together=False)
        return replace(drawn, max_retain_seconds=None, retires=0.0, additions=0.0, policy_changes=0.0)
    if drawn.workload in {"roaming", "committing"}:
        # Their applications know of no disk that is lost, and of no SHB that is given up.
        return replace(drawn, roaming=True, retires=0.0, disk=replace(drawn.disk, wipe=0.0, restore=0.0))
    if drawn.workload == "sharing":
        lease = choices.stream("options/sharing").pick((None, None, None, None, 3.0, 8.0))
        disk = replace(drawn.disk, wipe=0.0, restore=0.0)
        return replace(drawn, retires=0.0, disk=disk, subscription_expiry_seconds=lease)
    if drawn.workload != "churn":
        return drawn  # scenarios know what they are told of
    damage = _Draws(choices.stream("options/damage"), faults).rate("disk", 0.4, DAMAGE_SHARE)
    phb_wipe = _Draws(choices.stream("options/phb wiped"), faults).rate("operator", 0.3, PHB_WIPE_SHARE)
    if drawn.together or router == "local":
        phb_wipe = 0.0
    return replace(drawn, disk=replace(drawn.disk, damage=damage, phb_wipe=phb_wipe))


def about(drawn: Options, scenario: str) -> Options:
    """A run about a scenario: what was drawn, without the faults."""
    changes = dict(SCENARIOS[scenario])
    if drawn.router != "local":
        changes |= {"together": False, "phbs": 1}
    return replace(
        drawn,
        workload="scenarios",
        scenario=scenario,
        max_retain_seconds=None,
        retires=0.0,
        additions=0.0,
        policy_changes=0.0,
        network=NetworkFaults(delay=min(drawn.network.delay, 5 * MILLISECOND)),
        disk=DiskFaults(min(drawn.disk.sync_time, 20 * MILLISECOND), min(drawn.disk.read_time, MILLISECOND)),
        process=ProcessFaults(),
        clock=replace(drawn.clock, jumps=0.0),
        hostility=(),
        **changes,
    )


def with_policies(options: Options, draws: Stream) -> Options:
    """The same, and now and then with another release policy, or with leases: drawn apart from all else.

    Scenarios know what is kept for how long, and are left alone.
    """
    policy = draws.pick(("", "", "", "", "bytes", "bytes and age", "greedy"))
    expiry = float(draws.pick((1, 2, 5))) if draws.chance(0.3) else None
    max_bytes = draws.pick((2_000, 500, 10_000))
    if not options.is_churn_alone:
        return options
    if policy == "greedy":
        options = replace(options, release_policy=policy, max_retain_seconds=None)
    elif policy:
        seconds = options.max_retain_seconds if policy == "bytes and age" else None
        options = replace(options, max_retain_bytes=max_bytes, max_retain_seconds=seconds)
    return replace(options, subscription_expiry_seconds=expiry)


RULES_SHARE = 0.3
"""In so many of the runs about `roaming` alone there are rules, which change."""


def with_rules(options: Options, draws: Stream) -> Options:
    """The same, and now and then with rules: drawn apart from all else.

    Where disks are lost, applications go on with their tokens, as often as they have to: they are left alone.
    """
    often, rate = draws.chance(RULES_SHARE), draws.pick((0.2, 0.5))
    if not often or options.workload != "roaming" or options.replacements:
        return options
    return replace(options, rule_changes=rate)


ORDERED_SHARE = 0.2
"""In so many of the runs about nothing but `churn` or `roaming` with several pubends there is a total order."""


CLOCKS_APART_MS = 60_000
"""With clocks that may be further apart there is no total order."""


def with_order(options: Options, draws: Stream) -> Options:
    """The same, and now and then with a group in total order: drawn apart from all else, once the nodes are known.

    Pubends that are added to a broker are in no group, and carry what is subscribed to. Where a clock is hours ahead of
    another one, the events stamped by it wait for hours: nothing would come right within the time that a run has.
    """
    wanted, share, silence = draws.chance(ORDERED_SHARE), draws.pick((0.5, 1.0)), draws.pick((200, 50, 1_000))
    several = options.phbs * options.pubends > 1
    apart = options.clock.jumps > 0 and options.clock.jump_ms > CLOCKS_APART_MS
    if options.workload not in {"churn", "roaming"} or not (wanted and several) or options.additions or apart:
        return options
    return replace(options, ordered=share, group_silence_ms=silence)


def _draw_any(seed: int, draws: Stream, router: str, workload: str | None, faults: tuple[str, ...]) -> Options:
    local, rates = router == "local", _Draws(draws, faults)
    return Options(
        seed=seed,
        router=router,
        workload=workload or draws.pick(("churn", "scenarios")),
        phbs=1 if local else draws.pick((1, 2)),
        shbs=1 if local else draws.pick((1, 2)),
        together=local or draws.chance(0.3),
        pubends=draws.pick((1, 2)),
        clients=draws.between(2, 4),
        subscriptions=draws.between(2, 8),
        duration=draws.between(8, 25) * SECOND,
        rate=float(draws.pick((8, 3, 20, 40))),
        catchup_bytes=(48 << 20, 0, 4_000)[seed % 3],
        catchup_turn_events=(16_384, 2)[seed % 2],
        pfs=("precise", "precise", "precise", "imprecise")[seed % 4],
        link_bytes=300 if seed % 5 == 0 else 16 << 20,
        memory_bytes=6_000 if seed % 4 == 1 else 128 << 20,
        max_retain_seconds=float(draws.pick((2, 5, 10))) if draws.chance(0.25) else None,
        min_retain_seconds=float(draws.pick((0, 0, 0, 3))),
        retires=0.05 if rates.on("operator", 0.15) else 0.0,
        additions=0.1 if rates.on("operator", 0.2) else 0.0,
        policy_changes=0.1 if rates.on("operator", 0.15) else 0.0,
        wants_silence=draws.pick((0.3, 0.0, 1.0)),
        network=_draw_network(draws, rates),
        disk=_draw_disk(draws, rates),
        process=_draw_process(rates),
        clock=_draw_clock(draws, rates),
        hostility=tuple((name, rates.rate("network", 0.3, 0.35)) for name in BEHAVIOURS) if router == "hostile" else (),
    )


def _draw_network(draws: Stream, rates: _Draws) -> NetworkFaults:
    return NetworkFaults(
        delay=draws.pick((300, 50, 5_000, 50_000)) * MICROSECOND,
        loss=rates.rate("network", 0.2),
        repeat=rates.rate("network", 0.1),
        bytewise=draws.pick((0.05, 0.0, 1.0)),
        garble=rates.rate("network", 0.02, 0.2),
        slow=rates.rate("network", 0.5, 0.25),
        slow_rate=draws.pick((20_000, 2_000, 200_000)),
        stale=rates.rate("network", 0.5, 0.3),
        resets=rates.rate("network", 1.0),
        flaps=rates.rate("network", 0.5, 0.3),
        cuts=rates.rate("network", 0.4),
    )


def _draw_disk(draws: Stream, rates: _Draws) -> DiskFaults:
    return DiskFaults(
        sync_time=draws.pick((1_000, 100, 20_000, 200_000)) * MICROSECOND,
        read_time=draws.pick((200, 20, 20_000)) * MICROSECOND,
        stall=rates.rate("disk", 0.02, 0.2),
        fail_sync=rates.rate("disk", 0.2, 0.3),
        fail_write=rates.rate("disk", 0.1, 0.2),
        full=rates.rate("disk", 0.1, 0.15),
        low=rates.rate("disk", 0.1, 0.15),
        wipe=rates.rate("operator", 0.05, 0.06),
        restore=rates.rate("operator", 0.05, 0.06),
    )


def _draw_process(rates: _Draws) -> ProcessFaults:
    return ProcessFaults(
        crash=rates.rate("process", 0.4),
        kill=rates.rate("process", 0.4, 0.3),
        fuse=rates.rate("process", 0.4),
        crash_in_recovery=rates.rate("process", 0.3, 0.3),
        pause=rates.rate("process", 0.3, 0.3),
        slow=rates.rate("process", 0.2, 0.2),
        client_crash=rates.rate("process", 0.4),
        client_pause=rates.rate("process", 0.3, 0.3),
    )


def _draw_clock(draws: Stream, rates: _Draws) -> ClockFaults:
    return ClockFaults(
        drift_ppm=draws.pick((200, 20_000)) if rates.on("clock", 0.4) else 0,
        offset_ms=draws.pick((50, 2_000, 30_000)) if rates.on("clock", 0.4) else 0,
        jumps=rates.rate("clock", 0.2, 0.3),
        jump_ms=draws.pick((100, 3_000, 90_000, 7_200_000)),
    )
