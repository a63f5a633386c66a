"""A row of holds is versioned, sent whole, and never under a version that could be used twice (T49)."""

from __future__ import annotations

from gapless.core.network.facts import Held
from gapless_shb.core.state.pubend import REPEAT, PubendHolds


def kept(holds: PubendHolds) -> Held:
    """The pubend's answer to the present row."""
    return Held(holds.shb, holds.pubend, holds.version, dict(holds.row))


def test_a_row_is_sent_only_when_its_version_is_durable() -> None:
    """Otherwise a crash would reuse the version, and the pubend would ignore the later row."""
    holds = PubendHolds("h", "p@1")
    holds.put(1, 0, now=0)
    assert holds.due(0) is None
    assert holds.deadline is None

    holds.durable = holds.version

    row = holds.due(0)
    assert row is not None
    assert row.at == {1: 0}


def test_an_unanswered_row_is_repeated_and_an_answered_one_is_not() -> None:
    """The seam may lose it."""
    holds = PubendHolds("h", "p@1")
    holds.put(1, 0, now=0)
    holds.durable = holds.version
    assert holds.due(0) is not None
    assert holds.due(REPEAT - 1) is None
    assert holds.due(REPEAT) is not None

    holds.on_held(kept(holds))

    assert holds.due(10 * REPEAT) is None


def test_only_the_answer_to_the_present_row_counts() -> None:
    """An answer to an earlier row says nothing of what was added since."""
    holds = PubendHolds("h", "p@1")
    holds.put(1, 0, now=0)
    late = kept(holds)
    holds.put(2, 5, now=0)

    assert holds.on_held(late) == []
    assert holds.waits_for(2)
    assert holds.waits_for(1)


def test_the_answer_says_from_where_on_events_are_kept() -> None:
    """`earliest` is resolved by the pubend; the row holds what it was resolved to from then on."""
    holds = PubendHolds("h", "p@1")
    holds.put(1, 0, now=0)

    assert holds.on_held(Held(holds.shb, "p@1", holds.version, {1: 700})) == [(1, 700)]
    assert holds.row == {1: 700}
    assert not holds.waits_for(1)


def test_dropping_says_so_and_needs_a_new_version() -> None:
    """Dropping what is not there changes nothing."""
    holds = PubendHolds("h", "p@1")
    holds.put(1, 0, now=0)
    version = holds.version

    assert not holds.drop(2, 0)
    assert holds.version == version
    assert holds.drop(1, 0)
    assert holds.version == version + 1


def test_after_a_restart_the_row_is_said_again_even_if_it_is_empty() -> None:
    """Found by the simulator (stories, router hostile, seed 7): a lost farewell pinned the log for ever."""
    holds = PubendHolds("shb", "p@1", version=4, durable=4)
    assert holds.due(0) is None

    holds.renew(10)
    assert holds.due(10) is None, "the new version is not durable yet"
    holds.durable = holds.version
    row = holds.due(10)

    assert row is not None
    assert (row.version, dict(row.at)) == (5, {})


def test_a_row_that_never_was_needs_no_farewell() -> None:
    holds = PubendHolds("shb", "p@1")
    holds.renew(10)

    assert holds.due(10) is None
    assert holds.version == 0
