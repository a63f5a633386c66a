"""A client says who it is, on each link (protocol: session): the order of things, and what is never sent."""

from __future__ import annotations

from typing import Any

import pytest

from gapless.core.client import Credentials, LinkSecurity, NoCredentials
from gapless.core.client.credentials import check_size
from gapless.core.client.link import effects as e
from gapless.core.client.session import ConnectionPhase
from gapless.core.wire import messages as m
from gapless.core.wire.codec import encode
from gapless.core.wire.messages.checks import HELLO_BYTES_MAX
from gapless.errors import AuthenticationError, RemoteProtocolError
from unit.gapless.client.fake_broker import FakeBroker
from unit.gapless.core.client.guarded import Doorkeeper, Word
from unit.gapless.core.client.harness import SECOND, World
from unit.gapless.core.client.test_hosts import HERE, THERE, TwoNodes


def guarded(credentials: Any, *words: bytes, addresses: tuple[str, ...] = ("a:1",)) -> World:
    """A client whose shell says these, one after the other, and the last one from then on."""
    said = [*credentials] if isinstance(credentials, list) else [credentials]
    broker = FakeBroker()
    broker.authenticators = [Doorkeeper(*words)]
    return World(broker, addresses=addresses, credentials=lambda: said.pop(0) if len(said) > 1 else said[0])


def test_credentials_are_asked_for_before_the_broker_is_dialled_and_shown_with_the_hello() -> None:
    word = Word(b"ada")
    world = guarded(word, b"ada")
    world.security = LinkSecurity(b"hash", secure=True)

    world.start()

    assert world.core.connected
    assert world.asked == [e.AskCredentials(1, "a:1")]
    assert word.shown == [(b"hash", True)]
    (hello,) = world.broker.messages(m.Hello)
    assert (hello.mechanism, hello.credentials) == ("word", b"ada")
    assert world.broker.admitted == ["ada"]


def test_nothing_is_dialled_before_there_are_credentials() -> None:
    world = World(credentials=lambda: Word(b"ada"))
    world.core.start(world.now)

    assert world.core.take_effects() == [e.AskCredentials(1, "a:1")]
    assert world.core.phase is ConnectionPhase.ASKING
    world.core.on_credentials(2, Word(b"of an earlier link"), world.now)
    assert world.core.take_effects() == []
    world.core.on_credentials(1, Word(b"ada"), world.now)
    assert world.core.take_effects() == [e.OpenLink(1, "a:1")]


def test_each_link_has_credentials_of_its_own() -> None:
    world = guarded([Word(b"ada"), Word(b"eve")], b"ada", b"eve").start()
    world.reconnect()

    assert world.broker.admitted == ["ada", "eve"]


def test_who_is_sent_away_and_not_let_in_again_hears_why() -> None:
    world = guarded([Word(b"ada"), Word(b"eve")], b"ada").start()
    world.broker.tell(world.broker.session, m.Closing("the word was changed"))

    world.pump()
    world.advance(5)

    (closed,) = world.effects(e.Closed)
    assert isinstance(closed.error, AuthenticationError)
    assert "; the session before was ended because the word was changed" in str(closed.error)


def test_who_has_none_is_never_asked_and_names_no_mechanism() -> None:
    world = World().start()

    assert world.asked == []
    assert [(hello.mechanism, hello.credentials) for hello in world.broker.messages(m.Hello)] == [("", b"")]


def test_credentials_that_do_not_come_are_given_up_and_asked_for_again() -> None:
    world = World(credentials=lambda: Word(b"ada"))
    world.core.start(world.now)
    world.core.take_effects()

    world.now += 31 * SECOND
    world.core.on_deadline(world.now)

    assert world.core.trouble == "the credentials did not come in time"
    assert e.CloseLink(1, "the credentials did not come in time") in world.core.take_effects()
    world.core.on_credentials(1, Word(b"ada"), world.now)
    assert world.core.phase is ConnectionPhase.WAITING, "they come too late"
    world.advance(5)
    assert world.core.connected


def test_why_there_are_none_is_told_and_it_tries_again() -> None:
    world = guarded(["the vault is shut", Word(b"ada")], b"ada").start()

    assert world.effects(e.Unreachable) == [e.Unreachable("a:1: the vault is shut")]
    assert world.dialled == []
    world.advance(1)
    assert world.core.connected


