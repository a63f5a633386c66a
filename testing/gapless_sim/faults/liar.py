"""A broker that is broken, or evil: it says again what it said last, and of a tick that no pubend can have reached.

Nobody who judges by what brokers say sees such a frame: whoever believes it contradicts what is seen of the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.network.frames import encode
from gapless_sim.recording.frame_tap import read_frame
from gapless_testing.routing.false_ticks import IMPOSSIBLE, with_tick

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gapless_sim.recording.frame_tap import LinkBetween
    from gapless_sim.world.world import World


class Liar:
    """Remembers what was said last on each link of a tick, and lies of that."""

    def __init__(self, world: World, *, on: bool) -> None:
        self._world = world
        self._on = on
        self._heard: dict[tuple[LinkBetween, int], bytes] = {}

    def heard(self, link: LinkBetween, index: int, frame: bytes) -> None:
        """A frame arrives at this end of a link."""
        if self._on and (false := _false(frame)) is not None:
            self._heard[link, index] = false

    def lie(self, links: Sequence[LinkBetween], choose: Callable[[int], int]) -> None:
        """On one of these links somebody lies."""
        self._heard = {place: false for place, false in self._heard.items() if place[0].up}
        places = [(link, index) for link in links for index in (0, 1) if (link, index) in self._heard]
        if not places:
            return
        link, index = places[choose(len(places))]
        target, life = link.ends[index], link.lives[index]
        number, false = link.numbers[index], self._heard[link, index]
        self._world.sometimes("net.impossible tick")
        self._world.note("world", "lie", f"{link.ends[1 - index].name} tells {target.name} of tick {IMPOSSIBLE}")
        self._world.at(self._world.now, target.name, "lie", target.on_broker_frame, number, false, life=life)


def _false(frame: bytes) -> bytes | None:
    read = read_frame(frame)
    false = None if read is None else with_tick(read.message, IMPOSSIBLE)
    return None if read is None or false is None else encode(false, read.address)
