"""The crash table: who is killed at which moment, in which mode, and what may come again then (J1, J2, J4).

A round kills once, and that is a moment of every cell: all applications run in one process, each behind a proxy of its
own, and come to their places. What is to die in the middle of something has its message, or the answer to it, lost by
its proxy. Then the victims are killed by SIGKILL in one moment, what was a broker is started again, and the
applications go on; if they were killed, others do.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import gapless
from gapless_testing.fault_proxy import Direction, FaultProxy
from integration import crash_application
from integration.broker_process import BrokerProcess, bounded, clean_environment, to_toml, until
from integration.crash_application import AT, EVENTS, PORTION, TOPICS, Case
from integration.networks_in_process import SECRET, free_addresses

PATIENCE: Final = 100.0
CALM: Final[Mapping[str, Any]] = {"limits": {"heartbeat": 60}, "shb": {"checkpoint_seconds": 60}}
"""Sections of a broker: nothing passes a proxy but what an application does, and nothing is durable by the way."""
APPLICATION: Final = "application"


@dataclass(frozen=True)
class Moment:
    """A column of the table."""

    title: str
    place: str
    """Where an application waits."""
    loses: str = ""
    """What is lost as it goes on from there: `message`, `answer`, `mail` between the nodes. "": it does not go on."""

    @property
    def commits(self) -> bool:
        """Whether it is in the middle of a commit."""
        return self.place in {"first commit", "commit"}


MOMENTS: Final = (
    Moment("attached", "receive"),
    Moment("received", "effect"),
    Moment("effect", "done"),
    Moment("first commit lost", "first commit", "message"),
    Moment("first commit unanswered", "first commit", "answer"),
    Moment("commit lost", "commit", "message"),
    Moment("commit unanswered", "commit", "answer"),
    Moment("committed", "committed"),
    Moment("recover lost", "recover", "message"),
    Moment("recover unanswered", "recover", "answer"),
    Moment("attach lost", "attach", "message"),
    Moment("attach unanswered", "attach", "answer"),
)
BETWEEN: Final = (
    Moment("first commit, between", "first commit", "mail"),
    Moment("commit, between", "commit", "mail"),
    Moment("attach, between", "attach", "mail"),
)
"""The same, where the two ends of a commit are two nodes."""


@dataclass(frozen=True)
class Mode:
    """Rows of the table, one for each death."""

    name: str
    unit: int
    """How many events are committed together."""
    lacks: frozenset[str]
    """The places that it does not come to, or where nothing is special."""
    vain: int
    """How many events that follow what was in hand may be marked although they were not handed out."""
    is_at_home: bool = True
    """Whether its commits concern nobody but the home of the subscription."""

    def has(self, moment: Moment) -> bool:
        """Whether it comes to this moment."""
        return moment.place not in self.lacks and not (self.is_at_home and moment.loses == "mail")

    def handed(self, place: str) -> int:
        """Returns how much an application was handed there; while it attaches: what the one before it was."""
        if place in {"receive", "first commit"}:
            return 0 if place == "receive" else PORTION
        whole = place in {"commit", "committed"} or self.name.startswith("AUTO")
        return (AT // self.unit + 1) * self.unit if whole else AT + 1

    def in_hand(self, place: str) -> list[int]:
        """Returns what of that was not committed when it came there."""
        if place == "committed":
            return []
        upto = self.handed(place)
        return list(range((upto - 1) // self.unit * self.unit, upto)) if upto else []


TRANSACTED: Final = "SESSION_TRANSACTED"
PUBLISH: Final = f"{TRANSACTED}, publish"
_BY_SESSION: Final = frozenset({"first commit", "recover"})
_BY_HAND: Final = frozenset({"first commit"})
MODES: Final = (
    Mode("AUTO", 1, _BY_SESSION, 1),
    Mode("AUTO, batches(8)", PORTION, _BY_SESSION, PORTION),
    Mode("CLIENT", PORTION, _BY_HAND, EVENTS),
    Mode("DUPS_OK", EVENTS, frozenset({"first commit", "commit", "recover"}), 0),
    Mode(f"{TRANSACTED}, consume", PORTION, _BY_HAND, EVENTS),
    Mode(f"{TRANSACTED}, consume two", PORTION, frozenset(), EVENTS, is_at_home=False),
    Mode(PUBLISH, PORTION, frozenset({"receive", "effect", "first commit", "recover"}), 0, is_at_home=False),
    Mode(f"{TRANSACTED}, both", PORTION, frozenset(), EVENTS, is_at_home=False),
)


@dataclass(frozen=True)
class Cell:
    """One application after another, and the moment of a death."""

    mode: Mode
    moment: Moment

    @property
    def name(self) -> str:
        """Of its subscription and topic."""
        return re.sub(r"\W+", "-", f"{self.mode.name} {self.moment.title}").lower()

    def is_in_doubt(self, *, dies: bool) -> bool:
        """Whether a commit was on its way between the nodes when only its application could have asked again.

        A node that lives on may repeat it, or find first that the application is gone.
        """
        return dies and (self.moment.place, self.moment.loses) == ("commit", "mail")

    def allowed(self, *, dies: bool) -> list[list[int]]:
        """Returns what may come again, if the application dies or does not."""
        mode, place = self.mode, self.moment.place
        in_hand = mode.in_hand(place)
        if mode.name == "DUPS_OK" and (dies or place in {"committed", "attach"}):
            return [list(range(first, AT + 1)) for first in range(AT + 2)] if place != "receive" else [[]]
        if self.is_in_doubt(dies=dies):
            return [in_hand, []]
        if place == "commit":
            return [in_hand if dies and self.moment.loses != "answer" else []]
        return [in_hand if dies or place in {"recover", "attach"} else []]


@dataclass
class Found:
    """What the applications of one cell were given, and did."""

    handed: list[tuple[int, int]] = field(default_factory=list)
    """Number and delivery count, in order."""
    effects: list[int] = field(default_factory=list)
    again_after_commit: list[int] = field(default_factory=list)
    """What came although an application had been told that it is committed."""
    begun: list[tuple[int, int]] = field(default_factory=list)
    """Transactions that only publish, and the process."""
    asked: list[tuple[int, int]] = field(default_factory=list)
    """Those whose commit was called."""
    committed: list[tuple[int, int]] = field(default_factory=list)
    """Those of which the application was told so."""
    outputs: list[gapless.Event] = field(default_factory=list)
    """What is in the log of what it published."""

    @property
    def again(self) -> dict[int, bool]:
        """What came more than once, and whether that was marked each time."""
        seen: set[int] = set()
        again: dict[int, bool] = {}
        for number, count in self.handed:
            if number in seen:
                again[number] = again.get(number, True) and count > 1
            seen.add(number)
        return again

    @property
    def counts(self) -> list[tuple[int, int]]:
        """The delivery count of each event that was handed out, and how often it was until then."""
        times: Counter[int] = Counter()
        counts = []
        for number, count in self.handed:
            times[number] += 1
            counts.append((count, times[number]))
        return counts

    @property
    def marked_in_vain(self) -> list[int]:
        """What was marked when it came for the first time."""
        first: dict[int, int] = {}
        for number, count in self.handed:
            first.setdefault(number, count)
        return [number for number, count in first.items() if count > 1]


def found_in(ledger: Path) -> Found:
    """What the ledger of a cell says."""
    found = Found()
    done: set[int] = set()
    for line in ledger.read_text("ascii").splitlines():
        what, *fields = line.split()
        number, count = map(int, fields)
        if what == "handed":
            found.handed.append((number, count))
            if number in done:
                found.again_after_commit.append(number)
        elif what == "effect":
            found.effects.append(number)
        elif what == "committed":
            found.committed.append((number, count))
            done.add(number)
        else:
            (found.begun if what == "begun" else found.asked).append((number, count))
    return found


# ------------------------------------------------------------------------------------------------ judging


def complaints(cell: Cell, found: Found, *, dies: bool) -> list[str]:
    """What is wrong in a cell."""
    if cell.mode.name == PUBLISH:
        told = _outputs_told(cell, found, in_doubt=False)
        is_right = logged(found) == told
        if not is_right and cell.is_in_doubt(dies=dies):
            # The node may have repeated it when the next application had committed something already.
            is_right = by_process(logged(found)) == by_process(_outputs_told(cell, found, in_doubt=True))
        return [] if is_right else [f"{cell.name}: {told} were committed, and these are logged: {logged(found)}"]
    again = found.again
    numbers = [number for number, _ in found.handed]
    calm = not dies and cell.moment.place != "attach" and cell.mode.name != "DUPS_OK"
    following = range(cell.mode.handed(cell.moment.place), EVENTS)[: 0 if calm else cell.mode.vain]
    outputs = [event.body for event in found.outputs]
    wrong = {
        "not all took effect": {*found.effects} != {*range(EVENTS)},
        "some are skipped": numbers[0] != 0 or any(later > each + 1 for each, later in pairwise(numbers)),
        "these may not come again": [*again] not in cell.allowed(dies=dies),
        "the marks are wrong": any(is_marked is (cell.mode.name == "DUPS_OK") for is_marked in again.values()),
        "what was committed came again": found.again_after_commit,
        "the counts are wrong": calm and any(count != each for count, each in found.counts),
        "these may not be marked": not {*found.marked_in_vain} <= {*following},
        "the outputs are wrong": cell.mode.name.endswith("both") and outputs != [b"%d" % n for n in range(EVENTS)],
    }
    return [f"{cell.name}: {what}: {found}" for what, is_so in wrong.items() if is_so]


def logged(found: Found) -> list[tuple[int, str]]:
    """What is in the log of what was published alone: the number, and what else its body says."""
    return [(int(number), process) for number, process in (event.body.decode().split("/") for event in found.outputs)]


def by_process(outputs: Iterable[tuple[int, str]]) -> dict[str, list[int]]:
    """The numbers that each application has published, in order: between two of them no order is promised."""
    numbers: dict[str, list[int]] = {}
    for number, process in outputs:
        numbers.setdefault(process, []).append(number)
    return numbers


def _outputs_told(cell: Cell, found: Found, *, in_doubt: bool) -> list[tuple[int, str]]:
    """What must be in the log: what an application was told, and what was committed if the answer was lost.

    `in_doubt`: with what is in doubt as well.
    """
    told = []
    answer_lost = (cell.moment.place, cell.moment.loses) == ("commit", "answer")
    for turn, process in found.asked:
        if (turn, process) in found.committed or answer_lost or in_doubt:
            told += [(number, str(process)) for number in range(EVENTS) if number // PORTION == turn]
    return told


def text(cell: Cell, found: Found, *, dies: bool) -> str:
    """A cell of the table: how many came again, or whether what was to be published is in the log."""
    if cell.is_in_doubt(dies=dies):
        return (
            "all or none"
            if cell.mode.name == PUBLISH
            else " or ".join(str(len(each)) for each in cell.allowed(dies=dies))
        )
    if cell.mode.name == PUBLISH:
        turn = AT // PORTION
        struck = [process for each, process in found.begun if each == turn][cell.moment.place == "attach"]
        return "all" if (turn * PORTION, str(struck)) in logged(found) else "none"
    if len(cell.allowed(dies=dies)) > 1:
        return f"0 to {AT + 1}, not marked"
    return str(len(found.again))


def rows(found: Mapping[Cell, Found], killed: str, moments: Sequence[Moment], *, dies: bool) -> list[str]:
    """The rows of one death."""
    return [
        " | ".join(
            [
                f"| {mode.name}",
                killed,
                *(
                    text(cell, found[cell], dies=dies) if (cell := Cell(mode, moment)) in found else "-"
                    for moment in moments
                ),
            ]
        )
        + " |"
        for mode in MODES
    ]


# ------------------------------------------------------------------------------------------------ a round


class Fleet:
    """The brokers of a round, and what can be done to them."""

    def __init__(
        self,
        nodes: Mapping[str, BrokerProcess],
        home: str,
        moments: Sequence[Moment],
        links: Sequence[FaultProxy] = (),
        mail: Sequence[Direction] = (),
    ) -> None:
        """`home`: the node that applications are connected to. `mail`: the ways of `links` that lead from it."""
        self.nodes = nodes
        self.home = nodes[home]
        self.cells = [Cell(mode, moment) for mode in MODES for moment in moments if mode.has(moment)]
        self.links = links
        self.mail = mail


@contextlib.asynccontextmanager
async def one_broker(directory: Path) -> AsyncIterator[Fleet]:
    """A broker that is all of it."""
    async with BrokerProcess(directory / "broker", **CALM) as broker:
        yield Fleet({"broker": broker}, "broker", MOMENTS)


@contextlib.asynccontextmanager
async def two_nodes(directory: Path) -> AsyncIterator[Fleet]:
    """A PHB, and an SHB at which the applications are; behind proxies for each other."""
    async with contextlib.AsyncExitStack() as stack:
        nodes: dict[str, BrokerProcess] = {}
        rows = []
        proxies = [await stack.enter_async_context(FaultProxy(address)) for address in free_addresses(2)]
        for name, proxy in zip(("PHB", "SHB"), proxies, strict=True):
            node = name.lower()
            rows.append({"name": node, "roles": [node], "address": proxy.address, "cell": node})
            section = {"file": "../network.toml", "node": node, "listen": proxy.target}
            sections: dict[str, Any] = {each: values for each, values in CALM.items() if each in {"limits", node}}
            nodes[name] = BrokerProcess(directory / node, network=section, **sections)
        text = to_toml({"network": {"name": "flights", "router": "knowledge", "secret": SECRET}, "node": rows})
        (directory / "network.toml").write_text(f'bundles = [["phb", "shb"]]\n{text}', "utf-8")
        await asyncio.gather(*(stack.enter_async_context(node) for node in nodes.values()))
        yield Fleet(nodes, "SHB", MOMENTS + BETWEEN, proxies, [proxies[0].inward, proxies[1].outward])


class Round:
    """All cells of a fleet, and one death."""

    def __init__(self, directory: Path, fleet: Fleet, victims: Sequence[str]) -> None:
        self._directory = directory
        self._fleet = fleet
        self._victims = victims
        self._dies = APPLICATION in victims
        self._proxies: dict[Cell, FaultProxy] = {}

    async def run(self) -> dict[Cell, Found]:
        """Does it all, and returns what was found."""
        cells = self._fleet.cells
        async with contextlib.AsyncExitStack() as stack:
            address = self._fleet.home.url.partition("://")[2]
            for cell in cells:
                self._proxies[cell] = await stack.enter_async_context(FaultProxy(address))
                self._ledger(cell).touch()
            await self._publish()
            before = [cell for cell in cells if cell.moment.place == "attach"]
            async with self._applications(dict.fromkeys(before, "done")) as first:
                await first.until_at(before)
            async with self._applications({cell: cell.moment.place for cell in cells}) as struck:
                await struck.until_at(cells)
                await self._lose(struck)
                await self._strike(struck)
                if not self._dies:
                    struck.go_on(cell for cell in cells if not cell.moment.loses)
                    await struck.end()
            if self._dies:
                async with self._applications(dict.fromkeys(cells, "")) as heirs:
                    await heirs.end()
            found = {cell: found_in(self._ledger(cell)) for cell in cells}
            await bounded(self._read({f"{cell.name}.out": each for cell, each in found.items()}), PATIENCE)
        return found

    def _ledger(self, cell: Cell) -> Path:
        return self._directory / f"{cell.name}.ledger"

    async def _publish(self) -> None:
        """The inputs of all cells, before anybody subscribes to them."""
        inputs = []
        for cell in self._fleet.cells:
            topics = TOPICS.get(cell.mode.name, ("",))
            inputs += [
                gapless.Message(b"%d" % number, topic=cell.name + topics[number % len(topics)])
                for number in range(EVENTS)
            ]
        async with gapless.connect(self._fleet.home.url) as connection, connection.session() as session:
            await bounded(session.publisher().send_batch(inputs), PATIENCE)

    async def _read(self, found: Mapping[str, Found]) -> None:
        """The whole log of what was published, by topic."""
        async with gapless.connect(self._fleet.home.url) as connection, connection.session() as session:
            async with session.subscribe("*.out", start="earliest") as subscription:
                await session.publisher("end.out").send(b"")
                async for event in subscription:
                    if event.topic == "end.out":
                        break
                    found[event.topic].outputs.append(event)

    async def _lose(self, applications: Applications) -> None:
        """Those that are to lose something go on, and lose it."""
        losing = [cell for cell in self._fleet.cells if cell.moment.loses]
        # Whoever leaves makes an SHB save everything: so commits come later.
        for is_commit in (False, True):
            going = [each for each in losing if each.moment.loses != "mail" and each.moment.commits is is_commit]
            ways = [self._way(cell) for cell in going]
            for way in ways:
                way.swallows = True
            await self._go_on(applications, going, ways)
        going = [cell for cell in losing if cell.moment.loses == "mail"]
        if going:  # the answers of the others have passed between the nodes
            for mail in self._fleet.mail:
                mail.swallows = True
            mailed = sum(mail.passed for mail in self._fleet.mail)
            await self._go_on(applications, going, [self._way(cell) for cell in going])
            await until(lambda: sum(mail.passed for mail in self._fleet.mail) > mailed, "mail between nodes", PATIENCE)

    async def _go_on(self, applications: Applications, cells: Sequence[Cell], ways: Sequence[Direction]) -> None:
        """These go on, until something has come by on each of their ways."""
        passed = [way.passed for way in ways]
        applications.go_on(cells)
        await until(
            lambda: all(way.passed > before for way, before in zip(ways, passed, strict=True)), "what is lost", PATIENCE
        )

    def _way(self, cell: Cell) -> Direction:
        """The way of what it sends, or of the answer that it loses."""
        proxy = self._proxies[cell]
        return proxy.outward if cell.moment.loses == "answer" else proxy.inward

    async def _strike(self, applications: Applications) -> None:
        nodes = [node for name, node in self._fleet.nodes.items() if name in self._victims]
        for pid in [node.pid for node in nodes] + [applications.pid] * self._dies:
            os.kill(pid, signal.SIGKILL)
        for proxy in (*self._fleet.links, *self._proxies.values()):
            proxy.heal()
            proxy.cut()
        await asyncio.gather(*(node.restart() for node in nodes))

    @contextlib.asynccontextmanager
    async def _applications(self, places: Mapping[Cell, str]) -> AsyncIterator[Applications]:
        """One process with these cases; it is killed at the end."""
        cases = [
            Case(cell.name, cell.mode.name, f"gapless://{self._proxies[cell].address}", str(self._ledger(cell)), place)
            for cell, place in places.items()
        ]
        path = self._directory / "cases.json"
        path.write_text(json.dumps([asdict(case) for case in cases]), "ascii")
        with (self._directory / "applications.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                crash_application.__file__,
                str(path),
                env=clean_environment(),
                stdin=PIPE,
                stdout=PIPE,
                stderr=log,
            )
        try:
            yield Applications(process, self._directory / "applications.log")
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


class Applications:
    """The process that they are."""

    def __init__(self, process: Process, log: Path) -> None:
        self._process = process
        self._log = log
        self.pid = process.pid

    async def until_at(self, cells: Iterable[Cell]) -> None:
        """Waits until all of these have come to their places."""
        waited_for = {cell.name for cell in cells}
        assert self._process.stdout is not None
        while waited_for:
            try:
                line = await bounded(self._process.stdout.readline(), PATIENCE)
            except asyncio.TimeoutError:
                raise AssertionError(f"these never came to their places: {sorted(waited_for)}") from None
            assert line, f"the applications have ended:\n{self._log.read_text()}"
            waited_for.remove(line.decode().strip())

    def go_on(self, cells: Iterable[Cell]) -> None:
        """Tells them to go on."""
        assert self._process.stdin is not None
        self._process.stdin.write("".join(f"{cell.name}\n" for cell in cells).encode())

    async def end(self) -> None:
        """Waits until all of them have come to their end."""
        status = await bounded(self._process.wait(), PATIENCE)
        assert status == 0, self._log.read_text()
