"""Keyed publishing: for a sink that numbers its batches and may publish each one again (protocol: keyed-publishing)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gapless.client.messages import Encoder, Message
from gapless.client.options import check_name
from gapless.core.stream.columns import EventColumns
from gapless.core.stream.ticks import PubendId, Tick
from gapless.core.wire.messages import KeyedPublished
from gapless.errors import ConfigurationError, ConnectionClosedError, PublishUncertainError
from gapless.selectors.topics import check_topic

if TYPE_CHECKING:
    from gapless.client.driver import Driver

KEY_MAX: Final = (1 << 63) - 1
"""The highest possible epoch, and the highest index."""
PART_BYTES: Final = 1 << 20
PART_EVENTS: Final = 8192
"""The limits of one part. The parts of one producer are published one after the other."""


class KeyedReceipt(msgspec.Struct, frozen=True, gc=False):
    """The result of publishing with keys: all events are logged, by this call or before."""

    pubend: PubendId
    published: int
    """How many were logged by this call."""
    duplicates: int
    """How many were dropped, because their keys are at or below the producer's mark."""
    ticks: Sequence[Tick]
    """The ticks of the events that this call logged: the last ones of the batch."""
    durable: bool = True
    """As in `Receipt`."""


class KeyedPublishing:
    """Publishes for all producers of one connection; each producer's batches go one after the other.

    If a batch overtook the one before it, that one would look like a repetition and be dropped. So a batch also waits
    for an earlier batch whose call was cancelled while it was on its way.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._last: dict[str, asyncio.Task[KeyedReceipt]] = {}
        """The latest task of each producer that is under way."""

    async def publish(
        self, producer: str, epoch: int, index: int, messages: Iterable[Message], topic: str | None
    ) -> KeyedReceipt:
        """See `Connection.publish`."""
        producer = check_name(producer, "the name of a producer")
        topic = None if topic is None else check_topic(topic)
        keys: tuple[tuple[Any, str], ...] = ((epoch, "an epoch"), (index, "an index"))
        for key, what in keys:
            if not isinstance(key, int) or not 0 <= key <= KEY_MAX:
                raise ConfigurationError(f"{what} is an int from 0 to {KEY_MAX}, not {key!r}")
        self._driver.check_open()
        batches = self._encoded(list(messages), topic)
        before = self._last.get(producer)
        task = self._driver.loop.create_task(self._run(before, producer, epoch, index, topic or "", batches))
        self._last[producer] = task
        task.add_done_callback(lambda done: self._forget(producer, done))
        # Cancelling this call must not cancel the batch: the producer's next batch has to wait for it.
        return await asyncio.shield(task)

    def _forget(self, producer: str, task: asyncio.Task[KeyedReceipt]) -> None:
        if self._last.get(producer) is task:
            del self._last[producer]
        if not task.cancelled():
            task.exception()  # the caller may be gone; this marks the exception as seen

    def _encoded(self, messages: list[Message], topic: str | None) -> list[EventColumns]:
        """Returns the messages in parts that fit into a frame each. Raises the error of the first wrong message."""
        welcome = self._driver.core.welcome
        assert welcome is not None, "a connection is open from the start"
        encoded = Encoder(topic, self._driver.stamp).encode_all(messages, welcome.max_event_bytes)
        if encoded.error is not None:
            raise encoded.error
        return list(encoded.columns.portions(PART_BYTES, PART_EVENTS))

    async def _run(
        self,
        before: asyncio.Task[KeyedReceipt] | None,
        producer: str,
        epoch: int,
        index: int,
        topic: str,
        batches: list[EventColumns],
    ) -> KeyedReceipt:
        if before is not None:
            await asyncio.wait([before])
        answers: list[KeyedPublished] = []
        core = self._driver.core.ranges
        at = index
        for events in batches:
            first = at

            def ask(now: int, first: int = first, events: EventColumns = events) -> int:
                return core.publish(producer, epoch, first, topic, events, now)

            try:
                answers.append(await self._driver.ask(ask))
            except ConnectionClosedError as error:
                reason = f"{error}; published again under the same keys, nothing is logged twice"
                raise PublishUncertainError(reason) from error
            at += events.count
        ticks = list(chain.from_iterable(_ticks(answer) for answer in answers))
        pubend = answers[-1].pubend if answers else ""
        durable = bool(answers) and all(map(self._is_durable, answers))
        return KeyedReceipt(pubend, len(ticks), at - index - len(ticks), ticks, durable)

    def _is_durable(self, answer: KeyedPublished) -> bool:
        """What the answer says of its pubend, or an older broker of itself."""
        if answer.durable is not None:
            return answer.durable
        welcome = self._driver.core.welcome
        return welcome is not None and welcome.durable


def _ticks(answer: KeyedPublished) -> Iterable[Tick]:
    return chain.from_iterable(range(run.first, run.first + run.step * run.count, run.step) for run in answer.ticks)
