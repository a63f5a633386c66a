"""Who is let in at a listener: the authenticators that it has, and which of them is asked about a client."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gapless.core.ports import Authentication, Authenticator
from gapless.core.principals import NOBODY, Admission, Judgement, PeerInfo

WITHIN: Final = -1
"""The number of the listener for clients within the process: the last one of all."""
NEEDS_NOTHING: Final = "clients without credentials"


class Reception:
    """The authenticators of one listener, in the order in which they are asked."""

    def __init__(self, authenticators: Iterable[Authenticator], *, is_local: bool) -> None:
        """`is_local`: whether only this machine can reach the listener."""
        self.authenticators = tuple(authenticators)
        self.is_local = is_local

    @property
    def is_within(self) -> bool:
        """Whether only the process itself comes here: it alone is nobody in particular, for whom there are no rules."""
        return False

    def begin(self, mechanism: str, client_id: str, peer: PeerInfo) -> Authentication | None:
        """Returns who judges a client with credentials of this kind; None: nobody here does."""
        for authenticator in self.authenticators:
            if authenticator.mechanism == mechanism:
                authentication = authenticator.begin(client_id, peer)
                if authentication is not None:
                    return authentication
        return None

    def takes(self) -> str:
        """The mechanisms that are taken here, for people."""
        mechanisms = dict.fromkeys(each.mechanism for each in self.authenticators)
        return ", ".join(mechanism or NEEDS_NOTHING for mechanism in mechanisms) or "nobody"


class WithinProcess(Reception):
    """The reception for clients within the process: they are as trusted as it is."""

    def __init__(self) -> None:
        super().__init__((Itself(),), is_local=True)

    @property
    def is_within(self) -> bool:
        """It is so."""
        return True


class Itself:
    """Lets the process itself in."""

    mechanism = ""
    trusted = True
    needs_certificate = False

    def begin(self, client_id: str, peer: PeerInfo) -> Authentication | None:
        """Nothing is to be remembered of anyone."""
        return self

    def answer(self, credentials: bytes) -> Judgement:
        """Nobody in particular."""
        return Admission(NOBODY, None)
