"""What each refusal of the broker means to the application: one table."""

from __future__ import annotations

from gapless.core.wire.messages import Code, RequestFailed
from gapless.errors import (
    AuthorizationError,
    ConfigurationError,
    ConnectionClosedError,
    ConnectionRefusedByBrokerError,
    GaplessError,
    InvalidMessageError,
    InvalidSelectorError,
    InvalidTokenError,
    InvalidTopicError,
    PublisherFencedError,
    PublishRejectedError,
    PublishUncertainError,
    SubscriptionInUseError,
    SubscriptionMismatchError,
    SubscriptionNotFoundError,
    SubscriptionTakenOverError,
    TokenAheadError,
    TokenMismatchError,
)

ERRORS: dict[Code, type[GaplessError]] = {
    Code.CONFIGURATION: ConfigurationError,
    Code.UNAUTHORIZED: ConnectionRefusedByBrokerError,
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
    Code.FORGOTTEN: PublishUncertainError,
    Code.REJECTED: PublishRejectedError,
    Code.RESUME: PublishRejectedError,
    Code.RETRY: ConnectionClosedError,
    Code.CLOSED: ConnectionClosedError,
}
"""The error class of each code. FORGOTTEN, RESUME and RETRY are handled inside; they stand here to be complete."""

TEMPORARY = frozenset({Code.RETRY, Code.CLOSED})
"""Refusals after which the same question may be answered differently a little later."""


def error_of(code: Code, reason: str) -> GaplessError:
    """The error for a refusal with nothing but a reason."""
    return ERRORS[code](reason)


def request_error(failed: RequestFailed) -> GaplessError:
    """The error for a failed request; one about a selector shows the place."""
    if failed.code is Code.INVALID_SELECTOR:
        return InvalidSelectorError(failed.reason, failed.expression, failed.position)
    return error_of(failed.code, failed.reason)


def publish_error(code: Code, reason: str) -> GaplessError:
    """The error for a batch or a publisher that was refused: always one that says that nothing was logged.

    A broker judges topics and messages again; to a publisher, whatever it finds wrong is a rejection.
    """
    if code is Code.FENCED:
        return PublisherFencedError(reason)
    return PublishRejectedError(reason)
