"""The authenticator `anonymous`: everyone may come in, and nobody is told apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gapless.errors import ConfigurationError
from gapless.plugins import hookimpl
from gapless.spi import Authenticator, Principal

ANONYMOUS = Principal("anonymous")


class Anonymous:
    """Asks for nothing; so no listener beyond loopback may rely on it."""

    trusted = False

    def authenticate(self, client_id: str, credentials: bytes, peer: str) -> Principal | None:
        """Everyone is the same principal."""
        return ANONYMOUS


@hookimpl
def open_auth(options: Mapping[str, Any]) -> Authenticator:
    """The authenticator; it has no options."""
    if options:
        raise ConfigurationError(f"the authenticator 'anonymous' has no option {min(options)!r}")
    return Anonymous()
