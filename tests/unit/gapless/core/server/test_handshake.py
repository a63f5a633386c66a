"""The first frame (protocol: session; F01, F06, F07, A08)."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from gapless.core.client import OPEN_LINK, ClientCore, NoCredentials
from gapless.core.client.link.attempts import Attempts
from gapless.core.client.link.effects import AskCredentials, OpenLink, SendFrames
from gapless.core.server import HELLO_BYTES_MAX, SessionLimits
from gapless.core.server.handshake import NOT_VALID
from gapless.core.wire.codec import encode
from gapless.core.wire.messages import (
    PROTOCOL,
    Challenge,
    Closing,
    Code,
    Heartbeat,
    Hello,
    HelloRefused,
    ListPubends,
    OpenPublisher,
    Proof,
    Publish,
    Renew,
    Renewed,
    RequestFailed,
    Waiting,
    Welcome,
)
from wire import Wire, columns, hello

SECOND = 1_000_000_000
WALL = 1_700_000_000_000
NOTHING_TO_SHOW = "the broker asks who this is, and there are no credentials to tell it"


def test_a_hello_is_answered_by_a_welcome_with_the_limits(broker: Any) -> None:
    client = broker.link()

    (welcome,) = client.say(hello())

    assert isinstance(welcome, Welcome)
    assert welcome.session == (3 << 32) | 1
    assert (welcome.protocol, welcome.network, welcome.node, welcome.durable) == (
        PROTOCOL,
        "testnet",
        "phb-1",
        True,
    )
    assert welcome.heartbeat_ms == 5000
    assert broker.outputs[client.link].limit == welcome.max_frame_bytes == SessionLimits().frame_bytes


def test_the_frame_limit_is_raised_only_then(broker: Any) -> None:
    client = broker.link()

    assert broker.outputs == {}
    client.say(hello(credentials=b"bad"))

    assert broker.outputs[client.link].limit == 0


def test_session_numbers_are_unique_over_restarts(broker: Any) -> None:
    sessions = [broker.client(instance=str(number)).session for number in range(3)]

    assert [session & 0xFFFFFFFF for session in sessions] == [1, 2, 3]
    assert {session >> 32 for session in sessions} == {3}


@pytest.mark.parametrize(
    ("first", "code", "reason"),
    [
        (Hello(PROTOCOL + 1, "", "a", "i"), Code.PROTOCOL_VERSION, f"speaks protocol {PROTOCOL}"),
        (hello(credentials=b"bad"), Code.UNAUTHORIZED, "credentials"),
        (hello(network="othernet"), Code.NETWORK_MISMATCH, "'testnet'"),
        (hello(client_id="a" * 256), Code.CONFIGURATION, "longer than 255"),
        (hello(client_id="a\nb"), Code.CONFIGURATION, "cannot be printed"),
        (hello(instance=""), Code.CONFIGURATION, "instance is empty"),
    ],
    ids=["protocol", "credentials", "network", "long client", "unprintable client", "no instance"],
)
def test_a_hello_is_refused(broker: Any, first: Hello, code: Code, reason: str) -> None:
    client = broker.link()

    (refused,) = client.say(first)

    assert refused.code is code
    assert reason in refused.reason
    assert client.closed() == refused.reason
    assert broker.sessions.count == 0
    assert broker.effects == []


def test_nobody_learns_the_network_without_credentials(broker: Any) -> None:
    (refused,) = broker.link().say(hello(network="othernet", credentials=b"bad"))

    assert refused.code is Code.UNAUTHORIZED
    assert "testnet" not in refused.reason


def test_the_authenticator_gets_the_client_its_credentials_and_its_address(broker: Any) -> None:
    broker.link().say(hello(client_id="desk-7", credentials=b"secret"))

    assert broker.guard.asked == [("desk-7", b"secret", "127.0.0.1:9999")]


def test_a_client_may_be_asked_more_than_once_who_it_is(broker: Any) -> None:
    """As SCRAM asks: nobody is welcome, and nothing is told of the network, before the last answer."""
    client = broker.link()

    said = [client.say(first) for first in (hello(credentials=b"more"), Proof(b"more"), Proof(b"ada"))]

    assert said[:2] == [[Challenge(b"who is it?")]] * 2
    assert isinstance(said[2][0], Welcome)
    assert [credentials for _, credentials, _ in broker.guard.asked] == [b"more", b"more", b"ada"]
    assert broker.outputs[client.link].limit == SessionLimits().frame_bytes
    client.say(ListPubends(1))
    assert [session.principal.name for session, _ in broker.requests] == ["ada"]


class Password(NoCredentials):
    """Answers what it is asked."""

    def first(self, _binding: bytes, *, secure: bool) -> bytes:
        return b"more"

    def answer(self, challenge: bytes) -> bytes:
        return b"ada" if challenge == b"who is it?" else b"bad"


@pytest.mark.parametrize("credentials", [Password(), None])
def test_a_client_of_ours_answers_or_says_that_it_cannot(broker: Any, credentials: Password | None) -> None:
    if credentials is None:
        broker.guard.begin = lambda *_client: SimpleNamespace(answer=lambda _data: b"who is it?")
    core = ClientCore(
        ["a:1"],
        client_id="desk-7",
        instance="1",
        attempts=Attempts("p"),
        random=random.Random(1),
        has_credentials=credentials is not None,
    )
    client = broker.link()
    core.start(0)
    if credentials is not None:
        [ask] = core.take_effects()
        assert isinstance(ask, AskCredentials)
        core.on_credentials(ask.link, credentials, 0)
    [link] = [effect.link for effect in core.take_effects() if isinstance(effect, OpenLink)]
    core.on_link_up(link, OPEN_LINK, 0)
    for _ in range(3):
        frames = [effect for effect in core.take_effects() if isinstance(effect, SendFrames)]
        answers = client.send(*(payload for each in frames for payload in each.payloads if isinstance(payload, bytes)))
        core.on_frames(link, [encode(0, message) for message in answers], 0)

    assert core.connected == (credentials is not None)
    assert core.trouble == ("" if core.connected else "protocol violation: " + NOTHING_TO_SHOW)


@pytest.mark.parametrize("answers", [[Proof(b"bad")], [Proof(b"more")] * 8])
def test_who_answers_wrong_or_without_end_is_refused(broker: Any, answers: list[Proof]) -> None:
    client = broker.link()
    for first in [hello(credentials=b"more"), *answers[:-1]]:
        assert client.say(first) == [Challenge(b"who is it?")]

    [refused] = client.say(answers[-1])

    assert refused.code is Code.UNAUTHORIZED
    assert client.closed() == refused.reason
    assert broker.sessions.count == 0


@pytest.mark.parametrize("payload", [encode(0, hello()), encode(0, ListPubends(1)), encode(0, Proof(b"x" * 4096))])
def test_a_challenge_is_answered_by_a_proof_and_by_nothing_else(broker: Any, payload: bytes) -> None:
    client = broker.link()
    client.say(hello(credentials=b"more"))

    [refused] = client.send(payload)

    assert "protocol violation: the answer to a challenge" in refused.reason
    assert broker.sessions.count == 0


def test_a_challenge_is_answered_in_time(broker: Any) -> None:
    client = broker.link()
    client.say(hello(credentials=b"more"))

    outputs = broker.wait(5.1)

    assert outputs[client.link].close == "no Proof within 5 s"


@pytest.mark.parametrize(
    "payload",
    [
        encode(0, ListPubends(1)),
        encode(0, OpenPublisher(1, "loader", "i", 1, None)),
        encode(7, hello()),
        b"".join(Wire().say(Publish(1, 1, 1, columns(b"x"), b""))),
        encode(0, hello()) + b"more",
        encode(0, hello())[:-1],
        encode(0, hello(client_id="x" * HELLO_BYTES_MAX)),
        b"",
        b"\0" * 8,
        b"\0" * 8 + b"\xdd\xff\xff\xff\xff",
        b"\0" * 8 + b"\x91" * 2000,
    ],
    ids=[
        "request",
        "opening",
        "session",
        "batch",
        "trailing",
        "truncated",
        "huge",
        "empty",
        "short",
        "array",
        "nested",
    ],
)
def test_nothing_but_a_hello_is_taken_first(broker: Any, payload: bytes) -> None:
    client = broker.link()

    (refused,) = client.send(payload)

    assert refused.code is Code.PROTOCOL_VERSION
    assert client.closed() == refused.reason
    assert broker.guard.asked == []
    assert (broker.requests, broker.effects, broker.sessions.count) == ([], [], 0)


def test_what_follows_a_refused_frame_is_not_looked_at(broker: Any) -> None:
    client = broker.link()

    (refused,) = client.send(b"garbage, long enough", *client.wire.say(hello()))

    assert refused.code is Code.PROTOCOL_VERSION
    assert broker.guard.asked == []


def test_random_bytes_never_get_in(broker: Any) -> None:
    randomness = random.Random(7)
    valid = encode(0, hello())
    for _ in range(500):
        client = broker.link()
        mutated = bytearray(valid)
        for _ in range(randomness.randint(1, 4)):
            mutated[randomness.randrange(len(mutated))] = randomness.randrange(256)
        answers = client.send(bytes(mutated[: randomness.randint(0, len(mutated))]))

        assert [type(answer).__name__ for answer in answers] in (["HelloRefused"], ["Welcome"])
        assert broker.sessions.count <= broker.links


def test_a_verdict_may_have_to_wait_and_nobody_else_waits(broker: Any) -> None:
    """The time is in no limit of the handshake, and the client is told of it."""
    broker.guard.wait = 30 * SECOND
    client = broker.link()
    assert client.say(hello(credentials=b"ada")) == [Waiting(30_000)]
    broker.guard.wait = 0
    other = broker.client("another")

    for _ in range(29):
        assert broker.sessions.count == 1
        other.say(Heartbeat())
        outputs = broker.wait(1)

    other.say(Heartbeat())
    outputs = broker.wait(1)
    [welcome] = client.wire.hear(outputs.get(client.link))
    assert isinstance(welcome, Welcome)
    assert broker.sessions.count == 2


@pytest.mark.parametrize(("credentials", "code"), [(b"bad", Code.UNAUTHORIZED), (b"more", None)])
def test_a_refusal_or_a_challenge_may_have_to_wait(broker: Any, credentials: bytes, code: Code | None) -> None:
    broker.guard.wait = 2 * SECOND
    client = broker.link()
    client.say(hello(credentials=credentials))

    heard = client.wire.hear(broker.wait(2).get(client.link))

    assert [getattr(message, "code", None) for message in heard] == [code]
    if code is None:
        assert broker.wait(4) == {}
        assert client.wire.hear(broker.wait(2).get(client.link))[0].code is Code.RETRY  # no Proof in time


def test_who_says_more_before_the_answer_is_refused(broker: Any) -> None:
    broker.guard.wait = 2 * SECOND
    client = broker.link()
    client.say(hello(credentials=b"more"))

    [refused] = client.say(Proof(b"ada"))

    assert refused.code is Code.PROTOCOL_VERSION
    assert broker.wait(3) == {}


def test_so_many_wait_and_the_others_are_to_try_again(make_broker: Any) -> None:
    broker = make_broker(SessionLimits(postponed=2))
    broker.guard.wait = 10 * SECOND
    clients = [broker.link() for _ in range(4)]
    clients[0].say(hello(credentials=b"bad", instance="1"))
    clients[1].say(hello(credentials=b"bad", instance="2"))

    [refused] = clients[2].say(hello(credentials=b"bad", instance="3"))

    assert refused.code is Code.RETRY
    broker.sessions.on_link_closed(clients[0].link)
    assert clients[3].say(hello(credentials=b"bad", instance="4")) == [Waiting(10_000)]


def test_a_session_ends_when_its_credentials_do(broker: Any) -> None:
    broker.guard.until = WALL + 60_000
    client = broker.link()
    [welcome] = client.say(hello(credentials=b"ada"))
    assert welcome.expires_ms == 60_000

    heard = []
    for _ in range(60):
        client.say(Heartbeat())
        assert broker.sessions.count == 1
        heard = client.wire.hear(broker.wait(1).get(client.link))

    assert heard == [Closing("its credentials have expired")]
    assert broker.sessions.count == 0


@pytest.mark.parametrize("until", [WALL + 90_000, None])
def test_a_client_may_renew_its_credentials_in_time(broker: Any, until: int | None) -> None:
    broker.guard.until = WALL + 30_000
    client = broker.link()
    client.say(hello(credentials=b"ada"))
    broker.guard.until = until

    assert client.say(Renew(7, "", b"ada")) == [Renewed(7, 90_000 if until else 0)]

    for _ in range(80):
        client.say(Heartbeat())
        broker.wait(1)
    assert broker.sessions.count == 1
    for _ in range(20):
        client.say(Heartbeat())
        broker.wait(1)
    assert broker.sessions.count == (0 if until else 1)


@pytest.mark.parametrize("credentials", [b"bob", b"bad", b"more", b"x" * 4097])
def test_other_credentials_renew_nothing(broker: Any, credentials: bytes) -> None:
    broker.guard.until = WALL + 30_000
    client = broker.link()
    client.say(hello(credentials=b"ada"))

    [failed] = client.say(Renew(7, "", credentials))

    assert (failed.request, failed.code) == (7, Code.UNAUTHORIZED)
    for _ in range(30):
        client.say(Heartbeat())
        broker.wait(1)
    assert broker.sessions.count == 0


def test_a_client_in_other_groups_renews_nothing(broker: Any) -> None:
    """A session keeps the groups that it began with, so a client that has lost one has to begin anew."""
    broker.guard.groups = frozenset({"billing", "shop"})
    client = broker.link()
    client.say(hello(credentials=b"ada"))
    broker.guard.groups = frozenset({"shop"})

    [failed] = client.say(Renew(7, "", b"ada"))

    assert (failed.request, failed.code) == (7, Code.UNAUTHORIZED)
    assert "something else of the client" in failed.reason


def test_nobody_renews_where_the_answer_would_have_to_wait(broker: Any) -> None:
    """Else whoever is in could guess the credentials of others, and hear at once which of them are right."""
    broker.guard.until = WALL + 30_000
    client = broker.link()
    client.say(hello(credentials=b"ada"))
    broker.guard.wait = SECOND

    answers = [client.say(Renew(7, "", credentials)) for credentials in (b"ada", b"bob", b"bad")]

    assert answers == [[RequestFailed(7, Code.UNAUTHORIZED, NOT_VALID)]] * 3


def test_credentials_that_have_expired_let_nobody_in(broker: Any) -> None:
    broker.guard.until = WALL
    [refused] = broker.link().say(hello(credentials=b"ada"))
    assert refused.reason == "the credentials are not valid here"


def test_all_sessions_of_a_principal_are_ended_and_told_why(broker: Any) -> None:
    ada = [broker.link() for _ in range(2)]
    bob = broker.link()
    for number, client in enumerate(ada):
        client.say(hello(credentials=b"ada", instance=f"a{number}"))
    bob.say(hello(credentials=b"bob", instance="b"))

    broker.sessions.end_sessions_of("ada", "user 'ada' was removed", 0)

    outputs = broker.take()
    assert [client.wire.hear(outputs.get(client.link)) for client in ada] == [[Closing("user 'ada' was removed")]] * 2
    assert broker.sessions.count == 1


def test_the_session_that_has_asked_for_it_goes_on(broker: Any) -> None:
    asked, other = broker.link(), broker.link()
    for number, client in enumerate((asked, other)):
        client.say(hello(credentials=b"ada", instance=f"a{number}"))

    broker.sessions.end_sessions_of("ada", "another password", asked.session)

    outputs = broker.take()
    assert other.wire.hear(outputs.get(other.link)) == [Closing("another password")]
    assert asked.link not in outputs
    assert broker.sessions.count == 1


def test_nobody_comes_in_without_a_name_but_the_process_itself(broker: Any) -> None:
    """For whoever has none there are no rules: an authenticator that gives none would let its client do everything."""
    client = broker.link()
    broker.guard.nameless = True

    [refused] = client.say(hello(credentials=b"ada"))

    assert refused == HelloRefused(Code.UNAUTHORIZED, "the credentials are not valid here")
    assert "has given it no name" in broker.alarms[0].text
