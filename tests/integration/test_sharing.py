"""Shared subscriptions through the front door: workers, retries, lost links, killed consumers and brokers (J5, J10)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pytest

import gapless
from integration.broker_process import PATIENCE, BrokerProcess, bounded, until

pytestmark = [pytest.mark.timeout(180)]

posix = pytest.mark.skipif(sys.platform == "win32", reason="it needs POSIX signals")
WORKER = Path(__file__).parent / "sharing_worker.py"


KILLS = {"consumer": 3, "broker": 2, "both": 1}
"""How often each is killed. Where both are, nobody gets what may have been in hand for 15 s."""
TASKS = 4
"""Of each worker."""


async def publish(connection: gapless.Connection, numbers: range) -> None:
    """Events with these numbers as their bodies."""
    async with connection.session() as session:
        publisher = session.publisher("jobs")
        await publisher.send_batch([gapless.Message(b"%d" % number) for number in numbers])


async def all_is_settled(connection: gapless.Connection) -> None:
    """Waits until nothing is left of the only subscription."""
    for _ in range(int(PATIENCE * 20)):
        [info] = await connection.subscriptions()
        if not info.lag_events:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"{info.lag_events} events are not settled")


# In this process.


async def test_workers_share_the_work_and_retry(tmp_path: Path) -> None:
    count = 400
    handed: dict[int, list[int]] = defaultdict(list)
    acknowledged: Counter[int] = Counter()
    url = f"embedded:{tmp_path / 'volume'}"

    async def work(jobs: Any) -> None:
        async for job in jobs:
            number = int(job.body)
            handed[number].append(job.delivery_count)
            if number % 20 == 3 and job.delivery_count < 3:
                await jobs.retry(job, delay=0.01)
            else:
                await jobs.acknowledge(job)
                acknowledged[number] += 1

    async with gapless.connect(url) as first, gapless.connect(url) as second:
        async with contextlib.AsyncExitStack() as stack:
            shared = []
            for connection in (first, second):
                session = await stack.enter_async_context(connection.session())
                shared.append(
                    await stack.enter_async_context(session.subscribe("jobs", name="workers", shared=True, window=64))
                )
            tasks = [asyncio.create_task(work(jobs)) for jobs in shared for _ in range(4)]
            await publish(first, range(count))
            await until(lambda: len(acknowledged) == count, "all events are acknowledged")
            first.drain()
            second.drain()
            await asyncio.gather(*tasks)
        async with first.session() as session, session.subscribe("jobs", name="workers", shared=True) as jobs:
            await publish(first, range(count, count + 1))
            last = await bounded(anext(aiter(jobs)))
            await jobs.acknowledge(last)

    assert int(last.body) == count, "nothing that was acknowledged comes again"
    assert set(acknowledged.values()) == {1}
    assert {number: counts for number, counts in handed.items() if counts != [1]} == {
        number: [1, 2, 3] for number in range(3, count, 20)
    }


def test_threads_share_the_work_in_batches(tmp_path: Path) -> None:
    count = 600
    numbers: list[int] = []
    lock = threading.Lock()

    def work(jobs: gapless.sync.SharedSubscription[gapless.HeldEvent, NoReturn]) -> None:
        for batch in jobs.batches(max_events=32):
            jobs.acknowledge(batch)
            with lock:
                numbers.extend(map(int, batch.bodies))
                if len(numbers) == count:
                    jobs.drain()

    with gapless.sync.connect(f"embedded:{tmp_path / 'volume'}") as connection, connection.session() as session:
        with session.subscribe("jobs", name="workers", shared=True) as jobs:
            publisher = session.publisher("jobs")
            publisher.send_batch([gapless.Message(b"%d" % number) for number in range(count)])
            with ThreadPoolExecutor(3) as pool:
                for done in [pool.submit(work, jobs) for _ in range(3)]:
                    done.result(PATIENCE)
        with session.subscribe("jobs", name="workers", shared=True) as jobs:
            assert jobs.receive(timeout=0.2) is None

    assert sorted(numbers) == list(range(count))


async def test_auto_settles_by_itself(tmp_path: Path) -> None:
    async with gapless.connect(f"embedded:{tmp_path / 'volume'}") as connection:
        await publish(connection, range(0))
        async with connection.session(gapless.AckMode.AUTO) as session:
            async with session.subscribe("jobs", name="workers", shared=True) as jobs:
                await publish(connection, range(20))
                found = []
                async for job in jobs:
                    found.append(int(job.body))
                    if len(found) == 20:
                        jobs.drain()
            async with session.subscribe("jobs", name="workers", shared=True) as jobs:
                await publish(connection, range(20, 21))
                last = await bounded(anext(aiter(jobs)))

    assert sorted(found) == list(range(20))
    assert (int(last.body), last.redelivered) == (20, False)


async def test_what_nobody_refers_to_comes_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with gapless.connect(f"embedded:{tmp_path / 'volume'}") as connection, connection.session() as session:
        async with session.subscribe("jobs", name="workers", shared=True) as jobs:
            await publish(connection, range(1))
            worker = aiter(jobs)
            name = (await bounded(anext(worker))).message_id
            again = await bounded(anext(worker))
            assert (again.message_id, again.delivery_count) == (name, 2)
            await jobs.acknowledge(again)

    assert name in caplog.text


async def test_a_name_is_shared_or_it_is_not(tmp_path: Path) -> None:
    async with gapless.connect(f"embedded:{tmp_path / 'volume'}") as connection, connection.session() as session:
        async with session.subscribe("jobs", name="shared", shared=True), session.subscribe("jobs", name="plain"):
            pass
        with pytest.raises(gapless.SubscriptionMismatchError):
            await session.subscribe("jobs", name="shared")
        with pytest.raises(gapless.SubscriptionMismatchError):
            await session.subscribe("jobs", name="plain", shared=True)
        jobs = await session.subscribe("jobs", name="shared", shared=True)
        await connection.unsubscribe("shared")
        with pytest.raises(gapless.SubscriptionNotFoundError):
            await bounded(anext(aiter(jobs)))


# Real processes.


@posix
async def test_the_time_of_a_hold_may_end(tmp_path: Path) -> None:
    async with (
        BrokerProcess(tmp_path) as broker,
        gapless.connect(broker.url) as slow,
        gapless.connect(broker.url) as fast,
    ):
        async with slow.session() as first, fast.session() as second:
            options: dict[str, Any] = {"name": "workers", "shared": True, "hold_seconds": 0.5}
            async with first.subscribe("jobs", **options) as mine:
                await publish(slow, range(1))
                held = await bounded(anext(aiter(mine)))
                for _ in range(4):
                    await asyncio.sleep(0.2)
                    await mine.extend(held)
                mine.drain()  # else it may be handed it again
                async with second.subscribe("jobs", **options) as theirs:
                    again = await bounded(anext(aiter(theirs)))
                    assert (again.message_id, again.redelivered) == (held.message_id, True)
                    with pytest.raises(gapless.HoldLostError) as raised:
                        await mine.acknowledge(held)
                    assert raised.value.events == (held,)
                    await theirs.acknowledge(again)


@posix
@pytest.mark.parametrize("way", ["killed", "stopped"])
async def test_work_goes_on_when_the_broker_is_back(tmp_path: Path, way: str) -> None:
    """Nobody else was handed what a consumer holds: what it says of it counts, and what it is handed is not marked."""
    async with BrokerProcess(tmp_path) as broker, gapless.connect(broker.url) as connection:
        async with connection.session() as session, session.subscribe("jobs", name="workers", shared=True) as jobs:
            await publish(connection, range(100))
            worker = aiter(jobs)
            held = [await bounded(anext(worker)) for _ in range(10)]
            await jobs.acknowledge(held[:3])
            if way == "killed":
                await broker.kill()
            else:
                await broker.stop()
            task = asyncio.create_task(jobs.acknowledge(held[3:6]))
            await asyncio.sleep(0.1)
            await broker.start()
            await bounded(task)
            numbers = [int(event.body) for event in held[:6]]
            rest = held[6:]
            while len(numbers) < 100:
                for event in rest:
                    assert not event.redelivered
                    numbers.append(int(event.body))
                await jobs.acknowledge(rest)
                rest = [await bounded(anext(worker), 10)] if len(numbers) < 100 else []
            assert numbers == list(range(100))


class Workers:
    """Processes that share the work, and what they have said."""

    def __init__(self, directory: Path, url: str) -> None:
        self.url = url
        self.directory = directory
        self.running: list[asyncio.subprocess.Process] = []
        self._count = 0

    async def start(self) -> None:
        """One more."""
        self._count += 1
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(WORKER), self.url, str(self.directory / f"{self._count}.ledger"), str(TASKS)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        assert await bounded(process.stdout.readline()) == b"ready\n"
        self.running.append(process)

    async def kill(self) -> None:
        """The one that runs for the longest time."""
        process = self.running.pop(0)
        os.kill(process.pid, signal.SIGKILL)
        await process.wait()

    async def end(self) -> list[int]:
        """All of them, in order; how they have ended."""
        for process in self.running:
            assert process.stdin is not None
            process.stdin.close()
        return [await bounded(process.wait()) for process in self.running]

    def have_done(self, enough: int) -> bool:
        """Whether so many events are acknowledged."""
        return len(self.numbers("acknowledged")) >= enough

    def said(self) -> list[list[str]]:
        """Everything that was said, process by process."""
        ledgers = sorted(self.directory.glob("*.ledger"))
        return [line.split() for ledger in ledgers for line in ledger.read_text("ascii").splitlines()]

    def numbers(self, what: str) -> Counter[int]:
        """How often this was said of each number."""
        return Counter(int(line[0]) for line in self.said() if line[1] == what)


@contextlib.asynccontextmanager
async def workers_of(directory: Path, url: str, count: int) -> AsyncIterator[Workers]:
    """So many workers; those that still run are killed at the end."""
    workers = Workers(directory, url)
    try:
        for _ in range(count):
            await workers.start()
        yield workers
    finally:
        for _ in workers.running[:]:
            with contextlib.suppress(ProcessLookupError):
                await workers.kill()


@posix
@pytest.mark.parametrize("victim", KILLS)
async def test_whoever_is_killed_every_event_is_acknowledged_once(tmp_path: Path, victim: str) -> None:
    """Nothing comes again after `acknowledge` has returned, nothing is lost, and what comes again is marked."""
    count, chance = 200 * KILLS[victim], random.Random(victim)
    async with BrokerProcess(tmp_path) as broker, workers_of(tmp_path, broker.url, 3) as workers:
        async with gapless.connect(broker.url) as connection:
            for portion in range(KILLS[victim]):
                enough = len(workers.numbers("acknowledged")) + chance.randrange(20, 100)
                await publish(connection, range(200 * portion, 200 * portion + 200))
                await until(partial(workers.have_done, enough), "some work")
                if victim != "broker":
                    await workers.kill()
                if victim != "consumer":
                    await broker.restart()
                if victim != "broker":
                    await workers.start()
            await all_is_settled(connection)
            assert await workers.end() == [0, 0, 0]
            async with connection.session() as session, session.subscribe("jobs", name="workers", shared=True) as jobs:
                await publish(connection, range(count, count + 1))
                last = await bounded(anext(aiter(jobs)))
                assert int(last.body) == count, "it comes again although it was acknowledged"
                await jobs.acknowledge(last)

    acknowledged = workers.numbers("acknowledged")
    assert set(acknowledged.values()) == {1}, "an event was acknowledged by two"
    unheard = set(range(count)) - set(acknowledged)
    assert len(unheard) <= (0 if victim == "broker" else KILLS[victim] * TASKS), (
        "whoever is killed has not heard of some"
    )
    assert unheard <= set(workers.numbers("handed"))
    handed: dict[int, list[int]] = defaultdict(list)
    for number, what, *more in workers.said():
        if what == "handed":
            handed[int(number)].append(int(more[0]))
    unmarked = {number: counts for number, counts in handed.items() if counts.count(1) > 1}
    assert unmarked == {}, "an event came again unmarked"
    again = {number for number, counts in handed.items() if len(counts) > 1}
    assert again >= set(workers.numbers("retried"))
