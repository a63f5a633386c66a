"""The exceptions of Jakarta Messaging 3.1 (section 10) by name, with Python's ending. Each is a GaplessError, too."""

from __future__ import annotations

from gapless.errors import GaplessError, InvalidSelectorError, InvalidTopicError


class JMSError(GaplessError):
    """Base of what the JMS-style profile raises on its own account."""


class IllegalStateError(JMSError):
    """A method was called at a time, or in a mode, in which it cannot be."""


class InvalidClientIDError(JMSError):
    """A client id is missing where one is needed, or was set too late."""


class InvalidDestinationError(JMSError, InvalidTopicError):
    """A destination is malformed, or a durable subscription does not exist."""


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
    """The connection was closed before the broker said whether a transaction was committed."""


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
