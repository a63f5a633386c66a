"""Applications in every acknowledgement mode, all of them in one process, to be killed: run by `crash_table`.

`python crash_application.py CASES`, a JSON file with a list of the fields of `Case`. It prints the name of a case that
has come to its place, and goes on with it when a line of its input has that name. What a case is given and does are
lines of its ledger, `WHAT NUMBER COUNT`: lines that were written stay, however the process ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gapless

EVENTS = 30
PORTION = 8
"""Events in a batch, in an acknowledgement, in a transaction."""
AT = 12
"""The number of the event at which a case comes to its place, if that is in the middle of the work."""
TOPICS = {"SESSION_TRANSACTED, consume two": (".even", ".odd")}
"""What follows the name in the topics of the inputs, and in the names of their subscriptions."""


@dataclass(frozen=True)
class Case:
    """What to do, and where to wait."""

    name: str
    """Of the subscription, and its topic."""
    mode: str
    url: str
    ledger: str
    place: str
    """Where it waits until it is told to go on; "": nowhere."""


class Application:
    """One case."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.told = asyncio.Event()
        """Whether it is to go on."""
        self._waits_at = case.place
        self._ledger = os.open(case.ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def run(self) -> None:
        """Works to the end."""
        async with gapless.connect(self.case.url) as connection:
            if self.case.mode == "SESSION_TRANSACTED, publish":
                await self._publish(connection)
            elif self.case.mode.startswith(("AUTO", "DUPS_OK")):
                await self._consume(connection)
            else:
                await self._consume_by_hand(connection)

    async def stop_at(self, place: str) -> bool:
        """Waits if this is its place, and it was not there before. Returns whether it is."""
        if place != self._waits_at:
            return False
        self._waits_at = ""
        sys.stdout.write(f"{self.case.name}\n")
        sys.stdout.flush()
        await self.told.wait()
        return True

    def note(self, what: str, number: int, count: int = 0) -> None:
        """Writes a line that stays."""
        os.write(self._ledger, f"{what} {number} {count}\n".encode())

    # What it does.

    async def _consume(self, connection: gapless.Connection) -> None:
        """The session acknowledges."""
        name, mode = self.case.name, self.case.mode
        number = -1
        async with connection.session(
            gapless.AckMode.DUPS_OK if mode == "DUPS_OK" else gapless.AckMode.AUTO
        ) as session:
            while number != EVENTS - 1:
                await self.stop_at("attach")
                async with session.subscribe(name, name=name, start="earliest") as subscription:
                    await self.stop_at("receive")
                    given = subscription.batches(max_events=PORTION) if "batches" in mode else subscription
                    async for unit in given:
                        if number >= 0 and mode != "DUPS_OK":
                            self.note("committed", number)
                        numbers = await self._one_unit(unit if isinstance(unit, Sequence) else [unit])
                        number = numbers[-1]
                        if AT in numbers:
                            await self.stop_at("commit")
                        if number == EVENTS - 1 or (AT in numbers and self._waits_at == "committed"):
                            break
                if mode != "DUPS_OK":
                    self.note("committed", number)
                await self.stop_at("committed")

    async def _one_unit(self, unit: Sequence[gapless.Event]) -> list[int]:
        """Is given a unit, and works on it. Returns the numbers of its events."""
        numbers = [int(event.body) for event in unit]
        for event in unit:
            self.note("handed", int(event.body), event.delivery_count)
        if AT in numbers:
            await self.stop_at("effect")
        for number in numbers:
            self.note("effect", number)
        if AT in numbers:
            await self.stop_at("done")
        return numbers

    async def _consume_by_hand(self, connection: gapless.Connection) -> None:
        """It acknowledges, or commits, `PORTION` events at a time; it may publish something for each."""
        name, mode = self.case.name, self.case.mode
        async with connection.session(gapless.AckMode.CLIENT) as session:
            transactions = session.transactions() if mode != "CLIENT" else None
            await self.stop_at("attach")
            inputs = [
                await session.subscribe(name + each, name=name + each, start="earliest")
                for each in TOPICS.get(mode, ("",))
            ]
            await self.stop_at("receive")
            number, begun = -1, 0
            while number != EVENTS - 1:
                [number] = await self._one_unit([await anext(inputs[begun % len(inputs)])])
                begun += 1
                if transactions is not None and mode.endswith("both"):
                    transactions.send(gapless.Message(b"%d" % number, topic=f"{name}.out"))
                if number == AT and await self.stop_at("recover"):
                    await (session.recover() if transactions is None else transactions.rollback())
                    begun = 0
                elif number % PORTION == PORTION - 1 or number == EVENTS - 1:
                    is_it = number // PORTION == AT // PORTION
                    await self.stop_at("commit" if is_it else "first commit")
                    await (session.acknowledge() if transactions is None else transactions.commit())
                    for each in range(number // PORTION * PORTION, number + 1):
                        self.note("committed", each)
                    begun = 0
                    if is_it:
                        await self.stop_at("committed")

    def _first_turn(self) -> int:
        """Its first transaction: the one after the last whose commit was called by an application before it."""
        lines = [line.split() for line in Path(self.case.ledger).read_text("ascii").splitlines()]
        return max((int(number) + 1 for what, number, _ in lines if what == "committing"), default=0)

    async def _publish(self, connection: gapless.Connection) -> None:
        """`PORTION` messages in each transaction, and others in one before it that is rolled back."""
        first = self._first_turn()
        async with connection.session(gapless.AckMode.CLIENT) as session:
            transactions = session.transactions()

            def send(number: int, whose: str) -> None:
                transactions.send(gapless.Message(f"{number}/{whose}".encode(), topic=f"{self.case.name}.out"))

            await self.stop_at("attach")
            for turn in range(first, -(-EVENTS // PORTION)):
                self.note("begun", turn, os.getpid())
                send(turn * PORTION, "rolled back")
                await transactions.rollback()
                numbers = range(turn * PORTION, min(EVENTS, (turn + 1) * PORTION))
                for number in numbers:
                    send(number, str(os.getpid()))
                    if number == AT:
                        await self.stop_at("done")
                if AT in numbers:
                    await self.stop_at("commit")
                self.note("committing", turn, os.getpid())
                await transactions.commit()
                self.note("committed", turn, os.getpid())
                if AT in numbers:
                    await self.stop_at("committed")


async def main(cases: Sequence[dict[str, Any]]) -> None:
    """Runs all cases to their end, or until its input ends."""
    applications = {fields["name"]: Application(Case(**fields)) for fields in cases}
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)

    async def listen() -> None:
        while line := await reader.readline():
            applications[line.decode().strip()].told.set()
        raise EOFError("whoever started this is gone")

    async def work() -> None:
        await asyncio.gather(*(application.run() for application in applications.values()))

    tasks = [asyncio.ensure_future(work()), asyncio.ensure_future(listen())]
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()


if __name__ == "__main__":
    asyncio.run(main(json.loads(Path(sys.argv[1]).read_text("ascii"))))
