"""Bearer tokens: which are taken, for whom, and until when."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from gapless.core.alarms import AlarmCode
from gapless.core.ports import AuthContext
from gapless.core.principals import NO_CERTIFICATE, Admission, PeerInfo, Principal, Refusal
from gapless.errors import ConfigurationError
from gapless.node.assembly import UNOPENED
from gapless.plugins import load

NOW = 1_800_000_000
PEER = PeerInfo("10.0.0.7:4711", NO_CERTIFICATE, secure=True, is_local=False, binding=b"")
CLAIMS = {"sub": "ada", "iss": "https://id.shop", "aud": "gapless", "exp": NOW + 600}


@cache
def private(name: str) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


@cache
def curve() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def jwk(name: str) -> dict[str, Any]:
    return {**json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(private(name).public_key())), "kid": name}


class Clock:
    """The broker's clocks, in seconds."""

    def __init__(self) -> None:
        self.wall = NOW
        self.context = AuthContext(
            {}, b"", wall=lambda: self.wall * 1000, now=lambda: self.wall * 1_000_000_000, end=UNOPENED.end
        )


class Broker:
    """An authenticator, and the file of its keys."""

    def __init__(self, folder: Path, *names: str, **options: Any) -> None:
        self.clock = Clock()
        self.file = folder / "jwks.json"
        self.write(*names or ("one",))
        known = {"jwks": str(self.file), "issuer": "https://id.shop", "audience": "gapless", "algorithms": ["RS256"]}
        self.authenticator = load("auth", "token")(options=known | options, context=self.clock.context)

    def write(self, *names: str) -> None:
        self.file.write_text(json.dumps({"keys": [*map(jwk, names), {"kty": "XYZ"}]}), "utf-8")

    def judge(self, token: str | bytes) -> Any:
        authentication = self.authenticator.begin("desk-7", PEER)
        return authentication.answer(token.encode() if isinstance(token, str) else token)


def signed(
    claims: Mapping[str, Any] = CLAIMS, key: Any = None, algorithm: str = "RS256", kid: str | None = "one"
) -> str:
    key = private(kid or "one") if key is None else key
    return jwt.encode(dict(claims), key, algorithm, headers={"kid": kid} if kid else None)


def without(*names: str, **more: Any) -> dict[str, Any]:
    return {name: value for name, value in CLAIMS.items() if name not in names} | more


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path, groups="roles")


def test_a_good_token_tells_who_it_is_and_until_when(broker: Broker) -> None:
    assert (broker.authenticator.mechanism, broker.authenticator.trusted) == ("token", True)
    until = (NOW + 600 + 60) * 1000
    assert broker.judge(signed()) == Admission(Principal("ada"), until)
    assert broker.judge(signed(without(roles=["b", "a"]))) == Admission(Principal("ada", frozenset({"a", "b"})), until)
    assert broker.judge(signed(kid=None)) == Admission(Principal("ada"), until)


def test_the_clocks_may_differ_a_little(broker: Broker) -> None:
    assert isinstance(broker.judge(signed(without(nbf=NOW + 50, iat=NOW + 50, exp=NOW - 50))), Admission)


def test_another_claim_may_name_the_principal(tmp_path: Path) -> None:
    broker = Broker(tmp_path, principal="email")
    assert broker.judge(signed(without(email="ada@shop"))).principal == Principal("ada@shop")
    assert isinstance(broker.judge(signed()), Refusal)


def deep() -> str:
    """A part of a token whose brackets use up the stack of whoever counts on few."""
    return base64.urlsafe_b64encode(b"[" * 900 + b"]" * 900).decode()


BAD: dict[str, Callable[[], str | bytes]] = {
    "nothing": lambda: "",
    "a letter": lambda: "x",
    "three letters": lambda: "a.b.c",
    "no text": lambda: b"\xff",
    "8 KiB": lambda: "." * 8192,
    "never expires": lambda: signed(without("exp")),
    "has expired": lambda: signed(without(exp=NOW - 61)),
    "not yet": lambda: signed(without(nbf=NOW + 61)),
    "made later": lambda: signed(without(iat=NOW + 61)),
    "expires at a truth": lambda: signed(without(exp=True)),
    "has expired by a fraction": lambda: signed(without(exp=NOW - 61.5)),
    "expires at no number": lambda: signed(without(exp=float("nan"))),
    "expires at a text": lambda: signed(without(exp=str(NOW + 60))),
    "expires beyond any clock": lambda: signed(without(exp=1e300)),
    "no issuer": lambda: signed(without("iss")),
    "another issuer": lambda: signed(without(iss="https://evil")),
    "no audience": lambda: signed(without("aud")),
    "another audience": lambda: signed(without(aud="other")),
    "no name": lambda: signed(without("sub")),
    "an empty name": lambda: signed(without(sub="")),
    "a name of two lines": lambda: signed(without(sub="a\nb")),
    "a long name": lambda: signed(without(sub="x" * 256)),
    "groups that are no list": lambda: signed(without(roles="admin")),
    "groups that are no names": lambda: signed(without(roles=[1])),
    "many groups": lambda: signed(without(roles=["a"] * 65)),
    "an empty group": lambda: signed(without(roles=[""])),
    "an unknown key": lambda: signed(kid="unknown"),
    "another key": lambda: signed(key=private("unknown")),
    "another family": lambda: signed(key=curve(), algorithm="ES256"),
    "not signed": lambda: jwt.encode(CLAIMS, None, "none"),  # type: ignore[arg-type]
    "cut off": lambda: signed()[:-4],
    "one letter more": lambda: signed() + "A",
    "more points": lambda: signed().replace(".", ".."),
    "lists in lists": lambda: f"{deep()}.{deep()}.x",
}


