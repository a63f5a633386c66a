"""Frames that are late beyond their own link: they turn up on a later one between the same two places.

Streams like TCP cannot do that; a message queue, or a proxy that dials anew, can (N03). What was
said in an earlier session must mean nothing to a later one, and what a router once heard must still be true.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from gapless_sim.world.choices import Stream

Way: TypeAlias = "tuple[str, str]"
"""From one place to another."""

LINKS = 12
"""So many links of each way are remembered: half of them the oldest ones, half the newest."""
FRAMES = 32
"""So many frames of each link: half of them the first ones, half the newest."""
TOGETHER = 8
"""So many frames turn up together at most."""


class Leftovers:
    """What went each way, link by link, as far as it is remembered."""

    def __init__(self, choices: Stream) -> None:
        self._choices = choices
        self._ways: dict[Way, dict[int, list[bytes]]] = {}

    def keep(self, way: Way, link: int, frames: Sequence[bytes]) -> None:
        """These were sent on a link, each of which has a higher number than those before it."""
        links = self._ways.setdefault(way, {})
        sent = links.get(link)
        if sent is None:
            sent = links[link] = []
            if len(links) > LINKS:
                del links[list(links)[LINKS // 2]]
        sent += frames
        if len(sent) > FRAMES:
            del sent[FRAMES // 2 : -FRAMES // 2]

    def has_any(self, way: Way, link: int) -> bool:
        """Whether something of a link before this one is remembered."""
        return next(iter(self._ways.get(way, ())), link) < link

    def take(self, way: Way, link: int) -> list[bytes]:
        """Some frames of a link before this one, in the order in which they were sent. There must be some."""
        links = self._ways[way]
        sent = links[self._choices.pick([earlier for earlier in links if earlier < link])]
        begin = self._choices.draw(len(sent))
        return sent[begin : begin + 1 + self._choices.draw(TOGETHER)]

    def pick(self, ways: Sequence[Way]) -> Way:
        """One of several ways."""
        return self._choices.pick(ways)
