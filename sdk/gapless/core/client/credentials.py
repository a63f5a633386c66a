"""How a client proves who it is: what its session asks of credentials, whatever kind they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from gapless.core.wire.codec import encode
from gapless.core.wire.messages import ClientMessage
from gapless.core.wire.messages.checks import HELLO_BYTES_MAX
from gapless.errors import AuthenticationError, RemoteProtocolError

NOTHING_TO_TELL: Final = "the broker asks who this is, and there are no credentials to tell it"


class Credentials(Protocol):
    """The credentials for one link, or for one renewal: they are asked in this order, and made anew for the next."""

    @property
    def mechanism(self) -> str:
        """The kind of authenticator that has to judge them; "": they are none."""

    def first(self, binding: bytes, *, secure: bool) -> bytes:
        """Returns what the Hello carries; the arguments are as in `LinkSecurity`.

        Raises AuthenticationError if they must not be shown on such a link.
        """

    def answer(self, challenge: bytes) -> bytes:
        """Returns the answer to a challenge. Raises RemoteProtocolError if it shows that the broker is an impostor."""

    def check_welcome(self) -> None:
        """The broker takes them. Raises RemoteProtocolError if it has not proved what it has to prove itself."""


class NoCredentials:
    """Of a client that proves nothing, or whose certificate does."""

    mechanism = ""

    def first(self, _binding: bytes, *, secure: bool) -> bytes:
        """Returns nothing."""
        return b""

    def answer(self, _challenge: bytes) -> bytes:
        """Raises RemoteProtocolError: there is nothing to answer."""
        raise RemoteProtocolError(NOTHING_TO_TELL)

    def check_welcome(self) -> None:
        """Whoever is told nothing has nothing to prove."""


@dataclass(frozen=True, slots=True)
class LinkSecurity:
    """What is known of a link before anything is shown on it."""

    binding: bytes
    """The hash of the certificate that the listener has shown (RFC 5929: tls-server-end-point); b"" without one."""
    secure: bool
    """Whether it is encrypted, or never leaves this process."""


def check_size(message: ClientMessage) -> None:
    """Raises AuthenticationError if a message with credentials is longer than what a broker reads of a stranger."""
    size = len(encode(0, message))
    if size > HELLO_BYTES_MAX:
        raise AuthenticationError(
            f"the credentials are too long: with them the {type(message).__name__} has {size:,} bytes, and of a client"
            f" that it does not know yet a broker reads {HELLO_BYTES_MAX:,}"
        )


OPEN_LINK: Final = LinkSecurity(b"", secure=False)
"""A link without a certificate, which others may read."""
