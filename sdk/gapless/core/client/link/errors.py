"""The error class for each refusal of the broker: one table."""

from __future__ import annotations

from gapless.core.wire.messages import Code, RequestFailed
from gapless.errors import (
    AuthenticationError,
    AuthorizationError,
    ConfigurationError,
    ConnectionClosedError,
    ConnectionRefusedByBrokerError,
    GaplessError,
    InvalidMessageError,
    InvalidSelectorError,
    InvalidTokenError,
    InvalidTopicError,
    NoAnswerError,
    PublisherFencedError,
    PublishRejectedError,
    PublishUncertainError,
    StaleTokenError,
    SubscriptionElsewhereError,
    SubscriptionInUseError,
    SubscriptionMismatchError,
    SubscriptionNotFoundError,
    SubscriptionTakenOverError,
    TokenAheadError,
    TokenMismatchError,
)

ERRORS: dict[Code, type[GaplessError]] = {
    Code.CONFIGURATION: ConfigurationError,
    Code.UNAUTHORIZED: AuthenticationError,
    Code.FORBIDDEN: AuthorizationError,
    Code.NETWORK_MISMATCH: ConnectionRefusedByBrokerError,
    Code.PROTOCOL_VERSION: ConnectionRefusedByBrokerError,
    Code.INVALID_SELECTOR: InvalidSelectorError,
    Code.INVALID_TOPIC: InvalidTopicError,
    Code.INVALID_MESSAGE: InvalidMessageError,
    Code.INVALID_TOKEN: InvalidTokenError,
    Code.TOKEN_MISMATCH: TokenMismatchError,
    Code.TOKEN_AHEAD: TokenAheadError,
    Code.NOT_FOUND: SubscriptionNotFoundError,
    Code.IN_USE: SubscriptionInUseError,
    Code.TAKEN_OVER: SubscriptionTakenOverError,
    Code.MISMATCH: SubscriptionMismatchError,
    Code.UNSUBSCRIBED: SubscriptionNotFoundError,
    Code.FENCED: PublisherFencedError,
    Code.STALE: StaleTokenError,
    Code.FORGOTTEN: PublishUncertainError,
    Code.REJECTED: PublishRejectedError,
    Code.RESUME: PublishRejectedError,
    Code.NO_ANSWER: NoAnswerError,
    Code.RETRY: ConnectionClosedError,
    Code.CLOSED: ConnectionClosedError,
}
"""The error class of each code. FORGOTTEN, RESUME and RETRY never reach an application; they complete the table."""

TEMPORARY = frozenset({Code.RETRY, Code.CLOSED})
"""Refusals for now: the same request may be answered differently a little later."""


def error_of(code: Code, reason: str) -> GaplessError:
    """Returns the error for a refusal with a reason and nothing else."""
    return ERRORS[code](reason)


def request_error(failed: RequestFailed) -> GaplessError:
    """Returns the error for a failed request.

    An error about a selector shows the place; one about a subscription that another node keeps names that.
    """
    if failed.code is Code.INVALID_SELECTOR:
        return InvalidSelectorError(failed.reason, failed.expression, failed.position)
    if failed.node:
        assert failed.code is Code.CONFIGURATION
        return SubscriptionElsewhereError(failed.reason, failed.node)
    return error_of(failed.code, failed.reason)


def publish_error(code: Code, reason: str) -> GaplessError:
    """Returns the error for a refused batch or publisher; it always means that nothing was logged.

    A broker checks topics and messages again; for a publisher, whatever fails there is a rejection.
    """
    if code is Code.FENCED:
        return PublisherFencedError(reason)
    if code is Code.STALE:
        return StaleTokenError(reason)
    return PublishRejectedError(reason)
