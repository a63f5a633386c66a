"""Whose message a machine failed of stays outside for a while, and that message is never handled again."""

from __future__ import annotations

from typing import Any

import pytest

from gapless.core.server import HandlerFailedError, Suspects, service
from gapless.core.wire.codec import encode
from gapless.core.wire.messages import Closing, Code, Heartbeat, HelloRefused, ListPubends, Welcome
from wire import hello, kinds


@pytest.fixture
def failing(broker: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A broker with a bug that the request 666 runs into."""
    handler = broker.sessions._handlers[ListPubends]

    def fail(session: Any, message: ListPubends, now: int, wall: int) -> None:
        assert message.request != 666, "a bug"
        handler(session, message, now, wall)

    monkeypatch.setitem(broker.sessions._handlers, ListPubends, fail)
    return broker


def fell(broker: Any) -> Suspects:
    """What is remembered of a client whose request felled the broker."""
    suspects = Suspects()
    told = r"a ListPubends of client 'desk-7' \(anonymous\) at 127.0.0.1:9999: AssertionError\('a bug"
    with pytest.raises(HandlerFailedError, match=told) as failed:
        broker.client("culprit").say(ListPubends(666))
    assert isinstance(failed.value.__cause__, AssertionError)
    suspects.on_failed(failed.value, broker.now)
    return suspects


def test_a_client_of_whose_message_a_machine_failed_stays_outside_for_a_minute(failing: Any, make_broker: Any) -> None:
    suspects = fell(failing)
    next_one = make_broker()
    next_one.sessions.remember(suspects)

    [refused] = next_one.link().say(hello(instance="culprit"))
    assert isinstance(refused, HelloRefused)
    assert refused.code is Code.RETRY
    assert kinds(next_one.link().say(hello(instance="other"))) == ["Welcome"]
    next_one.wait(60)
    [welcome] = next_one.link().say(hello(instance="culprit"))
    assert isinstance(welcome, Welcome)


def test_the_same_message_is_not_handled_again_whoever_says_it(failing: Any, make_broker: Any) -> None:
    suspects = fell(failing)
    next_one = make_broker()
    next_one.sessions.remember(suspects)
    other, client = next_one.client("innocent"), next_one.client("another instance")

    assert kinds(client.say(ListPubends(1))) == []
    [closing] = client.say(ListPubends(666))

    assert isinstance(closing, Closing)
    assert "failed of this very message before" in closing.reason
    assert [message.request for _, message in next_one.requests] == [1]
    assert kinds(other.say(Heartbeat())) == []


def test_a_bug_in_decoding_ends_the_session_that_ran_into_it_and_no_other(
    broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, client = broker.client("innocent"), broker.client("culprit")
    with monkeypatch.context() as bug:
        bug.setattr(service, "decode_client", lambda _payload: 1 // 0)
        [closing] = client.say(ListPubends(1))

    assert isinstance(closing, Closing)
    assert "failed to decode a frame: ZeroDivisionError" in closing.reason
    assert kinds(other.say(ListPubends(2))) == []
    assert [message.request for _, message in broker.requests] == [2]


def test_an_authenticator_that_fails_lets_nobody_in_and_ends_nothing_else(
    broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = broker.client("here before")
    monkeypatch.setattr(broker.guard, "begin", None)
    link = broker.link()

    [refused] = link.say(hello())

    assert isinstance(refused, HelloRefused)
    assert refused.code is Code.RETRY
    assert link.closed is not None
    [alarm] = broker.alarms
    assert "failed to judge its Hello: TypeError" in alarm.text
    assert kinds(client.say(Heartbeat())) == []


def test_only_the_latest_are_remembered(failing: Any, make_broker: Any) -> None:
    suspects = fell(failing)
    session = failing.client("x").wire.session
    client = failing.sessions._sessions[session].client
    for number in range(1000):
        payload = encode(session, ListPubends(number))
        suspects.on_failed(HandlerFailedError(client, "peer", "ListPubends", payload), failing.now)

    assert suspects.has_seen(encode(7, ListPubends(999)))
    assert not suspects.has_seen(encode(7, ListPubends(666_666)))
    assert suspects.is_outside("anonymous", "desk-7", "x", failing.now)
