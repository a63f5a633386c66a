"""Positions of subscriptions that transactions store at a pubend (protocol: transactions; TS13, TS14)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gapless.core.network.facts import Ending, OpenRequest, Outcome, Pub, Submit, SubmitOpen, Verdict
from gapless.core.stream.columns import EventColumns
from gapless.core.wire.tokens import CheckpointToken, ConsumedToken, join_tokens
from gapless_phb.core.publishers.consumed import SUBSCRIPTIONS_MAX
from unit.gapless_phb.harness import Harness, TestPublisher, outcomes

KEY = "home/1/1"
SEAL = b"12345678"
EMPTY = EventColumns(0, b"", b"")


def token(tick: int, *, seal: bytes = SEAL, pubend: str = "in@1") -> CheckpointToken:
    return CheckpointToken("net", {pubend: tick}, 1, 1, seal)


def consumed(tick: int, epoch: int = 1, *, key: str = KEY, seal: bytes = SEAL) -> ConsumedToken:
    return ConsumedToken(key, epoch, token(tick, seal=seal))


def ready() -> tuple[Harness, TestPublisher]:
    harness = Harness()
    harness.sync()
    publisher = harness.publisher()
    publisher.opened()
    return harness, publisher


def claim(harness: Harness, epoch: int, *, key: str = KEY, ending: Ending | None = None) -> Outcome:
    """The home of a subscription claims it. Returns the answer."""
    request = OpenRequest(key, SEAL.hex(), 0, None, harness.pubend, epoch, ending, claims=True, principal="")
    said = harness.feed(SubmitOpen(request, "claim"))
    assert outcomes(said) == [], "it is answered when it is durable"
    (one,) = outcomes(harness.sync())
    return one


def send(publisher: TestPublisher, first: int, count: int, *tokens: ConsumedToken) -> Outcome:
    batch = publisher.batch(first, count)
    if not count:
        batch = Pub(batch.publisher, batch.epoch, first, EMPTY, batch.pubend, b"", principal="anonymous")
    said = publisher.harness.feed(Submit(replace(batch, tokens=join_tokens(tokens)), "reply"))
    (one,) = outcomes(said) or outcomes(publisher.harness.sync())
    return one


def test_a_claim_learns_what_was_stored_and_fences_who_stored_it() -> None:
    harness, publisher = ready()
    assert claim(harness, 1).tokens == ()
    assert send(publisher, 1, 1, consumed(10)).verdict is Verdict.OK

    answer = claim(harness, 2)
    assert (answer.verdict, answer.tokens) == (Verdict.OK, (str(token(10)),))
    assert send(publisher, 2, 1, consumed(20)).verdict is Verdict.STALE
    assert len(harness.logged) == 1
    assert send(publisher, 2, 1, consumed(20, 2)).verdict is Verdict.OK


def test_nothing_is_stored_for_a_subscription_that_nobody_claimed() -> None:
    harness, publisher = ready()

    assert send(publisher, 1, 1, consumed(10)).verdict is Verdict.STALE
    assert harness.logged == []


def test_an_older_claim_that_comes_late_fences_nobody() -> None:
    harness, publisher = ready()
    claim(harness, 2)

    late = claim(harness, 1)
    assert (late.verdict, late.epoch) == (Verdict.FENCED, 2)
    assert send(publisher, 1, 1, consumed(10, 2)).verdict is Verdict.OK


@pytest.mark.parametrize("durable", [0, 1])
def test_after_a_crash_events_and_position_are_both_there_or_neither(durable: int) -> None:
    harness, publisher = ready()
    claim(harness, 1)
    batch = replace(publisher.batch(1, 2), tokens=join_tokens((consumed(10),)))
    harness.feed(Submit(batch, "reply"))
    harness.sync(durable)
    harness.crash()
    harness.sync()

    assert (len(harness.logged), claim(harness, 2).tokens) in [(0, ()), (1, (str(token(10)),))]


def test_a_batch_of_positions_alone_is_recognised_when_it_comes_again() -> None:
    """Its answer was lost, and somebody else has claimed the subscription since: it has taken effect all the same."""
    harness, publisher = ready()
    claim(harness, 1)
    assert send(publisher, 1, 0, consumed(10)).verdict is Verdict.OK
    assert claim(harness, 2).tokens == (str(token(10)),)

    harness.crash()
    harness.sync()
    publisher.opened()
    assert send(publisher, 1, 0, consumed(10)).verdict is Verdict.OK
    assert send(publisher, 1, 0, consumed(20)).verdict is Verdict.STALE


def test_a_position_goes_back_for_nobody_and_needs_the_seal_of_the_claim() -> None:
    harness, publisher = ready()
    claim(harness, 1)
    assert send(publisher, 1, 1, consumed(10)).verdict is Verdict.OK

    assert send(publisher, 2, 1, consumed(9)).verdict is Verdict.STALE
    publisher.opened()
    assert send(publisher, 2, 1, consumed(20, seal=b"forged!!")).verdict is Verdict.INVALID
    publisher.opened()
    many = tuple(consumed(20, key=f"home/{number}/1") for number in range(SUBSCRIPTIONS_MAX + 1))
    for each in many:
        claim(harness, 1, key=each.key)
    assert send(publisher, 2, 1, *many).verdict is Verdict.INVALID
    publisher.opened()
    assert send(publisher, 2, 1, *many[:SUBSCRIPTIONS_MAX]).verdict is Verdict.OK


def test_a_removed_subscription_is_forgotten() -> None:
    harness, publisher = ready()
    claim(harness, 3)
    send(publisher, 1, 1, consumed(10, 3))

    assert claim(harness, 0, ending=Ending.CLOSED).verdict is Verdict.OK
    assert claim(harness, 0, ending=Ending.CLOSED).verdict is Verdict.OK
    assert claim(harness, 1).tokens == ()
