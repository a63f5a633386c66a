"""Those who judge clients in tests: users with passwords, and tokens that are known."""

from __future__ import annotations

from typing import Any

from gapless.core.principals import Admission, Judgement, PeerInfo, Principal, Refusal
from gapless.core.server.users import UserRow
from gapless.security.scram import Scram
from gapless.security.users import new_verifier


def row_of_user(_name: str, password: str) -> bytes:
    """What a volume keeps of a user."""
    return UserRow(new_verifier(password), (), 0).stored


def users(**passwords: str) -> Scram:
    """The authenticator that knows these users."""
    return Scram({name: row_of_user(name, password) for name, password in passwords.items()}, b"secret", None)


class Tokens:
    """The authenticator that knows these tokens, each of somebody."""

    mechanism = "token"
    trusted = True
    needs_certificate = False

    def __init__(self, **tokens: str) -> None:
        self.names = {token.encode(): name for name, token in tokens.items()}

    def begin(self, client_id: str, peer: PeerInfo) -> Any:
        return self

    def answer(self, credentials: bytes) -> Judgement:
        name = self.names.get(credentials)
        return Refusal("an unknown token") if name is None else Admission(Principal(name), None)
