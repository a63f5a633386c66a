"""The invariants of docs/protocol/invariants.md, each a small class that looks on and raises `Violation`.

R1, soft state, has one of its own for nodes without
roles only: where routers lose their memory, the others see to it that no promise breaks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless_sim.oracles import catch_up, copies, expiry, gaps, listings, order, piles
from gapless_sim.oracles.catch_up import CatchingUp
from gapless_sim.oracles.committing import J1Marked, J2Acknowledged, J5Vain, J10Desks
from gapless_sim.oracles.consumers import X1OneConsumer, X2OneName
from gapless_sim.oracles.contract import Routing
from gapless_sim.oracles.copies import D1Copy, D5Copies, D6Ready, D7Delay, D9Idle, Full
from gapless_sim.oracles.delivery import I1Match, I2Order, I3Gapless, I10Start
from gapless_sim.oracles.delta import D2Rows, D3Said, D4Server
from gapless_sim.oracles.durability import I7Kept, I8Counted
from gapless_sim.oracles.effects import I4ExactlyOnce
from gapless_sim.oracles.expiry import I8Expiry
from gapless_sim.oracles.forks import N2Again, N2Told
from gapless_sim.oracles.gaps import I5GapLegal
from gapless_sim.oracles.hops import HopJudge, K5Answered, K6Queued, K7Consolidated, K12Slack, V4ByHop
from gapless_sim.oracles.kafka import kafka_oracles
from gapless_sim.oracles.links import K10Links, N1Twice
from gapless_sim.oracles.listings import L1Lag
from gapless_sim.oracles.liveness import V1LiveDelivery, V2LiveCuriosity, V3LiveRelease, V4NoStorm
from gapless_sim.oracles.logs import I6OneLog
from gapless_sim.oracles.lost import I5Answered, I5Cached, I5Noted, K11Lost
from gapless_sim.oracles.order import I11Served, I11TotalOrder
from gapless_sim.oracles.piles import D8Pile
from gapless_sim.oracles.positions import U03Positions
from gapless_sim.oracles.progress_probes import V4Probing
from gapless_sim.oracles.receipts import I7Publish, V3LiveForgetting
from gapless_sim.oracles.release import I8Release
from gapless_sim.oracles.rights import A1Held
from gapless_sim.oracles.sessions import I2Served, I5InOnePiece, P1Protocol, P2Bounded
from gapless_sim.oracles.sharing import J10Windows, J11Released, J11Settled, J12Marked, V1SharedDelivery
from gapless_sim.oracles.sharing_book import SharingBook
from gapless_sim.oracles.soft_state import R1Soft, V2LivePath, V3Retired
from gapless_sim.oracles.told import C5ByHop, K3Rows, K8Sideways, K9Forgotten
from gapless_sim.oracles.transactions import J2Committed, J4Once
from gapless_sim.oracles.transforms import J3Transforms
from gapless_sim.oracles.truth import I9Truth, I12SingleAuthority
from gapless_sim.recording.model import Model
from gapless_sim.world.core_links import CoreNetwork
from gapless_sim.world.routers import CELLS, networks_of
from gapless_sim.world.topology import BYPASSING

if TYPE_CHECKING:
    from gapless_sim.recording.observation import Oracle
    from gapless_sim.world.world import World

SOMETIMES = (*gaps.SOMETIMES, *catch_up.SOMETIMES, *expiry.SOMETIMES, *listings.SOMETIMES, *order.SOMETIMES)
"""What should happen sometimes under the eyes of the oracles."""
OF_BYPASSES = (*copies.SOMETIMES, *piles.SOMETIMES)
"""The same of those who look at routers that pass by whoever is away."""


def all_oracles(world: World) -> list[Oracle]:
    """The model and every oracle over it, in the order in which they must be called.

    Before brokers boot: some of them watch the routing seam. Where logs are Kafka's, the model of the brokers' own logs
    has nothing to say, and others judge.
    """
    if world.kafka is not None:
        return kafka_oracles(world)
    model = Model(world)
    routing = Routing(model)
    gapless = I3Gapless(model)
    pieces, answered = I5InOnePiece(model), I5Answered(model)
    pieces.listeners.append(answered.gap_sent)
    counted, probing = I8Counted(model), V4Probing(model)
    told, again = N2Told(model, gapless), N2Again(model)
    world.seam.watchers += [model, counted, routing, probing, told, again]
    return [
        I12SingleAuthority(model),
        model,
        I9Truth(model),
        I7Publish(model),
        I7Kept(model),
        I6OneLog(model),
        I8Release(model),
        counted,
        I8Expiry(model),
        routing,
        I1Match(model),
        I2Order(model),
        I2Served(model),
        P1Protocol(model),
        P2Bounded(model),
        U03Positions(model),
        I5GapLegal(model),
        answered,
        I5Noted(model),
        pieces,
        gapless,
        told,
        again,
        I10Start(model),
        I11TotalOrder(model, gapless),
        I11Served(model),
        I4ExactlyOnce(model),
        J1Marked(model),
        J2Acknowledged(model),
        J5Vain(model),
        J10Desks(model),
        J3Transforms(model),
        J2Committed(model),
        J4Once(model),
        V1LiveDelivery(model, gapless),
        *_oracles_of_sharing(model),
        V2LiveCuriosity(model),
        V3LiveRelease(model),
        V3LiveForgetting(model),
        V4NoStorm(model),
        probing,
        L1Lag(model),
        *([X1OneConsumer(model), X2OneName(model)] if world.roaming is not None else []),
        *([A1Held(model)] if world.options.rule_changes else []),
        CatchingUp(model),
        *_oracles_of_cells(model, pieces),
    ]


def _oracles_of_sharing(model: Model) -> list[Oracle]:
    """What looks at shared subscriptions, where there are some."""
    if model.world.options.workload != "sharing":
        return []
    book = SharingBook(model)
    settled, marked, delivery = J11Settled(model, book), J12Marked(model, book), V1SharedDelivery(model, book)
    book.lookers = (settled, marked)
    model.needs.append(delivery.is_needed)
    return [book, settled, J11Released(model, book), marked, J10Windows(model, book), delivery]


def _oracles_of_cells(model: Model, pieces: I5InOnePiece) -> list[Oracle]:
    """What looks at networks with nodes that have no roles. Only routers of trees work by hops.

    Which neighbour is told of what, and asked how often, is judged where routers are made for cells.
    """
    world = model.world
    if world.topology is None or world.network.frames is None:
        return []
    path, retired = V2LivePath(model), V3Retired(model)
    hops: list[HopJudge] = []
    rest: list[Oracle] = []
    if not world.topology.mesh:
        counted, queued = C5ByHop(model), K6Queued(model)
        by_cells = networks_of(world.options.router) == CELLS
        hops = [V4ByHop(model), *([K3Rows(model), K5Answered(model), K7Consolidated(model)] if by_cells else [])]
        hops += [
            *([K8Sideways(model)] if by_cells else []),
            K9Forgotten(model),
            counted,
            K11Lost(model),
            K12Slack(model),
        ]
        rest += [queued]
        if world.options.router not in BYPASSING:
            cached = I5Cached(model)
            pieces.listeners.append(cached.gap_sent)
            rest += [cached]
        world.seam.watchers += [counted, queued]
        if world.options.router in BYPASSING:
            servers = D4Server(model)
            hops += [D2Rows(model), D3Said(model), servers, D5Copies(model), D6Ready(model)]
            full = Full(world)
            hops += [D1Copy(model, full), D7Delay(model, full), D8Pile(model, full), D9Idle(model, full)]
            world.seam.watchers += [servers, full]
    if isinstance(world.network, CoreNetwork):
        judge = K10Links(model, world.network)
        world.network.watchers.append(judge)
        world.seam.watchers.append(judge)
        rest += [judge, N1Twice(model)]
    world.seam.watchers += [path, retired]
    world.network.frames.watchers += [*hops, retired]
    return [R1Soft(model), path, retired, *hops, *rest]
