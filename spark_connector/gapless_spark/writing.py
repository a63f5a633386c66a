"""Publishes the rows of a sink's task, under keys that a repetition of the task has again (protocol: keyed-publishing).

The rows of a task are numbered in the order in which they come. If the task is run again with the same rows in the same
order, each row has the same key, and the broker drops what it has. After a shuffle the order may differ; then the rows
are sorted by a column that distinguishes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from gapless.client.messages import Message
from gapless.errors import ConfigurationError, GaplessError, InvalidMessageError
from gapless.selectors.filters import check_topic
from gapless.texts import text_problem
from gapless_spark.connections import shared_connection
from gapless_spark.options import address_of, check_unknown, duration
from gapless_spark.rows import KEY
from gapless_spark.telling import coded

CHUNK: Final = 8192
"""How many rows of a task become messages at once."""
TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "payload": ("binary", "string"),
    "topic": ("string",),
    "key": ("string",),
    "properties": tuple(f"map<string,{kind}>" for kind in ("string", "bigint", "int", "double", "boolean")),
}
"""The columns of a sink, and their possible types."""
_OPTIONS: Final = {
    name.lower(): name
    for name in (
        "brokers",
        "user",
        "passwordFile",
        "tokenFile",
        "clientId",
        "topic",
        "txnAppId",
        "txnVersion",
        "messageIdColumn",
        "brokerTimeout",
    )
}


@dataclass(frozen=True)
class SinkOptions:
    """The options of a sink, in the form in which it uses them."""

    brokers: str
    """An address for `gapless.connect`, with the user and the files of the options in it: no secret goes to workers."""
    client_id: str = ""
    topic: str | None = None
    """The topic for rows without one."""
    app: str | None = None
    version: int = 0
    """`app` and `version` name a batch write that may be repeated."""
    order: str | None = None
    """The column by which a task's rows are sorted."""
    broker_timeout: float = 60.0
    """How many seconds a part of a task's rows may take to become durable."""


@dataclass(frozen=True)
class Keys:
    """The producer and the epoch of a task's rows; the index is the number of the row."""

    producer: str
    epoch: int


@dataclass(frozen=True)
class TaskOutcome:
    """What happened to the rows of a task."""

    published: int
    duplicates: int


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Returns the options of a sink. Raises ConfigurationError."""
    values: dict[str, str] = {}
    for key, text in given.items():
        if problem := text_problem(text):
            raise ConfigurationError(f"option {key} {problem}")
        lower = key.lower()
        name = _OPTIONS.get(lower.removeprefix("gapless."))
        if name is not None:
            values[name] = text.strip()
        else:
            check_unknown(key, _OPTIONS.values(), " of a sink")
    brokers = values.get("brokers")
    if not brokers:
        raise ConfigurationError('option brokers is missing: .option("brokers", "HOST:PORT")')
    version = values.get("txnVersion", "0")
    if ("txnAppId" in values) != ("txnVersion" in values) or not (version.isascii() and version.isdecimal()):
        raise ConfigurationError(
            "options txnAppId and txnVersion belong together; txnVersion is an integer, at least 0"
        )
    if "topic" in values:
        _checked_topic(values["topic"])
    return SinkOptions(
        address_of(
            brokers if "://" in brokers else f"gapless://{brokers}",
            *(values.get(name, "") for name in ("user", "passwordFile", "tokenFile")),
        ),
        values.get("clientId", ""),
        values.get("topic"),
        values.get("txnAppId"),
        int(version),
        values.get("messageIdColumn"),
        _timeout(values.get("brokerTimeout", "60s")),
    )


def check_columns(columns: Mapping[str, str], options: SinkOptions) -> None:
    """Raises ConfigurationError if rows with these columns cannot be published."""
    there_are = ", ".join(f"{name} {' or '.join(kinds)}" for name, kinds in TYPES.items())
    for name, kind in columns.items():
        if kind not in TYPES.get(name, ()) and name != options.order:
            raise ConfigurationError(f"a sink has no column {name} {kind}; it has {there_are}, and messageIdColumn's")
    for name in ("payload", *([options.order] if options.order is not None else [])):
        if name not in columns:
            raise ConfigurationError(f"a sink needs the column {name}")
    if "topic" not in columns and options.topic is None:
        raise ConfigurationError("a sink needs the column topic, or the option topic")


def publish(rows: Iterable[Mapping[str, Any]], options: SinkOptions, keys: Keys | None) -> TaskOutcome:
    """Publishes the rows of a task; all are durable when it returns. Without keys, nothing counts as a repetition."""
    if options.order is not None:
        order = options.order
        rows = sorted(rows, key=lambda row: row[order])
    published = duplicates = 0
    timeout = options.broker_timeout
    with (
        coded(options.brokers, "", timeout),
        shared_connection(options.brokers, options.client_id, timeout) as connection,
    ):
        for first, messages in _chunks(rows, options.topic):
            if keys is None:
                with connection.session() as session:
                    published += sum(1 for _ in session.publisher().send_all(messages, timeout))
                continue
            receipt = connection.publish(keys.producer, keys.epoch, first, messages, timeout=timeout)
            published += receipt.published
            duplicates += receipt.duplicates
    return TaskOutcome(published, duplicates)


def message(row: Mapping[str, Any], topic: str | None) -> Message:
    """Returns the message of a row. Raises GaplessError if there is none."""
    payload = row["payload"]
    if payload is None:
        raise GaplessError("GAPLESS_NO_PAYLOAD: a row's payload is null")
    properties = dict(row.get("properties") or {})
    key = row.get("key")
    if key is not None:
        properties[KEY] = key
    if isinstance(payload, str):
        if problem := text_problem(payload):
            raise InvalidMessageError(f"a row's payload {problem}")
        body = payload.encode()
    else:
        body = bytes(payload)
    chosen = row.get("topic")
    return Message(body, properties, topic=topic if chosen is None else chosen)


def _chunks(rows: Iterable[Mapping[str, Any]], topic: str | None) -> Iterator[tuple[int, list[Message]]]:
    """Yields messages in lists of a good size, each with the number of its first row."""
    remaining, first = iter(rows), 0
    while messages := [message(row, topic) for row in islice(remaining, CHUNK)]:
        yield first, messages
        first += len(messages)


def _timeout(text: str) -> float:
    try:
        return duration(text)
    except ValueError as error:
        raise ConfigurationError(f"option brokerTimeout {error}; {text!r} is not") from error


def _checked_topic(topic: str) -> None:
    try:
        check_topic(topic)
    except GaplessError as error:
        raise ConfigurationError(f"option topic: {error}") from error
