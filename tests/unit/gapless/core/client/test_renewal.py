"""Credentials that expire are renewed before they do (protocol: session)."""

from __future__ import annotations

import pytest

from gapless.core.client import Credentials, LinkSecurity
from gapless.core.client.link import effects as e
from gapless.core.client.renewal import PATIENCE, RENEWAL
from gapless.core.client.session import ConnectionPhase
from gapless.core.wire import messages as m
from gapless.errors import AuthenticationError
from unit.gapless.client.fake_broker import FakeBroker
from unit.gapless.core.client.guarded import Doorkeeper, Word
from unit.gapless.core.client.harness import SECOND, World
from unit.gapless.core.client.test_hosts import HERE, THERE, TwoNodes


class Expiring(World):
    """A session whose credentials expire after so many seconds. The client says `words`, and then the last for ever."""

    def __init__(self, seconds: float, *words: Credentials | str) -> None:
        self.words = list(words or (Word(b"ada"),))
        broker = FakeBroker()
        broker.authenticators = [Doorkeeper(b"ada", b"eve")]
        broker.expires_ms = round(seconds * 1000)
        super().__init__(broker, credentials=lambda: self.words.pop(0) if len(self.words) > 1 else self.words[0])
        self.start()
        self.began = self.now
        assert self.core.connected

    @property
    def renewals(self) -> list[bytes]:
        return [renew.credentials for renew in self.broker.messages(m.Renew)]

    def until(self, seconds: float) -> None:
        """Lets the time pass until so long after the session began."""
        self.advance(seconds - (self.now - self.began) / SECOND)

    @property
    def notices(self) -> list[str]:
        return [notice.text for notice in self.effects(e.Notice)]


@pytest.mark.parametrize(("life", "at"), [(3600, 2400), (180, 120), (120, 60), (90, 30), (60, 20), (9, 3), (1.5, 1)])
def test_they_are_renewed_after_two_thirds_or_a_minute_before_the_end_but_not_before_a_third(
    life: float, at: float
) -> None:
    world = Expiring(life, Word(b"ada"), Word(b"eve"))

    world.until(at - 0.01)
    assert world.renewals == []
    world.until(at + 0.01)
    assert world.renewals == [b"eve"]
    assert world.broker.admitted == ["ada", "eve"]
    assert world.asked[1] == e.AskCredentials(world.asked[0].link, "a:1")


def test_each_renewal_is_followed_by_the_next_one_in_the_same_session() -> None:
    world = Expiring(90)
    world.until(301)

    assert len(world.renewals) == 10
    assert len(world.broker.messages(m.Hello)) == 1
    assert world.notices == []


def test_what_never_expires_is_not_renewed() -> None:
    world = Expiring(0)
    world.until(86_400)

    assert world.renewals == []
    assert len(world.asked) == 1


def test_new_credentials_that_never_expire_are_the_last() -> None:
    world = Expiring(90)
    world.broker.expires_ms = 0
    world.until(86_400)

    assert len(world.renewals) == 1
    assert world.core.connected


def test_a_broker_that_cannot_renew_is_not_asked() -> None:
    world = Expiring(90)
    world.broker.answers = ()
    world.reconnect()
    asked = len(world.asked)
    world.advance(90)

    assert world.renewals == []
    assert len(world.asked) == asked


def test_a_failure_is_told_and_it_is_tried_again_until_it_succeeds() -> None:
    world = Expiring(180, Word(b"ada"), "the vault is shut", Word(b"bob"), Word(b"eve"))
    world.until(180)

    assert world.renewals[:2] == [b"bob", b"eve"]
    assert world.broker.admitted[:2] == ["ada", "eve"]
    assert world.notices == [
        "the credentials for a:1, which expire in 60 s, could not be renewed: the vault is shut",
        "the credentials for a:1, which expire in 59 s, could not be renewed: the credentials are not valid here",
    ]
    assert world.core.connected


