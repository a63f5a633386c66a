"""The authenticator `anonymous`: everyone may come in, and nobody is told apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gapless.core.ports import Authentication, Authenticator
from gapless.core.principals import Admission, Judgement, PeerInfo, Principal
from gapless.errors import ConfigurationError
from gapless.plugins import hookimpl

ANONYMOUS = Principal("anonymous")
ADMITTED = Admission(ANONYMOUS, None)


class Anonymous:
    """Asks for nothing; so no listener beyond loopback may rely on it."""

    mechanism = ""
    trusted = False
    needs_certificate = False

    def begin(self, client_id: str, peer: PeerInfo) -> Authentication | None:
        """Nothing is to be remembered of anyone."""
        return self

    def answer(self, credentials: bytes) -> Judgement:
        """Everyone is the same principal."""
        return ADMITTED


@hookimpl
def open_auth(options: Mapping[str, Any]) -> Authenticator:
    """The authenticator; it has no options."""
    if options:
        raise ConfigurationError(f"the authenticator 'anonymous' has no option {min(options)!r}")
    return Anonymous()
