"""The routing seam under observation: every call into a router and every effect out of one is seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, get_args

from gapless.core import routing
from gapless.testing.hostile.router import HostileRouter

if TYPE_CHECKING:
    from gapless.testing.sim.broker import SimBroker
    from gapless.testing.sim.world import World

CALLS: Sequence[str] = (
    "start",
    "wake",
    "link_up",
    "link_down",
    "frame",
    "pubend",
    "know",
    "probe",
    "enrolled",
    "held",
    "submitted",
    "interest",
    "hold",
    "want",
    "progress",
    "open",
    "place",
    "saved",
)
"""What a router can be told."""
EFFECTS: Sequence[type] = get_args(routing.Effect)
"""What a router can want."""


class Watcher(Protocol):
    """Who watches the seam."""

    calls: Sequence[str]
    """The methods of whose calls it is told."""
    effects: Sequence[type]
    """The kinds of effects of which it is told."""

    def called(self, broker: str, now: int, method: str, arguments: tuple[Any, ...]) -> None:
        """A router is about to be told something."""

    def said(self, broker: str, now: int, effect: routing.Effect) -> None:
        """A router wants something."""

    def vanished(self, broker: str) -> None:
        """A broker's router is another object from now on, which knows nothing."""


class WatchedRouter:
    """A router whose every call and effect is told to the watchers."""

    def __init__(self, router: routing.Router, broker: SimBroker, watchers: Sequence[Watcher]) -> None:
        self.name = router.name
        self.needs_stream_links = router.needs_stream_links
        self.next_wake = router.next_wake
        self.router = router
        """The router itself."""
        self._broker = broker
        self._said = {kind: tuple(watcher.said for watcher in watchers if kind in watcher.effects) for kind in EFFECTS}
        for method in CALLS:
            called = tuple(watcher.called for watcher in watchers if method in watcher.calls)
            setattr(self, method, self._watched(method, getattr(router, method), called))

    def _watched(
        self, method: str, call: Callable[..., routing.Effects], called: Sequence[Callable[..., None]]
    ) -> Callable[..., list[routing.Effect]]:
        name, world, said = self._broker.name, self._broker.world, self._said

        def watched(now: int, *arguments: Any) -> list[routing.Effect]:
            for hear in called:
                hear(name, world.now, method, arguments)
            effects = list(call(now, *arguments))
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
        self._routers: dict[str, routing.Router] = {}

    def watch(self, broker: SimBroker, router: routing.Router) -> routing.Router:
        """The router of a broker that boots, watched."""
        for watcher in self.watchers:
            watcher.vanished(broker.name)
        return WatchedRouter(router, broker, self.watchers)  # type: ignore[return-value]

    def started(self, broker: str, router: routing.Router) -> None:
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

    calls: Sequence[str] = ("know", "pubend", "interest", "progress")
    effects: Sequence[type] = (routing.Deliver, routing.AskPubend)

    def __init__(self, world: World) -> None:
        self._observe = world.observe

    def called(self, broker: str, now: int, method: str, arguments: tuple[Any, ...]) -> None:
        """A core spoke."""
        observe = self._observe
        if method == "know":
            observe.known(broker, arguments[0])
        elif method == "pubend":
            observe.opened(broker, *arguments)
        elif method == "interest":
            observe.wanted(broker, arguments[0])
        else:
            observe.progressed(broker, arguments[0])

    def said(self, broker: str, now: int, effect: routing.Effect) -> None:
        """A router spoke."""
        if type(effect) is routing.Deliver:
            self._observe.delivered(broker, effect.knowledge)
        else:
            assert type(effect) is routing.AskPubend
            self._observe.asked(broker, effect.want)

    def vanished(self, broker: str) -> None:
        """The brokers' crashes are told elsewhere."""
