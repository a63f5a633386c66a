"""Several routers `delta`: a link that one of them dials is there at once, if both ends are up."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from gapless.core.network.facts import Dial, Hangup, LinkDown, NetworkMap, NetworkNode, SendFrame, Undial
from gapless.core.network.seam import Effect
from gapless_routing.delta.ring import Ring
from gapless_routing.delta.router import DeltaRouter
from gapless_routing.delta.serving import ServedPubend
from unit.gapless_routing.knowledge.net import PHB, SECOND, SHB, Net, P

__all__ = ["CHAIN", "HUB", "DeltaNet", "chain", "settled"]


def chain(*nodes: str) -> NetworkMap:
    """A chain of nodes; one that begins with p has a PHB, one that begins with s or t an SHB."""
    roles = {"p": PHB, "s": SHB, "t": SHB}
    return NetworkMap({name: NetworkNode(frozenset(roles.get(name[0], ()))) for name in nodes}, tuple(pairwise(nodes)))


CHAIN = chain("p", "i", "j", "s")
HUB = NetworkMap(
    {name: NetworkNode(frozenset(roles)) for name, roles in {"p": PHB, "h": (), "s": SHB, "t": SHB}.items()},
    (("h", "p"), ("h", "s"), ("h", "t")),
)
"""A broker between a PHB and two SHBs."""


class DeltaNet(Net):
    """Routers on one map, which dial each other."""

    make = DeltaRouter

    def __init__(self, network: NetworkMap, **options: int) -> None:
        """`options`: of every router."""
        self.broken: set[frozenset[str]] = set()
        """Links that cannot be made."""
        self.down: set[str] = set()
        self.dialled: list[tuple[str, str]] = []
        self._hung_up: list[tuple[str, int]] = []
        super().__init__(network, cut=[f"{one}-{other}" for one, other in network.links], **options)

    def kill(self, *names: str) -> None:
        """Nodes are gone, and all that they had in memory."""
        for name in names:
            self.down.add(name)
            del self.routers[name]
        for name in names:
            for one, other in [pair for pair in self.links if pair[0] == name]:
                self.links.pop((one, other))
                self.lose(other, one)
        self._link_up()

    def lose(self, name: str, peer: str) -> None:
        """One end notices that its link is gone."""
        link = self.links.pop((name, peer), None)
        if link is not None and name in self.routers:
            self._waiting = [frame for frame in self._waiting if frame[:2] != (name, link)]
            self._tell(name, LinkDown(link))

    def revive(self, *names: str) -> None:
        """Nodes are there again, and have nothing but their volume."""
        for name in names:
            self.down.discard(name)
            self.start(name)
        self._link_up()

    def break_link(self, one: str, other: str) -> None:
        """There is no link between two nodes any more, and none can be made."""
        self.broken.add(frozenset((one, other)))
        if (one, other) in self.links:
            self.lose(one, other)
            self.lose(other, one)
        self._link_up()

    def mend_link(self, one: str, other: str) -> None:
        """A link can be made again."""
        self.broken.discard(frozenset((one, other)))

    def flow(self) -> None:
        """Frames arrive, and links are made and end, until nothing is under way."""
        super().flow()
        self._link_up()

    def pubend(self, name: str, pubend: str = P) -> ServedPubend:
        """What a router knows of a pubend."""
        found = self.pubends(name)[pubend]
        assert isinstance(found, ServedPubend)
        return found

    def pubends(self, name: str) -> Mapping[str, object]:
        """All pubends of which a router knows."""
        found: Mapping[str, object] = self.routers[name]._streams._streams
        return found

    def server(self, name: str) -> str | None:
        """Who serves a broker."""
        server = self.pubend(name).server
        return None if server is None else server.broker

    def ring(self, name: str) -> Ring:
        """What a router knows of the brokers around it."""
        ring = self.routers[name]._ring
        assert isinstance(ring, Ring)
        return ring

    def is_ready(self, name: str) -> bool:
        """Whether a broker knows what everybody wants."""
        return self.ring(name).ready

    def wished(self, name: str) -> set[str]:
        """To whom a broker wishes for a link."""
        return set(self.ring(name)._wished)

    def linked(self, name: str) -> set[str]:
        """To whom a broker has a link."""
        return {other for one, other in self.links if one == name}

    def link_or_keep(self, name: str, effect: Effect) -> None:
        if isinstance(effect, Dial):
            self.dialled.append((name, effect.peer))
        elif isinstance(effect, Hangup):
            self._hung_up.append((name, effect.link))
        elif not isinstance(effect, Undial | SendFrame):
            self.effects[name].append(effect)

    def _link_up(self) -> None:
        while self.dialled or self._hung_up or self._waiting:
            if self._hung_up:
                name, link = self._hung_up.pop()
                for one, other in [pair for pair, number in self.links.items() if number == link and pair[0] == name]:
                    self.lose(one, other)
                    self.lose(other, one)
            elif self.dialled:
                one, other = self.dialled.pop(0)
                up = one in self.routers and other in self.routers and (one, other) not in self.links
                if up and frozenset((one, other)) not in self.broken:
                    self.connect(one, other)
            else:
                super().flow()


def settled(network: NetworkMap = CHAIN, **options: int) -> DeltaNet:
    """A network that has settled: its SHBs want the topic `a`, and are enrolled at the pubend of `p`."""
    net = DeltaNet(network, **options)
    net.open()
    for name, node in network.nodes.items():
        if "shb" in node.roles:
            net.subscribe(name, 1, "a")
    net.pass_time(6 * SECOND)
    net.forget()
    return net
