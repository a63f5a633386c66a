"""What a client asks about ranges: each question once more after a reconnect, and one answer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gapless.core.client import SubscribeOptions
from gapless.core.client.link import effects as e
from gapless.core.wire import messages as m
from gapless.errors import PublisherFencedError, PublishRejectedError, SubscriptionMismatchError, TokenAheadError
from unit.gapless.core.client.harness import columns
from unit.gapless.core.client.talk import Talk

TARGET = m.Target("s", 3, 1)
AT = {"p@1": 7}
ASKED: list[tuple[Callable[[Talk], int], m.ServerMessage]] = [
    (
        lambda talk: talk.core.ranges.attach(SubscribeOptions(("t",), "s", positions=AT), talk.now),
        m.AttachedTo(1, 3, 1, b"seal", [m.Position("p@1", 7)]),
    ),
    (lambda talk: talk.core.ranges.heads(TARGET, AT, 500, talk.now), m.Ticks(1, [m.Position("p@1", 9)])),
    (lambda talk: talk.core.ranges.heads(None, None, 0, talk.now), m.Ticks(1, [])),
    (lambda talk: talk.core.ranges.bound(TARGET, AT, 5, None, talk.now), m.Ticks(1, [m.Position("p@1", 9)])),
    (lambda talk: talk.core.ranges.earliest(TARGET, talk.now), m.Ticks(1, [m.Position("p@1", 2)])),
    (
        lambda talk: talk.core.ranges.publish("q/0", 4, 2, "t", columns(b"a", b"b"), talk.now),
        m.KeyedPublished(1, "p@1", [m.TickRun(1024, 1024, 2)]),
    ),
]


@pytest.mark.parametrize(("ask", "answer"), ASKED)
def test_a_question_is_answered(ask: Callable[[Talk], int], answer: m.ServerMessage) -> None:
    talk = Talk()
    number = ask(talk)
    assert [message.request for message in talk.said if hasattr(message, "request")] == []
    talk.take()
    (first,) = [message for message in talk.said if hasattr(message, "request")]
    talk.reconnect()
    (again,) = [message for message in talk.said if hasattr(message, "request")]
    assert type(again) is type(first)
    talk.hear(answer)

    assert talk.all_told(e.Answered) == [e.Answered(number, answer)]  # type: ignore[arg-type]


def test_acknowledging_is_answered_by_nothing_but_that_it_is_done() -> None:
    talk = Talk()
    number = talk.core.ranges.settle(TARGET, b"seal", AT, talk.now)
    (said,) = talk.all_said(m.AcknowledgeDurably)
    assert (said.target, said.token_seal, said.positions) == (TARGET, b"seal", [m.Position("p@1", 7)])
    talk.hear(m.Done(number))

    assert talk.all_told(e.Answered) == [e.Answered(number, None)]


def test_a_refusal_is_the_error_of_its_code() -> None:
    talk = Talk()
    attach = talk.core.ranges.attach(SubscribeOptions(("t",), "s"), talk.now)
    heads = talk.core.ranges.heads(TARGET, AT, 0, talk.now)
    talk.hear(m.RequestFailed(attach, m.Code.MISMATCH, "other"), m.RequestFailed(heads, m.Code.TOKEN_AHEAD, "void"))

    assert [type(failed.error) for failed in talk.all_told(e.Failed)] == [SubscriptionMismatchError, TokenAheadError]


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (m.Code.REJECTED, PublishRejectedError),
        (m.Code.INVALID_MESSAGE, PublishRejectedError),
        (m.Code.FENCED, PublisherFencedError),
    ],
)
def test_a_keyed_batch_that_is_refused_was_not_logged(code: m.Code, error: type[Exception]) -> None:
    talk = Talk()
    number = talk.core.ranges.publish("q/0", 4, 2, "", columns(b"a"), talk.now)
    talk.hear(m.RequestFailed(number, code, "no"))

    assert [type(failed.error) for failed in talk.all_told(e.Failed)] == [error]


def test_a_keyed_batch_that_is_put_off_is_sent_again() -> None:
    talk = Talk()
    number = talk.core.ranges.publish("q/0", 4, 2, "", columns(b"a"), talk.now)
    talk.hear(m.RequestFailed(number, m.Code.RETRY, "the disk is full"))
    talk.wait(30)

    first, second = talk.all_said(m.PublishKeyed)
    assert (first.epoch, first.index, first.producer) == (second.epoch, second.index, second.producer) == (4, 2, "q/0")


def test_keyed_batches_wait_for_room_on_the_link_that_they_share() -> None:
    talk = Talk()
    large = columns(*[b"x" * 1_000_000] * 9)
    numbers = [talk.core.ranges.publish(f"q/{each}", 1, 0, "", large, talk.now) for each in range(4)]
    assert [batch.request for batch in talk.all_said(m.PublishKeyed)] == numbers[:2]
    assert len(talk.all_told(e.AskRoom)) == 1

    talk.core.on_room(talk.link, talk.now)

    assert [batch.request for batch in talk.all_said(m.PublishKeyed)] == numbers
