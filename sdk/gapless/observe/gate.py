"""Who may look at a node's figures over HTTP: who somebody is, and whether he may observe.

Somebody is who his certificate says, or his bearer token. That is judged in the thread that talks HTTP, by
authenticators that nobody else uses; what the rules say of him, on the node's loop, by those who always decide it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final

from gapless.core.ports import Authenticator
from gapless.core.principals import NOBODY, Admission, Certificate, Later, PeerInfo, Principal
from gapless.core.server.handshake import NOT_VALID
from gapless.core.server.reception import Reception

if TYPE_CHECKING:
    from gapless.core.server.audit import AuditOutcome
    from gapless.observe.visits import Visits

MECHANISMS: Final = ("", "token")
"""The mechanisms that work over HTTP: a certificate, or none at all; and bearer tokens."""
BEARER: Final = "bearer"
UNKNOWN_NOW: Final = 503
"""The status for whoever nobody can judge now."""


def usable(authenticators: Mapping[str, Authenticator]) -> dict[str, Authenticator]:
    """Those of them that can say who somebody is over HTTP."""
    return {name: each for name, each in authenticators.items() if each.mechanism in MECHANISMS}


class DeniedError(Exception):
    """Somebody is not let in."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        """401: it is not known who it is; 403: he may not; 503: nobody can say now."""


class Gate:
    """Lets in who may observe."""

    def __init__(
        self,
        reception: Reception,
        refusal: Callable[[Principal], Awaitable[str]],
        note: Callable[[str], None],
        *,
        secure: bool,
        visits: Visits | None = None,
    ) -> None:
        """`refusal`: why somebody may not observe, or "". `note`: for the operator's log. Called in this thread.

        `secure`: whether connections are encrypted. `visits`: tells the audit; None: nobody writes one.
        """
        self._reception = reception
        self._refusal = refusal
        self._note = note
        self._secure = secure
        self._visits = visits

    async def pass_in(self, authorization: str, certificate: Certificate, address: str) -> None:
        """Returns if this is somebody who may. `authorization`: the header of that name, or "".

        Raises DeniedError if he may not, or it is not known who he is.
        """
        principal, denied, why = await self._judged(authorization, certificate, address)
        if self._visits is not None:
            outcome: AuditOutcome = "ok" if denied is None else "failed" if denied.status == UNKNOWN_NOW else "refused"
            if not self._visits.note(principal, address, outcome, why):
                raise DeniedError(UNKNOWN_NOW, "the audit cannot be written now: come again")
        if denied is not None:
            raise denied

    async def _judged(
        self, authorization: str, certificate: Certificate, address: str
    ) -> tuple[Principal, DeniedError | None, str]:
        """Who it is, what he is told if he is not let in, and why not."""
        scheme, _, credentials = authorization.strip().partition(" ")
        if scheme and scheme.lower() != BEARER:
            what = f"credentials are a bearer token (Authorization: Bearer …), not {scheme[:20]!a}"
            return NOBODY, DeniedError(401, what), "its credentials are of a kind that is not taken over HTTP"
        peer = PeerInfo(address, certificate, self._secure, self._reception.is_local, b"")
        authentication = self._reception.begin("token" if scheme else "", "", peer)
        if authentication is None:
            text = "this needs credentials: a bearer token, or the certificate of a client"
            return NOBODY, DeniedError(401, text), "it has shown no credentials"
        judged = authentication.answer(credentials.strip().encode())
        if isinstance(judged, Later):
            await asyncio.sleep(judged.wait / 1e9)
            judged = judged.then
        if not isinstance(judged, Admission):
            why = "it was asked a question" if isinstance(judged, bytes) else judged.reason
            self._note(f"client at {address} was not let in over HTTP: {why}")
            return NOBODY, DeniedError(401, NOT_VALID), why
        principal = judged.principal
        try:
            refusal = await self._refusal(principal)
        except DeniedError as denied:
            return principal, denied, str(denied)
        if not refusal:
            return principal, None, ""
        self._note(f"client at {address} ({principal.name!r}) may not look over HTTP: {refusal}")
        return principal, DeniedError(403, refusal), refusal
