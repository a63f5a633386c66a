"""From options to a world: brokers with their configurations and disks, clients, faults, oracles."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from gapless import plugins
from gapless.core.network.facts import NetworkMap, NetworkNode
from gapless.core.network.seam import Router, RouterContext
from gapless.core.server.authority import Authority
from gapless.node.assembly import Loaded
from gapless.node.config import make_config
from gapless.node.groups import GroupSection
from gapless.security.allow_all import AllowAll
from gapless_sim.recording.session_tap import watched_role
from gapless_sim.world import greedy, kafka_network
from gapless_sim.world.application import SimClient
from gapless_sim.world.broker import SimBroker
from gapless_sim.world.clocks import NodeClock
from gapless_sim.world.disk import Disk, memory_disk
from gapless_sim.world.kafka_network import TOPIC, SimKafka
from gapless_sim.world.routers import HOSTILE
from gapless_sim.world.rules import ALL_MAY, LISTENER
from gapless_sim.world.topology import BYPASSING, READS_IN_TURNS, topology_of
from gapless_sim.world.world import World

if TYPE_CHECKING:
    from gapless_sim.recording.trace import Trace
    from gapless_sim.world.choices import Choices
    from gapless_sim.world.options import Options

NETWORK = "simulated"
FORGET_SECONDS = 30
"""So long a router that keeps copies for an SHB keeps them, and its name, when nobody hears of it (K9)."""
PUBLISHERS_MOST = 2
"""So many clients only publish, where there are nodes without roles."""

# Known here and to no configuration.
plugins.add("release", "greedy", greedy)
plugins.add("log", "model_kafka", kafka_network)


IN_MEMORY_SHARE = 0.3
"""So many nodes say of their volumes that they are in memory: no receipt of an event there may call it durable."""


def build(options: Options, choices: Choices, trace: Trace, new_disk: Callable[[], Disk] | None = None) -> World:
    """The world of these options; nobody runs yet. `new_disk`: makes the brokers' disks; None: in memory."""
    world = World(options, choices, trace)
    if options.workload == "kafka":
        world.kafka = SimKafka(world, NETWORK)
    roles = roles_of(options)
    clocks, disks = choices.stream("clocks"), choices.stream("in memory")
    for name, hosted in roles.items():
        clock = NodeClock(
            drift_ppm=_either_way(clocks.draw(2 * options.clock.drift_ppm + 1)),
            wall_offset_ms=_either_way(clocks.draw(2 * options.clock.offset_ms + 1)),
        )
        makes = new_disk or partial(memory_disk, durable=not disks.chance(IN_MEMORY_SHARE))
        world.brokers[name] = SimBroker(world, name, _load(world, name, hosted, roles), makes, clock)
    hosts = [name for name, hosted in roles.items() if "shb" in hosted]
    for number in range(options.clients):
        # A durable subscription lives at one SHB, so each client has one, unless subscriptions roam; the router finds
        # the PHBs.
        name = f"client{number + 1}"
        first = number % len(hosts)
        theirs = [*hosts[first:], *hosts[:first]] if world.roaming is not None else [hosts[first]]
        world.clients[name] = SimClient(world, name, theirs)
    if world.topology is not None and options.workload == "churn":
        # Whoever only publishes does it at any node.
        draws = choices.stream("topology/publishers")
        for number in range(draws.draw(PUBLISHERS_MOST + 1)):
            name = f"writer{number + 1}"
            world.clients[name] = SimClient(world, name, [draws.pick(list(roles))])
    world.clients_of[options.workload] = list(world.clients.values())
    for workload in options.beside:
        clients = [SimClient(world, f"{workload}{number + 1}", [host]) for number, host in enumerate(hosts[:2])]
        world.clients_of[workload] = clients
        world.clients |= {client.name: client for client in clients}
    return world


def add_intermediate(world: World, name: str) -> SimBroker:
    """A new node without roles, which nobody has started yet."""
    return SimBroker(
        world,
        name,
        _load(world, name, (), roles_of(world.options)),
        next(iter(world.brokers.values())).new_disk,
        NodeClock(),
    )


def roles_of(options: Options) -> dict[str, tuple[str, ...]]:
    """The nodes by name, and what each hosts."""
    topology = topology_of(options)
    if topology is not None:
        return topology.roles
    if options.together:
        both = min(options.phbs, options.shbs)
        nodes: dict[str, tuple[str, ...]] = {f"node{number + 1}": ("phb", "shb") for number in range(both)}
        rest = ("phb",) if options.phbs > both else ("shb",)
        return nodes | {f"node{number + 1}": rest for number in range(both, max(options.phbs, options.shbs))}
    phbs: dict[str, tuple[str, ...]] = {f"phb{number + 1}": ("phb",) for number in range(options.phbs)}
    return phbs | {f"shb{number + 1}": ("shb",) for number in range(options.shbs)}


