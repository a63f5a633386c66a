"""Randomness as choice sequences: named streams of small integers, in which 0 is always the benign choice.

A seed makes the streams; each stream has a generator of its own, so that one more draw in one place shifts
nothing in another. Everything that is drawn is recorded. A recorded choice sequence can be edited (mostly: set to 0)
and replayed; that is how a failure is shrunk. Where a choice sequence ends, every choice is benign.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from random import Random
from typing import TypeAlias, TypeVar

ChoiceSequences: TypeAlias = "Mapping[str, Sequence[int]]"
"""What was drawn, by stream."""
T = TypeVar("T")

_FINE = 1 << 20
"""The resolution of chances and delays."""


class Stream:
    """One named stream of choices."""

    __slots__ = ("_next", "_replay", "drawn", "label")

    def __init__(self, label: str, random: Random, replay: Sequence[int] | None) -> None:
        self.label = label
        self.drawn: list[int] = []
        """Everything that was drawn, in order."""
        self._next = random.random
        self._replay = replay

    def draw(self, count: int) -> int:
        """One of 0 .. count - 1; 0 is the benign one."""
        if self._replay is not None:
            place = len(self.drawn)
            value = min(self._replay[place], count - 1) if place < len(self._replay) else 0
        else:
            value = int(self._next() * count)
        self.drawn.append(value)
        return value

    def chance(self, rate: float) -> bool:
        """Whether something happens that happens with this probability; that it does not is benign."""
        if rate <= 0:
            return False
        # The benign outcome must be 0, so the interesting one is at the upper end.
        return self.draw(_FINE) >= _FINE * (1 - rate)

    def between(self, low: int, high: int) -> int:
        """A number of low .. high; the lowest is benign."""
        return low + self.draw(high - low + 1)

    def pick(self, options: Sequence[T]) -> T:
        """One of these; the first is benign."""
        return options[self.draw(len(options))]

    def delay(self, least: int, mean: int) -> int:
        """`least` and some more: mostly little, now and then much (as if from an exponential distribution)."""
        portion = self.draw(_FINE)
        # ln is not the same to the last bit on every machine: halves of a rest are, and will do.
        more, step = 0, mean
        while portion & 1 and step < mean << 4:
            more += step
            step *= 2
            portion >>= 1
        return least + more + (mean * (portion & 0xFF) >> 8)


class Choices:
    """All streams of one run."""

    def __init__(self, seed: int, choice_sequences: ChoiceSequences | None = None) -> None:
        """With `choice_sequences`, these are replayed; without, the seed makes them."""
        self.seed = seed
        self._choice_sequences = choice_sequences
        self._streams: dict[str, Stream] = {}

    def stream(self, label: str) -> Stream:
        """The stream of that name."""
        stream = self._streams.get(label)
        if stream is None:
            replay = None if self._choice_sequences is None else self._choice_sequences.get(label, ())
            stream = self._streams[label] = Stream(label, random_of(self.seed, label), replay)
        return stream

    def choice_sequences(self) -> dict[str, list[int]]:
        """What was drawn so far, by stream."""
        return {label: stream.drawn for label, stream in self._streams.items()}


def random_of(seed: int, label: str) -> Random:
    """The generator of a named stream: the same on every machine and Python."""
    return Random(int.from_bytes(sha256(f"{seed}/{label}".encode()).digest(), "big"))  # noqa: S311 - no secret
