"""The workload of life stories: several small applications at a time, each with a life that one can read.

Where a random mix comes to everything in the long run, a story goes at once to where it hurts: a twin that
only stood still, a database that is put back from a backup, a report that comes after everything is gone.
There is always somebody who publishes; the rest is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gapless_sim.workloads import (
    story_beginning,
    story_book,
    story_ending,
    story_operating,
    story_outages,
    story_publishing,
    story_reading,
    story_returning,
    story_sharing,
    story_troubling,
)
from gapless_sim.workloads.story_book import Book, Story
from gapless_sim.workloads.story_ending import Ending, StoriesEnd

if TYPE_CHECKING:
    from gapless_sim.world import World

PROBES: tuple[str, ...] = (
    *story_book.PROBES,
    *story_publishing.PROBES,
    *story_reading.PROBES,
    *story_beginning.PROBES,
    *story_sharing.PROBES,
    *story_operating.PROBES,
    *story_troubling.PROBES,
    *story_outages.PROBES,
    *story_returning.PROBES,
    *story_ending.PROBES,
)
"""What should happen sometimes."""

KINDS: tuple[type[Story], ...] = (
    *story_reading.STORIES,
    *story_sharing.STORIES,
    *story_beginning.STORIES,
    *story_operating.STORIES,
    *story_publishing.STORIES,
)
"""Every kind of story."""

LATER_SHARE = 0.5
"""So many worlds have a story that came later than the others."""

TROUBLE = {**story_troubling.TROUBLE, **story_outages.TROUBLE, **story_returning.TROUBLE}
"""Those that have the world for themselves, by the names that options have for them."""


class Stories:
    """The stories of one world."""

    def __init__(self, world: World, kinds: Sequence[type[Story]] | None = None) -> None:
        """`kinds`: exactly these stories; else they are drawn."""
        self._world = world
        self.book = Book(world)
        self.stories = [kind(self.book, number + 1) for number, kind in enumerate(kinds or self._draw())]
        self.ending = Ending(self.book)
        world.observe.add(StoriesEnd(self.ending))

    def _draw(self) -> list[type[Story]]:
        """Somebody who publishes, somebody who reads, and whoever else comes along; or what the run is about."""
        draws, story = self._world.choices.stream("workload"), self._world.options.story
        if story:
            return [TROUBLE[story]]
        kinds: list[type[Story]] = [draws.pick(story_publishing.STORIES), draws.pick(story_reading.STORIES)]
        kinds += [draws.pick(KINDS) for _ in range(draws.between(1, self._world.options.subscriptions))]
        later = self._world.choices.stream("workload/later")
        if later.chance(LATER_SHARE):
            kinds.append(later.pick(story_publishing.LATER))
        return kinds

    def begin(self) -> None:
        """The applications start, whether or not there is a broker."""
        self._world.note("world", "stories", ", ".join(story.name for story in self.stories))
        for client in self._world.clients.values():
            client.on_start = self.book.begin
            client.start()

    def calm(self) -> None:
        """All stories come to their end."""
        self.ending.begin()
