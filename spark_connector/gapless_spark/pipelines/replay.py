"""Publishes a range of an archive to a topic, each event once: `replay`. Needs no Spark.

Every event is published under a key: its replay, and how many events of its pubend precede it in the replay. So the
same replay always gives an event the same key, and the broker drops what it has already. Therefore a replay may be
killed at any point, and a second run of it changes nothing. A replay with other arguments is another replay.

Progress is noted below the archive, so that published events need not be presented again. This only saves time: without
the note, everything is presented, and dropped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

import gapless
from gapless.client.credentials import CredentialSource
from gapless.core.stream.ticks import FOREVER, PubendId, Tick, reads_as_time, tick_at_time
from gapless.errors import ConfigurationError, PublishRejectedError
from gapless.selectors.headers import sent_headers
from gapless.selectors.topics import check_topic, topic_matches
from gapless_spark.pipelines.broker import WAIT, connected
from gapless_spark.pipelines.manifest import ArchiveFolder, DataFile, Description, write_whole

if TYPE_CHECKING:
    from gapless_spark.pipelines.archive_reader import Archive

CHUNK: Final = 8192
"""How many events are published at once."""
Place: TypeAlias = "datetime | Tick | None"
"""Where a range begins or ends: a time, a tick, or None for the beginning or end of the archive."""

log = logging.getLogger("gapless_spark")


@dataclass(frozen=True)
class ReplayRange:
    """What is replayed: times from `start` on and before `end`; ticks after `start` and up to `end`."""

    start: Tick = 0
    end: Tick = FOREVER
    pubends: tuple[PubendId, ...] = ()
    """The pubends; empty: all."""
    selector: gapless.Selector = field(default_factory=lambda: gapless.Selector(""))


@dataclass(frozen=True)
class Replayed:
    """How far a replay has come."""

    published: int = 0
    duplicates: int = 0
    """How many events were there already, from an earlier run."""
    skipped: int = 0
    """How many archived events were not presented: an earlier run had noted them, or the selector refused them."""
    total: int = 0
    """About how many archived events the range has: a file at its edge counts as a whole."""
    gaps: tuple[tuple[PubendId, Tick, Tick], ...] = ()
    """(pubend, start, end): what the archive lacks in this range."""


OnProgress = Callable[[Replayed], None]


def replay(
    path: str | Path,
    url: str,
    *,
    topic: str | None = None,
    by_topic: bool = False,
    start: Place = None,
    end: Place = None,
    pubends: Sequence[PubendId] = (),
    selector: str = "",
    run: str = "",
    into_itself: bool = False,
    resume: bool = True,
    client_id: str = "",
    credentials: CredentialSource | None = None,
    wait: float = WAIT,
    on_progress: OnProgress | None = None,
) -> Replayed:
    """Publishes the events of an archive again, each once, however often it is called.

    Args:
        path: The archive.
        url: The broker.
        topic: Where all events go; without it they go to the topics that they had.
        by_topic: Whether each of these topics has its own producer. That is necessary if the broker divides topics
            among pubends. The order is then kept within a topic.
        start: The first time, or the tick before the first one.
        end: The time after the last one, or the last tick. A later call with a later end continues.
        pubends: Only these pubends; empty: all.
        selector: Only events that it selects.
        run: A name that makes it another replay than all with other names.
        into_itself: Whether it may publish events that the archive's own subscription will archive again.
        resume: Whether to begin where the last run has noted that it was.
        client_id: The client that publishes.
        credentials: Who it is, as for `gapless.connect`.
        wait: How many seconds a broker may take for its first answer.
        on_progress: Called with how far the replay has come.

    Raises ConfigurationError, ArchiveError, and the errors of the broker.

    """
    from gapless_spark.pipelines.archive_reader import Archive

    wanted = ReplayRange(_tick(start, "start"), _tick(end, "end", FOREVER), tuple(pubends), gapless.Selector(selector))
    if wanted.start >= wanted.end:
        raise ConfigurationError("the range ends before it begins")
    if topic is not None:
        check_topic(topic)
    if by_topic and topic is not None:
        raise ConfigurationError("by_topic is for the topics that the events had: there is only one otherwise")
    folder = ArchiveFolder(path)
    description = folder.described()
    with connected(url, client_id, wait, credentials) as connection:
        if not into_itself:
            _check_target(description, connection.network, topic)
        job = Job(description, connection.network, topic, by_topic, wanted, run)
        note = Note.read(folder, job) if resume else Note(folder, job)
        files = [file for manifest in folder.manifests() for file in manifest.files]
        if isinstance(start, datetime) or isinstance(end, datetime):
            _check_times(files, pubends)
        return _Replay(Archive(path), files, connection, job, note, on_progress).run()


@dataclass(frozen=True)
class Job:
    """The identity of a replay: another one has other keys. Its end is no part of it, so that it can be prolonged."""

    description: Description
    network: str
    topic: str | None
    by_topic: bool
    wanted: ReplayRange
    run: str

    def fields(self) -> dict[str, object]:
        """Returns the fields for its digest, and for people."""
        description = self.description
        return {
            "archive": [description.network, description.client_id, description.subscription, description.token],
            "network": self.network,
            "topic": self.topic,
            "by_topic": self.by_topic,
            "start": self.wanted.start,
            "selector": self.wanted.selector.expression,
            "run": self.run,
        }

    def digest(self, *more: str) -> str:
        """Returns a name for it, and for parts of it."""
        encoded = msgspec.json.encode([self.fields(), *more], order="sorted")
        return sha256(encoded).hexdigest()[:32]

    def producer(self, pubend: PubendId, topic: str) -> str:
        """Returns the producer for the events of a pubend; `topic` only if each topic has its own producer."""
        return f"replay/{self.digest(pubend, topic)}"


class ReplayedUpto(msgspec.Struct):
    """How far a pubend was replayed."""

    tick: Tick = 0
    counts: dict[str, int] = {}
    """How many events were published, by topic if each has its own producer; otherwise under ""."""


class _Noted(msgspec.Struct):
    """A note, in the form in which it is stored."""

    replay: dict[str, object]
    pubends: dict[PubendId, ReplayedUpto]


class Note:
    """The progress of a replay, stored below its archive; it is written after the events are durable, never before."""

    def __init__(self, folder: ArchiveFolder, job: Job) -> None:
        """Makes a new note, without what was noted before."""
        self._path = folder.private / "replays" / f"{job.digest()}.json"
        self._fields = job.fields()
        self._writable = True
        self.pubends: dict[PubendId, ReplayedUpto] = {}

    @classmethod
    def read(cls, folder: ArchiveFolder, job: Job) -> Note:
        """Returns the stored note; an empty one if there is none, or it cannot be read."""
        note = cls(folder, job)
        with suppress(OSError, msgspec.MsgspecError):
            note.pubends = msgspec.json.decode(note._path.read_bytes(), type=_Noted).pubends
        return note

    def write(self) -> None:
        """Stores the note. An archive that cannot be written only produces a warning."""
        if not self._writable:
            return
        try:
            self._path.parent.mkdir(exist_ok=True)
            write_whole(self._path, _Noted(self._fields, self.pubends))
        except OSError as error:
            self._writable = False
            log.warning("%s: not noted how far it is, the next run presents everything again: %s", self._path, error)


@dataclass
class _Replay:
    """One run of a replay."""

    archive: Archive
    files: Sequence[DataFile]
    connection: gapless.sync.Connection
    job: Job
    note: Note
    on_progress: OnProgress | None
    done: Replayed = field(default_factory=Replayed)

    def run(self) -> Replayed:
        """Replays all pubends, one after the other."""
        wanted = self.job.wanted
        files = [
            file
            for file in self.files
            if self._wants(file.pubend) and file.last > wanted.start and file.first <= wanted.end
        ]
        there = sorted({file.pubend for file in self.files})
        if missing := [pubend for pubend in wanted.pubends if pubend not in there]:
            raise ConfigurationError(f"the archive has nothing of pubend {missing[0]}; it has {', '.join(there)}")
        pubends = sorted({file.pubend for file in files})
        self.done = Replayed(
            total=sum(file.events for file in files),
            gaps=tuple((pubend, *gap) for pubend in pubends for gap in gaps_in(self.archive, pubend, wanted)),
        )
        self._tell(0, 0, 0)
        for pubend in pubends:
            self._pubend(pubend)
        return self.done

    def _wants(self, pubend: PubendId) -> bool:
        return not self.job.wanted.pubends or pubend in self.job.wanted.pubends

    def _pubend(self, pubend: PubendId) -> None:
        wanted, selector = self.job.wanted, self.job.wanted.selector
        done = self.note.pubends.setdefault(pubend, ReplayedUpto())
        self._tell(0, 0, self._count_before(pubend, min(done.tick, wanted.end)))
        if done.tick >= wanted.end:
            return
        events = self.archive.events(pubend, max(wanted.start, done.tick), wanted.end)
        for chunk in chunks(events, CHUNK):
            chosen = chunk
            if not selector.selects_everything:
                chosen = [event for event in chunk if selector.matches(event.properties, event.headers)]
            published = duplicates = 0
            for topic, group in self._groups(chosen):
                first = done.counts.get(topic, 0)
                receipt = self._publish(self.job.producer(pubend, topic), first, group, topic)
                published += receipt.published
                duplicates += receipt.duplicates
                done.counts[topic] = first + len(group)
            done.tick = chunk[-1].tick
            self.note.write()
            self._tell(published, duplicates, len(chunk) - len(chosen))

    def _groups(self, events: Sequence[gapless.Event]) -> Iterator[tuple[str, list[gapless.Event]]]:
        """Yields the events in groups with one producer each."""
        if not self.job.by_topic:
            if events:
                yield "", list(events)
            return
        groups: dict[str, list[gapless.Event]] = {}
        for event in events:
            groups.setdefault(event.topic, []).append(event)
        yield from groups.items()

    def _publish(self, producer: str, first: int, events: Iterable[gapless.Event], topic: str) -> gapless.KeyedReceipt:
        target = self.job.topic
        messages = [message_of(event, None if target or topic else event.topic) for event in events]
        try:
            return self.connection.publish(producer, 0, first, messages, topic=target or topic or None)
        except PublishRejectedError as error:
            if target is None and not topic:
                hint = "where topics are divided among pubends, replay with --by-topic"
                raise PublishRejectedError(f"{error}; {hint}") from error
            raise

    def _count_before(self, pubend: PubendId, tick: Tick) -> int:
        """Returns about how many archived events of the range an earlier run has handled."""
        start = self.job.wanted.start
        return sum(file.events for file in self.files if file.pubend == pubend and start < file.last <= tick)

    def _tell(self, published: int, duplicates: int, skipped: int) -> None:
        done = self.done
        self.done = Replayed(
            done.published + published, done.duplicates + duplicates, done.skipped + skipped, done.total, done.gaps
        )
        if self.on_progress is not None:
            self.on_progress(self.done)


def message_of(event: gapless.Event, topic: str | None) -> gapless.Message:
    """Returns an event as a message, with everything that its sender set."""
    return gapless.Message(event.body, event.properties, topic, *sent_headers(event))


def chunks(events: Iterable[gapless.Event], size: int) -> Iterator[list[gapless.Event]]:
    """Yields lists of `size` events; the last one may be shorter."""
    remaining = iter(events)
    while chunk := list(islice(remaining, size)):
        yield chunk


def gaps_in(archive: Archive, pubend: PubendId, wanted: ReplayRange) -> list[tuple[Tick, Tick]]:
    """Returns what the archive lacks in a range, between its own beginning and end."""
    covered = archive.covered(pubend)
    if not covered:
        return []
    lacking = [(one[1], other[0]) for one, other in pairwise(covered) if one[1] < other[0]]
    if 0 < wanted.start < covered[0][0]:
        lacking.insert(0, (wanted.start, covered[0][0]))
    cut = [(max(start, wanted.start), min(end, wanted.end)) for start, end in lacking]
    return [(start, end) for start, end in cut if start < end]


def _tick(place: Place, what: str, otherwise: Tick = 0) -> Tick:
    """Returns a place as a tick: a range lies after its start, and up to its end. Raises ConfigurationError."""
    if place is None:
        return otherwise
    if isinstance(place, datetime):
        if place.tzinfo is None:
            raise ConfigurationError(f"{what}: a time needs its zone")
        return max(0, tick_at_time(place) - 1)
    if type(place) is not int or not 0 <= place <= FOREVER:
        raise ConfigurationError(f"{what} is a time or a tick, not {place!r}")
    return place


def _check_times(files: Sequence[DataFile], pubends: Sequence[PubendId]) -> None:
    """Raises ConfigurationError if a pubend of the replay has ticks that are no times.

    The records of a Kafka partition stand in the order of their ticks, and not of their times: between two times there
    is no range that a later call could continue under the same keys.
    """
    for file in files:
        if (not pubends or file.pubend in pubends) and not reads_as_time(file.last):
            raise ConfigurationError(
                f"start and end are ticks for pubend {file.pubend}, whose records are not in the order of their times:"
                " give ticks, or name the other pubends alone"
            )


def _check_target(description: Description, network: str, topic: str | None) -> None:
    """Raises ConfigurationError if what is published would be archived again."""
    if network != description.network:
        return
    if topic is None or any(topic_matches(pattern, topic) for pattern in description.topics):
        raise ConfigurationError(
            f"subscription {description.subscription!r} would archive again what is replayed to"
            f" {'the same topics' if topic is None else repr(topic)} of the same network: name another topic, or say"
            " that it is meant (--into-itself)"
        )
