"""The base of routers: a method for each fact, and no fact without one (protocol: facts)."""

from __future__ import annotations

from collections.abc import Hashable
from typing import get_args

from gapless.core.network.facts import LinkUp, Opened, Outcome, Post, Posted, PubendMeta, Submitted, Verdict
from gapless.core.network.seam import Effect, Router, RouterBase, RouterContext, Told


def test_every_fact_has_a_method() -> None:
    assert set(RouterBase().handlers()) == set(get_args(Told))


def test_a_router_that_does_nothing_is_one_and_wants_nothing() -> None:
    router: Router = RouterBase()
    handlers = router.handlers()
    facts = (RouterContext("node", 1), LinkUp(1, "peer", frozenset(), 1), Opened(PubendMeta("p@1", "node"), {}))

    assert [list(handlers[type(fact)](0, fact)) for fact in facts] == [[], [], []]
    assert router.next_wake() is None


def test_a_method_gets_the_parts_of_its_fact() -> None:
    class Mirror(RouterBase):
        """Says back what it was told."""

        def post(self, now: int, to_node: str, role: str, data: bytes) -> list[Effect]:
            return [Posted(to_node, role, data)]

        def submitted(self, now: int, reply_to: Hashable, pubend: str, outcome: Outcome) -> list[Effect]:
            return [Submitted(reply_to, pubend, outcome)]

    handlers = Mirror().handlers()
    submitted = Submitted("you", "p@1", Outcome(Verdict.OK))

    assert list(handlers[Submitted](0, submitted)) == [submitted]
    assert list(handlers[Post](0, Post("node", "phb", b"x"))) == [Posted("node", "phb", b"x")]
