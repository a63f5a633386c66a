"""The audit's lines: what makes one, what it says, and what waits where none may be lost."""

from __future__ import annotations

import pytest

from gapless.core.network.facts import Outcome, Verdict
from gapless.core.ports import Action, ClientSession
from gapless.core.principals import NOBODY, Principal
from gapless.core.server import SessionLimits
from gapless.core.server.audit import (
    OPENED_MAX,
    RESOURCE_MAX,
    SELECTOR_MAX,
    WITHOUT_END,
    AuditLine,
    called,
    line_of,
    wanted,
)
from gapless.core.server.limits import PUBLISHERS
from gapless.core.wire.codec import encode, encode_keyed
from gapless.core.wire.messages import (
    Attach,
    Code,
    Done,
    Heartbeat,
    InUse,
    ListPubends,
    OpenPublisher,
    PubendList,
    PublishKeyed,
    Renew,
    RequestFailed,
    StartAt,
    Subscribe,
    Unsubscribe,
)
from gapless.core.wire.numbering import HEAD_BYTES
from unit.gapless.core.server.conftest import WALL, Broker, Client
from wire import columns, hello, kinds

ADA = Principal("ada", frozenset({"ops"}))


@pytest.fixture
def broker() -> Broker:
    broker = Broker(SessionLimits(publishers=2), audited=True)
    broker.audit.begin_turn(WALL, WITHOUT_END)
    return broker


def lines(broker: Broker) -> list[AuditLine]:
    """Those since the last call."""
    found, broker.audit.lines = broker.audit.lines, []
    return found


def brief(broker: Broker) -> list[tuple[str, str, str, str, str]]:
    """Of each line since the last call kind, action, resource, outcome and reason."""
    return [(line.kind, line.action, line.resource, line.outcome, line.reason) for line in lines(broker)]


def ada(broker: Broker, instance: str = "one") -> Client:
    """A client that has come in, whose line was taken."""
    broker.guard.groups = ADA.groups
    client = broker.link()
    client.say(hello(credentials=b"ada", instance=instance))
    lines(broker)
    return client


def subscribe(name: str | None, *topics: str, selector: str = "") -> Subscribe:
    return Subscribe(7, name, topics, selector, StartAt.LATEST, 0, None, 0, 0, b"", [], InUse.ERROR, 1, 1)


def test_whoever_comes_in_makes_a_line(broker: Broker) -> None:
    broker.guard.groups = ADA.groups
    client = broker.link()
    client.say(hello(credentials=b"ada", client_id="desk"))

    address = broker.peer.address
    assert lines(broker) == [AuditLine(WALL, ADA, address, "desk", "admission", "sign-in", "", "", "ok", "", None)]


def test_whoever_is_not_let_in_makes_a_line_with_the_reason_for_the_log(broker: Broker) -> None:
    broker.link().say(hello(credentials=b"bad", client_id="desk"))

    (line,) = lines(broker)
    assert (line.kind, line.outcome, line.reason) == ("admission", "refused", "it says bad")
    assert (line.principal, line.client_id) == (NOBODY, "desk")


def test_whose_first_frame_is_no_hello_makes_a_line(broker: Broker) -> None:
    broker.link().send(b"\0" * 8 + b"nonsense")

    (line,) = lines(broker)
    assert (line.kind, line.outcome, line.client_id) == ("admission", "failed", "")
    assert "is not a Hello" in line.reason


def test_credentials_that_are_over_when_they_come_name_whose_they_are(broker: Broker) -> None:
    broker.guard.until = WALL
    broker.link().say(hello(credentials=b"ada"))

    (line,) = lines(broker)
    assert (line.principal.name, line.outcome) == ("ada", "refused")
    assert line.reason == "its credentials have expired"


