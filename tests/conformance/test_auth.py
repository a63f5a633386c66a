"""Our authenticators through the suite that we ship for everyone's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from gapless.core.ports import AuthContext, Authenticator
from gapless.core.principals import Certificate, PeerInfo, Principal
from gapless.core.server.users import UserRow
from gapless.plugins import load
from gapless.security.scram import ScramClient
from gapless.security.users import verifier_for
from gapless_testing.auth import AuthHarness, AuthSuite, Clock, Proof

KEY, OTHER = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))


class Installed(AuthHarness):
    plugin = ""

    def make(self, options: Mapping[str, Any], context: AuthContext) -> Authenticator:
        made: Authenticator = load("auth", self.plugin)(options=options, context=context)
        return made


class TokenHarness(Installed):
    plugin = "token"

    def __init__(self, folder: Path) -> None:
        jwk = {**json.loads(jwt.algorithms.ECAlgorithm.to_jwk(KEY.public_key())), "kid": "k"}
        (folder / "jwks.json").write_text(json.dumps({"keys": [jwk]}), "utf-8")
        self.options = {
            "jwks": str(folder / "jwks.json"),
            "issuer": "https://id.shop",
            "audience": "gapless",
            "algorithms": ["ES256"],
        }
        self.refused = [("algorithms", {**self.options, "algorithms": ["none"]})]
        self.token = self._token("ada")
        self.secrets = [self.token, self.token.rpartition(".")[2]]

    def _token(self, name: str, key: Any = KEY, until: int = 600) -> str:
        claims = {"sub": name, "iss": "https://id.shop", "aud": "gapless", "exp": Clock().wall // 1000 + until}
        return jwt.encode(claims, key, "ES256", headers={"kid": "k"})

    def good(self, peer: PeerInfo) -> Proof:
        return Proof([self.token.encode()], Principal("ada"))

    def bad(self, peer: PeerInfo) -> Mapping[str, Proof]:
        return {
            "wrong": Proof([self._token("ada", OTHER).encode()]),
            "unknown": Proof([self._token("nobody", OTHER).encode()]),
            "expired": Proof([self._token("ada", until=-600).encode()]),
        }


class TestToken(AuthSuite):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> AuthHarness:
        return TokenHarness(tmp_path)


class CertificateHarness(Installed):
    plugin = "certificate"
    refused = (("principal", {"principal": "serial"}),)
    takes_anything = True
    peer = replace(AuthHarness.peer, certificate=Certificate("ada", ("billing",)))
    options = {"groups": "ou"}  # noqa: RUF012 - nobody changes it

    def good(self, peer: PeerInfo) -> Proof:
        return Proof([b""], Principal("ada", frozenset({"billing"})))

    def bad(self, peer: PeerInfo) -> Mapping[str, Proof]:
        return {}


class TestCertificate(AuthSuite):
    @pytest.fixture
    def harness(self) -> AuthHarness:
        return CertificateHarness()


class AnonymousHarness(Installed):
    plugin = "anonymous"
    takes_anything = True

    def good(self, peer: PeerInfo) -> Proof:
        return Proof([b"whatever"], Principal("anonymous"))

    def bad(self, peer: PeerInfo) -> Mapping[str, Proof]:
        return {}


class TestAnonymous(AuthSuite):
    @pytest.fixture
    def harness(self) -> AuthHarness:
        return AnonymousHarness()


class ScramHarness(Installed):
    plugin = "scram"
    secrets = ("open-sesame", "let-me-in")
    options = {"delays": False}  # noqa: RUF012 - nobody changes it
    refused = (("delays", {"delays": "none"}), ("users", {"users": 7}))

    def rows(self) -> Mapping[str, bytes]:
        return {"ada": UserRow(verifier_for("open-sesame", b"salt" * 4), ("billing",), 0).stored}

    def _client(self, user: str, password: str, binding: bytes) -> Proof:
        client = ScramClient(user, password, binding, secure=True)
        return Proof([client.first(), client.answer, client.answer])

    def good(self, peer: PeerInfo) -> Proof:
        proof = self._client("ada", "open-sesame", peer.binding)
        proof.principal = Principal("ada", frozenset({"billing"}))
        return proof

    def bad(self, peer: PeerInfo) -> Mapping[str, Proof]:
        return {
            "wrong": self._client("ada", "let-me-in", peer.binding),
            "unknown": self._client("bob", "let-me-in", peer.binding),
            "another certificate": self._client("ada", "open-sesame", b"x" * 32),
        }


class TestScram(AuthSuite):
    @pytest.fixture
    def harness(self) -> AuthHarness:
        return ScramHarness()


class BoundScramHarness(ScramHarness):
    """On a link whose certificate is known."""

    peer = replace(AuthHarness.peer, binding=b"b" * 32)

    def bad(self, peer: PeerInfo) -> Mapping[str, Proof]:
        return {**super().bad(peer), "the offer was stripped": self._client("ada", "open-sesame", b"")}


class TestBoundScram(AuthSuite):
    @pytest.fixture
    def harness(self) -> AuthHarness:
        return BoundScramHarness()


class SlowScramHarness(ScramHarness):
    """With delays, as it is if nothing is said."""

    options = {}  # noqa: RUF012 - nobody changes it


class TestSlowScram(AuthSuite):
    @pytest.fixture
    def harness(self) -> AuthHarness:
        return SlowScramHarness()
