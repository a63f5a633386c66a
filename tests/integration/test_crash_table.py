"""What comes again after whose death in which acknowledgement mode: the table of docs/topics/acknowledging.md.

With real processes that are killed by SIGKILL, the application and the broker also in one moment (J1, J2).
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

import gapless
from integration import auto_application
from integration.broker_process import BrokerProcess, bounded, clean_environment, until

MOMENTS = ("before the effect", "after the effect", "during the commit", "after the commit")
EVENTS = 30
AT = 12
PATIENCE = 30.0


@dataclass(frozen=True)
class Outcome:
    """What the applications of one case were given, and did."""

    handed: list[tuple[int, int]]
    """Number and delivery count, in order."""
    effects: list[int]

    @property
    def again(self) -> dict[int, bool]:
        """What came more than once, and whether that was marked."""
        times: Counter[int] = Counter()
        again: dict[int, bool] = {}
        for number, count in self.handed:
            if times[number]:
                again[number] = again.get(number, True) and count > 1
            times[number] += 1
        return again

    @property
    def marked_in_vain(self) -> list[int]:
        """What was marked when it came for the first time."""
        first: dict[int, int] = {}
        for number, count in self.handed:
            first.setdefault(number, count)
        return [number for number, count in first.items() if count > 1]


async def outcome(broker: BrokerProcess, directory: Path, mode: str, victim: str, moment: str) -> Outcome:
    """Runs an application until somebody dies, and another one after it."""
    name = f"{mode}-{victim}-{moment}".replace(" ", "-")
    ledger = directory / f"{name}.ledger"
    async with gapless.connect(broker.url) as connection, connection.session() as session:
        await session.subscribe(name, name=name)
        messages = [gapless.Message(b"", {"n": number}) for number in range(EVENTS)]
        await session.publisher(name).send_batch(messages)

    async def application(victim: str) -> asyncio.subprocess.Process:
        arguments = (broker.url, mode, name, str(ledger), victim, moment, str(broker.pid), str(AT), str(EVENTS - 1))
        program = auto_application.__file__
        return await asyncio.create_subprocess_exec(sys.executable, program, *arguments, env=clean_environment())

    first = await application(victim)
    if victim in {"broker", "both"}:
        await until(lambda: not broker.runs, "the broker's death", PATIENCE)
        await broker.restart()
    if victim == "broker" and (moment != "after the commit" or mode == "client"):
        assert await bounded(first.wait(), PATIENCE) == 0
    else:
        await bounded(first.wait(), PATIENCE)
        second = await application("nobody")
        assert await bounded(second.wait(), PATIENCE) == 0
    lines = [line.split() for line in ledger.read_text("ascii").splitlines()]
    return Outcome(
        [(int(number), int(count)) for what, number, count in lines if what == "handed"],
        [int(number) for what, number, _ in lines if what == "effect"],
    )


def row(mode: str, victim: str, moment: str, found: Outcome) -> str:
    """A row of the table."""
    again = found.again
    marked = "-" if not again else "yes" if all(again.values()) else "no"
    return f"| {mode} | {victim} | {moment} | {len(again)} | {marked} |"


@pytest.mark.timeout(180)
@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
@pytest.mark.parametrize("victim", ["application", "broker", "both"])
@pytest.mark.parametrize("mode", ["auto", "auto in batches", "dups-ok"])
async def test_only_what_was_in_hand_comes_again_and_is_marked(tmp_path: Path, mode: str, victim: str) -> None:
    async with BrokerProcess(tmp_path / "broker") as broker:
        for moment in MOMENTS:
            found = await outcome(broker, tmp_path, mode, victim, moment)
            sys.stdout.write(f"{row(mode, victim, moment, found)}\n")

            again = found.again
            assert sorted({*found.effects}) == list(range(EVENTS)), "nothing is lost"
            if mode == "dups-ok":
                assert not any(again.values())
                assert found.marked_in_vain == []
                continue
            assert all(again.values()), (moment, again)
            size = auto_application.PORTION if mode == "auto in batches" else 1
            unit = [number for number in range(EVENTS) if number // size == AT // size]
            may = [] if victim == "broker" or moment == "after the commit" else unit
            assert {*again} <= {*may}, moment
            if moment.endswith("the effect"):
                assert [*again] == may, moment
            # A commit that was on its way may have arrived, with the batch that it announced; and the news that it left
            # in order may not have. Then what comes next is marked although it was not handed out.
            following = [] if moment.endswith("the effect") else range(unit[-1] + 1, unit[-1] + 1 + size)
            assert {*found.marked_in_vain} <= {*following}, moment


@pytest.mark.timeout(180)
@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
@pytest.mark.parametrize("victim", ["application", "broker", "both"])
async def test_all_that_was_not_acknowledged_comes_again_and_is_marked(tmp_path: Path, victim: str) -> None:
    moments = {
        "application": (*MOMENTS, "during recover"),
        "broker": ("during the commit", "during recover"),
        "both": ("after the effect", "during the commit", "during recover"),
    }[victim]
    begun = range(AT // auto_application.PORTION * auto_application.PORTION, AT + 1)
    unit = range(begun[0], begun[0] + auto_application.PORTION)
    async with BrokerProcess(tmp_path / "broker") as broker:
        for moment in moments:
            found = await outcome(broker, tmp_path, "client", victim, moment)
            sys.stdout.write(f"{row('client', victim, moment, found)}\n")

            assert sorted({*found.effects}) == list(range(EVENTS)), "nothing is lost"
            again = found.again
            assert all(again.values()), (moment, again)
            if moment == "after the commit" or (victim == "broker" and moment == "during the commit"):
                assert again == {}, moment
            elif moment == "during the commit":
                assert [*again] in ([], [*unit]), moment
            else:
                assert [*again] == [*begun], moment
            if victim == "broker":
                assert found.marked_in_vain == [], moment
