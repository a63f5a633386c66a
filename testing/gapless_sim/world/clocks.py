"""A node's clocks: monotonic time that drifts, wall time that drifts with it and jumps."""

from __future__ import annotations

WALL_BEGIN = 1_800_000_000_000
"""The wall time of the beginning of every run, in milliseconds since 1970."""
_MILLION = 1_000_000


class NodeClock:
    """What one node takes for the time. The world's own time is `at`, nanoseconds since its beginning."""

    __slots__ = ("_origin", "_wall_offset", "drift_ppm", "jumps")

    def __init__(self, at: int = 0, *, drift_ppm: int = 0, wall_offset_ms: int = 0) -> None:
        self.drift_ppm = drift_ppm
        self._origin = at
        self._wall_offset = wall_offset_ms
        self.jumps: list[int] = []
        """By how many milliseconds the wall clock was ever set."""

    def monotonic(self, at: int) -> int:
        """Nanoseconds; never goes back in one life of a machine."""
        passed = at - self._origin
        return 1_000_000_000 + passed + passed * self.drift_ppm // _MILLION

    def wall(self, at: int) -> int:
        """Milliseconds since 1970, as this node believes."""
        drifted = at + at * self.drift_ppm // _MILLION
        return WALL_BEGIN + self._wall_offset + drifted // _MILLION

    def when(self, monotonic: int) -> int:
        """The world's time at which this node's monotonic clock has at least reached a reading."""
        wanted = monotonic - 1_000_000_000
        at = self._origin + wanted * _MILLION // (_MILLION + self.drift_ppm)
        while self.monotonic(at) < monotonic:
            at += 1
        return at

    def jump(self, milliseconds: int) -> None:
        """The wall clock is set; the monotonic one goes on."""
        self._wall_offset += milliseconds
        self.jumps.append(milliseconds)

    def restart(self, at: int) -> None:
        """The machine booted anew: the monotonic clock begins again."""
        self._origin = at
