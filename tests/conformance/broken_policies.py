"""Release policies that break one promise each, to see that the suite notices."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gapless.core.ports import PubendState
from gapless.core.stream.ticks import SECOND, Tick, tick_at
from gapless.errors import ConfigurationError
from gapless_testing.release import Options, ReleaseHarness

NAMES = ("age", "keep")


class AgeAboveBytes:
    """Not broken: what is older than an age goes, but never one of the newest bytes."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.check(options)
        self.age: int = options["age"]
        self.keep: int = options.get("keep", 0)

    def check(self, options: Mapping[str, Any]) -> None:
        for name, value in options.items():
            if name not in NAMES:
                raise ConfigurationError(f"there is no option {name!r}")
            if type(value) is not int or value < 0:
                raise ConfigurationError(f"{name} is a number from 0 on")
        if "age" not in options:
            raise ConfigurationError("age is missing")

    def release(self, state: PubendState) -> Tick:
        old = state.time - self.age * SECOND - 1
        return min(old, state.log.covered(self.keep)) if self.keep else old


class LooksAtItsWatch(AgeAboveBytes):
    def release(self, state: PubendState) -> Tick:
        return tick_at(time.time_ns() // 1_000_000) - self.age * SECOND


class SpreadsTheLoad(AgeAboveBytes):
    """It adds some seconds, so that not all pubends go at once."""

    def release(self, state: PubendState) -> Tick:
        return super().release(state) - random.randrange(SECOND)


class SpreadsTheLoadByName(AgeAboveBytes):
    """Always the same for one pubend, it thinks."""

    def release(self, state: PubendState) -> Tick:
        return super().release(state) - hash(state.pubend) % SECOND


class NeverGoesBack(AgeAboveBytes):
    """It remembers its highest answer, of whichever pubend that was."""

    highest = 0

    def release(self, state: PubendState) -> Tick:
        self.highest = max(self.highest, super().release(state))
        return self.highest


class EverySecondTime(AgeAboveBytes):
    """It has been asked lately, and of that very pubend."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        self.asked: dict[str, int] = {}

    def release(self, state: PubendState) -> Tick:
        count = self.asked[state.pubend] = self.asked.get(state.pubend, 0) + 1
        return super().release(state) if count % 2 else 0


class SharesItsMemory(AgeAboveBytes):
    """Each one that is made keeps a little more than the one before."""

    made = 0

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        SharesItsMemory.made += 1
        self.age += SharesItsMemory.made


class DividesByTheLog(AgeAboveBytes):
    """There is always an event, is there not."""

    def release(self, state: PubendState) -> Tick:
        return state.newest * self.age // state.log.size


class AnswersAFraction(AgeAboveBytes):
    def release(self, state: PubendState) -> Tick:
        return state.time - self.age * 1.0 * SECOND  # type: ignore[return-value]


class AnswersNothing(AgeAboveBytes):
    def release(self, state: PubendState) -> Tick:
        return super().release(state) if state.newest else None  # type: ignore[return-value]


class AnswersYes(AgeAboveBytes):
    """Whether something may go, and not what."""

    def release(self, state: PubendState) -> Tick:
        return state.time > self.age


class AnswersBeyondTime(AgeAboveBytes):
    def release(self, state: PubendState) -> Tick:
        return 1 << 64


class SearchesTheLog(AgeAboveBytes):
    """Tick by tick."""

    def release(self, state: PubendState) -> Tick:
        tick = state.newest
        while tick > state.lost and state.log.above(tick) <= self.keep:
            tick -= 1
        return tick


class OpensTheLog(AgeAboveBytes):
    """It knows what is inside."""

    def release(self, state: PubendState) -> Tick:
        return state.log._ends[0] if state.log.size else 0  # type: ignore[attr-defined]


class ReadsAFile(AgeAboveBytes):
    def release(self, state: PubendState) -> Tick:
        return super().release(state) if Path(__file__).read_bytes() else 0


class Talks(AgeAboveBytes):
    def release(self, state: PubendState) -> Tick:
        print(state)  # noqa: T201
        return super().release(state)


class GivesBack(AgeAboveBytes):
    """The older the pubend, the more of it stays."""

    def release(self, state: PubendState) -> Tick:
        return state.newest - state.time // self.age


class TakesAnyOption(AgeAboveBytes):
    def check(self, options: Mapping[str, Any]) -> None:
        super().check({name: value for name, value in options.items() if name in NAMES})


class TakesAnyValue(AgeAboveBytes):
    def check(self, options: Mapping[str, Any]) -> None:
        super().check(dict.fromkeys(options, 1))


class RefusesInItsOwnWay(AgeAboveBytes):
    def check(self, options: Mapping[str, Any]) -> None:
        try:
            super().check(options)
        except ConfigurationError as error:
            raise ValueError(str(error)) from error


class RefusesWithoutAWord(AgeAboveBytes):
    def check(self, options: Mapping[str, Any]) -> None:
        try:
            super().check(options)
        except ConfigurationError as error:
            raise ConfigurationError("something is wrong") from error


class KeepsTheOptions(AgeAboveBytes):
    """As they are, wherever they come from."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        self.options = options

    def release(self, state: PubendState) -> Tick:
        return state.time - int(self.options.get("age", 0)) * SECOND


class TakesMilliseconds(AgeAboveBytes):
    """A tick is something else."""

    def release(self, state: PubendState) -> Tick:
        return state.time - self.age * 1000 - 1


class WritesAnEssay(AgeAboveBytes):
    def __str__(self) -> str:
        return f"age: {self.age}\nkeep: {self.keep}"


class BrokenHarness(ReleaseHarness):
    """A policy as it should not be, or as it should."""

    options = ({"age": 60}, {"age": 3600, "keep": 1 << 20})
    refused: Sequence[tuple[str, Options]] = (("age", {}), ("age", {"age": "60"}), ("keep", {"age": 60, "keep": -1}))

    def __init__(self, policy: type[AgeAboveBytes] = AgeAboveBytes) -> None:
        self._policy = policy

    def make(self, options: Mapping[str, Any]) -> AgeAboveBytes:
        return self._policy(options)