def test_failures_are_not_tried_again_all_the_time() -> None:
    world = Expiring(3600, Word(b"ada"), "the vault is shut")
    world.until(3600)

    assert 40 < len(world.asked) < 100


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        (Word(b"x" * 4096), "the credentials are too long"),
        (type("Shy", (Word,), {"first": lambda *_, **__: fail()})(b""), "not here"),
    ],
    ids=["too long", "not to be shown"],
)
def test_what_must_not_be_sent_is_not_sent_and_ends_no_session(word: Word, reason: str) -> None:
    world = Expiring(90, Word(b"ada"), word)
    world.until(31)

    assert world.renewals == []
    assert reason in world.notices[0]
    assert world.core.connected


def fail() -> bytes:
    raise AuthenticationError("not here")


def test_they_are_shown_as_on_the_link_of_the_session() -> None:
    word = Word(b"ada")
    world = Expiring(90, word)
    world.security = LinkSecurity(b"hash", secure=True)
    world.reconnect()
    world.advance(31)

    assert word.shown == [(b"", False), (b"hash", True), (b"hash", True)]


def test_who_does_not_answer_in_time_is_asked_again() -> None:
    """First the application, which says nothing; then a broker."""
    world = Expiring(3600)
    world.say_credentials = lambda link: None  # type: ignore[method-assign]  # noqa: ARG005
    world.until(2400.1)
    asked = len(world.asked)
    world.advance(PATIENCE / SECOND - 0.2)
    assert (len(world.asked), world.notices) == (asked, [])
    world.advance(1.2)
    assert len(world.asked) == asked + 1
    assert world.notices[0].endswith("they did not come in time")

    world.broker._on_renew = lambda *_: None  # type: ignore[method-assign]
    world.core.on_credentials(world.asked[-1].link, Word(b"eve"), world.now)
    world.pump()
    assert world.renewals == [b"eve"]
    world.advance(PATIENCE / SECOND + 0.1)
    assert world.notices[-1].endswith("the broker does not answer")
    assert world.core.connected


def test_what_comes_when_nobody_has_asked_changes_nothing() -> None:
    world = Expiring(90)
    link = world.asked[0].link
    world.core.on_credentials(link, Word(b"eve"), world.now)
    world.core.on_no_credentials(link, "the vault is shut", world.now)
    session = world.broker.session
    world.broker.tell(session, m.Renewed(RENEWAL, 1000))
    world.broker.tell(session, m.RequestFailed(RENEWAL, m.Code.UNAUTHORIZED, "no"))
    world.pump()
    world.until(29)

    assert (world.renewals, world.notices, len(world.asked)) == ([], [], 1)
    assert world.core.connected


def test_nothing_is_renewed_between_two_sessions() -> None:
    world = Expiring(90)
    world.unreachable.add("a:1")
    world.until(20)
    world.cut()
    world.until(60)

    assert world.core.phase is not ConnectionPhase.OPEN
    assert world.renewals == []
    world.unreachable.clear()
    world.advance(10)
    assert world.core.connected
    world.advance(31)
    assert len(world.renewals) == 1


def test_requests_have_other_numbers_than_renewals() -> None:
    world = Expiring(90)
    number = world.core.list_pubends(world.now)
    world.pump()

    assert number != RENEWAL
    assert world.answer(number)


def test_a_session_with_a_host_renews_its_own() -> None:
    class TwoExpiring(TwoNodes):
        def __init__(self) -> None:
            super().__init__(credentials=lambda: Word(b"ada"))
            self.brokers[THERE].authenticators = [Doorkeeper(b"ada")]
            self.brokers[THERE].expires_ms = 90_000

    world = TwoExpiring()
    world.publish(world.open(), b"x")
    world.advance(31)

    assert len(world.brokers[THERE].messages(m.Renew)) == 1
    assert world.brokers[HERE].messages(m.Renew) == []
