"""The release policy that ships: events go when they are too old, or when too many bytes are above them."""

from __future__ import annotations

from dataclasses import dataclass

from gapless.core.ports import PubendState
from gapless.core.stream.ticks import SECOND, Tick


@dataclass(frozen=True, slots=True)
class Limits:
    """An age, a size of the log, or both: then whichever is reached first (a `ReleasePolicy`)."""

    seconds: float | None = None
    bytes: int | None = None

    def __str__(self) -> str:
        limits = [] if self.seconds is None else [f"older than {self.seconds:,g} s"]
        limits += [] if self.bytes is None else [f"below {self.bytes:,} bytes of later events"]
        return " or ".join(limits)

    def release(self, state: PubendState) -> Tick:
        """What is older than the one, or has more above it than the other."""
        return max(self._too_old(state), self._too_many(state))

    def _too_old(self, state: PubendState) -> Tick:
        return 0 if self.seconds is None else state.time - round(self.seconds * SECOND) - 1

    def _too_many(self, state: PubendState) -> Tick:
        return 0 if self.bytes is None else state.log.covered(self.bytes)
