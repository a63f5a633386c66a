"""The conformance suite for authenticators: what `gapless.core.ports.Authenticator` promises, as pytest classes.

    from gapless_testing.auth import AuthHarness, AuthSuite, Proof

    class MyHarness(AuthHarness):
        options = {"file": "users.txt"}

        def make(self, options, context):
            return open_auth(options=options, context=context)

        def good(self, peer):
            return Proof([b"ada open-sesame"], Principal("ada"))

        def bad(self, peer):
            return {"wrong": Proof([b"ada wrong"]), "unknown": Proof([b"nobody wrong"])}

    class TestMyAuthenticator(AuthSuite):
        @pytest.fixture
        def harness(self):
            return MyHarness()

Who may come in only its author knows: `good` and `bad` say so. The suite knows what holds of all: an authenticator
never blocks, never raises, asks for an end, tells nobody what was wrong, and lets no garbage in. A broken promise
raises `AuthError`.
"""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from types import MappingProxyType
from typing import Any, Final
from unittest.mock import patch

import pytest

from gapless.core.ports import AuthContext, Authentication, Authenticator
from gapless.core.principals import NO_CERTIFICATE, Admission, Judgement, Later, PeerInfo, Principal, Refusal
from gapless.core.server.handshake import ROUNDS_MAX
from gapless.core.wire.messages.checks import HELLO_BYTES_MAX
from gapless.errors import ConfigurationError, RemoteProtocolError
from gapless.texts import name_problem

SEED: Final = 7
GARBAGE: Final = 150
"""So much of it is tried at each point of a handshake."""
LATER_MAX: Final = 60_000_000_000
"""No client waits longer for a verdict, in nanoseconds."""
UNKNOWN: Final = "no_such_option"
HOW: Final = ("something else", "cut off", "a bit", "twice", "8 KiB")
"""How a message is garbled."""


def ignore(name: str, reason: str) -> None:
    """There are no sessions that could be ended: `AuthContext.end`."""


class AuthError(AssertionError):
    """An authenticator broke its promise."""


@dataclass
class Proof:
    """A client that proves who it is, or fails to.

    `says`: what it says first, and to each challenge; each is bytes, or a function of the challenge. A client that
    finds the broker to be an impostor raises RemoteProtocolError.
    """

    says: Sequence[bytes | Callable[[bytes], bytes]]
    principal: Principal | None = None
    """Who it is then; None: nobody."""


class Clock:
    """The clocks of a broker, which stand still until they are moved."""

    def __init__(self) -> None:
        self.now = 1_000_000_000_000
        self.wall = 1_800_000_000_000

    def move(self, seconds: float) -> None:
        """Time passes."""
        self.now += round(seconds * 1e9)
        self.wall += round(seconds * 1e3)


class AuthHarness:
    """One kind of authenticator. `make`, `good` and `bad` are a must."""

    options: Mapping[str, Any] = MappingProxyType({})
    refused: Sequence[tuple[str, Mapping[str, Any]]] = ()
    """Sets of options that are wrong, each behind the option that the error has to name."""
    secrets: Sequence[str] = ()
    """Texts that must stand in no reason, and in no `repr`."""
    peer = PeerInfo("10.0.0.7:4711", NO_CERTIFICATE, secure=True, is_local=False, binding=b"")
    takes_anything = False
    """Whether it judges nothing of what a client says, because the link has told it already who that is."""

    def rows(self) -> Mapping[str, bytes]:
        """The rows of the volume's users."""
        return {}

    def make(self, options: Mapping[str, Any], context: AuthContext) -> Authenticator:
        """An authenticator with these options, as `open_auth` makes it."""
        raise NotImplementedError("override AuthHarness.make")

    def good(self, peer: PeerInfo) -> Proof:
        """A client, anew each time, that is let in."""
        raise NotImplementedError("override AuthHarness.good")

    def bad(self, peer: PeerInfo) -> Mapping[str, Proof]:
        """Clients that are not, by what is wrong with them; `wrong` and `unknown` may not be told apart."""
        raise NotImplementedError("override AuthHarness.bad")


