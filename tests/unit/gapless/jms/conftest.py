"""A broker in memory, and what the tests of contexts, consumers and producers wait with."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from threading import Thread
from typing import Any

import pytest

import gapless.sync
from gapless import jms

LONG = 20_000
"""Milliseconds: for what is to come."""
SHORT = 30
"""Milliseconds: for what is not to come."""


@pytest.fixture
def factory() -> jms.ConnectionFactory:
    """Each of its connections has a broker of its own."""
    return jms.ConnectionFactory("embedded:", client_id="desk-7")


@pytest.fixture
def context(factory: jms.ConnectionFactory) -> Iterator[jms.JMSContext]:
    with factory.create_context() as context:
        yield context


def plain_session(context: jms.JMSContext) -> gapless.sync.Session:
    """A session of the SDK, at the same broker."""
    return context._connection.below.session()


def until(holds: Callable[[], object]) -> None:
    """Waits until something holds in another thread: nothing tells."""
    while not holds():
        time.sleep(0.001)


class InThread:
    """A call that is made in a thread of its own."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._result: Any = None
        self._thread = Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result = self._call()
        except Exception as error:  # noqa: BLE001 - it is the result
            self._result = error

    @property
    def is_waiting(self) -> bool:
        """Whether the call has not returned."""
        return self._thread.is_alive()

    def result(self) -> Any:
        """What it returned, or raised."""
        self._thread.join(LONG / 1000)
        assert not self._thread.is_alive()
        return self._result


def texts(consumer: jms.JMSConsumer, count: int) -> list[tuple[str | None, bool, int]]:
    """The text, mark and count of so many messages."""
    got = []
    for _ in range(count):
        message = consumer.receive(LONG)
        assert isinstance(message, jms.TextMessage)
        count = message.get_int_property("JMSXDeliveryCount")
        got.append((message.get_text(), message.get_jms_redelivered(), count))
    return got
