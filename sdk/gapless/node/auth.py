"""The authenticator `anonymous`: everyone may come in, and nobody is told apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gapless.core.ports import Authentication, Authenticator, Principal
from gapless.errors import ConfigurationError
from gapless.plugins import hookimpl

ANONYMOUS = Principal("anonymous")


class Anonymous:
    """Asks for nothing; so no listener beyond loopback may rely on it."""

    trusted = False

    def begin(self, client_id: str, peer: str) -> Authentication:
        """Nothing is to be remembered of anyone."""
        return self

    def answer(self, credentials: bytes) -> Principal | bytes | None:
        """Everyone is the same principal."""
        return ANONYMOUS


@hookimpl
def open_auth(options: Mapping[str, Any]) -> Authenticator:
    """The authenticator; it has no options."""
    if options:
        raise ConfigurationError(f"the authenticator 'anonymous' has no option {min(options)!r}")
    return Anonymous()