@pytest.mark.parametrize("make", BAD.values(), ids=BAD)
def test_a_bad_token_is_refused_without_a_word_of_it(broker: Broker, make: Callable[[], str | bytes]) -> None:
    token = make()
    refused = broker.judge(token)
    assert isinstance(refused, Refusal)
    text = token if isinstance(token, str) else token.decode("latin-1")
    assert len(text) < 12 or text[:12] not in refused.reason


def test_a_public_key_is_no_shared_secret(broker: Broker) -> None:
    """A token that is signed with the public key, as if it were a secret of HS256."""
    public = private("one").public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    head = jwt.utils.base64url_encode(b'{"alg":"HS256","typ":"JWT","kid":"one"}')
    body = head + b"." + jwt.utils.base64url_encode(json.dumps(CLAIMS).encode())
    signature = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256)
    forged = body + b"." + jwt.utils.base64url_encode(signature.sign(body, public))
    assert isinstance(broker.judge(forged), Refusal)


def test_new_keys_are_read_and_old_ones_go(broker: Broker) -> None:
    broker.write("two", "three")
    broker.clock.wall += 2
    assert isinstance(broker.judge(signed(kid="two")), Admission)
    assert isinstance(broker.judge(signed(kid="one")), Refusal)


def test_a_half_written_file_leaves_the_keys_and_a_missing_one_has_none(broker: Broker) -> None:
    broker.file.write_text('{"keys": [', "utf-8")
    broker.clock.wall += 2
    assert isinstance(broker.judge(signed()), Admission)
    refused = broker.judge(signed(kid="two"))
    assert "jwks.json" in refused.reason

    (alarm,) = broker.authenticator.troubles()
    assert (alarm.code, alarm.about) == (AlarmCode.CREDENTIALS_UNUSABLE, str(broker.file))
    assert alarm.text.endswith("; its former keys count")

    broker.file.unlink()
    broker.clock.wall += 2
    (alarm,) = broker.authenticator.troubles()
    assert alarm.text.endswith("; nobody with a token comes in meanwhile")
    assert isinstance(broker.judge(signed()), Refusal)

    broker.write("one")
    broker.clock.wall += 2
    assert broker.authenticator.troubles() == ()
    assert isinstance(broker.judge(signed()), Admission)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"algorithms": ["none"]}, "there is no algorithm 'none'"),
        ({"algorithms": ["RS256", "HS256"]}, "different families"),
        ({"algorithms": []}, "algorithms"),
        ({"algorithms": ["ES256"]}, "no JWKS with keys of type EC"),
        ({"jwks": "nowhere.json"}, "nowhere.json: cannot be read"),
        ({"issuer": ""}, "issuer"),
        ({"jwk": "x"}, "there is no key 'jwk'"),
    ],
)
def test_wrong_options_are_told(tmp_path: Path, options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        Broker(tmp_path, **options)
    assert complaint in str(raised.value)


@given(st.binary(max_size=300))
def test_whatever_comes_is_judged(one_broker: Broker, garbage: bytes) -> None:
    assert isinstance(one_broker.judge(garbage), Refusal)


@given(st.integers(0, 3), st.binary(min_size=1, max_size=4))
def test_a_token_that_was_changed_is_refused(one_broker: Broker, quarter: int, change: bytes) -> None:
    good = signed().encode()
    at = quarter * len(good) // 4
    bad = good[:at] + change + good[at + len(change) :]
    judged = one_broker.judge(bad)
    assert isinstance(judged, Refusal) or bad == good


@pytest.fixture(scope="module")
def one_broker(tmp_path_factory: pytest.TempPathFactory) -> Broker:
    return Broker(tmp_path_factory.mktemp("keys"))
