"""Transforms by real processes: whatever is killed or stands still, the output log is f(input), each once (J3)."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

import gapless
from integration.broker_process import BrokerProcess
from integration.transform_process import INPUT, OUTPUT, outputs

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="it needs POSIX signals")

PROGRAM = Path(__file__).with_name("transform_process.py")
KILLS = 9
INPUTS = 3_000


@asynccontextmanager
async def transforming(url: str) -> AsyncIterator[Process]:
    """A process that has its input."""
    process = await asyncio.create_subprocess_exec(sys.executable, str(PROGRAM), url, stdout=PIPE)
    try:
        assert await line(process) == "ready"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def line(process: Process) -> str:
    """The next line that it prints; "" if it ends."""
    assert process.stdout is not None
    return (await asyncio.wait_for(process.stdout.readline(), 30)).decode().strip()


async def publish(url: str, upto: int) -> None:
    """The inputs, a few at a time, for as long as that takes."""
    async with gapless.connect(url) as connection, connection.session() as session:
        publisher = session.publisher(INPUT, name="numbers")
        for start in range(0, upto, 20):
            await publisher.send_batch([gapless.Message(b"%d" % number) for number in range(start, start + 20)])
            await asyncio.sleep(0.01)


async def logged(url: str, count: int) -> list[bytes]:
    """The output log, as far as it is known how long it should be; and a little longer, if it is too long."""
    found: list[bytes] = []
    async with gapless.connect(url) as connection, connection.session() as session:
        async with session.subscribe(OUTPUT, name="reader", start="earliest") as subscription:
            async for event in subscription:
                found.append(event.body)
                if len(found) == count:
                    break
        expected = (await session.publisher(OUTPUT, name="enrich").recover()).sequence
    assert len(found) == expected, "there are more outputs than there should be"
    return found


def expected() -> list[bytes]:
    return [body for number in range(INPUTS) for body in outputs(number)]


@pytest.mark.timeout(120)
async def test_the_output_log_is_f_of_the_input_whatever_is_killed(tmp_path: Path) -> None:
    """Application and broker by turns, and both at once, with kill -9 in the middle of their work."""
    random, wanted = Random(19), expected()
    async with BrokerProcess(tmp_path) as broker:
        publishing = asyncio.ensure_future(publish(broker.url, INPUTS))
        for number in range(KILLS):
            async with transforming(broker.url) as process:
                for _ in range(random.randint(1, 9)):
                    await line(process)
                victim = ("application", "broker", "both")[number % 3]
                if victim != "application":
                    await broker.kill()
                if victim != "broker":
                    process.kill()
                if victim != "application":
                    await broker.start()
                if victim == "broker":
                    await line(process)
        async with transforming(broker.url):
            await publishing
            found = await asyncio.wait_for(logged(broker.url, len(wanted)), 60)

    assert found == wanted


@pytest.mark.timeout(120)
async def test_a_twin_that_was_stopped_is_fenced_when_it_wakes(tmp_path: Path) -> None:
    async with BrokerProcess(tmp_path) as broker, transforming(broker.url) as old:
        publishing = asyncio.ensure_future(publish(broker.url, INPUTS))
        for _ in range(5):
            assert await line(old)
        old.send_signal(signal.SIGSTOP)
        async with transforming(broker.url) as new:
            for _ in range(5):
                assert await line(new)
            old.send_signal(signal.SIGCONT)
            while (said := await line(old)) != "fenced":
                assert said
            await publishing
            found = await asyncio.wait_for(logged(broker.url, len(expected())), 60)

    assert found == expected()
