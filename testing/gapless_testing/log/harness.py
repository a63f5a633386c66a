"""What a log plugin's author tells the suite: how to open a log, and what can happen to one."""

from __future__ import annotations

import abc
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias

import pytest

from gapless.core.ports import LogAnswer
from gapless.core.stream.ticks import Tick
from gapless.spi import Logs
from gapless_testing.running import LoopHarness

End: TypeAlias = "Callable[[bool], Awaitable[None]]"
"""Ends a transaction: True commits it, False aborts it."""


class LogHarness(LoopHarness, abc.ABC):
    """Logs of one family, and what others than gapless do to them. `make` and `open` are a must.

    Override the others as far as they can happen to such a log: where one cannot, tests are skipped and say so. Each
    test has a harness of its own, on which nothing was made yet. A log is named as `NumberedLog.log` names it.
    """

    quiet: float = 0.05
    """Seconds after which nothing more comes, if nothing happens. Configure the plugin so that it is little."""

    @abc.abstractmethod
    async def make(self) -> None:
        """Makes the log, empty; after `delete`, one of the same name."""

    @abc.abstractmethod
    def open(self, known: Mapping[str, str], answer: Callable[[LogAnswer], None]) -> Logs:
        """Opens the logs with another plugin each time, as another node would; `make` may not have been called yet.

        The arguments are those of `gapless.spi.LogPlugin.open`.
        """

    def index(self, last: Tick, count: int) -> Tick:
        """Where the host numbers the records: the index of one with so many events, behind `last`."""
        return last + count

    async def append(self, log: str, bodies: Sequence[bytes]) -> None:
        """Somebody who knows nothing of gapless appends events, in one piece if the log has such; now or long ago.

        Not overridden, the suite appends through the plugin: for logs that nobody else appends to.
        """
        raise NotImplementedError

    async def append_at(self, log: str, wall: int, body: bytes) -> None:
        """The same, of one event, at a time in milliseconds since 1970: not before that of any other."""
        raise NotImplementedError

    async def begin(self, log: str, bodies: Sequence[bytes]) -> End:
        """Somebody appends events in a transaction that stays open: neither these nor what is behind them is decided.

        Returns what ends it.
        """
        raise NotImplementedError

    async def remove(self, log: str, upto: Tick) -> None:
        """Retention removes everything up to a tick."""
        raise NotImplementedError

    async def cut(self, log: str, after: Tick) -> None:
        """What was behind a tick is lost, if there was something, and the log goes on: its old ticks do not come again.

        The void begins at `after`.
        """
        raise NotImplementedError

    async def thin(self, log: str, after: Tick, upto: Tick) -> None:
        """Records are gone from the middle, (after, upto], and what the log says of itself does not show that."""
        raise NotImplementedError

    async def spoil(self, log: str, *, spoilt: bool) -> None:
        """From now on what the log contains cannot be read, or can again."""
        raise NotImplementedError

    async def add(self) -> None:
        """There is one more log of the family."""
        raise NotImplementedError

    async def hide(self, *, hidden: bool) -> None:
        """Some of those who know the log do not know it for a while, although it is there; or all do again."""
        raise NotImplementedError

    async def delete(self) -> None:
        """The logs are gone for good."""
        raise NotImplementedError

    async def disconnect(self) -> None:
        """Every connection breaks; new ones can be made."""
        raise NotImplementedError

    async def lose_answer(self) -> None:
        """The next append is done, and the answer to it is lost."""
        raise NotImplementedError


def overrides(harness: LogHarness, ability: str) -> bool:
    """Whether a harness has a method of its own."""
    return getattr(type(harness), ability) is not getattr(LogHarness, ability)


def need(harness: LogHarness, *abilities: str) -> None:
    """Skips the test unless the harness overrides these methods."""
    for ability in abilities:
        if not overrides(harness, ability):
            pytest.skip(f"{type(harness).__name__} has no {ability}()")


class SuitePart:
    """What every class of the suite begins with."""

    @pytest.fixture
    def harness(self) -> LogHarness:
        """What is tested. Override it."""
        raise NotImplementedError("override the fixture `harness` to return your LogHarness")