@contextmanager
def nothing_blocks() -> Iterator[None]:
    """Whoever waits, or asks somebody else, fails."""

    def blocked(*_: Any, **__: Any) -> Any:
        raise AuthError("it waits, or asks somebody else: an authenticator never blocks")

    with (
        patch.object(time, "sleep", blocked),
        patch.object(socket.socket, "connect", blocked),
        patch.object(socket, "getaddrinfo", blocked),
        patch.object(subprocess, "Popen", blocked),
    ):
        yield


@dataclass
class Talk:
    """A handshake that is over."""

    judged: Admission | Refusal | None
    """None: the client found that the broker is an impostor, or the broker never ended."""
    challenges: list[bytes]
    waits: list[int]


class AuthSuite:
    """Everything that is promised. Override the fixture `harness`."""

    @pytest.fixture
    def harness(self) -> AuthHarness:
        """What is tested. Override it."""
        raise NotImplementedError("override the fixture `harness` to return your AuthHarness")

    @pytest.fixture
    def clock(self) -> Clock:
        """The broker's clocks."""
        return Clock()

    @pytest.fixture
    def authenticator(self, harness: AuthHarness, clock: Clock) -> Authenticator:
        """A fresh one."""
        return self._make(harness, clock)

    def _make(self, harness: AuthHarness, clock: Clock, **more: Any) -> Authenticator:
        rows, options = harness.rows(), MappingProxyType({**harness.options, **more})
        return harness.make(
            options, AuthContext(rows, b"s" * 32, wall=lambda: clock.wall, now=lambda: clock.now, end=ignore)
        )

    def test_it_says_what_it_is(self, authenticator: Authenticator) -> None:
        """The node has to know it before anybody comes."""
        for name, kind in (("mechanism", str), ("trusted", bool), ("needs_certificate", bool)):
            if type(getattr(authenticator, name, None)) is not kind:
                raise AuthError(f"its attribute {name!r} is no {kind.__name__}")

    def test_who_proves_who_it_is_comes_in(self, harness: AuthHarness, authenticator: Authenticator) -> None:
        """As often as it comes, within the rounds that a broker allows."""
        for _ in range(3):
            proof = harness.good(harness.peer)
            talk = converse(harness, authenticator, proof)
            if not isinstance(talk.judged, Admission) or talk.judged.principal != proof.principal:
                raise AuthError(f"the good client is {proof.principal}, and it says {talk.judged}")

    def test_who_does_not_stays_outside(self, harness: AuthHarness, authenticator: Authenticator) -> None:
        """Whatever is wrong, it is refused, and not by an exception."""
        bad = harness.bad(harness.peer)
        if harness.takes_anything:
            pytest.skip("`takes_anything`: the link says who it is")
        assert bad, "`bad` of the harness is empty: nobody is to be refused"
        for what, proof in bad.items():
            talk = converse(harness, authenticator, proof)
            if isinstance(talk.judged, Admission):
                raise AuthError(f"{what}: the client comes in as {talk.judged.principal}")

    def test_an_unknown_user_is_answered_as_a_wrong_secret_is(self, harness: AuthHarness, clock: Clock) -> None:
        """So nobody learns who exists: as many challenges, each as long, and as long a wait."""
        bad = harness.bad(harness.peer)
        if not {"wrong", "unknown"} <= bad.keys():
            pytest.skip("`bad` of the harness has not both, 'wrong' and 'unknown'")
        for _ in range(3):
            seen = {}
            for what in ("wrong", "unknown"):
                talk = converse(harness, self._make(harness, clock), harness.bad(harness.peer)[what])
                seen[what] = [len(challenge) for challenge in talk.challenges], talk.waits
            if seen["wrong"] != seen["unknown"]:
                raise AuthError(f"challenges and waits tell them apart: {seen}")

    def test_the_same_unknown_user_is_answered_the_same(self, harness: AuthHarness, clock: Clock) -> None:
        """Also by another process of the node: a salt that changes would tell that there is no such user."""
        if "unknown" not in harness.bad(harness.peer):
            pytest.skip("`bad` of the harness has no 'unknown'")
        salts = []
        for _ in range(2):
            begun = self._make(harness, clock).begin("desk-7", harness.peer)
            first = harness.bad(harness.peer)["unknown"].says[0]
            assert begun is not None
            assert isinstance(first, bytes), "what a client says first answers nothing"
            salts.append(_salt(begun.answer(first)))
        if salts[0] != salts[1]:
            raise AuthError(f"two processes of a node say of one unknown user {salts[0]!r} and {salts[1]!r}")

    def test_garbage_lets_nobody_in(self, harness: AuthHarness, authenticator: Authenticator) -> None:
        """At each point of the handshake: cut off, garbled, too long, and what was said before."""
        if harness.takes_anything:
            pytest.skip("`takes_anything`: the link says who it is")
        random = Random(SEED)  # noqa: S311 - the same garbage every time
        length = len(harness.good(harness.peer).says)
        for point in range(length):
            for number in range(GARBAGE // length):
                how = HOW[number % len(HOW)]
                proof = harness.good(harness.peer)
                says = list(proof.says)
                says[point] = _garbled(says[point], how, random)
                talk = converse(harness, authenticator, Proof(says))
                # A bit of the last one may mean nothing, as the last bits of Base64 do.
                if isinstance(talk.judged, Admission) and (how != "a bit" or point + 1 < length):
                    where = f"message {point + 1} of {length}, {how}"
                    raise AuthError(f"garbage as {where}, comes in as {talk.judged.principal}")

    def test_it_comes_to_an_end(self, harness: AuthHarness, authenticator: Authenticator) -> None:
        """Whoever says the same thing for ever is not challenged for ever."""
        if harness.takes_anything:
            pytest.skip("`takes_anything`: the link says who it is")
        for said in (b"", b"x", harness.good(harness.peer).says[0]):
            first = said if isinstance(said, bytes) else b""
            talk = converse(harness, authenticator, Proof([first] * (2 * ROUNDS_MAX)))
            if len(talk.challenges) > ROUNDS_MAX:
                raise AuthError(f"who says {len(first)} bytes again and again has more than {ROUNDS_MAX} challenges")

    def test_clients_at_once_are_not_mixed_up(self, harness: AuthHarness, authenticator: Authenticator) -> None:
        """Each message of a good one stands between those of a bad one."""
        if harness.takes_anything:
            pytest.skip("`takes_anything`: the link says who it is")
        for first in ("good", "bad"):
            proofs = {"good": harness.good(harness.peer), "bad": next(iter(harness.bad(harness.peer).values()))}
            walks = {}
            for name in sorted(proofs, key=lambda name, first=first: name != first):  # type: ignore[misc]
                begun = authenticator.begin(f"desk of the {name} one", harness.peer)
                assert begun is not None, "it knows the good client, and the bad one is like it"
                walks[name] = _Walk(harness, begun, proofs[name])
            while any([walk.step() for walk in walks.values()]):  # noqa: C419 - each of them in its turn
                pass
            if not isinstance(walks["good"].judged, Admission) or isinstance(walks["bad"].judged, Admission):
                judged = {name: walk.judged for name, walk in walks.items()}
                raise AuthError(f"side by side, it says of the good one and the bad one: {judged}")

    def test_no_secret_is_told(self, harness: AuthHarness, authenticator: Authenticator) -> None:
        """In no reason, and in no text of the authenticator."""
        told = [repr(authenticator), str(authenticator)]
        for proof in (*harness.bad(harness.peer).values(), harness.good(harness.peer)):
            begun = authenticator.begin("desk-7", harness.peer)
            told.append(repr(begun))
            judged = converse(harness, authenticator, proof).judged
            told.append(repr(judged))
        for secret in harness.secrets:
            if any(secret in text for text in told):
                raise AuthError("a secret stands in a reason, or in a repr")

    def test_options_that_are_wrong_are_refused(self, harness: AuthHarness, clock: Clock) -> None:
        """When the broker starts; what is misspelt, too. The error names the option."""
        for name, options in ((UNKNOWN, {**harness.options, UNKNOWN: 1}), *harness.refused):
            try:
                harness.make(MappingProxyType(dict(options)), _context(clock))
            except ConfigurationError as error:
                if name not in str(error):
                    raise AuthError(f"the refusal of {name!r} does not name it: {error}") from None
            else:
                raise AuthError(f"the option {name!r} of {dict(options)} is taken, and should be refused")


class _Walk:
    """One handshake, message by message."""

    def __init__(self, harness: AuthHarness, authentication: Authentication, proof: Proof) -> None:
        self._harness = harness
        self._authentication = authentication
        self._says = list(proof.says)
        self._challenge = b""
        self.judged: Admission | Refusal | None = None
        self.challenges: list[bytes] = []
        self.waits: list[int] = []

    def step(self) -> bool:
        """The client says its next message. Returns whether it has another one to say."""
        if self._is_over:
            return False
        said = self._says.pop(0)
        try:
            message = said(self._challenge) if callable(said) else said
        except RemoteProtocolError:
            self._says = []
            return False
        try:
            with nothing_blocks():
                judged = self._authentication.answer(message)
        except AuthError:
            raise
        except Exception as error:
            raise AuthError(f"{len(message)} bytes make it raise {type(error).__name__}") from error
        if isinstance(judged, Later):
            if not 0 < judged.wait <= LATER_MAX:
                raise AuthError(f"it lets a client wait for {judged.wait} ns; at most {LATER_MAX} are of use")
            self.waits.append(judged.wait)
            judged = judged.then
        self._take(judged)
        return not self._is_over

    @property
    def _is_over(self) -> bool:
        return self.judged is not None or not self._says

    def _take(self, judged: object) -> None:
        if isinstance(judged, bytes):
            if len(judged) > HELLO_BYTES_MAX:
                raise AuthError(f"a challenge has {len(judged)} bytes; at most {HELLO_BYTES_MAX} are of use")
            self.challenges.append(judged)
            self._challenge = judged
        elif isinstance(judged, (Admission, Refusal)):
            self.judged = judged
            problem = "" if isinstance(judged, Refusal) else name_problem(judged.principal.name)
            if problem:
                raise AuthError(f"the name of a principal {problem}")
        else:
            raise AuthError(f"it answers {type(judged).__name__}, which is no verdict")


def converse(harness: AuthHarness, authenticator: Authenticator, proof: Proof) -> Talk:
    """A whole handshake. Raises AuthError when the authenticator raises, blocks, or answers nonsense."""
    with nothing_blocks():
        authentication = authenticator.begin("desk-7", harness.peer)
    if authentication is None:
        return Talk(Refusal("it does not know such clients"), [], [])
    walk = _Walk(harness, authentication, proof)
    while walk.step():
        pass
    return Talk(walk.judged, walk.challenges, walk.waits)


def _context(clock: Clock) -> AuthContext:
    return AuthContext({}, b"s" * 32, wall=lambda: clock.wall, now=lambda: clock.now, end=ignore)


def _salt(judged: Judgement) -> object:
    """What a first challenge says that is not drawn anew: of SCRAM the salt and the iterations."""
    judged = judged.then if isinstance(judged, Later) else judged
    if not isinstance(judged, bytes):
        return type(judged)
    return [part for part in judged.split(b",") if not part.startswith(b"r=")]


def _garbled(said: bytes | Callable[[bytes], bytes], how: str, random: Random) -> Callable[[bytes], bytes]:
    def garble(challenge: bytes) -> bytes:
        data = bytearray(said(challenge) if callable(said) else said)
        if how == "something else" or not data:
            return b"?" + random.randbytes(random.randrange(64))
        if how == "cut off":
            return bytes(data[: random.randrange(len(data))])
        if how == "a bit":
            data[random.randrange(len(data))] ^= 1 << random.randrange(8)
            return bytes(data)
        return bytes(data) * 2 if how == "twice" else bytes(8 * 1024)

    return garble
