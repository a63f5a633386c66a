"""The suite of authenticators finds each broken promise."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pytest

from gapless.core.ports import AuthContext, Authentication, Authenticator
from gapless.core.principals import Admission, Judgement, Later, PeerInfo, Principal, Refusal
from gapless.errors import ConfigurationError
from gapless_testing.auth import AuthError, AuthHarness, AuthSuite, Clock, Proof

SECRET = "open-sesame"
ADA = Admission(Principal("ada"), None)


class Guard:
    """Asks for a name, then for a secret."""

    mechanism: Any = "guard"
    trusted: Any = True
    needs_certificate = False

    def __init__(self, context: AuthContext) -> None:
        self.context = context
        self.name = b""

    def begin(self, client_id: str, peer: PeerInfo) -> Authentication | None:
        return Asked(self)

    def salt(self, name: bytes) -> bytes:
        return b"r=1,s=" + bytes([sum(name) % 20 + 97]) * 4

    def verdict(self, name: bytes, said: bytes) -> Judgement:
        return ADA if (name, said) == (b"ada", SECRET.encode()) else Refusal("no")


class Asked:
    def __init__(self, guard: Guard) -> None:
        self.guard = guard
        self.name: bytes | None = None

    def answer(self, credentials: bytes) -> Judgement:
        if self.name is None:
            self.name = credentials
            return self.guard.salt(credentials)
        return self.guard.verdict(self.name, credentials)


class Harness(AuthHarness):
    """A good guard, or a broken one."""

    secrets = (SECRET,)

    def __init__(self, kind: type[Guard] = Guard) -> None:
        self.kind = kind

    def make(self, options: Mapping[str, Any], context: AuthContext) -> Authenticator:
        if options:
            raise ConfigurationError(f"there is no option {min(options)!r}")
        return self.kind(context)

    def good(self, peer: PeerInfo) -> Proof:
        return Proof([b"ada", SECRET.encode()], Principal("ada"))

    def bad(self, peer: PeerInfo) -> Mapping[str, Proof]:
        return {"wrong": Proof([b"ada", b"wrong"]), "unknown": Proof([b"nobody", b"wrong"])}


class TestGood(AuthSuite):
    @pytest.fixture
    def harness(self) -> AuthHarness:
        return Harness()


class Unnamed(Guard):
    mechanism = None


class Raises(Guard):
    def verdict(self, name: bytes, said: bytes) -> Judgement:
        said.decode("ascii")
        return super().verdict(name, said)


class Waits(Guard):
    def verdict(self, name: bytes, said: bytes) -> Judgement:
        time.sleep(1)
        return super().verdict(name, said)


class TellsApart(Guard):
    def salt(self, name: bytes) -> bytes:
        return super().salt(name) if name == b"ada" else b""


class KeepsWaiting(Guard):
    def verdict(self, name: bytes, said: bytes) -> Judgement:
        judged = super().verdict(name, said)
        return Later(1, judged) if name == b"ada" and isinstance(judged, Refusal) else judged


class WaitsForDays(Guard):
    def verdict(self, name: bytes, said: bytes) -> Judgement:
        return Later(1 << 60, Refusal("no"))


class DrawsSalts(Guard):
    drawn = 0

    def salt(self, name: bytes) -> bytes:
        DrawsSalts.drawn += 1
        return b"r=1,s=%d" % DrawsSalts.drawn


class LetsGarbageIn(Guard):
    def salt(self, name: bytes) -> Any:
        return super().salt(name) if name == b"ada" else ADA


class NeverEnds(Guard):
    def verdict(self, name: bytes, said: bytes) -> Judgement:
        judged = super().verdict(name, said)
        return judged if isinstance(judged, Admission) or said == b"wrong" else b"once more"


class MixesUp(Guard):
    def begin(self, client_id: str, peer: PeerInfo) -> Authentication | None:
        self.one: Asked = getattr(self, "one", Asked(self))
        return self.one


class Tells(Guard):
    def verdict(self, name: bytes, said: bytes) -> Judgement:
        judged = super().verdict(name, said)
        return Refusal(f"it is not {SECRET}") if isinstance(judged, Refusal) else judged


class NoName(Guard):
    def verdict(self, name: bytes, said: bytes) -> Judgement:
        judged = super().verdict(name, said)
        return Admission(Principal(""), None) if isinstance(judged, Admission) else judged


class NoVerdict(Guard):
    def verdict(self, name: bytes, said: bytes) -> Any:
        return None


@pytest.mark.parametrize(
    ("kind", "test", "complaint"),
    [
        (Unnamed, "test_it_says_what_it_is", "'mechanism'"),
        (Raises, "test_garbage_lets_nobody_in", "raise UnicodeDecodeError"),
        (Waits, "test_who_proves_who_it_is_comes_in", "never blocks"),
        (TellsApart, "test_an_unknown_user_is_answered_as_a_wrong_secret_is", "tell them apart"),
        (KeepsWaiting, "test_an_unknown_user_is_answered_as_a_wrong_secret_is", "tell them apart"),
        (WaitsForDays, "test_who_does_not_stays_outside", "lets a client wait"),
        (DrawsSalts, "test_the_same_unknown_user_is_answered_the_same", "two processes"),
        (LetsGarbageIn, "test_garbage_lets_nobody_in", "comes in as ada"),
        (NeverEnds, "test_it_comes_to_an_end", "more than 8 challenges"),
        (MixesUp, "test_clients_at_once_are_not_mixed_up", "side by side"),
        (Tells, "test_no_secret_is_told", "a secret stands"),
        (NoName, "test_who_proves_who_it_is_comes_in", "name of a principal is empty"),
        (NoVerdict, "test_who_does_not_stays_outside", "no verdict"),
    ],
)
def test_a_breach_is_found(kind: type[Guard], test: str, complaint: str) -> None:
    harness, clock, suite = Harness(kind), Clock(), AuthSuite()
    given = {
        "harness": harness,
        "clock": clock,
        "authenticator": harness.make({}, AuthContext({}, b"", int, int, lambda _name, _reason: None)),
    }
    wanted = getattr(AuthSuite, test).__code__.co_varnames[1 : getattr(AuthSuite, test).__code__.co_argcount]

    with pytest.raises(AuthError, match=complaint):
        getattr(suite, test)(**{name: given[name] for name in wanted})


def test_an_option_that_is_taken_in_silence_is_found() -> None:
    class TakesAll(Harness):
        def make(self, options: Mapping[str, Any], context: AuthContext) -> Authenticator:
            return self.kind(context)

    with pytest.raises(AuthError, match="is taken, and should be refused"):
        AuthSuite().test_options_that_are_wrong_are_refused(TakesAll(), Clock())