def test_renewals_and_the_end_of_credentials_make_lines(broker: Broker) -> None:
    broker.guard.until = WALL + 30_000
    client = ada(broker)
    client.say(Renew(7, "", b"ada"))
    client.say(Renew(8, "", b"bad"))
    client.say(Renew(9, "", b"bob"))
    for _ in range(6):
        client.say(Heartbeat())
        broker.wait(5)

    [first, second, third, last] = lines(broker)
    assert {line.principal for line in (first, second, third, last)} == {ADA}
    assert (first.kind, first.outcome) == ("renewal", "ok")
    assert (second.kind, second.outcome, second.reason) == ("renewal", "refused", "it says bad")
    assert (third.kind, third.outcome) == ("renewal", "refused")
    assert "something else of the client" in third.reason
    assert (last.kind, last.outcome, last.reason) == ("expiry", "ok", "its credentials have expired")


def test_a_session_that_ends_otherwise_makes_no_line_of_an_expiry(broker: Broker) -> None:
    ada(broker)
    broker.wait(60)

    assert broker.sessions.count == 0
    assert lines(broker) == []


def test_a_request_makes_a_line_when_it_is_answered(broker: Broker) -> None:
    client = ada(broker)
    client.say(Unsubscribe(7, "late", "desk"))
    assert lines(broker) == []
    broker.audit.begin_turn(WALL + 5, WITHOUT_END)
    broker.sessions.tell(client.session, Done(7))
    broker.sessions.tell(client.session, Done(7))

    (line,) = lines(broker)
    assert line == AuditLine(
        WALL + 5, ADA, broker.peer.address, "desk-7", "request", "manage", "desk", "late", "ok", "", 7
    )


def test_an_own_subscription_is_consumed_not_managed(broker: Broker) -> None:
    client = ada(broker)
    client.say(Unsubscribe(7, "late", "desk-7"))
    broker.sessions.tell(client.session, RequestFailed(7, Code.NOT_FOUND, "there is none"))

    assert brief(broker) == [("request", "consume", "desk-7", "failed", "there is none")]


def test_what_is_refused_by_rules_makes_a_line_even_if_it_changes_nothing(broker: Broker) -> None:
    client = ada(broker)
    broker.rules.forbidden = {(Action.OBSERVE, "pubends"), (Action.PUBLISH, "secret")}
    client.say(ListPubends(7))
    client.say(OpenPublisher(1, "loader", "instance", 1, "secret"))

    assert [line[:4] for line in brief(broker)] == [
        ("request", "observe", "pubends", "refused"),
        ("opening", "publish", "secret", "refused"),
    ]


def test_a_listing_that_is_answered_makes_none(broker: Broker) -> None:
    client = ada(broker)
    client.say(ListPubends(7))
    broker.sessions.tell(client.session, PubendList(7, []))
    client.say(ListPubends(8))
    broker.sessions.tell(client.session, RequestFailed(8, Code.RETRY, "later"))
    client.say(ListPubends(9))
    broker.sessions.end(client.session, "over")

    assert lines(broker) == []


def test_an_opening_makes_one_line_and_its_events_none(broker: Broker) -> None:
    client = ada(broker)
    client.open(number=3, name="loader")
    asked = client.publish(1, b"a", b"b", number=3)
    broker.answer(asked, Outcome(Verdict.OK, sequence=2))
    client.hear()

    (line,) = lines(broker)
    assert (line.kind, line.action, line.name, line.outcome, line.request) == ("opening", "publish", "loader", "ok", 3)


def test_openings_that_fail_make_lines(broker: Broker) -> None:
    client = ada(broker)
    for number in (1, 2):
        client.open(number=number)
    lines(broker)
    client.say(OpenPublisher(1, "loader", "instance", 2, "nowhere"))
    (asked,) = broker.placed()
    broker.answer(asked, Outcome(Verdict.REJECTED, "no pubend takes it"))
    client.say(OpenPublisher(3, "loader", "instance", 1, "flights"))

    assert brief(broker) == [
        ("opening", "publish", "nowhere", "failed", "no pubend takes it"),
        ("opening", "publish", "flights", "failed", f"a session may have 2 publishers ({PUBLISHERS})"),
    ]


