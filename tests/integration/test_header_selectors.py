"""A selector selects the same of the same events, whichever way they come: 10⁵ pairs of both, for each way.

Live, catching up by what the broker recorded, catching up on what it has no record of, by ranges, and from an archive
when the log has forgotten them. What is right, two who know nothing of each other say: `Selector.matches`, and what was
written beside the selector when it was drawn.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

import gapless
from gapless_spark.pipelines.archive_reader import Archive
from integration.header_selectors import HEADERS, Meaning, Sent, message, selector
from integration.nodes_in_process import running_node
from integration.plain_archive import PlainArchive
from integration.test_release import until_lost

SELECTORS = 250
EVENTS = 400
AT_ONCE = 50
"""So many subscriptions are read at the same time."""

pytestmark = pytest.mark.timeout(240)

EARLY: dict[str, Any] = {"phb": {"pubends": [{"name": "default", "max_retain_seconds": 5.0}]}}
FROM_THE_LOG: dict[str, Any] = {"shb": {"catchup_bytes": 0}}
IMPRECISE: dict[str, Any] = {"shb": {"pfs": "imprecise", "catchup_bytes": 0}}


@dataclass
class World:
    """A broker, selectors, and what was published."""

    connection: gapless.Connection
    selectors: Sequence[tuple[str, Meaning]]
    random: Random
    sent: list[Sent]
    url: str

    async def publish(self) -> None:
        """All events, in batches of all sizes."""
        async with self.connection.session() as session:
            publisher = session.publisher("t")
            while len(self.sent) < EVENTS:
                size = min(self.random.choice((1, 2, 17, 60)), EVENTS - len(self.sent))
                messages = [message(self.random, len(self.sent) + place) for place in range(size)]
                receipts = await publisher.send_batch(messages)
                self.sent += map(Sent, messages, receipts)

    async def each(self, read: Callable[[int, str], Awaitable[Sequence[gapless.Event]]]) -> None:
        """Reads under every selector, and compares."""
        wrong: list[str] = []
        for first in range(0, SELECTORS, AT_ONCE):
            numbers = range(first, min(first + AT_ONCE, SELECTORS))
            found = await asyncio.gather(*(read(number, self.selectors[number][0]) for number in numbers))
            for number, events in zip(numbers, found, strict=True):
                wrong += self.differences(number, events)

        assert wrong == []

    def differences(self, number: int, events: Sequence[gapless.Event]) -> list[str]:
        """What a selector has selected, and should not have; or the other way round."""
        expression, meaning = self.selectors[number]
        compiled = gapless.Selector(expression)
        right = [place for place, sent in enumerate(self.sent) if meaning(sent.fields()) is True]
        same = [
            place
            for place, sent in enumerate(self.sent)
            if compiled.matches({k: v for k, v in sent.message.properties.items() if v is not None}, sent.headers())
        ]
        assert same == right, expression
        for event in events:
            assert dict(event.headers) == self.sent[int(event.body)].headers(), "an application sees what it selects by"
            assert compiled.matches(event.properties, event.headers), expression
        found = [int(event.body) for event in events]
        return [] if found == right else [f"{expression}: {found[:9]} in place of {right[:9]}"]

    async def until_last(self, subscription: Any) -> list[gapless.Event]:
        """All that a subscription gives up to the last event published, which it may not select."""
        last = self.sent[-1].receipt
        events: list[gapless.Event] = []
        async for item in subscription:
            if isinstance(item, gapless.Event):
                events.append(item)
            if subscription.token.ticks.get(last.pubend, 0) >= last.tick:
                break
        return events


@asynccontextmanager
async def world(tmp_path: Path, seed: int, **sections: Any) -> AsyncIterator[World]:
    random = Random(seed)
    now = time.time_ns() // 1_000_000
    drawn = [selector(random, now) for _ in range(SELECTORS)]
    async with running_node(tmp_path / "volume", **sections) as node:
        async with gapless.connect(node.url, client_id="c") as connection:
            yield World(connection, drawn, random, [], node.url)


@pytest.fixture(params=["plain", "from the log", "imprecise"])
async def here(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    """A broker as it is by default, one that keeps nothing in memory, and one whose PFS says less."""
    sections = {"plain": {}, "from the log": FROM_THE_LOG, "imprecise": IMPRECISE}[request.param]
    async with world(tmp_path, 1, **sections) as made:
        yield made


async def test_live(tmp_path: Path) -> None:
    async with world(tmp_path, 2) as here, here.connection.session() as session:
        live = [
            await session.subscribe("t", name=f"s{number}" if number % 2 else None, selector=text, silence=True)
            for number, (text, _) in enumerate(here.selectors)
        ]
        await here.publish()

        await here.each(lambda number, _: here.until_last(live[number]))


async def test_catching_up_by_what_was_recorded(here: World) -> None:
    async with here.connection.session() as session:
        for number, (text, _) in enumerate(here.selectors):
            async with session.subscribe("t", name=f"s{number}", selector=text):
                pass
        await here.publish()

        async def read(number: int, text: str) -> list[gapless.Event]:
            async with session.subscribe("t", name=f"s{number}", selector=text, silence=True) as subscription:
                return await here.until_last(subscription)

        await here.each(read)


async def test_catching_up_on_what_was_published_before(here: World) -> None:
    async with here.connection.session() as session:
        await here.publish()

        async def read(number: int, text: str) -> list[gapless.Event]:
            name = f"s{number}" if number % 2 else None
            async with session.subscribe("t", name=name, selector=text, silence=True, start="earliest") as subscription:
                return await here.until_last(subscription)

        await here.each(read)


@pytest.mark.parametrize("before", [True, False], ids=["attached before", "attached after"])
async def test_by_ranges(here: World, before: bool) -> None:
    """The one by what was recorded, the other on what the broker has no record of."""
    connection = here.connection
    starts: dict[int, gapless.CheckpointToken] = {}
    for number, (text, _) in enumerate(here.selectors if before else ()):
        starts[number] = await connection.attach(f"s{number}", "t", selector=text)
    await here.publish()
    last = here.sent[-1].receipt

    async def read(number: int, text: str) -> list[gapless.Event]:
        name = f"s{number}"
        start = starts.get(number) or await connection.attach(name, "t", selector=text, start="earliest")
        async with connection.read_range(name, last.pubend, start.ticks[last.pubend], last.tick) as reader:
            return [event async for event in reader]

    await here.each(read)


async def test_from_an_archive(tmp_path: Path) -> None:
    """Everybody was away until the log had forgotten everything."""
    async with world(tmp_path, 3, **EARLY, **FROM_THE_LOG) as here:
        archive = PlainArchive(tmp_path / "archive", here.connection, "archive")
        await archive.begin("#")
        tokens: list[gapless.CheckpointToken] = []
        async with here.connection.session() as session:
            for number, (text, _) in enumerate(here.selectors):
                async with session.subscribe("t", name=f"s{number}", selector=text) as subscription:
                    tokens.append(subscription.token)
        await here.publish()
        await archive.batch()
        await until_lost(here.connection, here.sent[-1].receipt.tick)
        async with gapless.connect(here.url, client_id="c", archive=Archive(tmp_path / "archive")) as healed:
            async with healed.session() as session:

                async def read(number: int, text: str) -> list[gapless.Event]:
                    wanted = session.subscribe(
                        "t", name=f"s{number}", selector=text, silence=True, start=tokens[number]
                    )
                    async with wanted as subscription:
                        return await here.until_last(subscription)

                await here.each(read)


def test_the_selectors_ask_for_every_header_field_and_are_neither_all_nor_nothing() -> None:
    random = Random(1)
    texts = " ".join(selector(random, 1)[0] for _ in range(SELECTORS))

    assert SELECTORS * EVENTS >= 100_000
    assert [name for name in HEADERS if texts.count(name) < 20] == []
