"""All processes of a run: a broker, a publisher and the subscribers; and how far they are."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Any, Final

from typing_extensions import Self

from gapless_flights.data import write_lines
from gapless_flights.plan import BROKER, PUBLISHER
from gapless_flights.processes import Processes
from gapless_flights.selections import DemoSubscription

IDLE_MAX: Final = 30.0
"""Seconds without any progress after which a run is over, whatever is missing."""

_CONFIGURATION = """\
# The broker of `gapless demo`.
[node]
name = "demo"

[storage]
plugin = "rocksdb"
path = {path}

[[listen]]
address = {address}
"""


class DemoProgress:
    """How far a run is."""

    def __init__(self, selections: Sequence[DemoSubscription]) -> None:
        self.published = 0
        self.consumed = {selection.name: 0 for selection in selections}
        self.positions: dict[str, Mapping[str, int]] = {}
        """Per subscription: up to which tick of each pubend everything is committed."""
        self.ends: Mapping[str, int] | None = None
        """The newest event of each pubend, once everything is published."""
        self.moved_at = monotonic()
        self._heard = asyncio.Event()

    @property
    def done(self) -> int:
        """Events published and events consumed."""
        return self.published + sum(self.consumed.values())

    @property
    def is_complete(self) -> bool:
        """Whether everything is published, and every subscriber stands behind all of it."""
        if self.ends is None:
            return False
        return all(
            self.positions.get(name, {}).get(pubend, 0) >= end
            for name in self.consumed
            for pubend, end in self.ends.items()
        )

    def heard(self, done_before: int) -> None:
        """A process has reported. Silence alone is no progress: it goes on for ever."""
        if self.done != done_before:
            self.moved_at = monotonic()
        self._heard.set()

    async def until(self, reached: Callable[[], bool]) -> bool:
        """Waits until something is so. Returns False when nothing has moved for too long."""
        while not reached():
            left = self.moved_at + IDLE_MAX - monotonic()
            if left <= 0:
                return False
            self._heard.clear()
            heard = asyncio.ensure_future(self._heard.wait())
            await asyncio.wait([heard], timeout=left)
            heard.cancel()
        return True


class Supervisor(Processes):
    """The broker, the publisher and the subscribers of a run. Use it as a context."""

    def __init__(
        self, directory: Path, flights: Sequence[str], selections: Sequence[DemoSubscription], rate: float = 0
    ) -> None:
        super().__init__(directory)
        self.progress = DemoProgress(selections)
        self._directory = directory
        self._flights = directory / "flights.csv"
        self._selections = selections
        self._rate = rate
        self._url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        write_lines(self._flights, flights)

    async def __aenter__(self) -> Self:
        """Starts the broker, then the rest."""
        try:
            self.start(BROKER, self._broker, self._on_broker, may_fail_to_start=True)
            await self.watch(self._url)
            for selection in self._selections:
                self.start(selection.name, self._subscriber(selection), self._on_consumed(selection.name))
            self.start(PUBLISHER, self._publisher, self._on_published)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    @property
    def url(self) -> str:
        """The broker's."""
        return self._url.result()

    def database(self, selection: DemoSubscription) -> Path:
        """Where a subscriber keeps what it has consumed, and its token."""
        return self._directory / f"{selection.name}.sqlite"

    async def stop_all(self) -> None:
        """Ends all processes in order, the broker last."""
        await asyncio.gather(*(self.stop(name) for name in self._workers if name != BROKER))
        await self.stop(BROKER)

    # The processes.

    def _broker(self) -> list[str]:
        # The first start takes any port that is free, the others that one: clients come back to it.
        address = self.url.partition("://")[2] if self._url.done() else "127.0.0.1:0"
        configuration = self._directory / "gapless.toml"
        path = json.dumps(str(self._directory / "broker"))
        configuration.write_text(_CONFIGURATION.format(path=path, address=json.dumps(address)), "utf-8")
        options = ["--config", str(configuration), "--json", "--until-stdin-closes"]
        if not self._url.done():  # only the first start has no volume to come back to
            options.append("--create")
        return [sys.executable, "-m", "gapless.cli", "broker", *options]

    def _publisher(self) -> list[str]:
        options = ["--url", self.url, "--flights", str(self._flights), "--rate", str(self._rate)]
        return [sys.executable, "-m", "gapless_flights.publisher", *options]

    def _subscriber(self, selection: DemoSubscription) -> Callable[[], list[str]]:
        def command() -> list[str]:
            options = {
                "url": self.url,
                "name": selection.name,
                "topic": selection.topic,
                "selector": selection.selector,
                "database": str(self.database(selection)),
            }
            arguments = [f"--{name}={value}" for name, value in options.items()]
            return [sys.executable, "-m", "gapless_flights.subscriber", *arguments]

        return command

    # What they report.

    def _on_broker(self, report: Mapping[str, Any]) -> None:
        if not self._url.done():
            self._url.set_result(report["url"])

    def _on_published(self, report: Mapping[str, Any]) -> None:
        progress, before = self.progress, self.progress.done
        progress.published = report["published"]
        progress.ends = report.get("ends")
        progress.heard(before)

    def _on_consumed(self, name: str) -> Callable[[Mapping[str, Any]], None]:
        def on_report(report: Mapping[str, Any]) -> None:
            progress, before = self.progress, self.progress.done
            progress.consumed[name] = report["consumed"]
            if "position" in report:
                progress.positions[name] = report["position"]
            progress.heard(before)

        return on_report
