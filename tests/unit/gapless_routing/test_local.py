"""What the suite of the contract does not see of the router `local`: strangers, what came early, and what is kept."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gapless.core.network.facts import (
    Enrolled,
    FrameArrived,
    Held,
    Hold,
    Interest,
    Know,
    LinkDown,
    LinkUp,
    NetworkMap,
    Opened,
    OpenRequest,
    Progress,
    Pub,
    PubendMeta,
    Released,
    Saved,
    Seen,
    Submit,
    SubmitOpen,
    Submitted,
    Verdict,
    Wake,
    Want,
)
from gapless.core.network.seam import Router, RouterBase, RouterContext
from gapless.core.stream.columns import EventColumns
from gapless.core.stream.knowledge import Knowledge
from gapless.errors import ConfigurationError
from gapless.plugins import load
from unit.held import held

META = PubendMeta("p@1", "node", stable=100, reach=100)
OTHER = PubendMeta("q@1", "node", stable=50, reach=50)
NOW = 10**9
PUB = Pub("loader", 1, 1, EventColumns(0, b"", b""), "p@1", b"", principal="anonymous")
OPENING = OpenRequest("loader", "i", 1, None, principal="anonymous")


def make() -> RouterBase:
    router: RouterBase = load("routing", "local")(options={})
    assert list(router.start(NOW, RouterContext("node", 1, NetworkMap({})))) == []
    return router


def full(version: int = 3, shb: str = "shb") -> Interest:
    return Interest(shb, 0, version, {}, full=True)


def progress(released: int, delivered: int, shb: str = "shb") -> Progress:
    return Progress(shb, "p@1", released, delivered)


@pytest.fixture
def router() -> RouterBase:
    """With a pubend and an SHB that is a member from tick 40 on."""
    router = make()
    list(router.pubend(NOW, Opened(META, {"shb": 40})))
    list(router.interest(NOW, full()))
    return router


def test_hook_open_routing() -> None:
    router = make()

    assert isinstance(router, Router)
    assert (router.name, router.networks) == ("local", "one")


def test_it_has_no_options() -> None:
    with pytest.raises(ConfigurationError, match="the router 'local' has no option 'depth'"):
        load("routing", "local")(options={"depth": 3})


def test_c2_a_want_for_an_unknown_pubend_is_dropped(router: RouterBase) -> None:
    assert list(router.want(NOW, Want("x@1", ((0, 10),), None, "shb", again=False))) == []


def test_c3_nothing_is_pushed_before_anyone_is_interested() -> None:
    router = make()
    list(router.pubend(NOW, Opened(META, {})))

    assert list(router.know(NOW, Know(Knowledge("p@1", 100, 110)))) == []
    list(router.interest(NOW, full(0)))
    assert len(list(router.know(NOW, Know(Knowledge("p@1", 110, 120))))) == 1


def test_c4_progress_is_the_highest_ever_heard(router: RouterBase) -> None:
    list(router.progress(NOW, progress(50, 60)))

    assert list(router.progress(NOW, progress(30, 65))) == [Released("p@1", 50, 65)]
    assert list(router.progress(NOW, progress(1, 2))) == []


def test_c4_progress_of_a_stranger_counts_for_nothing(router: RouterBase) -> None:
    assert list(router.progress(NOW, progress(50, 60, "stranger"))) == []
    assert list(router.progress(NOW, Progress("shb", "x@1", 5, 5))) == []


def test_c4_nobody_releases_anything_where_there_is_no_member() -> None:
    router = make()
    list(router.pubend(NOW, Opened(META, {})))

    assert list(router.progress(NOW, progress(50, 60))) == []


def test_c5_an_enrolment_of_a_pubend_that_is_not_here_means_nothing(router: RouterBase) -> None:
    assert list(router.enrolled(NOW, Enrolled("x@1", "shb", 5))) == []


def test_seen_says_how_far_the_pubend_is(router: RouterBase) -> None:
    list(router.know(NOW, Know(Knowledge("p@1", 100, 300))))
    list(router.know(NOW, Know(Knowledge("p@1", 0, 200, reply=True), "shb")))
    list(router.know(NOW, Know(Knowledge("x@1", 0, 200))))

    assert list(router.interest(NOW, full())) == [Seen(replace(META, stable=300, reach=300), 40)]
    assert list(router.pubend(NOW, Opened(META, {"shb": 40}))) == [Seen(replace(META, stable=300, reach=300), 40)]


def test_a_late_full_interest_does_not_take_a_version_back(router: RouterBase) -> None:
    list(router.interest(NOW, full(2)))

    assert list(router.interest(NOW, Interest("shb", 3, 4, {}))) == []


def test_holds_go_to_the_pubend_and_their_answer_to_the_shb(router: RouterBase) -> None:
    row = Hold("shb", "p@1", 1, {7: 0})
    held = Held("shb", "p@1", 1, {7: 5})

    assert list(router.hold(NOW, row)) == [row]
    assert list(router.hold(NOW, replace(row, pubend="x@1"))) == []
    assert list(router.held(NOW, held)) == [held]


def test_c6_it_waits_for_nothing_and_has_no_network(router: RouterBase) -> None:
    assert router.next_wake() is None
    for effects in (
        router.wake(NOW, Wake()),
        router.link_up(NOW, LinkUp(1, "b", frozenset(), 1)),
        router.frame(NOW, FrameArrived(1, b"x", 0)),
        router.link_down(NOW, LinkDown(1)),
        router.saved(NOW, Saved("cookie")),
    ):
        assert list(effects) == []


def test_c8_repeating_adds_nothing(router: RouterBase) -> None:
    list(router.progress(NOW, progress(50, 60)))
    before = held(router)
    for version in range(3, 100):
        list(router.interest(NOW, Interest("shb", version, version + 1, {version: None})))  # type: ignore[dict-item]
        list(router.progress(NOW, progress(50 + version, 60 + version)))
        list(router.know(NOW, Know(Knowledge("p@1", version, version + 1))))
        list(router.progress(NOW, progress(5, 6, f"stranger {version}")))

    assert held(router) == before


def test_c9_before_there_is_a_pubend_the_client_is_told_to_come_again() -> None:
    router = make()

    (opening,) = router.open(NOW, SubmitOpen(OPENING, "a"))
    (placed,) = router.place(NOW, Submit(PUB, "b"))

    for effect, reply_to in ((opening, "a"), (placed, "b")):
        assert isinstance(effect, Submitted)
        assert (effect.reply_to, effect.outcome.verdict) == (reply_to, Verdict.RETRY)
