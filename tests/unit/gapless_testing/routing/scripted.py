"""A router that does nothing but what a test says, and a harness and a network of such."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gapless.core.network.seam import Effect, Effects, Router, RouterBase, RouterContext, RouterHandler
from gapless_testing.routing import CHAIN, PAIR, RouterHarness, Topology
from gapless_testing.routing.network import Network

Answer = Callable[["ScriptedRouter", str, tuple[Any, ...]], "list[Effect]"]


class ScriptedRouter:
    """It notes every fact as the call of a method with its parts, and says what `answer` gives for it."""

    name = "scripted"

    def __init__(self, answer: Answer, *, streams: bool) -> None:
        self.needs_stream_links = streams
        self.calls: list[tuple[str, int, tuple[Any, ...]]] = []
        self.context = RouterContext("", 0)
        self.wake_at: int | None = None
        self._answer = answer

    def __getattr__(self, method: str) -> Callable[..., Effects]:
        return lambda now, *arguments: self._note(method, now, arguments)

    def handlers(self) -> Mapping[type, RouterHandler]:
        return RouterBase.handlers(self)  # type: ignore[arg-type]

    def next_wake(self) -> int | None:
        return self.wake_at

    def _note(self, method: str, now: int, arguments: tuple[Any, ...]) -> Effects:
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

    def __init__(self, answer: Answer = lambda _router, _method, _arguments: [], *, streams: bool = False) -> None:
        self._answer = answer
        self._streams = streams

    def make(self) -> Router:
        return ScriptedRouter(self._answer, streams=self._streams)


def network(harness: RouterHarness | None = None, topology: Topology = PAIR, seed: int = 1) -> Network:
    """A network that was started, with its links up."""
    made = Network(harness or ScriptedHarness(), topology, seed)
    made.start()
    return made


def router(made: Network, broker: str) -> ScriptedRouter:
    """The router that a broker has now."""
    found: Any = made.hosts[broker].router
    assert isinstance(found, ScriptedRouter)
    return found
