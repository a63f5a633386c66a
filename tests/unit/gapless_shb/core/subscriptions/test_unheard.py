"""A position at a pubend that this SHB does not know: not heard of here yet, or gone (protocol: lost-volumes)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gapless.core.stream.ticks import EPOCH_MS, Tick, made_before, tick_at
from gapless.core.wire.messages import Acknowledged, Code, Position
from gapless_phb.core.assignment import pubend_id
from gapless_shb.core.state.refusals import RefusedError
from gapless_shb.core.subscriptions.checks import check_positions
from gapless_shb.core.subscriptions.commits import CommitRecords
from gapless_shb.core.subscriptions.unheard import may_be_there, of_its_name, what_followed

WALL = EPOCH_MS + 200_000_000_000
SECOND = 1000


def at(seconds: float) -> int:
    return WALL + round(seconds * SECOND)


def pubend_of(node: str, seconds: float, name: str = "default") -> str:
    """The pubend of a volume that a node made then."""
    return pubend_id(name, at(seconds), f"{node} {seconds}")


def known(node: str, seconds: float, heard: float, *, gone_upto: Tick = 0, timed: bool = True) -> Any:
    """A pubend that the SHB knows: it was made then, and said something up to then."""
    meta = SimpleNamespace(broker=node, created=tick_at(at(seconds)), timed=timed)
    pubend = pubend_of(node, seconds)
    told = tick_at(at(heard))
    return SimpleNamespace(
        pubend=pubend,
        meta=meta,
        told_upto=gone_upto or told,
        heard_upto=told,
        gone_upto=gone_upto,
        is_new=lambda now: now < 5,
        is_lost=lambda _: False,
    )


def an_shb(*streams: Any, node: str = "shb1") -> Any:
    return SimpleNamespace(streams={stream.pubend: stream for stream in streams}, places=SimpleNamespace(broker=node))


def test_an_identity_says_when_a_pubend_was_made() -> None:
    made = pubend_of("phb1", 3.2)

    assert tick_at(at(3.2)) < made_before(made) <= tick_at(at(4.2))
    assert made_before("orders@kafka.cluster") == made_before("p@1") == made_before("p") == 0


def test_it_may_have_taken_the_place_of_one_that_was_last_heard_of_before() -> None:
    """Found by random applications: a consumer came home a second after its position was made at the new pubend."""
    here = an_shb(known("phb1", 0, 400), known("phb2", 300, 345))

    assert may_be_there(pubend_of("phb2", 346), here, 0)
    assert may_be_there(pubend_of("phb2", 345), here, 0)  # within that very second


def test_it_is_not_at_a_node_that_was_heard_of_since() -> None:
    here = an_shb(known("phb1", 0, 400), known("phb2", 300, 399))

    assert not may_be_there(pubend_of("phb2", 346), here, 0)


def test_it_may_be_there_where_the_former_one_was_given_up_before_it_was_heard_of() -> None:
    """Another pubend of the new volume was heard of first. What is given up counts as told far ahead."""
    here = an_shb(known("phb2", 300, 345, gone_upto=tick_at(at(420))))

    assert may_be_there(pubend_of("phb2", 346), here, 0)
    assert not may_be_there(pubend_of("phb2", 340), here, 0)


def test_it_is_not_at_a_node_that_has_made_another_one_since() -> None:
    here = an_shb(known("phb2", 300, 345, gone_upto=tick_at(at(560))), known("phb2", 500, 500))

    assert not may_be_there(pubend_of("phb2", 346), here, 0)
    assert what_followed(pubend_of("phb2", 346), here) == pubend_of("phb2", 500)


def test_a_node_knows_its_own_pubends() -> None:
    """A single broker says at once that its volume was made anew, or was an old copy."""
    assert not may_be_there(pubend_of("one", 346), an_shb(known("one", 300, 345), node="one"), 0)


@pytest.mark.parametrize("now", [0, 10])
def test_a_log_of_others_is_waited_for_until_its_host_has_said_all(now: int) -> None:
    here = an_shb(known("gateway", 300, 345, timed=False))

    assert may_be_there("default@0", here, now) is (now < 5)


def test_of_another_name_nothing_is_known() -> None:
    here = an_shb(known("phb1", 0, 400))

    assert of_its_name("orders@tp8s7b0tb6j", here) == []
    assert not may_be_there("orders@tp8s7b0tb6j", here, 0)
    check_positions([Position("orders@tp8s7b0tb6j", 5)], here, "a subscription", 0)


@pytest.mark.parametrize(("heard", "code"), [(345, Code.RETRY), (399, Code.TOKEN_MISMATCH)])
def test_whoever_has_a_token_of_it_asks_again_or_is_refused(heard: float, code: Code) -> None:
    here = an_shb(known("phb2", 300, heard))

    with pytest.raises(RefusedError) as refused:
        check_positions([Position(pubend_of("phb2", 346), 5)], here, "a subscription", 0)

    assert refused.value.code is code
    assert ("not known here yet" in str(refused.value)) is (code is Code.RETRY)


def test_no_position_is_kept_for_done_at_a_pubend_that_may_be_there() -> None:
    """A home that confirmed what it could not keep lost acknowledgements."""
    desks: Any = SimpleNamespace(_hosting=an_shb(known("phb2", 300, 345)))
    there, gone = Acknowledged(pubend_of("phb2", 346), 5, 5), Acknowledged(pubend_of("phb2", 200), 5, 5)

    assert CommitRecords.unknown_of(desks, [gone, there], 0) == there.pubend
    assert CommitRecords.unknown_of(desks, [gone], 0) == ""
