"""A subscriber that was away beyond early release ends with exactly the events it would have had."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from random import Random
from typing import Any

import pytest

import gapless
from documents import ROOT, code_blocks
from gapless_flights.data import made_up_flights, properties_of, topic_of
from gapless_spark.pipelines.archive_reader import Archive
from gapless_spark.pipelines.compaction import compact
from integration.broker_process import BrokerProcess, clean_environment
from integration.nodes_in_process import running_node
from integration.plain_archive import PlainArchive
from integration.spark_kit import require_spark
from integration.test_release import until_lost

pytestmark = pytest.mark.timeout(120)

EARLY: dict[str, Any] = {
    "phb": {"pubends": [{"name": "default", "max_retain_seconds": 4.0}]},
    "shb": {"catchup_bytes": 0},  # else it has in memory what its PHB has given up, and nothing is missing
}
SELECTOR = "grade = 'a' AND n <> 9"


def message(n: int) -> gapless.Message:
    """One of many that differ in everything that a message can have."""
    random = Random(n)
    return gapless.Message(
        random.randbytes(random.choice((0, 10, 3000))),
        {"n": n, "grade": random.choice("ab"), "flag": random.random() < 0.5, "x": n / 7, "text": "é" * (n % 5)},
        topic=random.choice(("t.a", "t.b", "u")),
        priority=random.randrange(10),
        expiration=datetime(2040, 1, 1, tzinfo=timezone.utc) + timedelta(days=n) if n % 3 == 0 else None,
        correlation_id=f"c{n}" if n % 4 == 0 else None,
        type="reading" if n % 5 == 0 else None,
    )


def number(event: gapless.Event) -> int:
    """Which of them an event is."""
    return int(event.properties["n"])


def selected(numbers: range) -> list[int]:
    """Of these, what `t.#` and SELECTOR select: a plain computation."""
    chosen = [(n, message(n)) for n in numbers]
    return [n for n, each in chosen if each.topic != "u" and each.properties["grade"] == "a" and n != 9]


@dataclass
class World:
    """A broker, an archive, and subscribers that are away while what they miss is released early."""

    url: str
    connection: gapless.Connection
    path: Path
    tokens: dict[str, gapless.CheckpointToken] = field(default_factory=dict)
    here: list[gapless.Event] = field(default_factory=list)
    """What a subscriber had that was there all the time."""
    receipts: list[gapless.Receipt] = field(default_factory=list)

    @property
    def archive(self) -> Archive:
        return Archive(self.path)

    async def leave(self, *names: str) -> None:
        """They come and go."""
        async with self.connection.session() as session:
            for name in names:
                async with session.subscribe("t.#", name=name, selector=SELECTOR) as subscription:
                    self.tokens[name] = subscription.token

    async def publish(self, numbers: range) -> None:
        """Publishes, and has it consumed by the subscriber that is there."""
        async with self.connection.session() as session:
            publisher = session.publisher(name="all")
            for n in numbers:
                self.receipts += await publisher.send_batch([message(n)])
            wanted = len(self.here) + len(selected(numbers))
            async with session.subscribe("t.#", name="here", selector=SELECTOR) as subscription:
                async for event in subscription:
                    self.here.append(event)
                    await subscription.acknowledge()
                    if len(self.here) == wanted:
                        break

    async def until_gone(self) -> None:
        """All that was published is released early."""
        await until_lost(self.connection, self.receipts[-1].tick)


@asynccontextmanager
async def world(directory: Path, *names: str) -> AsyncIterator[World]:
    async with running_node(directory / "volume", **EARLY) as node, gapless.connect(node.url) as connection:
        made = World(node.url, connection, directory / "archive")
        await made.leave("here", *names)
        yield made


async def consumed(world: World, name: str, count: int, **options: Any) -> list[Any]:
    """What a subscriber gets that comes back with its token, and has the archive."""
    async with gapless.connect(world.url, archive=world.archive) as connection, connection.session() as session:
        wanted = session.subscribe("t.#", name=name, selector=SELECTOR, start=world.tokens[name], **options)
        found: list[Any] = []
        async with wanted as subscription:
            async for item in subscription:
                found.append(item)
                if sum(isinstance(each, gapless.Event) for each in found) == count:
                    return found
        return found


async def consumed_in_batches(world: World, name: str, count: int) -> list[gapless.Event]:
    async with gapless.connect(world.url, archive=world.archive) as connection, connection.session() as session:
        wanted = session.subscribe("t.#", name=name, selector=SELECTOR, start=world.tokens[name])
        found: list[gapless.Event] = []
        async with wanted as subscription:
            async for batch in subscription.batches(max_events=17, max_wait=0.05):
                found += batch
                assert batch.token.ticks[batch.pubend] >= found[-1].tick
                if len(found) >= count:
                    return found
        return found


def consumed_blocking(world: World, name: str, count: int) -> list[gapless.Event]:
    with gapless.sync.connect(world.url, archive=world.archive) as connection, connection.session() as session:
        with session.subscribe("t.#", name=name, selector=SELECTOR, start=world.tokens[name]) as subscription:
            return [next(subscription) for _ in range(count)]


async def consumed_in_many_lives(world: World, name: str, count: int) -> list[gapless.Event]:
    """An application that stores what it consumed with its token, and is killed now and then."""
    random = Random(3)
    found: list[gapless.Event] = []
    token = world.tokens[name]
    while len(found) < count:
        async with gapless.connect(world.url, archive=world.archive) as connection, connection.session() as session:
            async with session.subscribe("t.#", name=name, selector=SELECTOR, start=token) as subscription:
                for _ in range(min(random.randrange(1, 40), count - len(found))):
                    found.append(await anext(subscription))
                    token = subscription.token
                if random.random() < 0.5:
                    await subscription.acknowledge(token)
    return found


async def test_whoever_was_away_has_what_it_would_have_had(tmp_path: Path) -> None:
    """By every way of consuming; the archive is of four batches, some of them compacted."""
    names = ("events", "batches", "blocking", "lives", "printed")
    async with world(tmp_path, *names) as here:
        archive = PlainArchive(here.path, here.connection, "archive")
        await archive.begin("#")
        for numbers in (range(150), range(150, 170), range(170, 330)):
            await here.publish(numbers)
            await archive.batch()
        await here.until_gone()
        compact(here.path)
        named = await look_and_print(here, "printed", selected(range(330)))
        await heal_to_a_topic(here, "printed", named, selected(range(330)))

        await here.publish(range(330, 400))
        await archive.batch()  # they may be forgotten before the last subscriber has come for them
        expected = selected(range(400))
        assert [number(event) for event in here.here] == expected, "it selects what it should"
        count = len(expected)
        assert await consumed(here, "events", count) == here.here
        assert await consumed_in_batches(here, "batches", count) == here.here
        assert await asyncio.to_thread(consumed_blocking, here, "blocking", count) == here.here
        assert await consumed_in_many_lives(here, "lives", count) == here.here


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Runs `heal`, as `gapless pipeline heal` would."""
    program = (
        "import typer; from gapless.cli.app import Commands; from gapless_spark.pipelines.heal_command import heal;"
        "app = typer.Typer(cls=Commands); app.command()(heal); app.callback()(lambda: None); app()"
    )
    return subprocess.run(
        [sys.executable, "-c", program, "heal", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env=clean_environment(),
        timeout=60,
    )


async def look_and_print(here: World, name: str, missed: list[int]) -> list[str]:
    """The gaps of whoever comes back without an archive, as lines of what was missed. Returns how to name them."""
    looked = await asyncio.to_thread(command, here.path, name, "--url", here.url, "--json")
    assert looked.returncode == 0, looked.stderr
    [row] = json.loads(looked.stdout)
    assert (row["covered"], row["events"]) == (True, len(missed))

    gaps: list[gapless.Gap] = []
    async with gapless.connect(here.url) as connection, connection.session() as session:
        async with session.subscribe("t.#", name=name, selector=SELECTOR, on_gap="deliver") as subscription:
            while not gaps or gaps[-1].end < here.here[-1].tick:
                gap = await anext(subscription)
                assert isinstance(gap, gapless.Gap), "nothing of it is left"
                gaps.append(gap)
    assert row["start"] <= gaps[0].start
    assert gaps[-1].end <= row["end"]
    named = [text for gap in gaps for text in ("--gap", f"{gap.pubend}:{gap.start}:{gap.end}")]
    printed = await asyncio.to_thread(command, here.path, name, "--url", here.url, *named, "--events")
    assert printed.returncode == 0, printed.stderr
    lines = [json.loads(line) for line in printed.stdout.splitlines()]
    assert [line["properties"]["n"] for line in lines] == missed
    assert [line["tick"] for line in lines] == [event.tick for event in here.here]
    return named


async def heal_to_a_topic(here: World, name: str, named: list[str], missed: list[int]) -> None:
    """Published once, however often."""
    async with here.connection.session() as session, session.subscribe("lost") as subscription:
        for new, old in ((len(missed), 0), (0, len(missed))):
            arguments = (here.path, name, "--url", here.url, *named, "--to", "lost", "--json")
            done = await asyncio.to_thread(command, *arguments)
            assert done.returncode == 0, done.stderr
            assert json.loads(done.stdout) == {"topic": "lost", "published": new, "duplicates": old, "gaps": []}
        publisher = session.publisher("lost")
        await publisher.send(b"the end")
        found = [await anext(subscription) for _ in range(len(missed) + 1)]
    assert found.pop().body == b"the end"
    assert [number(event) for event in found] == missed
    assert [(event.body, event.extras) for event in found] == [(event.body, event.extras) for event in here.here]


@pytest.mark.long
async def test_what_was_not_archived_stays_a_gap_between_the_events(tmp_path: Path) -> None:
    """The archive was away, too, and met a gap of its own: it says so."""
    async with world(tmp_path, "away") as here:
        archive = PlainArchive(here.path, here.connection, "archive")
        await archive.begin("t.#")
        await here.publish(range(60))
        await archive.batch()
        await here.publish(range(60, 120))
        await here.until_gone()
        await here.publish(range(120, 180))
        manifest = await archive.batch()
        assert manifest.gaps
        await here.until_gone()
        await here.publish(range(180, 200))
        await archive.batch()  # they may be forgotten before the subscriber has come for them

        expected = [event for event in here.here if number(event) not in range(60, 120)]
        found = await consumed(here, "away", len(expected), on_gap="deliver")
        lost = [event.tick for event in here.here if number(event) in range(60, 120)]
        gaps = [item for item in found if isinstance(item, gapless.Gap)]
        at = found.index(gaps[0])
        assert found[at : at + len(gaps)] == gaps
        assert found[:at] + found[at + len(gaps) :] == expected
        assert all(any(gap.start < tick <= gap.end for gap in gaps) for tick in lost)
        assert found[at - 1].tick <= gaps[0].start
        assert gaps[-1].end < found[at + len(gaps)].tick

        start = gapless.CheckpointToken(here.connection.network, here.tokens["away"].ticks)
        async with gapless.connect(here.url, archive=here.archive) as connection, connection.session() as session:
            async with session.subscribe("#", name="wider", start=start, on_gap="deliver") as subscription:
                assert isinstance(await anext(subscription), gapless.Gap), "an archive of t.# has not all of #"


def archived_by_spark(path: Path, url: str) -> None:
    """With the real pipeline, in a session that ends."""
    from pyspark.sql import SparkSession

    from gapless_spark.pipelines.archive import archive

    os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    try:
        archive(spark, path, url, subscription="archive", topics=["flights.#"], max_events=1500)
    finally:
        spark.stop()


@pytest.mark.timeout(300)  # a Java machine starts
@pytest.mark.filterwarnings("default")  # PySpark's own
async def test_an_archive_that_spark_has_written_heals(tmp_path: Path) -> None:
    """Flights, against what plain Python selects of them; the release policy comes when they are archived."""
    require_spark()
    flights = made_up_flights(4000, seed=8)
    messages = [gapless.Message(line.encode(), properties_of(line), topic_of(line)) for line in flights]
    selector = "dep_delay > 30 AND origin <> 'LGA'"
    known = [(line, properties_of(line)) for line in flights]
    expected = [line for line, each in known if int(each.get("dep_delay", 0)) > 30 and each["origin"] != "LGA"]
    async with BrokerProcess(tmp_path / "broker") as broker:
        async with gapless.connect(broker.url) as connection, connection.session() as session:
            async with session.subscribe("flights.#", name="away", selector=selector):
                pass
            last = [receipt async for receipt in session.publisher().send_all(messages)][-1]
        await asyncio.to_thread(archived_by_spark, tmp_path / "archive", broker.url)
        await broker.kill()
        broker.sections.update(EARLY)
        await broker.start()
        archive = Archive(tmp_path / "archive")
        async with gapless.connect(broker.url, archive=archive) as connection, connection.session() as session:
            await until_lost(connection, last.tick)
            async with session.subscribe("flights.#", name="away", selector=selector) as subscription:
                found = [(await anext(subscription)).body.decode() for _ in expected]
                assert last.tick <= (await connection.earliest("away")).ticks[last.pubend]
    assert found == expected


@pytest.mark.skipif(sys.platform == "win32", reason="the program's signal handler needs POSIX")
async def test_the_program_of_the_document_runs(tmp_path: Path) -> None:
    [program] = [
        block
        for block in code_blocks(ROOT / "docs" / "howto" / "heal-a-gap.md", "python")
        if block.file_name == "catch_up.py"
    ]
    (tmp_path / "catch_up.py").write_text(program.code, "utf-8")
    payments = [gapless.Message(b"", {"account": f"a{n}", "amount": 10 * n}) for n in range(30)]
    expected = [f"a{n} {10 * n}" for n in range(10, 30)]
    async with BrokerProcess(tmp_path / "broker", **EARLY) as broker:
        async with gapless.connect(broker.url, client_id="desk") as connection, connection.session() as session:
            async with session.subscribe("payments", name="large", selector="amount >= 100"):
                pass
            archive = PlainArchive(tmp_path / "archive", connection, "archive")
            await archive.begin("payments")
            receipts = await session.publisher("payments").send_batch(payments[:20])
            await archive.batch()
            await until_lost(connection, receipts[-1].tick)
            await session.publisher("payments").send_batch(payments[20:])
            await archive.batch()  # they may be forgotten before the program runs

        def run() -> list[str]:
            environment = clean_environment() | {"GAPLESS_URL": broker.url}
            line = [sys.executable, "catch_up.py"]
            with subprocess.Popen(line, cwd=tmp_path, stdout=subprocess.PIPE, text=True, env=environment) as process:
                assert process.stdout is not None
                try:
                    lines = [process.stdout.readline().strip() for _ in expected]
                    process.send_signal(signal.SIGINT)
                    lines += process.stdout.read().splitlines()
                except BaseException:
                    process.kill()
                    raise
            assert process.returncode == 0
            return lines

        assert await asyncio.to_thread(run) == expected