def test_wrong_credentials_end_the_connection_once_every_address_has_refused_them() -> None:
    world = guarded(Word(b"eve"), b"ada", addresses=("a:1", "b:1")).start()
    assert world.effects(e.Closed) == []
    world.advance(1)

    (closed,) = world.effects(e.Closed)
    assert isinstance(closed.error, AuthenticationError)
    assert str(closed.error) == "the credentials are not valid here"
    assert world.core.deadline() is None
    world.advance(600)
    assert world.dialled == ["a:1", "b:1"]


def test_who_does_not_take_them_is_not_asked_again_while_another_one_is_away() -> None:
    """Each try counts as one of somebody who guesses, and delays others of that user."""
    world = guarded(Word(b"eve"), b"ada", addresses=("a:1", "b:1", "c:1"))
    world.unreachable |= {"b:1", "c:1"}
    world.start()
    world.advance(60)

    assert world.dialled.count("a:1") == 1
    assert world.dialled.count("b:1") > 5
    told = world.effects(e.Unreachable)
    reason = "a:1: the credentials are not valid here; b:1: nobody answers; c:1: nobody answers"
    assert len(told) > 5
    assert set(told) == {e.Unreachable(reason, is_refused=True)}

    world.unreachable.clear()
    world.advance(20)
    (closed,) = world.effects(e.Closed)
    assert isinstance(closed.error, AuthenticationError)
    assert len(world.broker.messages(m.Hello)) == 3


def test_after_a_session_each_address_is_asked_again() -> None:
    world = guarded([Word(b"eve"), Word(b"ada")], b"ada", addresses=("a:1", "b:1")).start()
    world.advance(1)
    assert world.core.connected
    for _ in range(2):
        world.reconnect()

    assert world.dialled == ["a:1", "b:1", "a:1", "b:1"]


def test_a_reconnect_with_credentials_that_are_not_valid_any_more_ends_it_too() -> None:
    world = guarded(Word(b"ada"), b"ada").start()
    reader = world.subscribe()
    [keeper] = world.broker.authenticators
    keeper.words.clear()  # type: ignore[attr-defined]
    world.cut()
    world.advance(20)

    assert isinstance(world.failure(reader.number), AuthenticationError)
    assert len(world.broker.messages(m.Hello)) == 2, "it is not tried for ever"


def test_a_broker_that_takes_none_of_the_kind_says_what_it_takes() -> None:
    world = World(credentials=NoCredentials)
    world.broker.authenticators = [Doorkeeper(b"ada")]
    world.start()

    (closed,) = world.effects(e.Closed)
    assert isinstance(closed.error, AuthenticationError)
    assert str(closed.error) == "this broker takes word"


def test_a_challenge_is_answered_by_the_credentials_of_the_link() -> None:
    world = guarded(Word(b"ask"), b"ada").start()

    assert world.core.connected
    assert [proof.data for proof in world.broker.messages(m.Proof)] == [b"ada"]


@pytest.mark.parametrize(
    ("word", "trouble"),
    [(b"impostor", "the broker is an impostor"), (b"proves", "the broker has proved nothing")],
    ids=["a challenge of an impostor", "a Welcome without the proof that is due"],
)
def test_an_impostor_gets_neither_a_proof_nor_a_session(word: bytes, trouble: str) -> None:
    world = guarded(Word(word), word).start()

    assert world.core.trouble == f"protocol violation: {trouble}"
    assert world.core.phase is ConnectionPhase.WAITING
    assert world.broker.messages(m.Proof) == []
    assert world.effects(e.Connected) == []


def longest() -> int:
    """How many bytes of credentials there is room for in the Hello of these tests."""
    empty = m.Hello(m.PROTOCOL, "", "client", "instance-1", b"", "word")
    return HELLO_BYTES_MAX - len(encode(0, empty)) - 1  # from 256 bytes on, their length takes one byte more


def test_credentials_that_fit_are_sent_and_longer_ones_never() -> None:
    fits, longer = b"x" * longer_by(0), b"x" * longer_by(1)
    world = guarded(Word(fits), fits).start()
    assert world.core.connected
    too_long = guarded(Word(longer), longer).start()

    (closed,) = too_long.effects(e.Closed)
    assert isinstance(closed.error, AuthenticationError)
    assert "too long: with them the Hello has 4,097 bytes" in str(closed.error)
    assert too_long.sends == []
    assert too_long.core.deadline() is None


