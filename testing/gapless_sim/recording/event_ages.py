"""How old a pubend may take its events for, and which of them it may let go of although somebody needs them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.stream.ticks import wall_at

if TYPE_CHECKING:
    from gapless.core.stream.ticks import PubendId, Tick
    from gapless_sim.recording.accounts import History
    from gapless_sim.world.world import World

LEAP_MS = 60_000
"""A wall clock that is further ahead than this makes no event older (C01): not within a run of its broker, nor across
its restarts, which this may have been down or set wrong. Runs here are shorter than `phb.clock_doubt_seconds`."""

PROMISED_MS = 5_000
"""So far ahead of the present a pubend may decide: what a reservation covers, and some more."""


class Ages:
    """What PHBs are configured to keep at most, and what the present is to their pubends."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._retains: dict[str, list[float]] = {}
        """For which times PHBs were configured to keep events at most, if they ever were."""
        self._retains_bytes: dict[str, list[int]] = {}
        """How many bytes PHBs were configured to keep at most, likewise."""
        self._presents: dict[PubendId, Present] = {}
        self._stamps: dict[PubendId, Present] = {}
        """What new events are stamped with at most: as that, but that a start believes what the wall clock shows."""
        self._began: dict[str, tuple[int, int]] = {}
        """When each broker began to recover the last time, and how often its clock had been set by then."""
        self._open: dict[str, dict[PubendId, bool]] = {}
        """Which pubends each broker has, and whether they were there since it began to recover the last time."""

    def is_early(self, history: History, tick: Tick) -> bool:
        """Whether an event may be gone although somebody needs it: its PHB is configured so, and it is old enough."""
        retains, limits = self._retains.get(history.broker), self._retains_bytes.get(history.broker)
        if limits and history.bytes_above(tick) > min(limits):
            return True
        if not retains:
            return False
        least = min(retains)
        return not least or self.is_older(history, tick, least)

    def is_older(self, history: History, tick: Tick, seconds: float) -> bool:
        """Whether a pubend can have taken a tick for that old."""
        self._note_clock(history.broker, history.pubend)
        present = self._presents[history.pubend].latest(self._world.now)
        return present - wall_at(tick) >= int(seconds * 1000)

    def may_stamp(self, history: History, upto: Tick) -> bool:
        """Whether a pubend may decide what comes up to a tick: it is not too far in the future, whatever clocks do."""
        if history.pubend not in self._stamps:
            return True  # when it began is not known
        self._note_clock(history.broker, history.pubend)
        return wall_at(upto) <= self._stamps[history.pubend].latest(self._world.now) + PROMISED_MS

    def vanished(self, broker: str) -> None:
        """A broker is about to recover. A start that was cut off may have promised ticks by what its clock showed."""
        pubends = self._open.get(broker, {})
        for pubend, is_open in pubends.items():
            if not is_open:
                self._believe_start(broker, pubend)
            pubends[pubend] = False
        self._began[broker] = self._world.now, len(self._world.brokers[broker].node_clock.jumps)

    def opened(self, broker: str, pubend: PubendId, created: Tick) -> None:
        """A pubend of it is there, under the policy that its PHB has now."""
        self._note_policy(broker)
        began, jumps = self._began.get(broker, (0, 0))
        if pubend not in self._presents:
            self._presents[pubend] = Present(wall_at(created), began, jumps)
            self._stamps[pubend] = Present(wall_at(created), began, jumps)
        self._open.setdefault(broker, {})[pubend] = True
        self._believe_start(broker, pubend)

    def _believe_start(self, broker: str, pubend: PubendId) -> None:
        """A start believes whatever the wall clock has shown since it began."""
        self._note_clock(broker, pubend)
        clock, now = self._world.brokers[broker].node_clock, self._world.now
        since = clock.jumps[self._began.get(broker, (0, 0))[1] :]
        shown = max(clock.wall(now) - sum(since[at:]) for at in range(len(since) + 1))
        # It goes on behind what it may have promised before.
        self._stamps[pubend].believe(now, max(shown, self._stamps[pubend].latest(now) + PROMISED_MS))

    def _note_policy(self, broker: str) -> None:
        section = self._world.brokers[broker].loaded.config.role("phb")
        for pubend in section.get("pubends", ()):
            # A policy of somebody else's may want anything gone, at any age.
            seconds = 0.0 if "release" in pubend else pubend.get("max_retain_seconds")
            if seconds is not None:
                self._retains.setdefault(broker, []).append(seconds)
            if pubend.get("max_retain_bytes") is not None:
                self._retains_bytes.setdefault(broker, []).append(pubend["max_retain_bytes"])

    def _note_clock(self, broker: str, pubend: PubendId) -> None:
        """What the wall clock has shown since it was looked at: each time that it was set, and now."""
        clock, now = self._world.brokers[broker].node_clock, self._world.now
        for present in (self._presents[pubend], self._stamps[pubend]):
            jumps = clock.jumps[present.jumps :]
            shown = clock.wall(now) - sum(jumps)
            present.show(now, shown)
            for jump in jumps:
                shown += jump
                present.show(now, shown)
            present.jumps = len(clock.jumps)


class Present:
    """What a pubend takes for the present at most, to say how old its events are: it never goes back."""

    def __init__(self, wall: int, at: int, jumps: int) -> None:
        """`wall`: in milliseconds since 1970, at a time of the world; the clock was set `jumps` times until then."""
        self.jumps = jumps
        self._highest = wall, at

    def show(self, now: int, shown: int) -> None:
        """The wall clock shows a time. One that has leapt is not followed."""
        if shown <= self.latest(now) + LEAP_MS:
            self.believe(now, shown)

    def believe(self, now: int, shown: int) -> None:
        """It may be as late as that."""
        if shown > self.latest(now):
            self._highest = shown, now

    def latest(self, now: int) -> int:
        """How far it may be."""
        highest, at = self._highest
        return highest + passed_at_most(now - at)


def passed_at_most(nanoseconds: int) -> int:
    """How many milliseconds that may be by a fast clock."""
    return nanoseconds * 21 // 20_000_000 + 1
