"""Keyed batches of a session: placed, logged, answered once."""

from __future__ import annotations

from typing import Any

from gapless.core.network.facts import OpenRequest, Outcome, Submit, SubmitOpen, Verdict
from gapless.core.server.publishing import UNANSWERED_MAX
from gapless.core.wire.codec import encode_keyed
from gapless.core.wire.messages import (
    Code,
    KeyedPublished,
    OpenPublisher,
    PublishKeyed,
    PublishRefused,
    RequestFailed,
    TickRun,
)
from wire import columns

OK = Outcome(Verdict.OK)
RUNS = (TickRun(2048, 1024, 2),)


def say(client: Any, request: int = 1, producer: str = "q/0", topic: str = "") -> list[Any]:
    """A keyed batch of two events; returns what is heard in answer."""
    message = PublishKeyed(request, 4, 2, producer, topic, columns(b"a", b"b"))
    heard: list[Any] = client.send(b"".join(encode_keyed(client.session, message)))
    return heard


def test_its_pubend_is_found_then_it_is_logged_and_answered(broker: Any) -> None:
    client = broker.client()
    assert say(client, 7, topic="t") == []
    (opening,) = broker.placed()
    assert isinstance(opening, SubmitOpen)
    assert opening.request == OpenRequest("q/0", "", 0, "t", keyed=True, principal="anonymous")
    broker.answer(opening, OK, "p@1")
    broker.take()
    (batch,) = broker.placed()
    assert isinstance(batch, Submit)
    assert (batch.pub.epoch, batch.pub.first, batch.pub.pubend) == (4, 2, "p@1")
    assert batch.pub.identity == ("q/0", True, 4, 2, 2)
    broker.answer(batch, Outcome(Verdict.OK, ticks=RUNS, durable=False), "p@1")

    assert client.hear() == [KeyedPublished(7, "p@1", list(RUNS), durable=False)]
    broker.answer(batch, Outcome(Verdict.OK, ticks=RUNS), "p@1")
    assert client.hear() == [], "the router may say it twice"


def test_a_refusal_of_either_is_told(broker: Any) -> None:
    client = broker.client()
    say(client, 1)
    broker.answer(broker.placed()[0], Outcome(Verdict.RETRY, "no pubend"))
    assert client.hear() == [RequestFailed(1, Code.RETRY, "no pubend")]
    say(client, 2)
    broker.answer(broker.placed()[0], OK)
    broker.take()
    broker.answer(broker.placed()[0], Outcome(Verdict.INVALID, "garbled"))
    assert client.hear() == [RequestFailed(2, Code.INVALID_MESSAGE, "garbled")]


def test_one_that_is_sent_again_under_its_number_is_answered_for_both(broker: Any) -> None:
    client = broker.client()
    say(client, 1)
    say(client, 1)
    first, second = broker.placed()
    broker.answer(first, Outcome(Verdict.RETRY, "later"))
    broker.answer(second, OK)
    broker.take()
    (batch,) = broker.placed()
    broker.answer(batch, Outcome(Verdict.OK, ticks=RUNS))

    assert [type(message) for message in client.hear()] == [KeyedPublished]


def test_a_name_that_cannot_be_is_refused(broker: Any) -> None:
    client = broker.client()
    for name in ("", "a\nb", "\x01q", "x" * 256):
        (refused,) = say(client, 1, name)
        assert refused.code is Code.REJECTED
    assert broker.placed() == []


def test_no_publisher_can_be_opened_under_a_name_that_cannot_be_printed(broker: Any) -> None:
    client = broker.client()
    (refused,) = client.say(OpenPublisher(1, "\x01q/0", "i", 1, None))

    assert isinstance(refused, PublishRefused)
    assert refused.code is Code.REJECTED


def test_too_many_are_put_off(broker: Any) -> None:
    client = broker.client()
    for request in range(UNANSWERED_MAX):
        assert say(client, request) == []
    (refused,) = say(client, 999)

    assert refused == RequestFailed(999, Code.RETRY, f"{UNANSWERED_MAX} keyed batches are unanswered")


def test_of_a_session_that_is_over_nothing_is_told(broker: Any) -> None:
    client = broker.client()
    say(client)
    (opening,) = broker.placed()
    broker.sessions.on_link_closed(client.link)
    broker.answer(opening, OK)
    broker.take()

    assert broker.placed() == []
