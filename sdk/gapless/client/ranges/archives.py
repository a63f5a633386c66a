"""Archives: where a connection finds events that pubends have given up, and which of these a subscription selects.

An archive has all events of the intervals that it covers, for its own topics and selector. So it can replace the log
for a subscription that selects no more than that.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from gapless import loggers
from gapless.core.stream.events import Event
from gapless.core.stream.intervals import IntervalSet
from gapless.core.stream.ticks import PubendId, Tick
from gapless.errors import ArchiveError, ConfigurationError
from gapless.selectors.filters import Filter
from gapless.selectors.selector import Selector
from gapless.selectors.topics import pattern_covers

EVENTS_AT_ONCE: Final = 1024
BYTES_AT_ONCE: Final = 4 << 20
"""The size of a portion: so many events, or so many bytes of bodies, whichever comes first."""
LOOKED_AT_ONCE: Final = 16_384
"""A portion ends after so many events were looked at, selected or not; so it never takes long."""

log = loggers.logger("gapless.client")


@runtime_checkable
class Archive(Protocol):
    """A source of events that a pubend may have given up: `connect(…, archive=…)` fills gaps from it.

    `gapless_spark.pipelines.archive_reader.Archive` is one. Its methods may be slow: they are called in threads,
    perhaps in several at once. Their exceptions are raised where the application asks for the events.
    """

    @property
    def network(self) -> str:
        """The id of the network from which its events come."""

    @property
    def topics(self) -> Sequence[str]:
        """The topic patterns of its events."""

    @property
    def selector(self) -> str:
        """A selector that is true for each of its events; blank: there is none."""

    def covered(self, pubend: PubendId) -> Sequence[tuple[Tick, Tick]]:
        """Returns the intervals `(start, end]` of a pubend in which it has every such event."""

    def events(self, pubend: PubendId, start: Tick, end: Tick) -> Iterator[Event]:
        """Yields the events of (start, end] in tick order, as their publisher sent them. It may read them lazily."""


def check_archive(archive: object) -> None:
    """Raises ConfigurationError if the object is no archive."""
    if not isinstance(archive, Archive):
        raise ConfigurationError(
            "archive has network, topics, selector, covered() and events(), as gapless.Archive says;"
            f" {archive!r} has not"
        )


def check_network(archive: Archive, network: str) -> None:
    """Raises ConfigurationError if the archive is of another network."""
    if archive.network != network:
        raise ConfigurationError(f"the archive is of network {archive.network!r}, this is {network!r}")


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a gap: covered by the archive, or not."""

    start: Tick
    end: Tick
    covered: bool


@dataclass(frozen=True, slots=True)
class ArchivePortion:
    """Some of the events that a subscription selects in a covered part."""

    events: list[Event]
    upto: Tick
    """Up to here the part was searched: it has no other events for the subscription."""
    is_last: bool
    """Whether this is the end of the part."""


class Selection:
    """The events that a subscription selects in an archive that has all of them."""

    def __init__(self, archive: Archive, topics: Sequence[str], selector: str, *, keeps_expired: bool = False) -> None:
        """Takes the subscription's topics and selector. Expired events are skipped, as by a broker."""
        self._archive = archive
        self._keeps_expired = keeps_expired
        self._filter = Filter(tuple(topics), selector)

    def lacking(self) -> str:
        """Returns why the archive may have fewer events than the subscription selects, for people; "" if it has all."""
        archive = self._archive
        for topic in self._filter.topics:
            if not any(pattern_covers(wide, topic) for wide in archive.topics):
                return f"the archive has {', '.join(archive.topics)}, and {topic} is more than that"
        own = Selector(archive.selector)
        if own.selects_everything or own == self._filter.compiled:
            return ""
        return f"the archive has only events with {archive.selector}"

    def parts(self, pubend: PubendId, start: Tick, end: Tick) -> list[Part]:
        """Returns (start, end] in parts, in order: those that the archive covers, and those between them."""
        covered = IntervalSet(self._archive.covered(pubend))
        parts = [Part(low, high, covered=True) for low, high in covered.within(start, end)]
        parts += [Part(low, high, covered=False) for low, high in covered.gaps(start, end)]
        return sorted(parts, key=lambda part: part.start)

    def portions(self, pubend: PubendId, start: Tick, end: Tick) -> Iterator[ArchivePortion]:
        """Yields the selected events of a covered part, in portions; the last one is marked.

        Raises ArchiveError for an event outside the part.
        """
        chosen: list[Event] = []
        size = looked = 0
        upto = start
        for event in self._archive.events(pubend, start, end):
            if event.pubend != pubend or not upto < event.tick <= end:
                raise ArchiveError(f"the archive gives {event.message_id} where it has come to {upto} of {pubend}")
            upto = event.tick
            looked += 1
            if self._selects(event):
                chosen.append(event)
                size += len(event.body)
            if len(chosen) >= EVENTS_AT_ONCE or size >= BYTES_AT_ONCE or looked >= LOOKED_AT_ONCE:
                yield ArchivePortion(chosen, upto, is_last=False)
                chosen, size, looked = [], 0, 0
        yield ArchivePortion(chosen, end, is_last=True)

    def _selects(self, event: Event) -> bool:
        """Whether a broker would deliver it now: it has not expired, and its topic, properties and headers match."""
        expiration = event.extras.expiration if event.extras is not None and not self._keeps_expired else 0
        if 0 < expiration <= time.time_ns() // 1_000_000:
            return False
        return self._filter.matches(event.topic, event.properties, event.headers)


def selection_of(archive: Archive | None, topics: Sequence[str], selector: str, who: str) -> Selection | None:
    """Returns the selection of a subscription; None if there is no archive, or if it lacks events (which is logged)."""
    if archive is None:
        return None
    selection = Selection(archive, topics, selector)
    lacking = selection.lacking()
    if lacking:
        log.warning("gaps of %s will not be filled from the archive: %s", who, lacking)
        return None
    return selection