def phb_section(options: Options, name: str) -> dict[str, Any]:
    """The `[phb]` of a node's configuration."""
    pubend: dict[str, Any] = {
        "name": name,
        "count": options.pubends,
        "min_retain_seconds": options.min_retain_seconds,
        "min_retain_bytes": 1 << 30,
    }
    limits = {"max_retain_seconds": options.max_retain_seconds, "max_retain_bytes": options.max_retain_bytes}
    pubend |= {key: limit for key, limit in limits.items() if limit is not None}
    if options.release_policy:
        pubend["release"] = {"plugin": options.release_policy}
    return {"pubends": [pubend], "publisher_expiry_seconds": options.publisher_expiry_seconds}


def groups_of(options: Options, roles: Mapping[str, tuple[str, ...]]) -> Iterator[GroupSection]:
    """The group of all pubends, if anybody wants a total order: the same at every node."""
    if options.ordered:
        count = options.pubends
        members = [
            f"{node}/{name}"
            for node, hosted in roles.items()
            if "phb" in hosted
            for name in ([node] if count == 1 else [f"{node}-{number}" for number in range(count)])
        ]
        yield GroupSection(name="all", members=tuple(members), silence_seconds=options.group_silence_ms / 1000)


def _load(world: World, name: str, hosted: tuple[str, ...], roles: Mapping[str, tuple[str, ...]]) -> Loaded:
    options = world.options
    settings: dict[str, Any] = {
        "node": {"name": name, "network": NETWORK, "roles": list(hosted) or ["phb"]},
        "storage": {"plugin": "memory"},
        "listen": [],
    }
    if "phb" in hosted:
        settings["phb"] = phb_section(options, name)
        if world.kafka is not None:  # which of the nodes publishes is for the workload to say
            topic = {"name": TOPIC, "publish": False}
            servers = [address.address for address in world.kafka.cluster.addresses]
            settings["phb"]["model_kafka"] = [{"servers": servers, "topics": [topic]}]
        for policy in ("limits", options.release_policy):
            if policy:  # looked for now: in the middle of a run no file may be read
                plugins.load("release", policy)
    if "shb" in hosted:
        settings["shb"] = {
            "catchup_bytes": options.catchup_bytes,
            "catchup_turn_events": options.catchup_turn_events,
            "pfs": options.pfs,
            "link_bytes": options.link_bytes,
            "memory_bytes": options.memory_bytes,
            "subscription_expiry_seconds": options.subscription_expiry_seconds,
        }
    if world.topology is not None:
        network = world.topology.map()
    else:
        network = NetworkMap({node: NetworkNode(frozenset(theirs)) for node, theirs in roles.items()})
    routing: dict[str, Any] = {}
    if options.router == HOSTILE:
        routing["hostility"] = {kind: rate for kind, rate in options.hostility if rate}
    elif options.router in READS_IN_TURNS:
        turn = options.interest_turn
        routing |= {"turn_subscriptions": turn, "turn_bytes": 20 * turn}
        if turn == 1:  # where interests go little by little, even small stamps go by name
            routing["stamp_shbs"] = 1
    elif options.router in BYPASSING:
        routing |= {"delta": options.delta, "forget_seconds": FORGET_SECONDS}
        routing |= {"window_seconds": options.window_seconds, "cache_bytes": options.copies_bytes}
    config = make_config(settings)
    config = config.model_copy(update={"group": tuple(groups_of(options, roles))})
    if not hosted:  # no configuration can say that yet
        config = config.model_copy(update={"node": config.node.model_copy(update={"roles": ()})})
    return Loaded(
        config=config,
        open_auth={"anonymous": plugins.load("auth", "anonymous")},
        authorizer=Authority(ALL_MAY if options.rule_changes else AllowAll()),
        listeners=(cast("Any", LISTENER),) if options.rule_changes else (),
        open_storage=None,
        open_routing=_seeded_router(world, name, routing),
        open_roles={role: _open_role(world, name, role) for role in hosted},
        roaming=world.roaming,
        network=network,
    )


def _open_role(world: World, name: str, role: str) -> Any:
    open_role = plugins.load("role", role)
    return watched_role(world, name, open_role) if role == "shb" else open_role


def _seeded_router(world: World, name: str, config: Mapping[str, Any]) -> Any:
    open_router = plugins.load("routing", world.options.router)

    def open_routing(options: Mapping[str, Any]) -> Router:
        router: Router = open_router(options=options)
        handlers = dict(router.handlers())
        start = handlers[RouterContext]

        def start_here(now: int, context: RouterContext) -> Any:
            seed = world.choices.stream("routers").draw(1 << 30)
            if world.topology is not None:  # no two starts have the same one, where all draws are benign too
                seed += world.brokers[name].boots << 30
            effects = start(now, replace(context, seed=seed, config=config))
            world.seam.started(name, router)
            return effects

        handlers[RouterContext] = start_here
        router.handlers = lambda: handlers  # type: ignore[method-assign]
        return router

    return open_routing


def _either_way(drawn: int) -> int:
    """From 0, 1, 2, 3, 4, … to 0, 1, −1, 2, −2, …: so 0 stays benign, and little stays little."""
    return (drawn + 1) // 2 if drawn & 1 else -(drawn // 2)
