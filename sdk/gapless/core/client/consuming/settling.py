"""The settlements of a consumer of a shared subscription: numbered, repeated until they are answered.

    gathering ──the turn ends──▶ sent ──Settled──▶ answered
                                  ▲ │ session over, attached again
                                  └─┘

Verdicts of a turn leave together. Each belongs to one settlement from the beginning on, whose number never changes:
so the broker answers a repeated one as it answered it the first time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from gapless.core.stream.ticks import PubendId, Tick
from gapless.core.wire.messages import Holds, Kind, Verdict
from gapless.core.wire.messages.sharing import UNANSWERED_MAX

HOLD_BYTES = 20
"""At most so many bytes a hold takes in a message: a tick, and the number of its delivery."""
VERDICT_BYTES = 540
"""The same of the rest of a verdict: the name of its pubend above all."""

Places = Mapping[PubendId, Sequence[tuple[Tick, int]]]
"""Ticks and delivery numbers, by the pubend."""


class Settlement(Struct, eq=False):
    """Verdicts that are answered together."""

    number: int
    verdicts: dict[tuple[Kind, int, PubendId], list[tuple[Tick, int]]]
    """Ticks and delivery numbers, by what is said of them: the kind, the delay in milliseconds, the pubend."""
    size: int = 0
    """At most how many bytes they take."""
    is_sent: bool = False
    """Whether it was sent in the present session."""

    def message(self) -> tuple[Verdict, ...]:
        """Returns the verdicts for the wire."""
        return tuple(
            Verdict(kind, holds_of(pubend, places), delay_ms)
            for (kind, delay_ms, pubend), places in self.verdicts.items()
        )


class Settling:
    """What one consumer has settled, and has no answer to."""

    def __init__(self, next_number: Callable[[], int]) -> None:
        """`next_number` counts the settlements of this instance: also those of an earlier consumer of this name."""
        self._next_number = next_number
        self._unanswered: dict[int, Settlement] = {}
        """All without an answer, the oldest first."""
        self._gathering: Settlement | None = None
        """The last of them, if it was never sent: more verdicts may join it."""
        self._count = 0

    @property
    def is_idle(self) -> bool:
        """Whether everything is answered."""
        return not self._unanswered

    @property
    def awaits_verdicts(self) -> bool:
        """Whether something that the application said has no answer; what is only given back is nothing of that."""
        return any(kind is not Kind.RELEASE for each in self._unanswered.values() for kind, _, _ in each.verdicts)

    def __len__(self) -> int:
        """How many holds are settled, and their settlement is not answered."""
        return self._count

    def places(self) -> Iterator[tuple[PubendId, Sequence[tuple[Tick, int]]]]:
        """Yields what is settled without an answer: the broker has to know that it is held, until it is answered."""
        for settlement in self._unanswered.values():
            for (_, _, pubend), places in settlement.verdicts.items():
                yield pubend, places

    def add(self, kind: Kind, delay_ms: int, places: Places, bytes_max: int) -> list[int]:
        """Adds verdicts. Returns the numbers of their settlements, each of at most `bytes_max` bytes."""
        numbers: list[int] = []
        for pubend, at in places.items():
            key, done = (kind, delay_ms, pubend), 0
            self._count += len(at)
            while done < len(at):
                settlement = self._settlement()
                room = bytes_max - settlement.size - (0 if key in settlement.verdicts else VERDICT_BYTES)
                count = min(len(at) - done, room // HOLD_BYTES)
                if count <= 0 and settlement.verdicts:
                    self._gathering = None  # the next one has room
                    continue
                count = max(1, count)
                settlement.size += count * HOLD_BYTES + (0 if key in settlement.verdicts else VERDICT_BYTES)
                settlement.verdicts.setdefault(key, []).extend(at[done : done + count])
                done += count
                if settlement.number not in numbers[-1:]:
                    numbers.append(settlement.number)
        return numbers

    def take_unsent(self) -> list[Settlement]:
        """Returns those that may be sent now: no more than `UNANSWERED_MAX` are without an answer then."""
        unsent: list[Settlement] = []
        oldest = next(iter(self._unanswered), 0)
        for settlement in self._unanswered.values():
            if settlement.number - oldest >= UNANSWERED_MAX:
                break
            if not settlement.is_sent:
                settlement.is_sent = True
                unsent.append(settlement)
                if settlement is self._gathering:
                    self._gathering = None
        return unsent

    def on_session_over(self) -> None:
        """The session is over: what has no answer has to be sent again."""
        for settlement in self._unanswered.values():
            settlement.is_sent = False

    def on_settled(self, number: int) -> bool:
        """A settlement is answered. Returns whether it was waited for."""
        settlement = self._unanswered.get(number)
        if settlement is None or not settlement.is_sent:
            return False
        del self._unanswered[number]
        self._count -= sum(map(len, settlement.verdicts.values()))
        return True

    def _settlement(self) -> Settlement:
        if self._gathering is None:
            number = self._next_number()
            self._gathering = self._unanswered[number] = Settlement(number, {})
        return self._gathering


def holds_of(pubend: PubendId, places: Iterable[tuple[Tick, int]]) -> Holds:
    """Returns how events of a pubend are named to the broker that are held: in tick order."""
    ticks, numbers = zip(*sorted(places), strict=True)
    return Holds(pubend, ticks, numbers)
