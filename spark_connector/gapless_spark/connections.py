"""The connections of a worker process: one for each broker and client, kept between tasks.

A worker outlives queries, so a task finds the connection of the task before it. A task that fails keeps none, because
the connection may have been the cause.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, TypeAlias

import gapless
from gapless_spark.telling import unreachable

CLOSE_TIMEOUT: Final = 2.0
"""How many seconds a Goodbye may take."""

_Key: TypeAlias = tuple[int, str, str]

_kept: dict[_Key, gapless.sync.Connection] = {}


def connect(brokers: str, client_id: str, timeout: float) -> gapless.sync.Connection:
    """Returns a new connection. Tries until there is one; raises TimeoutError after so many seconds."""
    try:
        return gapless.sync.connect(brokers, client_id=client_id, wait=True, timeout=timeout)
    except TimeoutError as error:
        raise unreachable(brokers, timeout) from error


@contextmanager
def shared_connection(brokers: str, client_id: str, timeout: float) -> Iterator[gapless.sync.Connection]:
    """This process's connection, for the length of a block. An error in the block closes it."""
    key = (os.getpid(), brokers, client_id)
    connection = _kept.get(key)
    if connection is None:
        connection = _kept[key] = connect(brokers, client_id, timeout)
    try:
        yield connection
    except Exception:
        _kept.pop(key, None)
        with suppress(Exception):
            connection.close(CLOSE_TIMEOUT)
        raise
