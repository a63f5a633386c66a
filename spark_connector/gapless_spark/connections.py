"""The connections of a worker process: one for each broker and client, kept between tasks.

A worker outlives queries, so a task finds the connection of the task before it. A task that fails keeps none, because
the connection may have been the cause.

In a network a subscription is read by ranges at its home alone. A connection with the addresses of several brokers
finds the home among them. If the home is away, the query tries again until it is back or `brokerTimeout` is over
(`HomeWait`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, TypeAlias

import gapless
from gapless.errors import SubscriptionElsewhereError
from gapless_spark.telling import unreachable

CLOSE_TIMEOUT: Final = 2.0
"""How many seconds a Goodbye may take."""

HOME_PAUSE_FIRST: Final = 0.1
"""How many seconds a query waits before it looks for the home again; then twice as long, and so on."""
HOME_PAUSE_MOST: Final = 2.0

_Key: TypeAlias = tuple[int, str, str]

kept: dict[_Key, gapless.sync.Connection] = {}


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
    connection = kept.get(key)
    if connection is None:
        connection = kept[key] = connect(brokers, client_id, timeout)
    try:
        yield connection
    except Exception:
        kept.pop(key, None)
        with suppress(Exception):
            connection.close(CLOSE_TIMEOUT)
        raise


class HomeWait:
    """How long a query has waited for the home of its subscription, and how long it will yet."""

    def __init__(self, brokers: str, timeout: float) -> None:
        """`brokers`: an address for `gapless.connect`, which may name several brokers."""
        self._brokers = brokers
        self._timeout = timeout
        self._until: float | None = None
        """When it gives up; None while nothing is waited for."""
        self._pause = HOME_PAUSE_FIRST

    def found(self) -> None:
        """The home has answered: the next refusal begins to wait anew."""
        self._until, self._pause = None, HOME_PAUSE_FIRST

    def refused(self, error: SubscriptionElsewhereError) -> None:
        """No address of the query is the home, or it is away: returns when it is time to try again.

        Raises the error if there is one address alone, which is that of another broker; TimeoutError if the home was
        waited for so long.
        """
        if "," not in self._brokers.partition("?")[0]:
            raise error
        now = time.monotonic()
        self._until = now + self._timeout if self._until is None else self._until
        if now >= self._until:
            raise unreachable(self._brokers, self._timeout, f"the one that answers says: {error}") from error
        time.sleep(min(self._pause, self._until - now))
        self._pause = min(2 * self._pause, HOME_PAUSE_MOST)
