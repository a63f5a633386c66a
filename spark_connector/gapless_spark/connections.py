"""The connections of a worker process: one for each broker and client, kept between tasks.

A worker outlives queries, so a task finds the connection of the task before it. A task that fails keeps none, because
the connection may have been the cause.

In a network a subscription is read by ranges at its home alone. If that is away, a connection with the addresses of
several brokers goes on at another one, which refuses. So a query that is refused tries again, each time with the next
address first, until the home is back or `brokerTimeout` is over (`HomeSearch`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, TypeAlias

import gapless
from gapless.errors import ConfigurationError
from gapless_spark.telling import unreachable

CLOSE_TIMEOUT: Final = 2.0
"""How many seconds a Goodbye may take."""

HOME_PAUSE_FIRST: Final = 0.1
"""How many seconds a refused caller waits before it tries the next address; then twice as long, and so on."""
HOME_PAUSE_MOST: Final = 2.0

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


class HomeSearch:
    """The addresses of a query's brokers, in the order in which they are tried next, and for how long yet."""

    def __init__(self, brokers: str, timeout: float) -> None:
        """`brokers`: an address for `gapless.connect`, which may name several brokers."""
        self._all = brokers
        self._timeout = timeout
        self._orders = orders_of(brokers)
        self._at = 0
        self._until: float | None = None
        """When the search ends that is under way."""
        self._pause = HOME_PAUSE_FIRST

    @property
    def brokers(self) -> str:
        """The address with which to connect."""
        return self._orders[self._at]

    def found(self) -> None:
        """A broker has answered: the next refusal begins another search."""
        self._until, self._pause = None, HOME_PAUSE_FIRST

    def refused(self, error: ConfigurationError) -> None:
        """A broker that is not the home of the subscription has refused: waits, and puts another address first.

        Raises the error if there is no other address, and TimeoutError if the search has lasted for too long.
        """
        if len(self._orders) == 1:
            raise error
        now = time.monotonic()
        self._until = now + self._timeout if self._until is None else self._until
        if now >= self._until:
            raise unreachable(self._all, self._timeout, f"the one that answers says: {error}") from error
        time.sleep(min(self._pause, self._until - now))
        self._pause = min(2 * self._pause, HOME_PAUSE_MOST)
        self._at = (self._at + 1) % len(self._orders)


def orders_of(brokers: str) -> list[str]:
    """Returns the address of some brokers with each of them first."""
    scheme, separator, rest = brokers.partition("://")
    hosts, query, options = rest.partition("?")
    each = hosts.split(",")
    return [scheme + separator + ",".join(each[first:] + each[:first]) + query + options for first in range(len(each))]
