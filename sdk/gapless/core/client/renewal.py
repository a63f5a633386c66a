"""Renews a session's credentials before they expire, so that it need not end (protocol: session)."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from gapless.core.client.credentials import OPEN_LINK, Credentials, LinkSecurity, check_size
from gapless.core.client.link.backoff import MILLISECOND, SECOND, Backoff
from gapless.core.client.link.effects import AskCredentials, Notice
from gapless.core.client.link.registry import ClientTimer
from gapless.core.wire.messages import Renew, Renewed, Welcome
from gapless.errors import GaplessError

if TYPE_CHECKING:
    from gapless.core.client.link.outbox import ClientOutbox
    from gapless.core.client.link.registry import Key
    from gapless.core.deadlines import Deadlines

RENEWAL: Final = 0
"""The number of the request. There is one at a time in a session, and all others count from 1."""
BEFORE_END: Final = 60 * SECOND
"""So long before their end credentials are renewed, or sooner: after two thirds of their life."""
SOONEST: Final = SECOND
"""They are renewed no sooner, however short they live."""
PATIENCE: Final = 30 * SECOND
"""How long the application may take for new credentials, and then the broker for its answer."""
AGAIN_MOST: Final = 30 * SECOND

_KEY: Final = (ClientTimer.RENEWAL, 0)


class _Phase(Enum):
    IDLE = "there is no session, or nothing expires in it"
    LATER = "it is not time yet"
    ASKING = "the application is to say the new ones"
    SENT = "the broker is to take them"


class Renewal:
    """The renewal of one session's credentials; the next session begins another."""

    def __init__(self, outbox: ClientOutbox, deadlines: Deadlines[Key], backoff: Backoff) -> None:
        """`backoff`: for the delays after failures."""
        self._outbox = outbox
        self._deadlines = deadlines
        self._backoff = backoff
        self._phase = _Phase.IDLE
        self._security = OPEN_LINK
        self._address = ""
        self._expires = 0

    def begin(self, welcome: Welcome, address: str, security: LinkSecurity) -> None:
        """A session is open, in which there are credentials."""
        self._address = address
        self._security = security
        if welcome.expires_ms > 0 and Renew.__name__ in welcome.answers:
            self._plan(welcome.expires_ms)

    def end(self) -> None:
        """The session is over."""
        self._phase = _Phase.IDLE
        self._deadlines.clear(_KEY)

    def on_deadline(self) -> None:
        """It is time to ask for new ones; or somebody takes too long."""
        if self._phase is _Phase.LATER:
            self._phase = _Phase.ASKING
            self._outbox.emit(AskCredentials(self._outbox.link, self._address))
            self._deadlines.set(_KEY, self._outbox.now + PATIENCE)
        elif self._phase is _Phase.ASKING:
            self.on_failure("they did not come in time")
        elif self._phase is _Phase.SENT:
            self.on_failure("the broker does not answer")

    def on_credentials(self, credentials: Credentials) -> None:
        """The application has said new ones."""
        if self._phase is not _Phase.ASKING:
            return
        try:
            security = self._security
            message = Renew(RENEWAL, credentials.mechanism, credentials.first(security.binding, secure=security.secure))
            check_size(message)
        except GaplessError as error:
            self.on_failure(str(error))
            return
        self._phase = _Phase.SENT
        self._outbox.send(message)
        self._deadlines.set(_KEY, self._outbox.now + PATIENCE)

    def on_failure(self, reason: str) -> None:
        """There are none, or the broker does not take them: they are asked for again, until the session ends."""
        if self._phase not in {_Phase.ASKING, _Phase.SENT}:
            return
        left = max(0, self._expires - self._outbox.now) // SECOND
        self._outbox.tell(
            Notice(f"the credentials for {self._address}, which expire in {left} s, could not be renewed: {reason}")
        )
        self._phase = _Phase.LATER
        self._deadlines.set(_KEY, self._outbox.now + self._backoff.next())

    def on_renewed(self, renewed: Renewed) -> None:
        """The broker has taken them."""
        if self._phase is not _Phase.SENT:
            return
        self._backoff.reset()
        if renewed.expires_ms > 0:
            self._plan(renewed.expires_ms)
        else:
            self.end()

    def _plan(self, expires_ms: int) -> None:
        life = expires_ms * MILLISECOND
        wait = max(min(life * 2 // 3, life - BEFORE_END), life // 3, SOONEST)
        self._expires = self._outbox.now + life
        self._phase = _Phase.LATER
        self._deadlines.set(_KEY, self._outbox.now + wait)
