"""What applications of the workload `churn` publish: publications of few topics, with few values of few properties.

Few, so that every filter matches something and leaves something out. A property may be absent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gapless_sim.workloads.headers import draw_headers
from gapless_sim.world.producer import Publication

if TYPE_CHECKING:
    from gapless_sim.world.choices import Stream

TOPICS = ("a", "a.b", "a.b.c", "a.x", "b", "b.x", "b.b.c")
BAD_TOPIC = "a.*"
"""Nobody may publish to it."""

NUMBERS = (1, 0, 2, 3, -1, 7, None)
FLAGS = (True, False, None)
PRICES = (2.5, 0.0, -0.75, 100.25, None)
TREES = ("ash", "birch", "Ash", "a%h", "", None)
PADDINGS = (0, 0, 0, 16, 300, 4_000)


class PublicationGenerator:
    """Writes publications; no key occurs twice."""

    def __init__(self, choices: Stream, headers: Stream, next_key: Callable[[], int]) -> None:
        """`headers` draws what is set beside the properties. No other publication has a key of `next_key`."""
        self._choices = choices
        self._headers = headers
        self._next_key = next_key

    def write(self) -> Publication:
        """A publication that anybody may publish."""
        choices = self._choices
        topic = choices.pick(TOPICS)
        properties = properties_of(choices.draw(len(NUMBERS) * len(FLAGS) * len(PRICES) * len(TREES)))
        return self._publication(topic, properties, choices.pick(PADDINGS))

    def write_to(self, topic: str) -> Publication:
        """A publication to this topic."""
        publication = self.write()
        return Publication(publication.key, topic, publication.properties, publication.padding, publication.headers)

    def write_bad(self) -> Publication:
        """A publication that every broker refuses."""
        return self._publication(BAD_TOPIC, {}, 0)

    def _publication(self, topic: str, properties: dict[str, Any], padding: int) -> Publication:
        return Publication(self._next_key(), topic, properties, padding, draw_headers(self._headers))


def properties_of(number: int) -> dict[str, Any]:
    """The properties with this number: the digits of it choose the values. 0 has a value for each."""
    properties: dict[str, Any] = {}
    for name, values in (("k", NUMBERS), ("flag", FLAGS), ("price", PRICES), ("tree", TREES)):
        number, digit = divmod(number, len(values))
        if values[digit] is not None:
            properties[name] = values[digit]
    return properties
