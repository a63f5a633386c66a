"""Sessions (protocol: session; N03, N08, F06, INV14, INV18)."""

from __future__ import annotations

from struct import pack
from typing import Any

import pytest

from gapless.core.alarms import Alarm, AlarmCode
from gapless.core.gauges import value_of, values_by
from gapless.core.ports import ClientSession, LinkHasRoom, SessionEnded
from gapless.core.principals import Principal
from gapless.core.server import SessionLimits
from gapless.core.server.gauges import OPENED, REFUSED
from gapless.core.server.limits import CONNECTIONS
from gapless.core.wire.codec import encode
from gapless.core.wire.messages import (
    BrokerHeartbeat,
    Closing,
    Code,
    DeliverSilence,
    Goodbye,
    Heartbeat,
    ListPubends,
    ListSubscriptions,
    OpenPublisher,
    PubendList,
    PublishRefused,
    RequestFailed,
    Retire,
)
from wire import hello, kinds


def test_a_request_goes_to_the_role_that_declared_it(broker: Any) -> None:
    client = broker.client()

    client.say(ListPubends(4))

    assert broker.requests == [(ClientSession(client.session, "desk-7", "one", Principal("anonymous")), ListPubends(4))]


def test_a_request_that_no_role_answers_is_refused(broker: Any) -> None:
    (failed,) = broker.client().say(ListSubscriptions(9))

    assert isinstance(failed, RequestFailed)
    assert (failed.request, failed.code) == (9, Code.CONFIGURATION)


def test_a_frame_of_an_earlier_session_is_ignored(broker: Any) -> None:
    earlier = broker.client()
    later = broker.client()

    assert later.send(encode(earlier.session, ListPubends(4))) == []
    assert later.send(encode(later.session + 1, ListPubends(4))) == []

    assert broker.requests == []
    assert later.closed() is None


@pytest.mark.parametrize("disguise", [False, True], ids=["plain", "with the session's number"])
def test_a_second_hello_is_a_violation(broker: Any, disguise: bool) -> None:
    client = broker.client()
    second = encode(client.session, hello()) if disguise else encode(0, hello())

    (closing,) = client.send(second)

    assert "second Hello" in closing.reason
    assert client.closed() == closing.reason
    assert broker.ended() == [client.session]


@pytest.mark.parametrize(
    "rest",
    [b"", b"\x90", b"\xc1", b"\x92\xcc\xff\x01", b"\x91\x1f", b"\x01garbage", b"\x92\x1f\xa11"],
    ids=[
        "nothing",
        "untagged",
        "reserved",
        "unknown tag",
        "field missing",
        "no batch",
        "field of a wrong type",
    ],
)
def test_a_violation_costs_the_link_and_changes_nothing_else(broker: Any, rest: bytes) -> None:
    other = broker.client("other")
    client = broker.client()

    messages = client.send(encode(client.session, ListPubends(1))[:16] + rest)

    assert kinds(messages) == ["Closing"]
    assert messages[0].reason.startswith("protocol violation: ")
    assert client.closed() == messages[0].reason
    assert broker.ended() == [client.session]
    assert broker.requests == []
    assert kinds(other.say(Heartbeat())) == []
    assert broker.sessions.count == 1


def test_what_came_before_a_violation_counts_and_what_comes_after_does_not(broker: Any) -> None:
    client = broker.client()

    client.send(*client.wire.say(ListPubends(1)), b"junk", *client.wire.say(ListPubends(2)))
    client.say(ListPubends(3))

    assert [message.request for _, message in broker.requests] == [1]
    assert broker.ended() == [client.session]


def test_a_handler_may_call_a_message_a_violation(broker: Any) -> None:
    client = broker.client()

    (closing,) = client.say(ListPubends(4040))

    assert closing == Closing("protocol violation: a request that makes no sense")


def test_a_request_that_fails_its_checks_is_answered_and_goes_no_further(broker: Any) -> None:
    client = broker.client()

    (failed,) = client.say(Retire(5, "x" * 256))
    (refused,) = client.say(OpenPublisher(1, "", "i", 1, None))

    assert failed == RequestFailed(5, Code.NOT_FOUND, "the SHB's name has 256 bytes; at most 255 are taken")
    assert refused == PublishRefused(1, 0, Code.REJECTED, "the publisher's name is empty")
    assert (broker.requests, broker.placed()) == ([], [])
    assert client.say(ListPubends(-1))[0].reason.startswith("protocol violation: ")


