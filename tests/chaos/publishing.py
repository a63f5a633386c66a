"""A process that publishes, in one of four ways, and writes down what it was told of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from random import Random
from typing import Any

import gapless
from chaos.journal import Journal, lines
from chaos.plan import EVENT_BYTES_MOST, Made, Source, event_of, family_of

BURST_MOST = 40
"""Events that are on their way together."""


class Publishing:
    """Publishes what a source has, from where it stopped."""

    def __init__(self, source: Source, seed: int, url: str, journal: Journal, before: Path, random: Random) -> None:
        """`before`: where the journals of earlier starts are."""
        self._source = source
        self._seed = seed
        self._url = url
        self._journal = journal
        self._random = random
        self._instance = ""
        self._ending = asyncio.Event()
        self._next = 0
        """The number of the next event."""
        self._open: tuple[int, int] | None = None
        """Numbers of which nobody knows whether they are logged."""
        for line in lines(before, source.name):
            if line["kind"] == "sent":
                self._open = line["first"], line["end"]
                self._next = line["end"]
            elif line["kind"] == "receipt" and self._open and line["numbers"][-1] == self._open[1] - 1:
                self._open = None

    def end(self) -> None:
        """Publishes no more than what is begun."""
        self._ending.set()

    async def run(self) -> None:
        """Until it is to end."""
        ways = {"named": self._named, "unnamed": self._unnamed, "rival": self._rival, "keyed": self._keyed}
        async with gapless.connect(self._url, client_id=self._source.name, wait=True) as connection:
            while not self._ending.is_set():
                self._instance = f"{self._random.getrandbits(64):x}"
                await ways[self._source.kind](connection)

    # The ways.

    async def _named(self, connection: gapless.Connection) -> None:
        """One name: what is logged is known from the broker, and nothing is published twice."""
        session = connection.session()
        publisher = session.publisher(f"{self._source.family}.any", name=self._source.name)
        done = (await publisher.recover()).sequence
        self._journal.note("recovered", publisher=self._source.name, count=done)
        self._next = done
        await self._bursts(publisher, self._random.uniform(2, 20))
        await session.close()

    async def _rival(self, connection: gapless.Connection) -> None:
        """Takes the name from whoever has it, and goes on until it is taken away."""
        session = connection.session()
        publisher = session.publisher(f"{self._source.family}.any", name="rival")
        await self._bursts(publisher, self._random.uniform(1, 6))
        session.abandon()
        await self._pause(self._random.uniform(0.2, 2))

    async def _unnamed(self, connection: gapless.Connection) -> None:
        """As the workers of a web server: a publisher for some requests, and then another."""
        session = connection.session()
        publishers: dict[str, gapless.Publisher] = {}
        for _ in range(self._random.randrange(1, 20)):
            first, end = self._take(self._random.randrange(1, 10))
            numbers = {number: self._made(number) for number in range(first, end)}
            pieces = groupby(numbers.items(), key=lambda item: family_of(item[1].topic))
            for family, piece in pieces:
                if family not in publishers:
                    publishers[family] = session.publisher(f"{family}.any")
                part = dict(piece)
                if await self._answered(list(part), _each(publishers[family], part.values())):
                    session.abandon()
                    return
            await self._pause((end - first) / self._source.rate)
        await session.close()

    async def _keyed(self, connection: gapless.Connection) -> None:
        """Publishes each batch until it is logged, and some of them once more."""
        first, end = self._open or self._take(self._random.randrange(1, BURST_MOST))
        self._open = None
        messages = [_message(self._made(number)) for number in range(first, end)]
        topic = f"{self._source.family}.any"
        for _ in range(1 if self._random.random() < 0.8 else 2):
            receipt = await connection.publish(self._source.name, 0, first, messages, topic=topic)
            if receipt.published + receipt.duplicates != end - first:
                self._journal.note("error", what="a keyed receipt of too few", error=repr(receipt))
            numbers = list(range(end - receipt.published, end))
            self._note_receipts(list(range(first, end - receipt.published)), receipt.pubend, None)
            self._note_receipts(numbers, receipt.pubend, list(receipt.ticks))
        await self._pause((end - first) / self._source.rate)

    # Pieces of them.

    async def _bursts(self, publisher: gapless.Publisher, seconds: float) -> None:
        """Publishes for some time, in all the ways that a publisher has, or until that fails."""
        clock = asyncio.get_running_loop().time
        until = clock() + seconds
        while clock() < until and not self._ending.is_set():
            first, end = self._take(self._random.randrange(1, BURST_MOST))
            messages = [_message(self._made(number)) for number in range(first, end)]
            way = self._random.choice((_each, _batch, _all))
            if await self._answered(list(range(first, end)), way(publisher, messages)):
                return
            await self._pause((end - first) / self._source.rate)

    def _take(self, count: int) -> tuple[int, int]:
        """The numbers of some events, which are as good as sent from now on."""
        first, self._next = self._next, self._next + count
        self._journal.note("sent", publisher=self._source.name, instance=self._instance, first=first, end=self._next)
        return first, self._next

    async def _answered(self, numbers: Sequence[int], sending: Any) -> bool:
        """Writes down what became of events that are sent. Returns whether the publisher is over."""
        answers: list[gapless.Receipt | BaseException] = await sending
        receipts = [(number, answer) for number, answer in zip(numbers, answers, strict=True)]
        over = False
        good = [(number, answer) for number, answer in receipts if isinstance(answer, gapless.Receipt)]
        for pubend, piece in groupby(good, key=lambda pair: pair[1].pubend):
            part = list(piece)
            self._note_receipts([number for number, _ in part], pubend, [receipt.tick for _, receipt in part])
        for number, answer in receipts:
            if isinstance(answer, gapless.Receipt):
                continue
            over = True
            if isinstance(answer, gapless.PublishRejectedError):
                self._journal.note("rejected", publisher=self._source.name, number=number, why=type(answer).__name__)
                if not (isinstance(answer, gapless.PublisherFencedError) and self._source.kind == "rival"):
                    self._journal.note("error", what="publishing", error=repr(answer))
            elif not isinstance(answer, (gapless.PublishUncertainError, gapless.ConnectionClosedError)):
                self._journal.note("error", what="publishing", error=repr(answer))
        return over

    def _note_receipts(self, numbers: list[int], pubend: str, ticks: list[int] | None) -> None:
        if numbers:
            self._journal.note("receipt", publisher=self._source.name, numbers=numbers, pubend=pubend, ticks=ticks)

    def _made(self, number: int) -> Made:
        return event_of(self._seed, self._source.name, number)

    async def _pause(self, seconds: float) -> None:
        """Waits; not when it is to end."""
        waiting = asyncio.ensure_future(self._ending.wait())
        await asyncio.wait([waiting], timeout=seconds * self._random.uniform(0.5, 1.5))
        waiting.cancel()


async def _each(publisher: gapless.Publisher, messages: Iterable[Any]) -> list[gapless.Receipt | BaseException]:
    """Sends them one by one, and waits for all together."""
    sending = [
        publisher.send(
            message.body,
            message.properties,
            topic=message.topic,
            priority=message.priority,
            type=message.type,
            correlation_id=message.correlation_id,
            reply_to=message.reply_to,
        )
        for message in messages
    ]
    return await asyncio.gather(*sending, return_exceptions=True)


async def _batch(
    publisher: gapless.Publisher, messages: list[gapless.Message]
) -> list[gapless.Receipt | BaseException]:
    """Sends them as one atomic batch."""
    try:
        return list(await publisher.send_batch(messages))
    except gapless.GaplessError as error:
        return [error] * len(messages)


async def _all(publisher: gapless.Publisher, messages: list[gapless.Message]) -> list[gapless.Receipt | BaseException]:
    """Sends them through the pipeline."""
    receipts: list[gapless.Receipt | BaseException] = []
    try:
        async for receipt in publisher.send_all(messages):
            receipts.append(receipt)  # noqa: PERF401 - those that came before an error count
    except gapless.PublisherFencedError as error:
        # Of what comes behind the first that failed the pipeline says nothing: it may be logged.
        uncertain = gapless.PublishUncertainError("behind one that was refused")
        receipts += [error, *[uncertain] * len(messages)]
    except gapless.GaplessError as error:
        receipts += [error] * len(messages)
    return receipts[: len(messages)]


def _message(made: Made) -> gapless.Message:
    assert len(made.body) < 2 * EVENT_BYTES_MOST
    return gapless.Message(
        made.body,
        made.properties,
        made.topic,
        made.priority,
        correlation_id=made.correlation_id,
        reply_to=made.reply_to,
        type=made.type,
    )
