"""The exceptions of Jakarta Messaging 3.1 (section 10) by name, with Python's ending. Each is a GaplessError, too.

Whatever gapless raises below the profile comes out as one of these, with the original as its cause. One error has no
name in JMS, and stays what it is: GapError.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import gapless.errors as below
from gapless.errors import GaplessError


class JMSError(GaplessError):
    """Base of what the JMS-style profile raises."""


class IllegalStateError(JMSError):
    """A method was called at a time, or in a mode, in which it cannot be."""


class InvalidClientIDError(JMSError):
    """A client id is malformed."""


class InvalidDestinationError(JMSError, below.InvalidTopicError):
    """A destination is malformed, or a durable subscription does not exist."""


class InvalidSelectorError(JMSError, below.InvalidSelectorError):
    """A selector does not parse or does not type-check; see `gapless.InvalidSelectorError`."""


class JMSSecurityError(JMSError):
    """The broker refused who this is, or what it wants."""


class MessageEOFError(JMSError):
    """The end of a StreamMessage or a BytesMessage was reached."""


class MessageFormatError(JMSError):
    """A value has a type that cannot be stored, or cannot be read as the one that is asked for."""


class NumberFormatError(MessageFormatError, ValueError):
    """A text, or an absent value, was read as a number, and is none: Java's NumberFormatException."""


class MessageNotReadableError(JMSError):
    """The body of a message that is being written was read: `reset()` comes first."""


class MessageNotWriteableError(JMSError):
    """A message that was received is read only: `clear_body()` or `clear_properties()` comes first."""


class ResourceAllocationError(JMSError):
    """The broker has no room for what was asked."""


class TransactionInProgressError(JMSError):
    """A transaction is under way, and does not permit this."""


class TransactionRolledBackError(JMSError):
    """A transaction could not be committed; nothing of it took effect."""


class TransactionInDoubtError(JMSError):
    """The context was closed before the broker said whether a transaction was committed.

    Or, if that had consumed of one subscription and sent nothing, another consumer has taken the subscription over.
    """


_NAMES: Final[tuple[tuple[type[GaplessError], type[JMSError]], ...]] = (
    (below.InvalidTopicError, InvalidDestinationError),
    (below.SubscriptionNotFoundError, InvalidDestinationError),
    (below.SubscriptionInUseError, IllegalStateError),
    (below.SubscriptionMismatchError, IllegalStateError),
    (below.InvalidMessageError, MessageFormatError),
    (below.AuthorizationError, JMSSecurityError),
    (below.ConnectionRefusedByBrokerError, JMSSecurityError),
    (below.VolumeFullError, ResourceAllocationError),
    (below.TransactionRolledBackError, TransactionRolledBackError),
    (below.TransactionInDoubtError, TransactionInDoubtError),
)


def named(error: GaplessError) -> GaplessError:
    """Returns the error under its name in JMS. One that has its name already, and GapError, is returned as it is."""
    if isinstance(error, (JMSError, below.GapError)):
        return error
    if isinstance(error, below.InvalidSelectorError):
        return InvalidSelectorError(error.message, error.expression, error.position)
    found = (jms for cause, jms in _NAMES if isinstance(error, cause))
    return next(found, JMSError)(str(error))


@contextmanager
def names_of_jms() -> Iterator[None]:
    """Raises what is raised within under its name in JMS."""
    try:
        yield
    except GaplessError as error:
        again = named(error)
        if again is error:
            raise
        raise again from error


__all__ = [
    "IllegalStateError",
    "InvalidClientIDError",
    "InvalidDestinationError",
    "InvalidSelectorError",
    "JMSError",
    "JMSSecurityError",
    "MessageEOFError",
    "MessageFormatError",
    "MessageNotReadableError",
    "MessageNotWriteableError",
    "NumberFormatError",
    "ResourceAllocationError",
    "TransactionInDoubtError",
    "TransactionInProgressError",
    "TransactionRolledBackError",
]
