"""The routing seam under observation: every call into a router and every effect out of one is seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, get_args

from gapless.core.network import facts as routing
from gapless.core.network.seam import Effect, Router, RouterHandler, Told
from gapless_sim.hostile.router import HostileRouter

if TYPE_CHECKING:
    from gapless_sim.broker import SimBroker
    from gapless_sim.world import World

FACTS: Sequence[type] = get_args(Told)
"""What a router can be told."""
EFFECTS: Sequence[type] = get_args(Effect)
"""What a router can want."""


class Watcher(Protocol):
    """Who watches the seam."""

    facts: Sequence[type]
    """The kinds of facts of which it is told when a router is told them."""
    effects: Sequence[type]
    """The kinds of effects of which it is told."""

    def informed(self, broker: str, now: int, fact: Any) -> None:
        """A router is about to be told something."""

    def said(self, broker: str, now: int, effect: Effect) -> None:
        """A router wants something."""

    def vanished(self, broker: str) -> None:
        """A broker's router is another object from now on, which knows nothing."""


class WatchedRouter:
    """A router of which every fact that it is told, and every effect, is told to the watchers."""

    def __init__(self, router: Router, broker: SimBroker, watchers: Sequence[Watcher]) -> None:
        self.name = router.name
        self.needs_stream_links = router.needs_stream_links
        self.next_wake = router.next_wake
        self.gauges = router.gauges
        self.router = router
        """The router itself."""
        self._broker = broker
        self._watchers = watchers
        self._said = {kind: tuple(watcher.said for watcher in watchers if kind in watcher.effects) for kind in EFFECTS}

    def handlers(self) -> dict[type, RouterHandler]:
        """The router's own, watched."""
        return {kind: self._watched(kind, handler) for kind, handler in self.router.handlers().items()}

    def _watched(self, kind: type, handler: RouterHandler) -> RouterHandler:
        name, world, said = self._broker.name, self._broker.world, self._said
        inform = [watcher.informed for watcher in self._watchers if kind in watcher.facts]

        def watched(now: int, fact: Any) -> list[Effect]:
            for tell in inform:
                tell(name, world.now, fact)
            effects = list(handler(now, fact))
            for effect in effects:
                for hear in said[type(effect)]:
                    hear(name, world.now, effect)
            return effects

        return watched


class Seam:
    """The seam of a whole world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.watchers: list[Watcher] = [Tap(world)]
        """Told everything, in this order."""
        self._routers: dict[str, Router] = {}

    def watch(self, broker: SimBroker, router: Router) -> Router:
        """The router of a broker that boots, watched."""
        for watcher in self.watchers:
            watcher.vanished(broker.name)
        return WatchedRouter(router, broker, self.watchers)

    def started(self, broker: str, router: Router) -> None:
        """A broker's router has started."""
        self._routers[broker] = router
        if self._world.is_calm:
            self.calm()

    def calm(self) -> None:
        """No router does wrong on purpose any more."""
        for router in self._routers.values():
            if isinstance(router, HostileRouter):
                router.calm()


class Tap:
    """Tells the oracles of a world what they want to know of the seam."""

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
        """The brokers' crashes are told elsewhere."""
