"""The JMS-style profile: blocking, with the names and rules of Jakarta Messaging 3.1.

    from gapless import jms

    factory = jms.ConnectionFactory("gapless://127.0.0.1:7400", client_id="desk-7")
    with factory.create_context(jms.AUTO_ACKNOWLEDGE) as context:
        topic = context.create_topic("orders")
        consumer = context.create_durable_consumer(topic, "audit", "amount > 100")
        context.create_producer().set_property("amount", 250).send(topic, "a large one")
        print(consumer.receive_body(str, timeout=5000))

Durations are in milliseconds, as there. `docs/reference/jms.md` says rule by rule what is the same, and what is not.
"""

from __future__ import annotations

from gapless.jms.bodies import BytesMessage, JsonMessage, MapMessage, StreamMessage, TextMessage
from gapless.jms.consumers import JMSConsumer, MessageListener
from gapless.jms.contexts import ConnectionFactory, ExceptionListener, JMSContext, SessionMode
from gapless.jms.errors import (
    IllegalStateError,
    InvalidClientIDError,
    InvalidDestinationError,
    InvalidSelectorError,
    JMSError,
    JMSSecurityError,
    MessageEOFError,
    MessageFormatError,
    MessageNotReadableError,
    MessageNotWriteableError,
    NumberFormatError,
    ResourceAllocationError,
    TransactionInDoubtError,
    TransactionInProgressError,
    TransactionRolledBackError,
)
from gapless.jms.messages import Message, Topic
from gapless.jms.producers import NON_PERSISTENT, CompletionListener, JMSProducer
from gapless.selectors.headers import PERSISTENT

SESSION_TRANSACTED = SessionMode.SESSION_TRANSACTED
AUTO_ACKNOWLEDGE = SessionMode.AUTO_ACKNOWLEDGE
CLIENT_ACKNOWLEDGE = SessionMode.CLIENT_ACKNOWLEDGE
DUPS_OK_ACKNOWLEDGE = SessionMode.DUPS_OK_ACKNOWLEDGE

__all__ = [
    "AUTO_ACKNOWLEDGE",
    "CLIENT_ACKNOWLEDGE",
    "DUPS_OK_ACKNOWLEDGE",
    "NON_PERSISTENT",
    "PERSISTENT",
    "SESSION_TRANSACTED",
    "BytesMessage",
    "CompletionListener",
    "ConnectionFactory",
    "ExceptionListener",
    "IllegalStateError",
    "InvalidClientIDError",
    "InvalidDestinationError",
    "InvalidSelectorError",
    "JMSConsumer",
    "JMSContext",
    "JMSError",
    "JMSProducer",
    "JMSSecurityError",
    "JsonMessage",
    "MapMessage",
    "Message",
    "MessageEOFError",
    "MessageFormatError",
    "MessageListener",
    "MessageNotReadableError",
    "MessageNotWriteableError",
    "NumberFormatError",
    "ResourceAllocationError",
    "SessionMode",
    "StreamMessage",
    "TextMessage",
    "Topic",
    "TransactionInDoubtError",
    "TransactionInProgressError",
    "TransactionRolledBackError",
]
