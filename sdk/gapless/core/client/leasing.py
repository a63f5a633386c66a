"""Leases of subscriptions that are read by ranges: asked for again after each reconnect (protocol: ranges)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from gapless.core.client.backoff import Backoff
from gapless.core.client.effects import Answered, Failed
from gapless.core.client.outbox import Outbox
from gapless.core.client.refusals import TEMPORARY, error_of, request_error
from gapless.core.client.timers import Key, Timer
from gapless.core.deadlines import Deadlines
from gapless.core.wire.messages import EndLease, InUse, Lease, Leased, LeaseLost, RequestFailed
from gapless.errors import GaplessError


class Leasing:
    """One lease that is wanted or held."""

    __slots__ = ("backoff", "granted", "message")

    def __init__(self, message: Lease, backoff: Backoff) -> None:
        self.message = message
        self.backoff = backoff
        self.granted = False
        """Whether it ever was."""

    def request(self) -> Lease:
        """Asks for it. Who had it, and lost its connection, does not take it from whoever came since."""
        return replace(self.message, in_use=InUse.ERROR) if self.granted else self.message


class Leasings:
    """All leases of one connection."""

    def __init__(self, outbox: Outbox, deadlines: Deadlines[Key], backoff: Callable[[], Backoff]) -> None:
        self._outbox = outbox
        self._deadlines = deadlines
        self._backoff = backoff
        self._leases: dict[int, Leasing] = {}

    def __contains__(self, number: int) -> bool:
        return number in self._leases

    def handlers(self) -> Mapping[type, Callable[[Any], None]]:
        """Which of the broker's messages are about leases."""
        return {Leased: self._on_leased, LeaseLost: self._on_lost}

    # What happened.

    def on_session(self) -> None:
        """A session is open: a lease is a session's."""
        for lease in self._leases.values():
            self._outbox.send(lease.request())

    def on_session_over(self) -> None:
        """The session is over: what was put off is asked for in the next one."""
        for number in self._leases:
            self._deadlines.clear((Timer.RANGE, number))

    def on_deadline(self, number: int) -> None:
        """The time to ask once more has come."""
        lease = self._leases.get(number)
        if lease is not None and self._outbox.open:
            self._outbox.send(lease.request())

    def on_failed(self, failed: RequestFailed) -> None:
        """The broker does not grant it, or not now."""
        if failed.code in TEMPORARY:
            due = self._outbox.now + self._leases[failed.request].backoff.next()
            self._deadlines.set((Timer.RANGE, failed.request), due)
        else:
            self._fail(failed.request, request_error(failed))

    def _on_leased(self, message: Leased) -> None:
        lease = self._leases.get(message.request)
        if lease is not None and not lease.granted:
            lease.granted = True
            self._outbox.tell(Answered(message.request, None))

    def _on_lost(self, message: LeaseLost) -> None:
        if message.request in self._leases:
            self._fail(message.request, error_of(message.code, message.reason))

    # Commands.

    def lease(self, message: Lease) -> int:
        """Asks for a lease. Answered by None; from then on, or before that, it may fail."""
        lease = self._leases[message.request] = Leasing(message, self._backoff())
        if self._outbox.open:
            self._outbox.send(lease.request())
        return message.request

    def end(self, number: int) -> None:
        """Gives it back. Nothing more is heard of it."""
        self._deadlines.clear((Timer.RANGE, number))
        if self._leases.pop(number, None) is not None and self._outbox.open:
            self._outbox.send(EndLease(number))

    def fail_all(self, error: GaplessError) -> None:
        """All are lost."""
        for number in list(self._leases):
            self._fail(number, error)

    def _fail(self, number: int, error: GaplessError) -> None:
        del self._leases[number]
        self._deadlines.clear((Timer.RANGE, number))
        self._outbox.tell(Failed(number, error))
