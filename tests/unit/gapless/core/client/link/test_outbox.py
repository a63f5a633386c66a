"""What one step sends, in as few sends as possible, and in an order that the numbers of frames allow."""

from __future__ import annotations

from gapless.core.client.link.attempts import Attempts
from gapless.core.client.link.effects import Notice, SendFrames
from gapless.core.client.link.outbox import FRAMES_AT_ONCE, ClientOutbox
from gapless.core.wire.codec import session_of
from gapless.core.wire.messages import Credit, Goodbye, Heartbeat, Hello, Welcome
from gapless.core.wire.numbering import Received
from wire import joined


def welcome(session: int) -> Welcome:
    return Welcome(2, session, "net", "node", True, 5000, 1 << 20, 4 << 20, 64, 8 << 20)


def opened() -> ClientOutbox:
    """One with a session."""
    outbox = ClientOutbox(1 << 20, Attempts("p"))
    outbox.link = 3
    outbox.begin_session(welcome(7))
    return outbox


def sends(outbox: ClientOutbox) -> list[SendFrames]:
    return [effect for effect in outbox.take() if isinstance(effect, SendFrames)]


def test_ordinary_frames_that_follow_on_urgent_ones_do_not_leave_before_them() -> None:
    outbox = opened()
    outbox.send_last(Heartbeat())
    outbox.send(Credit(1, 2, 3))
    outbox.tell(Notice("in between"))
    outbox.send_last(Heartbeat())
    outbox.send(Credit(1, 2, 3))
    received = Received()

    urgent, ordinary = sends(outbox)

    assert (urgent.urgent, ordinary.urgent) == (True, False)
    assert (urgent.link, ordinary.link) == (3, 3)
    payloads = [joined(payload) for payload in (*urgent.payloads, *ordinary.payloads)]
    assert [received.is_new(payload) for payload in payloads] == [True] * 4


def test_what_is_sent_after_another_effect_follows_on_it() -> None:
    outbox = opened()
    outbox.send_last(Heartbeat())
    barrier = Notice("a barrier")
    outbox.emit(barrier)
    outbox.send(Credit(1, 2, 3))

    first, between, last = outbox.take()

    assert (isinstance(first, SendFrames), between, isinstance(last, SendFrames)) == (True, barrier, True)


def test_many_frames_need_not_wait_for_the_end_of_a_step() -> None:
    outbox = opened()
    for _ in range(FRAMES_AT_ONCE - 1):
        outbox.send(Credit(1, 2, 3))
    assert outbox.take_frames() == ()
    outbox.send_last(Heartbeat())

    frames = outbox.take_frames()

    assert [len(each.payloads) for each in frames] == [FRAMES_AT_ONCE - 1, 1]
    received = Received()
    assert all(received.is_new(joined(payload)) for each in frames for payload in each.payloads)
    assert outbox.take() == []


def test_what_may_not_be_overtaken_keeps_frames_back_however_many_they_are() -> None:
    outbox = opened()
    barrier = Notice("a barrier")
    outbox.emit(barrier)
    for _ in range(2 * FRAMES_AT_ONCE):
        outbox.send(Credit(1, 2, 3))

    assert outbox.take_frames() == ()

    first, second = outbox.take()
    assert first is barrier
    assert isinstance(second, SendFrames)


def test_each_session_begins_to_count_anew_and_the_handshake_does_not_count() -> None:
    outbox = opened()
    outbox.send_last(Heartbeat())
    outbox.session = 0
    outbox.send_last(Hello(2, "", "c", "i"))
    outbox.begin_session(welcome(8))
    outbox.send_last(Heartbeat())
    received = Received()

    [send] = sends(outbox)
    *_, greeting, last = map(joined, send.payloads)

    assert session_of(greeting) == 0
    assert received.is_new(last)


def test_only_what_a_lost_frame_would_be_noticed_by_puts_the_heartbeat_off() -> None:
    outbox = opened()
    outbox.now = 10
    outbox.send(Credit(1, 2, 3))
    assert outbox.sent_at == 0
    outbox.send_last(Goodbye())

    assert outbox.sent_at == 10
