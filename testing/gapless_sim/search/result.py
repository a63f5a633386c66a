"""What came of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gapless_sim.recording.trace import Line
    from gapless_sim.world.choices import ChoiceSequences
    from gapless_sim.world.options import Options


@dataclass(frozen=True, slots=True)
class Failure:
    """What was wrong, and when."""

    oracle: str
    """Which invariant; or, if the code itself stumbled, the type of the exception."""
    what: str
    at: int
    """Nanoseconds since the beginning."""

    def __str__(self) -> str:
        return f"{self.oracle}: {self.what}"


@dataclass(frozen=True, slots=True)
class Result:
    """A run: what it was made of, what was drawn, and whether the promise held."""

    options: Options
    digest: str
    """The hash of everything that happened."""
    steps: int
    now: int
    """The virtual time at the end, in nanoseconds."""
    violation: Failure | None
    choice_sequences: ChoiceSequences
    """What was drawn, by stream: with the options it makes the same run again."""
    node_events: int = 0
    hits: Counter[str] = field(default_factory=Counter)
    lines: Sequence[Line] = ()
    """What people can read of it, if it was kept."""
