"""Clients whose message made a machine fail: they stay outside for a while, and the message is never handled again.

An exception in a handler may leave a core in any state, so the node throws the machine away and recovers a new one. The
client then connects again, and sends the same message. Without this module it would make the next machine fail, too,
and after the fifth the node would give up.
"""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b
from typing import Final

from gapless.core.ports import ClientSession
from gapless.core.wire.numbering import HEAD_BYTES

SECOND: Final = 1_000_000_000
OUTSIDE: Final = 60 * SECOND
"""For how many nanoseconds such a client is not let in."""
REMEMBERED_MAX: Final = 1000
"""How many clients and messages are remembered: the latest ones."""


class HandlerFailedError(Exception):
    """A handler failed because of a client's message; the exception's cause is the failure."""

    def __init__(self, client: ClientSession, peer: str, kind: str, payload: bytes) -> None:
        super().__init__(client, peer, kind, payload)
        self.told = f"a {kind} of client {client.client_id!r} ({client.principal}) at {peer}"
        """Whose message it was, for people."""
        self.client = client
        self.payload = payload

    def __str__(self) -> str:
        return f"a handler failed of {self.told}: {self.__cause__!r}"


class Suspects:
    """The suspects, which outlive the machines of a node."""

    def __init__(self) -> None:
        self._outside: OrderedDict[tuple[str, str, str], int] = OrderedDict()
        self._messages: OrderedDict[bytes, None] = OrderedDict()

    def on_failed(self, failure: HandlerFailedError, now: int) -> None:
        """Notes that a machine failed because of a client's message."""
        client = failure.client
        self._outside[client.principal.name, client.client_id, client.instance] = now + OUTSIDE
        self._messages[_digest(failure.payload)] = None
        for remembered in (self._outside, self._messages):
            while len(remembered) > REMEMBERED_MAX:
                remembered.popitem(last=False)

    def is_outside(self, principal: str, client_id: str, instance: str, now: int) -> bool:
        """Whether this client must not be let in yet."""
        return now < self._outside.get((principal, client_id, instance), now)

    def has_seen(self, payload: bytes) -> bool:
        """Whether this very message made a machine fail, from whichever client it came."""
        return bool(self._messages) and _digest(payload) in self._messages


def _digest(payload: bytes) -> bytes:
    return blake2b(memoryview(payload)[HEAD_BYTES:], digest_size=16).digest()
