"""Programs that make outputs of inputs, each in a process of its own: stopped and killed, and what is in the log then.

Of the input `n` come so many outputs as `n * 7 % 3`. A program prints a line when it has its input, and whenever it is
done with some of it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import gapless
from integration.broker_process import BrokerProcess

INPUT, OUTPUT = "raw.numbers", "enriched"
PATIENCE = 60.0


def outputs(number: int) -> list[bytes]:
    """What is made of an input."""
    return [b"%d/%d" % (number, index) for index in range(number * 7 % 3)]


def say(text: str) -> None:
    """Prints a line at once, for a program."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


async def line(process: Process) -> str:
    """The next line that it prints; "" if it ends."""
    assert process.stdout is not None
    return (await asyncio.wait_for(process.stdout.readline(), PATIENCE)).decode().strip()


class Work:
    """A program, and so many inputs for it, published in portions."""

    def __init__(self, program: str, inputs: int, portion: int) -> None:
        self._program = Path(__file__).with_name(program)
        self._inputs = inputs
        self._portion = portion

    @asynccontextmanager
    async def running(self, url: str) -> AsyncIterator[Process]:
        """The program, which has its input; at the end it is killed."""
        environment = os.environ | {"PYTHONPATH": str(self._program.parents[1])}
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(self._program), url, stdout=PIPE, env=environment
        )
        try:
            assert await line(process) == "ready"
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def publish(self, url: str) -> None:
        """The inputs, for as long as that takes."""
        async with gapless.connect(url) as connection, connection.session() as session:
            publisher = session.publisher(INPUT, name="numbers")
            for start in range(0, self._inputs, self._portion):
                numbers = range(start, start + self._portion)
                await publisher.send_batch([gapless.Message(b"%d" % number) for number in numbers])
                await asyncio.sleep(0.01)

    async def under_kills(self, broker: BrokerProcess, kills: int, lines_max: int) -> None:
        """Application and broker are killed by turns, and both at once, in the middle of their work; then it is done.

        `lines_max`: after so many lines at most the next one dies.
        """
        random = Random(19)
        publishing = asyncio.ensure_future(self.publish(broker.url))
        for number in range(kills):
            async with self.running(broker.url) as process:
                for _ in range(random.randint(1, lines_max)):
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
        async with self.running(broker.url):
            await self.is_done(broker.url, publishing)

    async def is_done(self, url: str, publishing: asyncio.Future[None]) -> None:
        """Waits until all inputs are published; the log of outputs is as it should be, and nothing else is in it."""
        await publishing
        expected = [body for number in range(self._inputs) for body in outputs(number)]
        assert await asyncio.wait_for(_logged(url, len(expected)), PATIENCE) == expected


async def _logged(url: str, count: int) -> list[bytes]:
    """The output log, as soon as it is as long as it should be, and what else is in it by then."""
    found: list[bytes] = []
    async with gapless.connect(url) as connection, connection.session() as session:
        async with session.subscribe(OUTPUT, name="reader", start="earliest") as subscription:
            async for event in subscription:
                if event.body == b"end":
                    break
                found.append(event.body)
                if len(found) == count:
                    await session.publisher(OUTPUT).send(b"end")
    return found