def test_the_same_instance_replaces_its_own_session_at_once(broker: Any) -> None:
    first = broker.client()
    second = broker.link()

    second.say(hello())

    assert broker.ended() == [first.session]
    (closing,) = first.wire.hear(broker.outputs[first.link])
    assert "connected again" in closing.reason
    assert broker.outputs[first.link].close == closing.reason
    assert second.session != first.session
    assert broker.sessions.count == 1


def test_neither_another_instance_nor_another_principal_replaces_it(broker: Any) -> None:
    broker.client("one")
    broker.client("two")
    broker.link().say(hello(instance="one", credentials=b"mallory"))

    assert broker.sessions.count == 3
    assert broker.ended() == []


def test_the_end_of_the_replaced_link_does_not_end_the_new_session(broker: Any) -> None:
    first = broker.client()
    second = broker.client()

    broker.sessions.on_link_closed(first.link)
    second.say(ListPubends(1))

    assert broker.ended() == [first.session]
    assert len(broker.requests) == 1


def test_a_goodbye_and_a_lost_link_end_the_session(broker: Any) -> None:
    client = broker.client("one")
    other = broker.client("two")

    assert client.say(Goodbye(), ListPubends(1)) == []
    assert client.closed() == ""
    broker.sessions.on_link_closed(other.link)
    broker.take()

    assert broker.ended() == [client.session, other.session]
    assert broker.requests == []
    assert broker.sessions.deadline() is None


def test_a_link_that_says_nothing_is_closed_after_the_handshake_time(broker: Any) -> None:
    client = broker.link()

    assert broker.wait(4.9) == {}
    outputs = broker.wait(0.2)

    assert outputs[client.link].close == "no Hello within 5 s"
    assert broker.sessions.deadline() is None


def test_each_side_is_heard_at_least_once_a_heartbeat(broker: Any) -> None:
    client = broker.client()
    heartbeats = 0
    for _ in range(20):
        heartbeats += kinds(client.wire.hear(broker.wait(1).get(client.link))).count("BrokerHeartbeat")
        client.say(Heartbeat())

    assert heartbeats == 4
    assert broker.ended() == []


def test_the_first_heartbeat_does_not_wait_until_the_time_for_the_handshake_is_over(make_broker: Any) -> None:
    """A client with short heartbeats would have given the broker up by then."""
    broker = make_broker(SessionLimits(heartbeat=10**9, handshake=5 * 10**9))
    client = broker.client()

    assert kinds(client.wire.hear(broker.wait(1).get(client.link))) == ["BrokerHeartbeat"]


def test_no_heartbeat_is_sent_while_other_frames_of_its_lane_are(broker: Any) -> None:
    client = broker.client()
    for _ in range(30):
        assert broker.wait(1) == {}
        broker.sessions.tell(client.session, DeliverSilence(1, 5, None))
        assert client.say(Heartbeat()) == [DeliverSilence(1, 5, None)]


def test_answers_that_overtake_data_spare_no_heartbeat(broker: Any) -> None:
    """They do not show that the last data were lost."""
    client = broker.client()
    heard = []
    for _ in range(6):
        heard += client.wire.hear(broker.wait(1).get(client.link))
        broker.sessions.tell(client.session, PubendList(1, []))
        heard += client.say(Heartbeat())

    assert kinds(heard).count("BrokerHeartbeat") == 1


def test_three_missed_heartbeats_end_the_session(broker: Any) -> None:
    client = broker.client()
    broker.wait(10)
    client.say(Heartbeat())

    broker.wait(14.9)
    assert broker.ended() == []
    outputs = broker.wait(0.2)

    assert outputs[client.link].close == "nothing was heard from the client for 15 s"
    assert broker.ended() == [client.session]


def test_a_broker_that_is_cut_off_says_so_and_says_when_it_is_over(broker: Any) -> None:
    client, told = broker.client(), []

    def seconds(count: int) -> list[str]:
        heard = []
        for _ in range(count):
            heard += client.wire.hear(broker.wait(1).get(client.link))
            heard += client.say(Heartbeat())
        return [each.cut_off for each in heard if isinstance(each, BrokerHeartbeat)]

    broker.sessions.on_network(0, broker.now)
    told += seconds(14)
    broker.sessions.on_network(0, broker.now)
    told += seconds(2)
    reason = "it has no link to any other node of its network"
    assert told == ["", "", reason]
    assert seconds(5) == [reason]

    broker.sessions.on_network(1, broker.now)
    assert seconds(1) == [""]
    broker.sessions.on_network(0, broker.now)
    assert seconds(14) == ["", ""]


