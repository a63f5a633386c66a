"""Events as they stand in a log, and what the product's own filters say of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gapless.core.stream.events import Event, Extras
from gapless.selectors.filters import Filter
from gapless_sim.recording.accounts import Logged
from gapless_sim.world.producer import Publication

PUBEND = "p@1"


def logged(topic: str, properties: Mapping[str, Any], headers: Mapping[str, Any] = {}, tick: int = 1) -> Logged:
    """A publication with these, logged at a tick."""
    return Logged(PUBEND, tick, Publication(1, topic, properties, headers=headers))


def selects(wanted: Filter, event: Logged) -> bool:
    """Whether a filter of the product selects it, as an application has it."""
    publication = event.publication
    told = Event(
        publication.topic, dict(publication.properties), Extras(**publication.headers), b"", event.tick, event.pubend
    )
    return wanted.matches(told.topic, told.properties, told.headers)
