"""An application that consumes in an acknowledgement mode, and dies at a given moment: run by `test_crash_table`.

Its effects are lines of a file: `handed NUMBER COUNT` when it is given an event, `effect NUMBER COUNT` when it is done
with it. Lines that were written stay, however the process ends.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gapless

PORTION = 8
"""Events in a batch."""


@dataclass(frozen=True)
class Case:
    """What to do, and when to die."""

    url: str
    mode: str
    """`auto`, `auto in batches`, `client` or `dups-ok`."""
    name: str
    """Of the subscription, and its topic."""
    ledger: str
    victim: str
    """`application`, `broker`, `both` or `nobody`."""
    moment: str
    broker: int
    """Its process."""
    at: int
    """The number of the event at which that is."""
    last: int

    def strike(self, moment: str) -> None:
        """Kills who is to die at this moment."""
        if moment != self.moment:
            return
        if self.victim in {"broker", "both"}:
            os.kill(self.broker, signal.SIGKILL)
        if self.victim in {"application", "both"}:
            os.kill(os.getpid(), signal.SIGKILL)


async def units(subscription: Any, *, in_batches: bool) -> AsyncIterator[Sequence[gapless.Event]]:
    """Yields what the application is given at a time."""
    if in_batches:
        async for batch in subscription.batches(max_events=PORTION):
            yield batch
    else:
        async for event in subscription:
            yield [event]


async def consume(case: Case, ledger: int) -> None:
    """Consumes until the last event, or to its end."""

    def note(what: str, unit: Sequence[gapless.Event]) -> None:
        for event in unit:
            os.write(ledger, f"{what} {event.properties['n']} {event.delivery_count}\n".encode())

    if case.mode == "client":
        await consume_by_hand(case, note)
        return
    mode = gapless.AckMode.DUPS_OK if case.mode == "dups-ok" else gapless.AckMode.AUTO
    async with gapless.connect(case.url) as connection, connection.session(mode) as session:
        async with session.subscribe(case.name, name=case.name) as subscription:
            given = units(subscription, in_batches=case.mode == "auto in batches")
            unit = await anext(given)
            while True:
                numbers = [event.properties["n"] for event in unit]
                is_it = case.at in numbers
                note("handed", unit)
                if is_it:
                    case.strike("before the effect")
                note("effect", unit)
                if is_it:
                    case.strike("after the effect")
                if case.last in numbers or (is_it and case.moment == "after the commit" and case.victim != "nobody"):
                    break
                asking = asyncio.ensure_future(anext(given))
                if is_it:
                    for _ in range(3):  # the commit leaves at the end of a turn
                        await asyncio.sleep(0)
                    case.strike("during the commit")
                unit = await asking
        if is_it:
            case.strike("after the commit")


async def consume_by_hand(case: Case, note: Callable[[str, Sequence[gapless.Event]], None]) -> None:
    """The same, and acknowledges `PORTION` events at a time."""
    async with gapless.connect(case.url) as connection, connection.session(gapless.AckMode.CLIENT) as session:
        subscription = await session.subscribe(case.name, name=case.name)
        recovers = case.moment == "during recover" and case.victim != "nobody"
        async for event in subscription:
            number = int(event.properties["n"])
            note("handed", [event])
            if number == case.at:
                case.strike("before the effect")
            note("effect", [event])
            if number == case.at:
                case.strike("after the effect")
            if number == case.at and recovers:
                recovers = False
                recovering = asyncio.ensure_future(session.recover())
                await asyncio.sleep(0)
                case.strike("during recover")
                await recovering
                continue
            if number % PORTION == PORTION - 1 or number == case.last:
                acknowledging = asyncio.ensure_future(session.acknowledge())
                is_it = number // PORTION == case.at // PORTION
                if is_it:
                    for _ in range(3):  # the commit leaves at the end of a turn
                        await asyncio.sleep(0)
                    case.strike("during the commit")
                await acknowledging
                if is_it:
                    case.strike("after the commit")
            if number == case.last:
                break


if __name__ == "__main__":
    url, mode, name, path, victim, moment, broker, at, last = sys.argv[1:]
    ledger = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    asyncio.run(consume(Case(url, mode, name, path, victim, moment, int(broker), int(at), int(last)), ledger))
