"""Which subscription a request means, and whether its positions can be."""

from __future__ import annotations

from collections.abc import Iterable

from gapless.core.ports import ClientSession
from gapless.core.wire.messages import Code, Position, Target
from gapless_shb.core.admission import RefusedError, called, check_positions, known_by_id
from gapless_shb.core.constream import Constream
from gapless_shb.core.hosting import Hosting
from gapless_shb.core.subscriptions import SubscriptionRecord


class Targets:
    """Finds what requests name; what is not there, or not theirs, is refused."""

    def __init__(self, hosting: Hosting) -> None:
        self._hosting = hosting

    def find(self, session: ClientSession, target: Target) -> SubscriptionRecord:
        """The subscription of the session's client. Raises RefusedError.

        One that has not begun yet is put off: where it begins is not known.
        """
        registry = self._hosting.registry
        by_name = None if target.sid else registry.find(session.client_id, target.name)
        if not target.sid and by_name is None:
            reason = f"there is no subscription {target.name!r} of client {session.client_id!r}: attach it first"
            raise RefusedError(Code.NOT_FOUND, reason)
        found = by_name or known_by_id(registry, session, target)
        if not found.durable:
            raise RefusedError(Code.NOT_FOUND, "only a durable subscription is read by ranges")
        if not found.begun:
            raise RefusedError(Code.RETRY, "the subscription is being created")
        return found

    def check(self, positions: Iterable[Position], subscription: SubscriptionRecord | None) -> None:
        """Positions that can be: of a pubend's own epoch, and of no event that a broker lost. Raises RefusedError."""
        check_positions(positions, self._hosting.streams, called(None if subscription is None else subscription.name))

    @staticmethod
    def removed() -> RefusedError:
        """What is said of a subscription that was removed while something was asked of it."""
        return RefusedError(Code.NOT_FOUND, "the subscription was removed")

    def stream(self, pubend: str) -> Constream:
        """The pubend as it is followed here. Raises RefusedError."""
        stream = self._hosting.streams.get(pubend)
        if stream is None:
            raise RefusedError(Code.TOKEN_MISMATCH, f"this broker knows of no pubend {pubend!r}")
        return stream
