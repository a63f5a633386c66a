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
from gapless_flights.subscriber import Consumption, write_wanted
from gapless_flights.worker import WorkerFailedError

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
        self.attached: set[str] = set()
        """The subscriptions that have been there."""
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
        self.directory = directory
        self.flights = directory / "flights.csv"
        self.rate = rate
        self._selections = selections
        self._url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        write_lines(self.flights, flights)

    async def __aenter__(self) -> Self:
        """Starts the broker, then who consumes, then who publishes."""
        progress = self.progress
        try:
            self.start(BROKER, self._broker, self._on_broker, may_fail_to_start=True)
            await self.watch(self._url)
            for name, selections in self.consumers().items():
                self.start(name, self._consumer(name, selections), self._on_consumed)
            # So they need not read the past: with many of them that takes much longer.
            if not await self.watch(self.progress.until(lambda: progress.attached == progress.consumed.keys())):
                raise WorkerFailedError("the broker does not attach all subscribers")
            self.start(PUBLISHER, self.publisher, self._on_published)
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
        return self.directory / f"{selection.name}.sqlite"

    def consumers(self) -> Mapping[str, Sequence[DemoSubscription]]:
        """The processes that consume, by name, and what each of them does: one subscription."""
        return {selection.name: [selection] for selection in self._selections}

    def position_of(self, ticks: Mapping[str, int]) -> Mapping[str, int]:
        """A subscriber's position, as `DemoProgress.ends` says where the end is: by pubend."""
        return ticks

    def configuration(self) -> str:
        """What stands in the broker's configuration besides node, storage and listener."""
        return ""

    def publisher(self) -> list[str]:
        """The command of the process that publishes."""
        options = ["--url", self.url, "--flights", str(self.flights), "--rate", str(self.rate)]
        return [sys.executable, "-m", "gapless_flights.publisher", *options]

    async def stop_all(self) -> None:
        """Ends all processes in order, the broker last."""
        await asyncio.gather(*(self.stop(name) for name in self._workers if name != BROKER))
        await self.stop(BROKER)

    # The processes.

    def _broker(self) -> list[str]:
        # The first start takes any port that is free, the others that one: clients come back to it.
        address = self.url.partition("://")[2] if self._url.done() else "127.0.0.1:0"
        configuration = self.directory / "gapless.toml"
        path = json.dumps(str(self.directory / "broker"))
        text = _CONFIGURATION.format(path=path, address=json.dumps(address)) + self.configuration()
        configuration.write_text(text, "utf-8")
        options = ["--config", str(configuration), "--json", "--until-stdin-closes"]
        if not self._url.done():  # only the first start has no volume to come back to
            options.append("--create")
        return [sys.executable, "-m", "gapless.cli", "broker", *options]

    def _consumer(self, name: str, selections: Sequence[DemoSubscription]) -> Callable[[], list[str]]:
        path = self.directory / f"{name}.json"
        write_wanted(
            path, [Consumption(one.name, one.topic, one.selector, str(self.database(one))) for one in selections]
        )

        def command() -> list[str]:
            options = ["--url", self.url, "--subscriptions", str(path)]
            return [sys.executable, "-m", "gapless_flights.subscriber", *options]

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

    def _on_consumed(self, report: Mapping[str, Any]) -> None:
        progress, before, name = self.progress, self.progress.done, report["subscription"]
        if name not in progress.attached:
            progress.attached.add(name)
            progress.moved_at = monotonic()
        progress.consumed[name] = report["consumed"]
        if "position" in report:
            progress.positions[name] = self.position_of(report["position"])
        progress.heard(before)