def test_a_client_that_sends_but_does_not_read_is_closed(broker: Any) -> None:
    client = broker.client()
    broker.sessions.on_pending(client.link, 500, broker.now)

    for _ in range(3):
        client.say(Heartbeat())
        outputs = broker.wait(5)
        broker.sessions.on_pending(client.link, 600, broker.now)

    assert outputs[client.link].close == "the client has not read anything for 15 s"
    assert broker.ended() == [client.session]


def test_a_client_that_reads_slowly_is_not_closed(broker: Any) -> None:
    client = broker.client()
    for second in range(60):
        broker.sessions.on_pending(client.link, 1_000_000 - second, broker.now)
        client.say(Heartbeat())
        broker.wait(1)

    assert broker.ended() == []


def test_bytes_that_were_waiting_long_ago_do_not_count_as_a_stall(broker: Any) -> None:
    client = broker.client()
    for _ in range(10):
        broker.sessions.on_pending(client.link, 0, broker.now)
        broker.wait(10)
        client.say(Heartbeat())
        broker.sessions.on_pending(client.link, 700, broker.now)
        broker.wait(4)

    assert broker.ended() == []


def test_a_link_is_not_read_while_too_much_waits_for_it(broker: Any) -> None:
    limits = SessionLimits()
    client = broker.client()

    broker.sessions.on_pending(client.link, limits.pending_bytes + 1, broker.now)
    assert broker.take()[client.link].paused is True
    broker.sessions.on_pending(client.link, limits.pending_bytes, broker.now)
    assert broker.take() == {}
    broker.wait(14)
    broker.sessions.on_pending(client.link, limits.pending_bytes - 1, broker.now)
    broker.wait(4)
    assert broker.sessions.count == 1
    broker.sessions.on_pending(client.link, limits.pending_bytes // 2, broker.now)

    assert broker.take()[client.link].paused is False
    assert broker.ended() == []


def test_its_silence_while_it_was_not_read_is_not_held_against_a_client(broker: Any) -> None:
    limits = SessionLimits()
    client = broker.client()
    broker.sessions.on_pending(client.link, limits.pending_bytes + 100, broker.now)
    for second in range(30):
        broker.sessions.on_pending(client.link, limits.pending_bytes + 99 - second, broker.now)
        broker.wait(1)
    broker.sessions.on_pending(client.link, 0, broker.now)
    broker.wait(14)

    assert broker.ended() == []


def test_who_asks_for_room_learns_of_it_once_when_little_waits(broker: Any) -> None:
    client = broker.client()

    broker.sessions.ask_room(client.session, 50)
    assert broker.take()[client.link].reports
    assert broker.effects == [], "what was sent before may wait there now"
    broker.sessions.on_pending(client.link, 51, broker.now)
    broker.take()
    assert broker.effects == []

    broker.sessions.on_pending(client.link, 50, broker.now)
    broker.sessions.on_pending(client.link, 0, broker.now)
    broker.take()
    [said] = broker.effects
    assert (type(said), said.session.number) == (LinkHasRoom, client.session)


def test_a_session_that_is_over_never_has_room(broker: Any) -> None:
    client = broker.client()
    broker.sessions.ask_room(client.session, 50)
    broker.sessions.on_link_closed(client.link)

    broker.sessions.ask_room(client.session, 50)
    broker.sessions.on_pending(client.link, 0, broker.now)
    broker.take()

    assert [type(effect) for effect in broker.effects] == [SessionEnded]


def test_a_link_with_far_too_much_waiting_is_closed(broker: Any) -> None:
    client = broker.client()

    broker.sessions.on_pending(client.link, SessionLimits().pending_bytes_max + 1, broker.now)

    assert "wait for the client" in (broker.take()[client.link].close or "")


def test_a_session_is_ended_with_a_reason(broker: Any) -> None:
    client = broker.client()

    broker.sessions.end(client.session, "enough")
    broker.sessions.end(client.session, "twice")
    broker.sessions.tell(client.session, BrokerHeartbeat())
    broker.sessions.transmit(client.session, [(b"a", b"b")])

    assert client.hear() == [Closing("enough")]
    assert client.closed() == "enough"


def test_closing_ends_all_sessions_and_refuses_new_ones(broker: Any) -> None:
    clients = [broker.client("one"), broker.client("two")]
    greeting = broker.link()

    broker.sessions.close("the node stops")
    outputs = broker.take()

    assert [client.wire.hear(outputs[client.link]) for client in clients] == [[Closing("the node stops")]] * 2
    assert kinds(greeting.wire.hear(outputs[greeting.link])) == ["HelloRefused"]
    broker.sessions.on_link(99, broker.peer, 0, broker.now)
    assert broker.take()[99].close == "the node stops"


def test_links_beyond_the_limit_are_refused_politely(make_broker: Any) -> None:
    broker = make_broker(SessionLimits(links=2))
    first = broker.client("one")
    broker.link()

    broker.sessions.on_link(77, broker.peer, 0, broker.now)
    (refused,) = first.wire.hear(broker.take()[77])
    assert (refused.code, refused.reason) == (Code.RETRY, f"this broker takes 2 connections ({CONNECTIONS})")

    first.say(Goodbye())
    assert kinds(broker.client("three").say(ListPubends(1))) == []


def test_the_operator_is_told_once_that_no_more_connections_are_taken_and_when_they_are(make_broker: Any) -> None:
    broker = make_broker(SessionLimits(links=2))
    first, second = broker.client("one"), broker.client("two")
    for link in (77, 78):
        broker.sessions.on_link(link, broker.peer, 0, broker.now)
    told = [effect for effect in broker.sessions.take_effects() if isinstance(effect, Alarm)]
    assert [(alarm.code, alarm.over) for alarm in told] == [(AlarmCode.CONNECTIONS_FULL, False)]

    broker.sessions.on_link_closed(first.link)
    told = [effect for effect in broker.sessions.take_effects() if isinstance(effect, Alarm)]
    assert [(alarm.code, alarm.over) for alarm in told] == [(AlarmCode.CONNECTIONS_FULL, True)]
    assert second


def test_control_messages_need_not_wait_behind_data_and_the_rest_keeps_its_order(broker: Any) -> None:
    client = broker.client()
    broker.sessions.transmit(client.session, [(b"12345678" + bytes(8) + b"head", b"shared")])
    broker.sessions.tell(client.session, DeliverSilence(1, 5, None))
    broker.sessions.tell(client.session, PubendList(1, []))

    output = broker.take()[client.link]

    numbers = [(payload[0] if isinstance(payload, tuple) else payload)[8:16] for payload in output.ordinary]
    assert output.ordinary[0] == (b"12345678" + numbers[0] + b"head", b"shared")
    assert client.wire.decode(output.ordinary[1:]) == [DeliverSilence(1, 5, None)]
    assert client.wire.decode(output.urgent) == [PubendList(1, [])]
    assert numbers == [pack("<II", 1, 0), pack("<II", 2, 0)], "each lane counts by itself"
    assert output.urgent[0][8:16] == pack("<II", 1 << 31 | 1, 1)


def test_a_violation_is_told_to_the_operator(broker: Any) -> None:
    client = broker.client()
    client.say(ListPubends(4040))

    [alarm] = broker.alarms
    assert alarm.text == (
        "the connection with 127.0.0.1:9999, client 'desk-7' ended: protocol violation: a request that makes no sense"
    )


def test_what_breaks_the_framing_ends_the_session_with_the_reason(broker: Any) -> None:
    client, unknown = broker.client(), broker.link()
    broker.sessions.on_broken(client.link, "a frame is too long", broker.now)
    broker.sessions.on_broken(unknown.link, "noise", broker.now)
    broker.sessions.on_broken(4711, "nobody's", broker.now)
    outputs = broker.take()

    assert client.wire.hear(outputs[client.link]) == [Closing("a frame is too long")]
    assert outputs[client.link].close == "a frame is too long"
    assert (outputs[unknown.link].ordinary, outputs[unknown.link].close) == ([], "noise")
    assert broker.ended() == [client.session]
    assert len(broker.alarms) == 2


def test_the_operators_log_hears_who_has_connected(broker: Any) -> None:
    client = broker.client()

    [note] = broker.notes
    assert note.text.startswith("client 'desk-7' has connected from 127.0.0.1:9999")
    assert client.session


def test_sessions_count_that_were_opened_and_links_that_were_refused_or_ended(broker: Any) -> None:
    client = broker.client("one")
    broker.client("two")
    broker.link().say(hello(instance="three", credentials=b"bad"))
    client.send(*client.wire.say(ListPubends(1)), b"junk")

    assert value_of(broker.sessions.gauges(), OPENED) == 2
    assert values_by(broker.sessions.gauges(), REFUSED, "code") == {"unauthorized": 1, "closed": 1}
