"""The base of routers: a method for each fact, and no fact without one (protocol: facts)."""

from __future__ import annotations

from typing import get_args

from gapless.core.network.facts import LinkUp, NetworkMap, Opened, Outcome, PubendMeta, Submitted, Verdict
from gapless.core.network.seam import Effect, Router, RouterBase, RouterContext, Told


def test_every_fact_has_a_method() -> None:
    assert set(RouterBase().handlers()) == set(get_args(Told))


def test_a_router_that_does_nothing_is_one_and_wants_nothing() -> None:
    router: Router = RouterBase()
    handlers = router.handlers()
    facts = (
        RouterContext("node", 1, NetworkMap({})),
        LinkUp(1, "peer", frozenset(), 1),
        Opened(PubendMeta("p@1", "node"), {}),
    )

    assert [list(handlers[type(fact)](0, fact)) for fact in facts] == [[], [], []]
    assert router.next_wake() is None


def test_a_method_gets_its_fact() -> None:
    class Mirror(RouterBase):
        """Says back what it was told."""

        def submitted(self, now: int, submitted: Submitted) -> list[Effect]:
            return [submitted]

    submitted = Submitted("you", "p@1", Outcome(Verdict.OK))

    assert list(Mirror().handlers()[Submitted](0, submitted)) == [submitted]
