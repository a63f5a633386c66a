"""Archives a durable subscription as Parquet files, each event once: `archive`.

Each batch of a streaming query is one batch of the archive:

1. Its rows are written to a directory of their own. They do not count yet.
2. Its manifest is written, in one step. From now on the batch counts, and the manifest tells where the next one begins.
3. The subscription is acknowledged behind the manifests: everything acknowledged is archived.

So the manifests are the only truth. Spark's checkpoint lies below the archive as well, but serves one run only: the
next run begins where the newest manifest ends, whatever happened to the checkpoint. A batch that was planned and not
committed is planned anew.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import gapless
from gapless.client.options import Start
from gapless.core.stream.ticks import PubendId, Tick
from gapless.errors import ArchiveError, ConfigurationError, GaplessError, SubscriptionInUseError
from gapless.selectors.lexer import canonical
from gapless_spark.offsets import carried_on
from gapless_spark.pipelines.batch_query import BatchQuery, Stopping, local_uri
from gapless_spark.pipelines.broker import WAIT, connected
from gapless_spark.pipelines.contents import DATE, check_bounds, described, newest_time
from gapless_spark.pipelines.manifest import VERSION, ArchiveFolder, DataFile, Description, Manifest, sync_tree

MAX_EVENTS: Final = 250_000
"""How many events a batch has at most. It bounds the work repeated after a crash, and the time between reports."""
PATIENCE: Final = 20.0
"""How many seconds a run waits for the former run to be gone: three heartbeats, and a little more."""
GOODBYE: Final = 5.0
"""How many seconds the last acknowledgement may take."""
STARTS_MAX: Final = 5
"""How often a query is started whose processes do not start in time."""
_TOO_SLOW: Final = "failed to connect back"

log = logging.getLogger("gapless_spark")


@dataclass(frozen=True)
class Archived:
    """How far a run has come."""

    batches: int = 0
    events: int = 0
    gaps: int = 0
    seconds: float = 0.0
    waiting: int = 0
    """How many events the subscription had when the run began; 0 if its broker had not counted all of them."""
    lag_seconds: float = 0.0
    """The age of the newest archived event when its batch was committed."""


@dataclass(frozen=True)
class Wish:
    """What the user wants to archive; None: the same as the archive."""

    subscription: str | None = None
    topics: Sequence[str] | None = None
    selector: str | None = None
    client_id: str | None = None
    start: Start = "earliest"
    """Where the subscription begins if it does not exist yet."""


OnProgress = Callable[[Archived], None]


def archive(
    spark: Any,
    path: str | Path,
    url: str,
    *,
    subscription: str | None = None,
    topics: Sequence[str] | None = None,
    selector: str | None = None,
    client_id: str | None = None,
    start: Start = "earliest",
    follow: bool = False,
    every: float = 10.0,
    max_events: int = MAX_EVENTS,
    wait: float = WAIT,
    on_progress: OnProgress | None = None,
    stopping: Stopping | None = None,
) -> Archived:
    """Archives what a durable subscription has, and ends; or, with `follow`, goes on with a batch at intervals.

    A new archive needs `subscription`. An existing archive knows its own, and the arguments must not differ from it.
    The subscription is created unless it exists; `start` is where it begins. The run may be stopped, or killed, at any
    point; the same call continues it.

    Raises ConfigurationError, ArchiveError, and the errors of the broker and of Spark.
    """
    wish = Wish(subscription, topics, selector, client_id, start)
    folder = ArchiveFolder(path)
    check_wish(folder.description(), wish, folder.path)
    description = folder.description()
    client_id = (wish.client_id if description is None else description.client_id) or ""
    with folder.lock("archive"), connected(url, client_id, wait) as connection:
        run = _Run(spark, folder, url, connection, max_events, on_progress)
        try:
            target = run.begin(wish)
            if follow or target is not None:
                run.query(None if follow else target, every if follow else 0.0, stopping)
        finally:
            run.acknowledge()
        return run.done


def check_wish(description: Description | None, wish: Wish, path: Path) -> None:
    """Raises ConfigurationError if the wish differs from the archive."""
    if description is None:
        if wish.subscription is None:
            raise ConfigurationError(f"{path} is a new archive: name the durable subscription that it is of")
        return
    for name, asked, there in (
        ("subscription", wish.subscription, description.subscription),
        ("topics", None if wish.topics is None else tuple(wish.topics), description.topics),
        ("selector", None if wish.selector is None else canonical(wish.selector), canonical(description.selector)),
        ("client id", wish.client_id, description.client_id),
    ):
        if asked is not None and asked != there:
            raise ConfigurationError(f"{path} is an archive with {name} {there!r}, not {asked!r}: take another path")


def starts_of(
    position: gapless.CheckpointToken, end: gapless.CheckpointToken, files: Sequence[DataFile], gaps: Sequence[Any]
) -> dict[PubendId, Tick]:
    """Returns from where a batch accounts for each pubend.

    A pubend that was found during the run is accounted for from its first row on: it is not known whether there was
    silence before.
    """
    starts = dict(position.ticks)
    for pubend, tick in end.ticks.items():
        if pubend not in starts:
            rows = [file.first - 1 for file in files if file.pubend == pubend]
            lost = [start for name, start, _ in gaps if name == pubend]
            starts[pubend] = min([*rows, *lost], default=tick)
    return starts


class _Run:
    """One run, which is one query of Spark."""

    description: Description
    position: gapless.CheckpointToken
    """Everything up to here is archived."""
    _next: int
    """The number of the next batch."""

    def __init__(
        self,
        spark: Any,
        folder: ArchiveFolder,
        url: str,
        connection: gapless.sync.Connection,
        max_events: int,
        on_progress: OnProgress | None,
    ) -> None:
        from gapless_spark import register

        # A session of its own, so that its settings do not affect the caller's queries.
        self._spark = spark.newSession()
        self._spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        register(self._spark)
        self._folder = folder
        self._url = url
        self._connection = connection
        self._max_events = max_events
        self._on_progress = on_progress
        self._began = time.monotonic()
        self.done = Archived()

    # ------------------------------------------------------------------------------------ where it stands

    def begin(self, wish: Wish) -> gapless.CheckpointToken | None:
        """Finds out where to continue. Returns up to where there is something, or None if there is nothing."""
        connection = self._connection
        self.description = description = self._folder.description() or self._describe(wish)
        if connection.network != description.network:
            raise ArchiveError(
                f"{self._folder.path} is an archive of network {description.network}, and {self._url} belongs to"
                f" {connection.network}"
            )
        name, last = description.subscription, self._folder.last()
        token = gapless.CheckpointToken.parse(description.token if last is None else last.token)
        self._next = 0 if last is None else last.batch + 1
        attached = connection.attach(name, *description.topics, selector=description.selector, start=token)
        self.position = carried_on(token, attached)
        self._folder.remove_unfinished()
        with self._alone(PATIENCE):
            if last is not None:
                connection.ack(name, self.position)
        mine = (description.client_id, name)
        listed = [each for each in connection.subscriptions() if (each.client_id, each.name) == mine]
        self.done = replace(self.done, waiting=sum(each.lag_events for each in listed if each.lag_complete))
        self._tell()
        head = connection.heads(name, after=self.position)
        return None if head == self.position else head

    def _describe(self, wish: Wish) -> Description:
        """Begins a new archive: the subscription is created, or its position is taken."""
        assert wish.subscription is not None, "checked before"
        topics = tuple(wish.topics or ("#",))
        selector = gapless.Selector(wish.selector or "").expression
        token = self._connection.attach(wish.subscription, *topics, selector=selector, start=wish.start)
        self._folder.describe(
            Description(
                version=VERSION,
                network=self._connection.network,
                client_id=wish.client_id or "",
                subscription=wish.subscription,
                topics=topics,
                selector=selector,
                start=dict(token.ticks),
                token=str(token),
            )
        )
        return self._folder.described()

    @contextmanager
    def _alone(self, patience: float) -> Iterator[None]:
        """Holds the lease on the subscription, so that nobody else acknowledges; waits for a killed run to be gone."""
        name = self.description.subscription
        owner = f"archive {self._folder.path} ({socket.gethostname()}, process {os.getpid()})"
        try:
            lease = self._connection.lease(name, owner, in_use="wait", timeout=patience)
        except TimeoutError as error:
            raise SubscriptionInUseError(
                f"subscription {name!r} is in use by somebody else: an archive needs one of its own"
            ) from error
        try:
            yield
        finally:
            lease.release()

    def _has_taken(self, target: gapless.CheckpointToken) -> bool:
        """Whether everything up to the target is archived, or nothing more is there for the subscription."""
        position = self.position
        if all(position.ticks.get(pubend, 0) >= tick for pubend, tick in target.ticks.items()):
            return True
        return self._connection.heads(self.description.subscription, after=position) == position

    def acknowledge(self) -> None:
        """Acknowledges what is archived. If that fails, the next run does it."""
        if not self.done.batches:
            return
        try:
            with self._alone(GOODBYE):
                self._connection.ack(self.description.subscription, self.position, timeout=GOODBYE)
        except (GaplessError, OSError) as error:
            log.warning("archived and not acknowledged, the next run will: %s", error)

    # ------------------------------------------------------------------------------------ Spark

    def query(self, target: gapless.CheckpointToken | None, every: float, stopping: Stopping | None) -> None:
        """Runs a query until it has archived everything up to a target, or is stopped. Raises the reason if it fails.

        Spark gives a process ten seconds to start and answer. On a busy machine that may be too short, so the query is
        tried again.
        """
        checkpoint = self._folder.private / "checkpoint"
        for left in reversed(range(STARTS_MAX)):
            query = BatchQuery(self._spark, "archive", checkpoint, partial(self._on_batch, self._next))
            try:
                query.run(self._options(), every, lambda: target is not None and self._has_taken(target), stopping)
            except ArchiveError as error:
                if _TOO_SLOW not in f"{error} {error.__cause__}" or not left:
                    raise
                log.warning("a process of Spark's did not start in time; once more: %s", error)
            else:
                return

    def _options(self) -> dict[str, str]:
        """Returns the options of the source, for a query that continues where the archive ends."""
        description = self.description
        return {
            "brokers": self._url,
            "clientId": description.client_id,
            "subscription": description.subscription,
            "topics": ",".join(description.topics),
            "selector": description.selector,
            "startingOffsets": str(self.position),
            "failOnGap": "false",
            "maxEventsPerTrigger": str(self._max_events),
        }

    def _on_batch(self, first: int, frame: Any, number: int, logged: gapless.CheckpointToken) -> None:
        """Makes a batch of Spark a batch of the archive."""
        self._write(frame, first + number, logged)
        self._tell()

    def _write(self, frame: Any, number: int, logged: gapless.CheckpointToken) -> None:
        """Writes the rows, then their manifest. It may be killed between any two steps."""
        directory = self._folder.batch_directory(number)
        dated = frame.selectExpr("*", f"{DATE} AS date").sortWithinPartitions("date", "tick")
        writer = dated.write.mode("overwrite").partitionBy("date").option("compression", "zstd")
        writer.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false").parquet(local_uri(directory))
        sync_tree(directory)
        end = carried_on(self.position, logged)
        files, gaps = described(self._folder.path, directory)
        start = starts_of(self.position, end, files, gaps)
        check_bounds(files, start, end.ticks)
        manifest = Manifest(
            first=number,
            batch=number,
            files=files,
            start=start,
            end=dict(end.ticks),
            gaps=gaps,
            token=str(end),
        )
        self._folder.commit(manifest)
        self.position, self._next = end, number + 1
        newest = newest_time(self._folder.path / file.path for file in files)
        self.done = replace(
            self.done,
            batches=self.done.batches + 1,
            events=self.done.events + manifest.events,
            gaps=self.done.gaps + len(gaps),
            lag_seconds=0.0 if newest is None else max(0.0, time.time_ns() / 1e9 - newest.timestamp()),
            seconds=time.monotonic() - self._began,
        )

    def _tell(self) -> None:
        if self._on_progress is not None:
            self._on_progress(self.done)
