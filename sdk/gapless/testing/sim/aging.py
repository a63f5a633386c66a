"""How old a pubend may take its events for, and which of them it may let go of although somebody needs them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.ticks import wall_at

if TYPE_CHECKING:
    from gapless.core.ticks import Tick
    from gapless.testing.sim.accounts import History
    from gapless.testing.sim.world import World


class Ages:
    """What PHBs were told to keep at most, and what the present is to them."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._retains: dict[str, list[float]] = {}
        """For which times PHBs were told to keep events at most, if they ever were."""
        self._retains_bytes: dict[str, list[int]] = {}
        """How many bytes PHBs were told to keep at most, likewise."""
        self._presents = Presents()
        self._began: dict[str, int] = {}
        """When each broker began to recover the last time."""

    def is_early(self, history: History, tick: Tick) -> bool:
        """Whether an event may be gone although somebody needs it: if its PHB was told so, and it is old enough."""
        retains, limits = self._retains.get(history.broker), self._retains_bytes.get(history.broker)
        if limits and history.bytes_above(tick) > min(limits):
            return True
        return bool(retains) and self.is_older(history, tick, min(retains or ()))

    def is_older(self, history: History, tick: Tick, seconds: float) -> bool:
        """Whether a pubend can have taken a tick for that old."""
        return self._presents.latest(history.broker, self._world.now) - wall_at(tick) >= int(seconds * 1000)

    def vanished(self, broker: str) -> None:
        """A broker is about to recover."""
        self._began[broker] = self._world.now

    def opened(self, broker: str, stable: Tick) -> None:
        """A pubend of it is there, under the policy that its PHB has now."""
        self._note_policy(broker)
        self.note_clock(broker, stable, self._began.get(broker, 0))

    def _note_policy(self, broker: str) -> None:
        section = self._world.brokers[broker].loaded.config.role("phb")
        for pubend in section.get("pubends", ()):
            # A policy of somebody else's may want anything gone, at any age.
            seconds = 0.0 if "release" in pubend else pubend.get("max_retain_seconds")
            if seconds is not None:
                self._retains.setdefault(broker, []).append(seconds)
            if pubend.get("max_retain_bytes") is not None:
                self._retains_bytes.setdefault(broker, []).append(pubend["max_retain_bytes"])

    def note_clock(self, broker: str, tick: Tick, since: int | None = None) -> None:
        """A pubend's present is at this tick at least, since then; or where the wall clock is."""
        now = self._world.now
        shown = self._world.brokers[broker].node_clock.wall(now)
        passed = passed_at_most(now - since) if since is not None else 0
        self._presents.note(broker, now, max(shown, wall_at(tick) + passed))


class Presents:
    """What the pubends of each broker take for the present, at most: their clocks never go back."""

    def __init__(self) -> None:
        self._highest: dict[str, tuple[int, int]] = {}
        """Per broker a time (ms since 1970) that they cannot have been beyond at a time of the world."""

    def note(self, broker: str, now: int, wall: int) -> None:
        """They may be as far as this now."""
        self._highest[broker] = max(wall, self.latest(broker, now)), now

    def latest(self, broker: str, now: int) -> int:
        """How far they may be now."""
        highest, at = self._highest.get(broker, (0, 0))
        return highest + passed_at_most(now - at)


def passed_at_most(nanoseconds: int) -> int:
    """How many milliseconds that may be by a fast clock."""
    return nanoseconds * 21 // 20_000_000 + 1
