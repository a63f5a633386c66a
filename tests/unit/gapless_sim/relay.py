"""A router for trees, for tests: honest, and simple rather than good.

Inside is the router `hostile` without any hostility, which needs a link to everybody. Around it each frame for a broker
further away goes from neighbour to neighbour, by any that is nearer to it; where none is, by a mate. A link to somebody is
there while his beats come. Frames get lost on the way, as on any datagram link.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

import msgspec
from msgspec.structs import replace

from gapless import plugins
from gapless.core.network import facts as f
from gapless.core.network.frames import Private, decode, encode
from gapless.core.network.seam import Effect, Effects, RouterBase, RouterContext
from gapless.plugins import hookimpl
from gapless_sim.hostile.router import HostileRouter
from gapless_sim.topology import Cell, Topology

BEAT = 500_000_000
SILENT = 3 * BEAT
HOPS_MOST = 16
BEATING, CARRYING = 1, 2


class RelayRouter(RouterBase):
    name = "relay"

    def __init__(self) -> None:
        self._inner = HostileRouter()
        self._now = 0
        self._beat_at = 0
        self._links: dict[str, list[int]] = {}
        """The links to neighbours, by their names."""
        self._peer: dict[int, str] = {}
        self._heard: dict[str, tuple[int, int, int]] = {}
        """Of everybody: his life, when he was heard last, and the link that the inner router has to him."""
        self._serial = 0

    def start(self, now: int, context: RouterContext) -> Effects:
        self._now, self._me, self._network = now, context.broker, context.network
        self._life = context.seed
        self._random = Random(context.seed)
        self._map = _topology_of(context.network)
        for one, other in context.network.links:
            if self._me in (one, other):
                yield f.Dial(other if one == self._me else one)
        yield from self._around(self._inner.start(now, replace(context, config={})))
        self._beat_at = now + BEAT

    def next_wake(self) -> int | None:
        inner = self._inner.next_wake()
        return self._beat_at if inner is None else min(inner, self._beat_at)

    def handlers(self) -> Mapping[type, Any]:
        mine = {RouterContext: self.start, f.Wake: self.wake, f.LinkUp: self.link_up}
        mine |= {f.LinkDown: self.link_down, f.FrameArrived: self.frame, f.LinkRoom: lambda _now, _room: ()}
        return {kind: self._through(handler) for kind, handler in self._inner.handlers().items()} | mine

    def wake(self, now: int, wake: f.Wake) -> Effects:
        self._now = now
        if now >= self._beat_at:
            self._beat_at = now + BEAT
            for node in self._network.nodes:
                if node != self._me:
                    yield from self._send(node, BEATING, self._life.to_bytes(8, "big"), self._me, 0)
            for node, (_, at, link) in list(self._heard.items()):
                if now - at > SILENT:
                    del self._heard[node]
                    yield from self._around(self._inner.link_down(now, f.LinkDown(link)))
        due = self._inner.next_wake()
        if due is not None and due <= now:
            yield from self._around(self._inner.wake(now, wake))

    def link_up(self, now: int, up: f.LinkUp) -> Effects:
        self._links.setdefault(up.peer, []).append(up.link)
        self._peer[up.link] = up.peer
        return ()

    def link_down(self, now: int, down: f.LinkDown) -> Effects:
        peer = self._peer.pop(down.link, None)
        if peer is not None:
            self._links[peer].remove(down.link)
            yield f.Dial(peer)

    def frame(self, now: int, arrived: f.FrameArrived) -> Effects:
        self._now = now
        message = decode(arrived.frame).message
        assert isinstance(message, Private)
        source, target, hops, data = msgspec.msgpack.decode(message.data)
        if target != self._me:
            yield from self._send(target, message.kind, data, source, hops + 1)
        elif message.kind == BEATING:
            yield from self._on_beat(source, int.from_bytes(data, "big"))
        elif source in self._heard:
            link = self._heard[source][2]
            yield from self._around(self._inner.frame(now, f.FrameArrived(link, data)))

    def _through(self, handler: Any) -> Any:
        def handle(now: int, fact: Any) -> Effects:
            self._now = now
            return self._around(handler(now, fact))

        return handle

    def _on_beat(self, source: str, life: int) -> Iterator[Effect]:
        before = self._heard.get(source)
        if before is not None and before[0] == life:
            self._heard[source] = (life, self._now, before[2])
            return
        if before is not None:
            yield from self._around(self._inner.link_down(self._now, f.LinkDown(before[2])))
        self._serial += 1
        self._heard[source] = (life, self._now, self._serial)
        up = f.LinkUp(self._serial, source, self._network.nodes[source].roles, life)
        yield from self._around(self._inner.link_up(self._now, up))

    def _around(self, effects: Effects) -> Iterator[Effect]:
        """What the inner router wants, with its frames on their way through the tree."""
        for effect in list(effects):
            if isinstance(effect, f.SendFrame):
                target = next((node for node, heard in self._heard.items() if heard[2] == effect.link), None)
                if target is not None:
                    yield from self._send(target, CARRYING, effect.frame, self._me, 0)
            elif not isinstance(effect, f.Dial | f.Hangup):
                yield effect

    def _send(self, target: str, kind: int, data: bytes, source: str, hops: int) -> Iterator[Effect]:
        ways = self._map.cells_between(self._me, target)
        nearer = ways[1].nodes if len(ways) > 1 else (target,)
        mates = [mate for mate in ways[0].nodes if mate != self._me]
        live = [node for node in (target,) if self._links.get(node)] or [n for n in nearer if self._links.get(n)]
        live = live or [mate for mate in mates if self._links.get(mate)]
        if len(ways) > 1 and mates and self._random.random() < 0.1:  # the nearer one may be blind
            live += [mate for mate in mates if self._links.get(mate)]
        if live and hops < HOPS_MOST:
            node = live[self._random.randrange(len(live))]
            frame = encode(Private(kind, msgspec.msgpack.encode((source, target, hops, data))))
            yield f.SendFrame(self._links[node][-1], frame, urgent=True)


def _topology_of(network: f.NetworkMap) -> Topology:
    """The tree again, from the map that routers have."""
    cells: dict[str, list[str]] = {}
    for node, what in network.nodes.items():
        cells.setdefault(what.place[0], []).append(node)
    place = {node: what.place[0] for node, what in network.nodes.items()}
    done: dict[str, Cell] = {}
    first = next(iter(cells))
    done[first] = Cell(tuple(cells[first]))
    while len(done) < len(cells):
        for one, other in [pair for link in network.links for pair in (link, link[::-1])]:
            if place[one] in done and place[other] not in done:
                done[place[other]] = Cell(tuple(cells[place[other]]), (), place[one])
    return Topology(list(done.values()))


@hookimpl
def open_routing(options: Mapping[str, Any]) -> RelayRouter:
    return RelayRouter()


plugins.add("routing", "relay", sys.modules[__name__])
