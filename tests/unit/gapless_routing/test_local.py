"""The router `local`, statement by statement of the contract (protocol: contract; T4, T20, T27, T37, T48)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gapless.core.network.facts import (
    AskInterest,
    AskPubend,
    Enrol,
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
    Outcome,
    Probe,
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
    assert (router.name, router.needs_stream_links) == ("local", False)


def test_it_has_no_options() -> None:
    with pytest.raises(ConfigurationError, match="the router 'local' has no option 'depth'"):
        load("routing", "local")(options={"depth": 3})


# C1 truth


@pytest.mark.parametrize("reply_to", [None, "shb"])
def test_c1_knowledge_is_delivered_as_it_was_said(router: RouterBase, reply_to: str | None) -> None:
    knowledge = Knowledge("p@1", 100, 200, lost=7, reply=reply_to is not None)

    (deliver,) = router.know(NOW, Know(knowledge, reply_to))

    assert isinstance(deliver, Know)
    assert deliver.knowledge is knowledge
    assert knowledge.stamp is None  # RAW: nothing was filtered (T27: there is no table to trust)


def test_c1_a_reply_stays_a_reply(router: RouterBase) -> None:
    (deliver,) = router.know(NOW, Know(Knowledge("p@1", 0, 10, reply=True), "shb"))

    assert isinstance(deliver, Know)
    assert deliver.knowledge.reply  # T37


# C2 answer


def test_c2_a_want_reaches_the_pubend_every_time(router: RouterBase) -> None:
    want = Want("p@1", ((0, 10), (20, 30)), None, "shb", again=False)

    for _ in range(3):
        assert list(router.want(NOW, want)) == [AskPubend(want, "shb")]


def test_c2_a_want_for_an_unknown_pubend_is_dropped(router: RouterBase) -> None:
    assert list(router.want(NOW, Want("x@1", ((0, 10),), None, "shb", again=False))) == []


# C3 push


def test_c3_nothing_is_pushed_before_anyone_is_interested() -> None:
    router = make()
    list(router.pubend(NOW, Opened(META, {})))

    assert list(router.know(NOW, Know(Knowledge("p@1", 100, 110)))) == []
    list(router.interest(NOW, full(0)))
    assert len(list(router.know(NOW, Know(Knowledge("p@1", 110, 120))))) == 1


def test_c3_a_probe_reaches_the_shb(router: RouterBase) -> None:
    assert list(router.probe(NOW, Probe("p@1", 99))) == [Probe("p@1", 99)]


# C4 minima


def test_c4_a_single_member_is_the_minimum(router: RouterBase) -> None:
    assert list(router.progress(NOW, progress(50, 60))) == [Released("p@1", 50, 60)]
    assert list(router.progress(NOW, progress(50, 60))) == []
    assert list(router.progress(NOW, progress(50, 70))) == [Released("p@1", 50, 70)]


def test_c4_nothing_is_released_until_every_member_was_heard() -> None:
    router = make()
    list(router.pubend(NOW, Opened(META, {"a": 0, "b": 0, "c": 0})))

    assert list(router.progress(NOW, progress(50, 60, "a"))) == []
    assert list(router.progress(NOW, progress(90, 90, "a"))) == []
    assert list(router.progress(NOW, progress(40, 80, "b"))) == []
    assert list(router.progress(NOW, progress(70, 75, "c"))) == [Released("p@1", 40, 75)]


def test_c4_progress_is_the_highest_ever_heard(router: RouterBase) -> None:
    list(router.progress(NOW, progress(50, 60)))

    assert list(router.progress(NOW, progress(30, 65))) == [Released("p@1", 50, 65)]
    assert list(router.progress(NOW, progress(1, 2))) == []


def test_c4_progress_of_a_stranger_counts_for_nothing(router: RouterBase) -> None:
    assert list(router.progress(NOW, progress(50, 60, "stranger"))) == []
    assert list(router.progress(NOW, Progress("shb", "x@1", 5, 5))) == []


def test_c4_a_new_member_bounds_everything_until_it_is_heard(router: RouterBase) -> None:
    list(router.progress(NOW, progress(50, 60)))
    list(router.enrolled(NOW, Enrolled("p@1", "new", 55)))

    assert list(router.progress(NOW, progress(90, 95))) == []
    assert list(router.progress(NOW, progress(56, 60, "new"))) == [Released("p@1", 56, 60)]


def test_c4_what_was_heard_before_enrolling_does_not_count(router: RouterBase) -> None:
    """T20: it was said by an SHB that was promised nothing yet."""
    list(router.progress(NOW, progress(90, 95)))
    list(router.enrolled(NOW, Enrolled("p@1", "shb", 70)))
    list(router.enrolled(NOW, Enrolled("p@1", "new", 70)))

    assert list(router.progress(NOW, progress(80, 80, "new"))) == []
    assert list(router.progress(NOW, progress(92, 96))) == []
    assert list(router.progress(NOW, progress(93, 96, "new"))) == [Released("p@1", 92, 96)]


def test_c4_a_membership_that_is_handed_over_again_starts_from_nothing_heard(router: RouterBase) -> None:
    """T48: minima of different memberships do not mix; and what was said is not taken back."""
    list(router.progress(NOW, progress(50, 60)))
    list(router.pubend(NOW, Opened(META, {"shb": 40, "back": 5})))

    assert list(router.progress(NOW, progress(90, 95))) == []
    assert list(router.progress(NOW, progress(5, 5, "back"))) == []
    assert list(router.progress(NOW, progress(70, 58, "back"))) == []
    assert list(router.progress(NOW, progress(70, 75, "back"))) == [Released("p@1", 70, 75)]


def test_c4_a_retired_member_no_longer_counts() -> None:
    router = make()
    list(router.pubend(NOW, Opened(META, {"a": 0, "dead": 0})))
    list(router.progress(NOW, progress(50, 60, "a")))
    list(router.pubend(NOW, Opened(META, {"a": 0})))

    assert list(router.progress(NOW, progress(51, 60, "a"))) == [Released("p@1", 51, 60)]


def test_c4_nobody_releases_anything_where_there_is_no_member() -> None:
    router = make()
    list(router.pubend(NOW, Opened(META, {})))

    assert list(router.progress(NOW, progress(50, 60))) == []


# C5 enrol


def test_c5_the_first_interest_enrols_and_seen_with_a_tick_comes_only_after() -> None:
    router = make()
    list(router.pubend(NOW, Opened(META, {})))

    assert list(router.interest(NOW, full())) == [Seen(META), Enrol("p@1", "shb")]
    assert list(router.enrolled(NOW, Enrolled("p@1", "shb", 105))) == [Seen(META, 105)]


def test_c5_a_pubend_that_comes_later_enrols_the_shb_that_is_there() -> None:
    router = make()
    list(router.interest(NOW, full()))

    assert list(router.pubend(NOW, Opened(META, {}))) == [Seen(META), Enrol("p@1", "shb")]
    assert list(router.pubend(NOW, Opened(OTHER, {"shb": 9}))) == [Seen(OTHER, 9)]


def test_c5_every_full_interest_is_answered_for_every_pubend(router: RouterBase) -> None:
    list(router.pubend(NOW, Opened(OTHER, {})))

    for _ in range(2):
        assert list(router.interest(NOW, full(4))) == [Seen(META, 40), Seen(OTHER), Enrol("q@1", "shb")]


def test_c5_an_enrolment_that_was_lost_is_asked_for_again(router: RouterBase) -> None:
    list(router.pubend(NOW, Opened(OTHER, {})))

    assert list(router.interest(NOW, Interest("shb", 3, 3, {}))) == [Enrol("q@1", "shb")]


def test_c5_an_enrolment_of_a_pubend_that_is_not_here_means_nothing(router: RouterBase) -> None:
    assert list(router.enrolled(NOW, Enrolled("x@1", "shb", 5))) == []


def test_seen_says_how_far_the_pubend_is(router: RouterBase) -> None:
    list(router.know(NOW, Know(Knowledge("p@1", 100, 300))))
    list(router.know(NOW, Know(Knowledge("p@1", 0, 200, reply=True), "shb")))
    list(router.know(NOW, Know(Knowledge("x@1", 0, 200))))

    assert list(router.interest(NOW, full())) == [Seen(replace(META, stable=300, reach=300), 40)]
    assert list(router.pubend(NOW, Opened(META, {"shb": 40}))) == [Seen(replace(META, stable=300, reach=300), 40)]


def test_a_pubend_that_is_sealed_is_seen_so(router: RouterBase) -> None:
    sealed = replace(META, read_only=True)

    assert list(router.pubend(NOW, Opened(sealed, {"shb": 40}))) == [Seen(sealed, 40)]


# The interest (T4)


def test_a_change_is_taken_only_where_the_last_one_ended(router: RouterBase) -> None:
    assert list(router.interest(NOW, Interest("shb", 3, 4, {}))) == []
    assert list(router.interest(NOW, Interest("shb", 5, 6, {}))) == [AskInterest()]
    assert list(router.interest(NOW, Interest("shb", 3, 4, {}))) == []
    assert list(router.interest(NOW, Interest("shb", 3, 6, {}))) == [AskInterest()]
    assert list(router.interest(NOW, full(6))) == [Seen(META, 40)]
    assert list(router.interest(NOW, Interest("shb", 6, 7, {}))) == []


def test_a_change_of_an_shb_that_is_not_known_asks_for_all_of_it() -> None:
    assert list(make().interest(NOW, Interest("shb", 3, 4, {}))) == [AskInterest()]


def test_a_late_full_interest_does_not_take_a_version_back(router: RouterBase) -> None:
    list(router.interest(NOW, full(2)))

    assert list(router.interest(NOW, Interest("shb", 3, 4, {}))) == []


# Holds


def test_holds_go_to_the_pubend_and_their_answer_to_the_shb(router: RouterBase) -> None:
    row = Hold("shb", "p@1", 1, {7: 0})
    held = Held("shb", "p@1", 1, {7: 5})

    assert list(router.hold(NOW, row)) == [row]
    assert list(router.hold(NOW, replace(row, pubend="x@1"))) == []
    assert list(router.held(NOW, held)) == [held]


# C6 sans-IO, C7 soft, C8 bounded


def test_c6_the_same_calls_have_the_same_effects() -> None:
    def life() -> list[Any]:
        router = make()
        calls = [
            router.pubend(NOW, Opened(META, {"b": 1, "a": 2})),
            router.interest(NOW, full(3, "b")),
            router.interest(NOW, full(1, "a")),
            router.interest(NOW, full(1, "c")),
            router.pubend(NOW, Opened(OTHER, {"c": 5})),
            router.progress(NOW, progress(4, 5, "a")),
            router.progress(NOW, progress(6, 7, "b")),
        ]
        return [list(effects) for effects in calls]

    assert life() == life()


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


def test_c7_a_router_that_forgot_everything_works_again_after_the_first_calls(router: RouterBase) -> None:
    list(router.progress(NOW, progress(50, 60)))
    fresh = make()

    assert list(fresh.progress(NOW, progress(51, 60))) == []
    assert list(fresh.pubend(NOW, Opened(META, {"shb": 40}))) == []
    assert list(fresh.interest(NOW, Interest("shb", 3, 4, {}))) == [AskInterest()]
    assert list(fresh.interest(NOW, full(4))) == [Seen(META, 40)]
    assert list(fresh.progress(NOW, progress(51, 60))) == [Released("p@1", 51, 60)]
    assert len(list(fresh.know(NOW, Know(Knowledge("p@1", 100, 110))))) == 1


def test_c8_repeating_adds_nothing(router: RouterBase) -> None:
    def size() -> int:
        local: Any = router
        return len(local._versions) + sum(len(p.members) + len(p.releases._rows) for p in local._pubends.values())

    list(router.progress(NOW, progress(50, 60)))
    before = size()
    for version in range(3, 100):
        list(router.interest(NOW, Interest("shb", version, version + 1, {version: None})))  # type: ignore[dict-item]
        list(router.progress(NOW, progress(50 + version, 60 + version)))
        list(router.know(NOW, Know(Knowledge("p@1", version, version + 1))))
        list(router.progress(NOW, progress(5, 6, f"stranger {version}")))

    assert size() == before


# C9 place


def test_c9_every_placing_ends_in_one_answer(router: RouterBase) -> None:
    outcome = Outcome(Verdict.OK, sequence=1)

    assert list(router.open(NOW, SubmitOpen(OPENING, "reply"))) == [SubmitOpen(OPENING, "reply")]
    assert list(router.place(NOW, Submit(PUB, "reply"))) == [Submit(PUB, "reply")]
    assert list(router.submitted(NOW, Submitted("reply", "p@1", outcome))) == [Submitted("reply", "p@1", outcome)]


def test_c9_before_there_is_a_pubend_the_client_is_told_to_come_again() -> None:
    router = make()

    (opening,) = router.open(NOW, SubmitOpen(OPENING, "a"))
    (placed,) = router.place(NOW, Submit(PUB, "b"))

    for effect, reply_to in ((opening, "a"), (placed, "b")):
        assert isinstance(effect, Submitted)
        assert (effect.reply_to, effect.outcome.verdict) == (reply_to, Verdict.RETRY)
