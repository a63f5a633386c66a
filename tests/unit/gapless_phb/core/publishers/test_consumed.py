"""Tokens that publishers store with their batches (protocol: publishers; TS6, TS7, TS8)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gapless.core.network.facts import Outcome, Pub, Submit, Verdict
from gapless.core.stream.columns import EventColumns
from gapless.core.wire.tokens import CheckpointToken, join_tokens
from gapless.errors import InvalidTokenError, StaleTokenError
from gapless_phb.core.publishers.consumed import PUBENDS_MAX, SUBSCRIPTIONS_MAX, checked
from unit.gapless_phb.harness import Harness, TestPublisher, lines, outcomes

EMPTY = EventColumns(0, b"", b"")


def token(tick: int, *, sid: int = 1, pubend: str = "in@1") -> CheckpointToken:
    return CheckpointToken("net", {pubend: tick}, sid, 1, b"12345678")


def ready() -> tuple[Harness, TestPublisher]:
    harness = Harness()
    harness.sync()
    return harness, harness.publisher()


def send(publisher: TestPublisher, count: int, *tokens: CheckpointToken, text: str = "") -> list[object]:
    """Publishes the next events with tokens."""
    publisher.opened()
    first, publisher.next = publisher.next, publisher.next + count
    return repeat(publisher, first, count, *tokens, text=text)


def repeat(publisher: TestPublisher, first: int, count: int, *tokens: CheckpointToken, text: str = "") -> list[object]:
    batch = publisher.batch(first, count, text)
    if not count:
        batch = Pub(batch.publisher, batch.epoch, first, EMPTY, batch.pubend, b"", principal="anonymous")
    return publisher.harness.feed(Submit(replace(batch, tokens=join_tokens(tokens)), "reply"))


def stored(harness: Harness, instance: str = "reader") -> list[str]:
    """The tokens that whoever opens the publisher next is told."""
    TestPublisher(harness, "ann", instance).open()
    (opened,) = (one for one in outcomes(harness.sync()) if one.epoch)
    return list(opened.tokens)


def outcome(said: list[object]) -> Outcome:
    (one,) = outcomes(said)
    return one


def test_a_batch_stores_its_token_in_the_write_that_logs_it() -> None:
    harness, publisher = ready()
    send(publisher, 2, token(10))
    assert lines(harness.sync())[-1] == "reply: ok sequence 2 ticks 1010×2"
    send(publisher, 1, token(20))
    harness.crash()

    assert stored(harness) in ([str(token(10))], [str(token(20))])


@pytest.mark.parametrize("durable", [0, 1])
def test_after_a_crash_events_and_token_are_both_there_or_neither(durable: int) -> None:
    harness, publisher = ready()
    send(publisher, 1, token(10))
    harness.sync()
    send(publisher, 1, token(20))
    harness.sync(durable)
    harness.crash()

    found = stored(harness)
    assert (len(harness.logged), found) in [(1, [str(token(10))]), (2, [str(token(20))])]


def test_a_token_without_events_has_no_tick_and_outlives_a_crash() -> None:
    harness, publisher = ready()
    send(publisher, 1, token(10))
    send(publisher, 0, token(20))
    assert "reply: ok sequence 1" in lines(harness.sync())
    harness.crash()

    assert stored(harness) == [str(token(20))]
    assert len(harness.logged) == 1


def test_an_opening_does_not_take_a_token_back_that_is_on_its_way_in_a_row() -> None:
    """A row that is written behind another one replaces it: what only the first one had would be lost."""
    harness, publisher = ready()
    send(publisher, 0, token(20))
    TestPublisher(harness, "ann", "rival").open()
    harness.sync()
    harness.crash()

    assert stored(harness) == [str(token(20))]


def test_an_opening_names_the_token_that_was_on_its_way() -> None:
    """TS8."""
    harness, publisher = ready()
    send(publisher, 1, token(10))
    rival = TestPublisher(harness, "ann", "rival")
    rival.open()

    (opened,) = (one for one in outcomes(harness.sync()) if one.epoch)
    assert opened.tokens == (str(token(10)),)


def test_a_token_before_the_stored_one_is_stale_and_nothing_is_logged() -> None:
    harness, publisher = ready()
    send(publisher, 1, token(10))

    refused = [outcome(repeat(publisher, 2, count, token(9))) for count in (1, 0)]

    assert [one.verdict for one in refused] == [Verdict.STALE, Verdict.STALE]
    assert lines(harness.sync())[-1] == "reply: ok sequence 1 ticks 1010"
    assert stored(harness) == [str(token(10))]


def test_a_repeated_batch_is_answered_again_though_the_position_has_moved_on() -> None:
    """TS6."""
    harness, publisher = ready()
    send(publisher, 1, token(10))
    send(publisher, 1, token(20))
    send(publisher, 0, token(30))
    harness.sync()

    assert outcome(repeat(publisher, 1, 1, token(10))).verdict is Verdict.OK
    assert outcome(repeat(publisher, 2, 1, token(20))).verdict is Verdict.OK
    repeat(publisher, 3, 0, token(30))
    assert lines(harness.sync()) == ["reply: ok sequence 2"]
    assert outcome(repeat(publisher, 3, 0, token(20))).verdict is Verdict.STALE


def test_equal_events_with_another_token_are_another_batch() -> None:
    """TS7."""
    harness, publisher = ready()
    send(publisher, 1, token(10))
    harness.sync()

    assert outcome(repeat(publisher, 1, 1, token(11))).verdict is Verdict.INVALID
    TestPublisher(harness, "ann", "rival").open()
    harness.sync()
    assert outcome(repeat(publisher, 1, 1, token(11))).verdict is Verdict.FENCED
    assert outcome(repeat(publisher, 1, 1, token(10))).verdict is Verdict.OK


def test_whoever_was_fenced_moves_nothing() -> None:
    harness, publisher = ready()
    TestPublisher(harness, "ann", "rival").open()

    assert outcome(send(publisher, 0, token(10))).verdict is Verdict.FENCED
    harness.sync()
    assert stored(harness) == []


def test_each_subscription_has_its_own_position() -> None:
    harness, publisher = ready()
    send(publisher, 1, token(10), token(5, sid=2))
    send(publisher, 1, token(11))
    harness.sync()

    assert stored(harness) == [str(token(5, sid=2)), str(token(11))]


def test_pubends_that_only_the_older_token_names_stay() -> None:
    harness, publisher = ready()
    send(publisher, 1, token(10))
    send(publisher, 1, token(7, pubend="other@1"))
    harness.sync()

    assert stored(harness) == [str(token(10).advance({"other@1": 7}))]


def test_the_tokens_survive_checkpoints_and_chops() -> None:
    harness, publisher = ready()
    for number in range(3):
        send(publisher, 1, token(10 + number))
    harness.sync()
    harness.crash()
    harness.sync()
    harness.crash()

    assert stored(harness) == [str(token(12))]


def test_the_limits() -> None:
    many = tuple(token(1, sid=sid) for sid in range(1, SUBSCRIPTIONS_MAX + 1))
    wide = CheckpointToken("net", {f"p{number}@1": 1 for number in range(PUBENDS_MAX)}, 1, 1, b"12345678")

    assert checked(join_tokens(many), ()) == many
    assert checked(join_tokens((wide,)), ()) == (wide,)
    with pytest.raises(InvalidTokenError, match="subscriptions"):
        checked(join_tokens((token(1, sid=99),)), many)
    with pytest.raises(InvalidTokenError, match="65 pubends"):
        checked(join_tokens((token(1),)), (wide,))
    wordy = CheckpointToken("net", {f"{'p' * 90}{n:x}-@{n:x}": 1 for n in range(PUBENDS_MAX)}, 1, 1, b"12345678")
    long = CheckpointToken("net", {f"{n:x}{'p' * 90}@{n:x}": 1 for n in range(PUBENDS_MAX)}, 1, 1, b"12345678")
    assert checked(join_tokens((wordy,)), ()) == (wordy,)
    with pytest.raises(InvalidTokenError, match="characters; a token with a batch may have 4,096"):
        checked(join_tokens((long,)), ())
    with pytest.raises(InvalidTokenError):
        checked(b"no token", ())
    with pytest.raises(InvalidTokenError):
        checked(b"\xff", ())
    with pytest.raises(StaleTokenError):
        checked(join_tokens((token(1),)), (token(2),))


def test_what_is_no_token_is_refused() -> None:
    harness, publisher = ready()
    batch = replace(publisher.batch(1, 1), tokens=b"token")

    assert outcome(harness.feed(Submit(batch, "reply"))).verdict is Verdict.INVALID
