"""What a connection takes as an archive, and which of its events a subscription would have had.

An archive holds events that pubends may have forgotten. What it says that it covers it has whole, for the topics and
the selector that it is written with; so it can stand in for the log where a subscription asks for no more than that.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from gapless.core.stream.events import Event
from gapless.core.stream.intervals import IntervalSet
from gapless.core.stream.ticks import PubendId, Tick
from gapless.errors import ArchiveError, ConfigurationError
from gapless.selectors.filters import Filter
from gapless.selectors.selector import Selector
from gapless.selectors.topics import pattern_covers

EVENTS_AT_ONCE: Final = 1024
BYTES_AT_ONCE: Final = 4 << 20
"""A portion is so many events, or their bodies so many bytes, whichever comes first."""
LOOKED_AT_ONCE: Final = 16_384
"""A portion is over when so many events were looked at, whatever was selected: so it is never long in coming."""

log = logging.getLogger("gapless.client")


@runtime_checkable
class Archive(Protocol):
    """Where events are that a pubend may have forgotten: `connect(…, archive=…)` fills gaps from it.

    `gapless_spark.pipelines.archive_reader.Archive` is one. Its methods may take their time: they are called in
    threads, perhaps in several at once. What they raise is raised where the events are asked for.
    """

    @property
    def network(self) -> str:
        """The id of the network that its events come from."""

    @property
    def topics(self) -> Sequence[str]:
        """It has only events of these topic patterns."""

    @property
    def selector(self) -> str:
        """And of these only those for which this selector is true; blank: all."""

    def covered(self, pubend: PubendId) -> Sequence[tuple[Tick, Tick]]:
        """The intervals `(start, end]` of a pubend of which it has every such event."""

    def events(self, pubend: PubendId, start: Tick, end: Tick) -> Iterator[Event]:
        """The events of (start, end] in tick order, as their publisher sent them, read as they are asked for."""


def check_archive(archive: object) -> None:
    """Refuses what is no archive. Raises ConfigurationError."""
    if not isinstance(archive, Archive):
        raise ConfigurationError(
            "archive has network, topics, selector, covered() and events(), as gapless.Archive says;"
            f" {archive!r} has not"
        )


def check_network(archive: Archive, network: str) -> None:
    """Refuses an archive of another network. Raises ConfigurationError."""
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
    """Some of what a subscription selects of a covered part."""

    events: list[Event]
    upto: Tick
    """Up to here it was looked for; there is nothing else."""
    is_last: bool
    """Whether that is the end of the part."""


class Selection:
    """What a subscription selects of an archive, in which there must be all of it."""

    def __init__(self, archive: Archive, topics: Sequence[str], selector: str, *, keeps_expired: bool = False) -> None:
        """The subscription's topics and selector. As from a broker, an event that has expired is passed over."""
        self._archive = archive
        self._keeps_expired = keeps_expired
        self._filter = Filter(tuple(topics), selector)

    def lacking(self) -> str:
        """Why there may be less in the archive than the subscription selects, for people; "": there is all of it."""
        archive = self._archive
        for topic in self._filter.topics:
            if not any(pattern_covers(wide, topic) for wide in archive.topics):
                return f"the archive has {', '.join(archive.topics)}, and {topic} is more than that"
        own = Selector(archive.selector)
        if own.selects_everything or own == self._filter.compiled:
            return ""
        return f"the archive has only events with {archive.selector}"

    def parts(self, pubend: PubendId, start: Tick, end: Tick) -> list[Part]:
        """(start, end] in parts, in order: those that the archive covers, and those between them."""
        covered = IntervalSet(self._archive.covered(pubend))
        parts = [Part(low, high, covered=True) for low, high in covered.within(start, end)]
        parts += [Part(low, high, covered=False) for low, high in covered.gaps(start, end)]
        return sorted(parts, key=lambda part: part.start)

    def portions(self, pubend: PubendId, start: Tick, end: Tick) -> Iterator[ArchivePortion]:
        """What is selected of a covered part, portion by portion; the last one says that it is the last.

        Raises ArchiveError for what is not of the part.
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
        """Whether a broker would deliver it now: it has not expired, and matches by topic, properties and headers."""
        expiration = event.extras.expiration if event.extras is not None and not self._keeps_expired else 0
        if 0 < expiration <= time.time_ns() // 1_000_000:
            return False
        return self._filter.matches(event.topic, event.properties, event.headers)


def selection_of(archive: Archive | None, topics: Sequence[str], selector: str, who: str) -> Selection | None:
    """What a subscription selects of an archive; None if there is none, or it lacks something: that is logged."""
    if archive is None:
        return None
    selection = Selection(archive, topics, selector)
    lacking = selection.lacking()
    if lacking:
        log.warning("gaps of %s will not be filled from the archive: %s", who, lacking)
        return None
    return selection
