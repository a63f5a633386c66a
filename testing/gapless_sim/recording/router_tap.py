"""The routing seam under observation, at each machine's tap: every fact that a router receives, and its effects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, get_args

from gapless.core.network import facts as routing
from gapless.core.network.seam import Effect, Router, Told
from gapless_sim.hostile.router import HostileRouter

if TYPE_CHECKING:
    from gapless.core.network.frames import Private
    from gapless.node.machine import Tap
    from gapless_sim.world.broker import SimBroker
    from gapless_sim.world.world import World

FACTS: Sequence[type] = get_args(Told)
"""The facts that a router can receive."""
EFFECTS: Sequence[type] = get_args(Effect)
"""What a router can want."""


class Watcher(Protocol):
    """Who watches the seam."""

    facts: Sequence[type]
    """The kinds of facts with which it is called when a router receives them."""
    effects: Sequence[type]
    """The kinds of effects with which it is called."""

    def informed(self, broker: str, now: int, fact: Any) -> None:
        """A router is about to receive a fact."""

    def said(self, broker: str, now: int, effect: Effect) -> None:
        """A router wants something."""

    def vanished(self, broker: str) -> None:
        """A broker's router is another object from now on, which knows nothing."""


class RouterTap:
    """The seam of a whole world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.watchers: list[Watcher] = [SeamObservation(world)]
        """Called with everything, in this order."""
        self._routers: dict[str, Router] = {}

    def tap(self, broker: SimBroker) -> Tap:
        """Listens to the machine of a broker that boots, for all watchers."""
        for watcher in self.watchers:
            watcher.vanished(broker.name)
        name, world = broker.name, self._world
        informed = {kind: [watcher.informed for watcher in self.watchers if kind in watcher.facts] for kind in FACTS}
        wanted = {kind: [watcher.said for watcher in self.watchers if kind in watcher.effects] for kind in EFFECTS}

        def receive(source: str, said: Any) -> None:
            for call in (wanted if source == "router" else informed).get(type(said), ()):
                call(name, world.now, said)

        return receive

    def started(self, broker: str, router: Router) -> None:
        """A broker's router has started."""
        self._routers[broker] = router
        if self._world.in_liveness:
            self.begin_liveness()

    def router_of(self, broker: str) -> Any:
        """The router that a broker has now, for who judges what it says to nobody."""
        return self._routers[broker]

    def explain(self, broker: str, said: Private) -> str:
        """What the router of a broker says of a frame of its own kind; "": nothing."""
        explain = getattr(self._routers.get(broker), "explain", None)
        return "" if explain is None else str(explain(said))

    def begin_liveness(self) -> None:
        """No router does wrong on purpose any more."""
        for router in self._routers.values():
            if isinstance(router, HostileRouter):
                router.stop_hostility()


class SeamObservation:
    """Calls the oracles of a world with what happens at the seam."""

    facts: Sequence[type] = (routing.Know, routing.Opened, routing.Interest, routing.Progress)
    effects: Sequence[type] = (routing.Know, routing.AskPubend)

    def __init__(self, world: World) -> None:
        self._observe = world.observe

    def informed(self, broker: str, now: int, fact: Any) -> None:
        """A core spoke."""
        observe = self._observe
        if type(fact) is routing.Know:
            observe.known(broker, fact.knowledge)
        elif type(fact) is routing.Opened:
            observe.opened(broker, fact.meta, fact.members)
        elif type(fact) is routing.Interest:
            observe.wanted(broker, fact)
        else:
            observe.progressed(broker, fact)

    def said(self, broker: str, now: int, effect: Effect) -> None:
        """A router spoke."""
        if type(effect) is routing.Know:
            self._observe.delivered(broker, effect.knowledge)
        else:
            assert type(effect) is routing.AskPubend
            self._observe.asked(broker, effect.want)

    def vanished(self, broker: str) -> None:
        """The brokers' crashes reach the oracles elsewhere."""
