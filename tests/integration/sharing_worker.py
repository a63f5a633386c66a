"""A worker of a shared subscription, to be killed at any moment: run by `test_sharing`.

`python sharing_worker.py URL LEDGER TASKS`. Each line of its ledger is a number and what became of it: `handed COUNT`,
then `acknowledged`; or `retried`. Lines that were written stay, however the process ends. It says `ready`, and ends in
order when its input ends.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import NoReturn

import gapless


class Worker:
    """Handles events in several tasks."""

    def __init__(self, ledger: str) -> None:
        self._ledger = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(self, event: gapless.HeldEvent, what: str) -> None:
        """Writes a line that stays."""
        os.write(self._ledger, f"{event.body.decode()} {what}\n".encode())

    async def work(self, jobs: gapless.SharedSubscription[gapless.HeldEvent, NoReturn]) -> None:
        """Every twentieth event is retried once."""
        async for event in jobs:
            self.note(event, f"handed {event.delivery_count}")
            await asyncio.sleep(0.001)
            if int(event.body) % 20 == 7 and not event.redelivered:
                await jobs.retry(event, delay=0.01)
                self.note(event, "retried")
            else:
                await jobs.acknowledge(event)
                self.note(event, "acknowledged")


async def main(url: str, ledger: str, tasks: int) -> None:
    """Works until the input ends."""
    loop, worker = asyncio.get_running_loop(), Worker(ledger)
    async with gapless.connect(url) as connection, connection.session() as session:
        async with session.subscribe("jobs", name="workers", shared=True, start="earliest", resume_seconds=1) as jobs:
            loop.add_reader(sys.stdin.fileno(), connection.drain)
            sys.stdout.write("ready\n")
            sys.stdout.flush()
            await asyncio.gather(*(worker.work(jobs) for _ in range(tasks)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
