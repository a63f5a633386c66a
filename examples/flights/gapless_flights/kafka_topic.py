"""The demo's topic in somebody's Kafka: made, and removed again. Nothing else there is touched."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from gapless.errors import GaplessError

if TYPE_CHECKING:
    from aiokafka.admin import AIOKafkaAdminClient

    from gapless_flights.kafka_access import KafkaAccess

COPIES: Final = 3
PATIENCE_MS: Final = 20_000


class KafkaTopicError(GaplessError):
    """A Kafka did not make or remove the demo's topic."""


async def make_topic(access: KafkaAccess, name: str, partitions: int) -> int:
    """Makes the topic, with three replicas or as many as there are brokers, and says how many that are.

    Raises KafkaTopicError.
    """
    from aiokafka.admin import NewTopic

    async with _administrator(access, f"make the topic {name}") as administrator:
        copies = min(COPIES, len((await administrator.describe_cluster())["brokers"]))
        settings = {"cleanup.policy": "delete"}
        if copies == COPIES:
            settings["min.insync.replicas"] = "2"
        made = await administrator.create_topics([NewTopic(name, partitions, copies, topic_configs=settings)])
        _check([(error[1], error[2]) for error in made.topic_errors])
    return copies


async def remove_topic(access: KafkaAccess, name: str) -> None:
    """Removes the topic. Raises KafkaTopicError."""
    async with _administrator(access, f"remove the topic {name}") as administrator:
        removed = await administrator.delete_topics([name])
        _check([(error[1], None) for error in removed.topic_error_codes])


@asynccontextmanager
async def _administrator(access: KafkaAccess, what: str) -> AsyncIterator[AIOKafkaAdminClient]:
    from aiokafka.admin import AIOKafkaAdminClient
    from aiokafka.errors import KafkaConnectionError, KafkaError

    logging.getLogger("aiokafka").addHandler(logging.NullHandler())  # what it has to say, the error says
    administrator = AIOKafkaAdminClient(**access.options(), request_timeout_ms=PATIENCE_MS)
    try:
        await administrator.start()
        yield administrator
    except (KafkaError, OSError, ValueError) as error:
        why = str(error) or type(error).__name__
        if isinstance(error, KafkaConnectionError):  # which does not say who refused what
            why += ": is it there, and does --access say what it asks for?"
        raise KafkaTopicError(f"cannot {what} in the Kafka at {access.servers}: {why}") from error
    finally:
        await administrator.close()


def _check(errors: Sequence[tuple[int, str | None]]) -> None:
    from aiokafka.errors import for_code

    for code, why in errors:
        if code:
            raise for_code(code)(why)
