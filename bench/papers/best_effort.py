"""A node whose router makes a best effort and no more, once it is told so: everything else is as ever.

python -m bench.papers.best_effort broker …

It takes what `gapless` takes, and has one more router, `best-effort`: the router `knowledge`, until SIGUSR1 comes,
which is when all subscriptions are there. From then on it pushes what is published, on the same way, by the same code
and in the same frames, and does nothing that would find or mend a loss: see `LEFT_OUT`. Links and their heartbeats,
hellos, the log, the PFS, receipts and what clients acknowledge stay as they are.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any, Final

from gapless import plugins
from gapless.cli import main
from gapless.core.network.facts import Probe, Progress, Want
from gapless.core.network.seam import Effects, Router, RouterContext
from gapless_routing.knowledge.router import KnowledgeRouter

NAME: Final = "best-effort"
LEFT_OUT: Final = "silence on its own, progress and probes for it, wants, the census, and notices that are repeated"
_TIMERS: Final = ("silence", "progress", "rows", "census", "notices")


class BestEffortRouter(KnowledgeRouter):
    """The router `knowledge`, and without what is in `LEFT_OUT` once `only_best_effort` is set."""

    name = NAME
    only_best_effort = False
    """Of all routers of this process."""

    def start(self, now: int, context: RouterContext) -> Effects:
        """As ever; each timer asks whether it still matters."""
        effects = super().start(now, context)
        for kind in _TIMERS:
            self._on_timer[kind] = self._unless_quiet(self._on_timer[kind])
        return effects

    def want(self, now: int, want: Want) -> Effects:
        """Nothing is asked for."""
        return [] if self.only_best_effort else super().want(now, want)

    def progress(self, now: int, progress: Progress) -> Effects:
        """Nobody hears of it."""
        return [] if self.only_best_effort else super().progress(now, progress)

    def probe(self, now: int, probe: Probe) -> Effects:
        """Nobody is asked for progress."""
        return [] if self.only_best_effort else super().probe(now, probe)

    def _unless_quiet(self, call: Any) -> Any:
        return lambda *arguments: None if self.only_best_effort else call(*arguments)


class _Plugin:
    @plugins.hookimpl
    def open_routing(self, options: Mapping[str, Any]) -> Router:
        """A fresh router, which takes no options."""
        assert not options
        return BestEffortRouter()


def _be_quiet(*_: object) -> None:
    BestEffortRouter.only_best_effort = True


if __name__ == "__main__":
    plugins.add("routing", NAME, _Plugin())
    signal.signal(signal.SIGUSR1, _be_quiet)
    main()