def test_a_batch_that_may_not_be_published_makes_a_line(broker: Broker) -> None:
    client = ada(broker)
    client.open()
    lines(broker)
    asked = client.publish(1, b"a")
    broker.answer(asked, Outcome(Verdict.FORBIDDEN, "ada may not publish secret", 1))
    client.hear()

    (line,) = lines(broker)
    assert (line.kind, line.action, line.name) == ("request", "publish", "loader")
    assert (line.outcome, line.reason) == ("refused", "ada may not publish secret")


def keyed(client: Client, request: int, topic: str, verdict: Verdict) -> None:
    """A keyed batch, and what becomes of it."""
    batch = PublishKeyed(request, 1, request, "sink", topic, columns(b"a"))
    client.send(b"".join(encode_keyed(client.session, batch)))
    broker = client.broker
    for _ in range(2):  # where it belongs, and then the batch itself
        for asked in broker.placed():
            broker.answer(asked, Outcome(verdict, "why"))
        client.hear()


def test_keyed_batches_make_one_line_for_each_producer_and_topic_and_one_for_each_refusal(broker: Broker) -> None:
    client = ada(broker)
    for request, topic in enumerate(["a", "a", "b", "a"], 1):
        keyed(client, request, topic, Verdict.OK)
    keyed(client, 5, "a", Verdict.FORBIDDEN)

    assert [line[2:4] for line in brief(broker)] == [("a", "ok"), ("b", "ok"), ("a", "refused")]

    for request in range(OPENED_MAX):
        keyed(client, 10 + request, f"topic.{request}", Verdict.OK)
    lines(broker)
    keyed(client, 5000, "a", Verdict.OK)
    assert len(lines(broker)) == 1, "what is remembered of a session is bounded"
    broker.sessions.end(client.session, "over")
    assert broker.audit.remembered == 0, "and forgotten with it"


def test_what_a_session_asks_for_and_never_hears_of_makes_a_line_at_its_end(broker: Broker) -> None:
    client = ada(broker)
    client.say(Unsubscribe(7, "late", "desk"))
    broker.sessions.end(client.session, "over")
    broker.sessions.tell(client.session, Done(7))

    assert brief(broker) == [("request", "manage", "desk", "failed", "its session ended before the answer")]


def test_a_subscription_is_named_with_topics_and_selector_and_cut() -> None:
    client = ClientSession(1, "desk", "one", ADA)
    line = line_of(subscribe("late", "a.#", "b", selector="x = 1"), client, "peer", Done(7), WALL)
    assert (line.kind, line.action, line.resource, line.name) == ("attachment", "consume", "a.#, b where x = 1", "late")
    assert called(None) == "subscribe"

    long = wanted(["t" * 255] * 100, "s" * 5000)
    assert len(long) <= RESOURCE_MAX + len(" where ")
    assert long.endswith("s" * (SELECTOR_MAX - 1) + "…")
    assert wanted(["t"], "s" * SELECTOR_MAX).endswith("s" * SELECTOR_MAX)


def test_reading_by_ranges_is_an_attachment() -> None:
    attach = Attach(7, "late", ("a",), "", StartAt.LATEST, 0, None, 0, 0, b"")
    line = line_of(attach, ClientSession(1, "desk", "one", ADA), "peer", None, WALL)

    assert (line.kind, line.action, line.outcome) == ("attachment", "consume", "failed")


def test_no_secret_is_in_any_line(broker: Broker) -> None:
    client = broker.link()
    client.say(hello(credentials=b"S3CRET"))
    client.say(Renew(7, "", b"S3CRET-2"))
    broker.link().say(hello(credentials=b"bad", instance="two"))

    # The guard takes what it is given for a name: nothing else may tell it.
    told = "".join(repr(line).replace("Principal(name='S3CRET'", "") for line in lines(broker))
    assert "S3CRET" not in told


