"""A router that does nothing but what a test says, and a harness and a network of such."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import astuple

from gapless.core.gauges import Gauge
from gapless.core.network.facts import Held, Hold, Interest, NetworkMap, Progress, Want
from gapless.core.network.seam import Effect, Router, RouterBase, RouterContext, RouterHandler
from gapless_testing.routing import CHAIN, PAIR, RouterHarness, Topology
from gapless_testing.routing.network import LITTLE, Pace, VirtualNetwork

Answer = Callable[["ScriptedRouter", str, tuple[Any, ...]], "list[Effect]"]


WHOLE = (RouterContext, Interest, Hold, Want, Progress, Held)
"""Noted as they are, not in parts."""


class ScriptedRouter:
    """It notes every fact by the name of its method, with its parts, and says what `answer` gives for it."""

    name = "scripted"

    networks = "nodes"

    def __init__(self, answer: Answer) -> None:
        self.calls: list[tuple[str, int, tuple[Any, ...]]] = []
        self.context = RouterContext("", 0, NetworkMap({}))
        self.wake_at: int | None = None
        self._answer = answer

    def handlers(self) -> Mapping[type, RouterHandler]:
        def noted(method: str) -> RouterHandler:
            return lambda now, fact: self._note(method, now, (fact,) if type(fact) in WHOLE else astuple(fact))

        return {kind: noted(handler.__name__) for kind, handler in RouterBase().handlers().items()}

    def gauges(self) -> list[Gauge]:
        return []

    def next_wake(self) -> int | None:
        return self.wake_at

    def _note(self, method: str, now: int, arguments: tuple[Any, ...]) -> list[Effect]:
        self.calls.append((method, now, arguments))
        if method == "start":
            (self.context,) = arguments
        return self._answer(self, method, arguments)

    def called(self, method: str) -> list[tuple[Any, ...]]:
        """The arguments of every call of one method, without the time."""
        return [arguments for name, _, arguments in self.calls if name == method]


class ScriptedHarness(RouterHarness):
    """Routers of this kind, in the order in which they were made (the first is thrown away by the network)."""

    topologies = (PAIR, CHAIN)

    def __init__(self, answer: Answer = lambda _router, _method, _arguments: []) -> None:
        self._answer = answer

    def make(self) -> Router:
        return ScriptedRouter(self._answer)


def network(
    harness: RouterHarness | None = None, topology: Topology = PAIR, seed: int = 1, pace: Pace = LITTLE
) -> VirtualNetwork:
    """A network that was started, with its links up."""
    made = VirtualNetwork(harness or ScriptedHarness(), topology, seed, pace=pace)
    made.start()
    return made


def router(made: VirtualNetwork, broker: str) -> ScriptedRouter:
    """The router that a broker has now."""
    found: Any = made.hosts[broker].router
    assert isinstance(found, ScriptedRouter)
    return found