def longer_by(count: int) -> int:
    return longest() + count


def test_a_proof_is_no_longer_either() -> None:
    with pytest.raises(AuthenticationError, match="the Proof has"):
        check_size(m.Proof(b"x" * HELLO_BYTES_MAX))
    check_size(m.Proof(b"x" * (HELLO_BYTES_MAX - 20)))


def test_credentials_that_must_not_be_shown_on_the_link_end_the_connection() -> None:
    class Shy(Word):
        def first(self, binding: bytes, *, secure: bool) -> bytes:
            raise AuthenticationError("not here")

    world = guarded(Shy(b"ada"), b"ada").start()

    (closed,) = world.effects(e.Closed)
    assert str(closed.error) == "not here"
    assert world.sends == []


def test_none_are_shown_and_no_challenge_is_answered_by_a_client_without() -> None:
    none: Credentials = NoCredentials()

    assert (none.mechanism, none.first(b"", secure=False)) == ("", b"")
    none.check_welcome()
    with pytest.raises(RemoteProtocolError, match="asks who this is"):
        none.answer(b"who?")


# What the broker says that it takes longer.


def greeting() -> World:
    world = World(credentials=lambda: Word(b"ada"))
    world.broker.connect = lambda _link: None  # type: ignore[assignment,method-assign]  # it says nothing by itself
    return world.start()


def say(world: World, message: m.ServerMessage) -> None:
    world.core.on_frames(1, [encode(0, message)], world.now)


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ((), 10),
        (((0, 30_000),), 40),
        (((0, 600_000),), 70),
        (((0, 30_000), (30, 20_000)), 60),
        (((0, 30_000), (5, 1_000)), 40),
        (((0, -50_000), (0, 600_000)), 70),
        (((0, 50_000), (50, 50_000)), 70),
        (((0, 50_000), (50, 50_000), (60, 50_000)), 70),
    ],
)
def test_it_waits_as_much_longer_as_the_broker_says_and_a_minute_at_most(
    said: tuple[tuple[float, int], ...], seconds: int
) -> None:
    world = greeting()
    began = world.now
    for at, wait_ms in said:
        world.advance(at - (world.now - began) / SECOND)
        say(world, m.Waiting(wait_ms))

    world.advance(seconds - 0.1 - (world.now - began) / SECOND)
    assert (world.core.phase, world.core.trouble) == (ConnectionPhase.GREETING, "")
    world.advance(0.2)
    assert world.core.trouble == "the broker did not answer in time"


def test_what_is_waited_for_counts_when_it_comes() -> None:
    world = greeting()
    say(world, m.Waiting(30_000))
    world.advance(30)
    say(world, m.HelloRefused(m.Code.UNAUTHORIZED, "the credentials are not valid here"))
    world.pump()

    (closed,) = world.effects(e.Closed)
    assert isinstance(closed.error, AuthenticationError)


# Sessions with the hosts of pubends.


class TwoGuardedNodes(TwoNodes):
    """Both ask who the client is."""

    def __init__(self, there: bytes) -> None:
        self.first = Word(b"ada")
        super().__init__(credentials=lambda: Word(b"ada"))
        self.brokers[THERE].authenticators = [Doorkeeper(there)]


def test_a_session_with_the_host_has_the_same_credentials() -> None:
    world = TwoGuardedNodes(b"ada")
    publisher = world.open()
    ticket = world.publish(publisher, b"x")

    assert [address for _, address in map(fields, world.asked)] == [HERE, THERE]
    assert world.brokers[THERE].admitted == ["ada"]
    assert list(world.receipts(publisher)) == [ticket]
    assert world.published(THERE) == [1]


def fields(asked: e.AskCredentials) -> tuple[int, str]:
    return asked.link, asked.address


def test_a_host_that_does_not_take_them_is_not_asked_again_as_long_as_the_home_is_there() -> None:
    world = TwoGuardedNodes(b"eve")
    publisher = world.open()
    ticket = world.publish(publisher, b"x")
    world.advance(600)

    assert world.dialled == [HERE, THERE]
    assert world.published(HERE) == [1], "the home takes what the host does not"
    assert list(world.receipts(publisher)) == [ticket]
    assert world.effects(e.Closed) == []