def test_without_an_audit_nothing_is_gathered() -> None:
    broker = Broker()
    client = broker.client()
    client.say(Unsubscribe(7, "late", "desk"))
    broker.sessions.tell(client.session, Done(7))
    broker.link().say(hello(credentials=b"bad"))

    assert lines(broker) == []


# Where no line may be lost.


def turn(broker: Broker, room: int) -> None:
    """The next turn of the node, which has room for so many lines."""
    broker.audit.begin_turn(WALL, room)
    broker.sessions.begin_turn(broker.now)
    if broker.sessions.is_behind:
        broker.sessions.take_late(broker.now, WALL)


def test_requests_that_make_a_line_wait_until_there_is_room(broker: Broker) -> None:
    client = ada(broker)
    turn(broker, 0)
    client.say(Unsubscribe(7, "late", "desk"), ListPubends(8))
    other = ada(broker, "two")
    assert kinds(other.hear()) == []
    assert broker.requests == []
    turn(broker, 0)
    assert not broker.sessions.is_behind, "a node that waits for a disk must not turn and turn"
    assert broker.requests == []

    turn(broker, 10)

    assert [type(message) for _, message in broker.requests] == [Unsubscribe, ListPubends]
    assert kinds(other.hear()) == ["Welcome"]


def test_what_makes_no_line_goes_on(broker: Broker) -> None:
    client = ada(broker)
    turn(broker, 0)
    client.say(ListPubends(7))

    assert [message for _, message in broker.requests] == [ListPubends(7)]


def test_nobody_is_blamed_for_a_wait_that_is_the_nodes(broker: Broker) -> None:
    """Neither who waits for a Welcome, nor who says that it is there behind a request that waits."""
    client, late = ada(broker), broker.link()
    turn(broker, 0)
    client.say(Unsubscribe(7, "late", "desk"))
    late.say(hello(instance="late"))
    for _ in range(10):
        client.say(Heartbeat())
        broker.wait(4)

    assert broker.sessions.count == 1
    turn(broker, 10)
    assert kinds(late.hear()) == ["Welcome"]
    assert len(broker.requests) == 1


def test_a_client_that_sends_on_meanwhile_is_not_read(broker: Broker) -> None:
    client = ada(broker)
    turn(broker, 0)
    client.say(Unsubscribe(7, "late", "desk"))
    client.say(*[Heartbeat()] * 5000)
    assert broker.outputs[client.link].paused is True

    turn(broker, 10)
    broker.take()
    assert broker.outputs[client.link].paused is False


def test_whoever_leaves_while_it_waits_is_still_heard(broker: Broker) -> None:
    client = ada(broker)
    turn(broker, 0)
    client.say(Unsubscribe(7, "late", "desk"))
    broker.sessions.on_link_closed(client.link)
    assert broker.sessions.count == 1
    turn(broker, 10)

    assert len(broker.requests) == 1
    assert broker.sessions.count == 0


def test_a_frame_that_cannot_be_decoded_waits_like_one_that_can(broker: Broker) -> None:
    client = ada(broker)
    turn(broker, 0)
    client.send(encode(client.session, Heartbeat())[:HEAD_BYTES] + b"\xc1")
    assert broker.sessions.count == 1
    turn(broker, 10)

    assert broker.sessions.count == 0


def test_what_other_nodes_ask_names_them(broker: Broker) -> None:
    client = ClientSession(0, "desk", "", ADA)
    forbidden = RequestFailed(7, Code.FORBIDDEN, "ada may not list")
    broker.audit.on_node_answered("ib", client, ListPubends(7), [PubendList(7, [])])
    assert lines(broker) == []
    broker.audit.on_node_answered("ib", client, ListPubends(7), [forbidden])

    (line,) = lines(broker)
    assert (line.peer, line.client_id, line.outcome, line.wall) == ("ib", "desk", "refused", WALL)
