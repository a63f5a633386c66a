"""Credentials, and who judges them, as simple as they can be; and a client that has some."""

from __future__ import annotations

from typing import Any

from gapless.core.client import NoCredentials
from gapless.core.principals import Admission, Judgement, PeerInfo, Principal, Refusal
from gapless.errors import RemoteProtocolError


class Word:
    """One word is all that a client shows; "ask" and "impostor" lead to a challenge first."""

    mechanism = "word"

    def __init__(self, word: bytes) -> None:
        self.word = word
        self.shown: list[tuple[bytes, bool]] = []
        """The links that it was shown on."""

    def first(self, binding: bytes, *, secure: bool) -> bytes:
        self.shown.append((binding, secure))
        return self.word

    def answer(self, challenge: bytes) -> bytes:
        if challenge != b"and?":
            raise RemoteProtocolError("the broker is an impostor")
        return b"ada"

    def check_welcome(self) -> None:
        if self.word == b"proves":
            raise RemoteProtocolError("the broker has proved nothing")


class Nothing(NoCredentials):
    """Of a client that could have some."""


class Doorkeeper:
    """Lets everybody in who says a word that it knows, under that name, until `until`."""

    mechanism = "word"
    trusted = True
    needs_certificate = False

    def __init__(self, *words: bytes) -> None:
        self.words = [*words]
        self.heard: list[bytes] = []

    def begin(self, client_id: str, peer: PeerInfo) -> Any:
        return self

    def answer(self, credentials: bytes) -> Judgement:
        self.heard.append(credentials)
        if credentials == b"ask":
            return b"and?"
        if credentials == b"impostor":
            return b"who?"
        if credentials in self.words:
            return Admission(Principal(credentials.decode()), None)
        return Refusal("an unknown word")
