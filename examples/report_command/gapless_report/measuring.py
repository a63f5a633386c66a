"""Reports on subscriptions and archives: rates over time, lag, gaps and the share of silence.

For a subscription, the broker has what it has not acknowledged; everything before that is in an archive. A report
acknowledges and changes nothing.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from math import floor
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

import gapless
from gapless.client.listings import PubendInfo, SubscriptionInfo
from gapless.core.client import Gap
from gapless.core.stream.ticks import EPOCH_MS, SECOND, PubendId, Tick, reads_as_time, tick_at_time, time_at
from gapless.errors import ConfigurationError, InvalidTokenError, SubscriptionError
from gapless_report.figures import Figures, figures
from gapless_spark.pipelines.broker import WAIT, connected
from gapless_spark.pipelines.contents import ticks_of, times_of
from gapless_spark.pipelines.manifest import ArchiveFolder, Description, Manifest

_BEGINNING: Final = time_at(0)
MAX_EVENTS: Final = 200_000
"""How many events of a subscription are counted at the broker."""


def report(
    url: str | None,
    archives: Iterable[str | Path] = (),
    *,
    subscriptions: Sequence[str] = (),
    max_events: int = MAX_EVENTS,
    wait: float = WAIT,
) -> list[Figures]:
    """Returns the figures of all durable subscriptions at a broker, or of those named, and of archives.

    Without a broker it is not known how far an archive is behind. Raises ConfigurationError for an unknown
    subscription, ArchiveError, and the errors of the broker.
    """
    found: list[Figures] = []
    if url is not None:
        found += broker_report(url, subscriptions, max_events=max_events, wait=wait)
    for path in archives:
        found += archive_report(path, url, wait=wait)
    return found


def broker_report(
    url: str, names: Sequence[str] = (), *, max_events: int = MAX_EVENTS, wait: float = WAIT
) -> list[Figures]:
    """Returns the figures of durable subscriptions, from their acknowledged position on.

    If the broker refuses to answer for one of them, that one has its error instead, and the others have their figures.
    """
    with connected(url, "", wait) as connection:
        infos = connection.subscriptions(timeout=wait)
        pubends = {info.pubend: info for info in connection.pubends(timeout=wait)}
    if missing := sorted({*names} - {info.name for info in infos}):
        raise ConfigurationError(f"there is no durable subscription {missing[0]!r} at {url}")
    wanted = sorted(
        (info for info in infos if not names or info.name in names), key=lambda info: (info.client_id, info.name)
    )
    found: list[Figures] = []
    for client_id in dict.fromkeys(info.client_id for info in wanted):
        with connected(url, client_id, wait) as connection:
            for info in wanted:
                if info.client_id != client_id:
                    continue
                try:
                    found += list(_subscription(connection, info, pubends, max_events, wait))
                except (InvalidTokenError, SubscriptionError) as error:
                    found.append(
                        figures(
                            {},
                            0,
                            0,
                            source="broker",
                            client_id=client_id,
                            subscription=info.name,
                            pubend="",
                            error=str(error),
                        )
                    )
    return found


def archive_report(path: str | Path, url: str | None = None, *, wait: float = WAIT) -> list[Figures]:
    """Returns the figures of an archive, from its beginning on; with a broker, also how far it is behind."""
    folder = ArchiveFolder(path)
    description, manifests = folder.described(), folder.manifests()
    behind = _behind(description, manifests, url, wait)
    ends = manifests[-1].end if manifests else {}
    found = []
    for pubend in sorted(ends):
        gaps = [(start, end) for manifest in manifests for name, start, end in manifest.gaps if name == pubend]
        timed = reads_as_time(ends[pubend])
        found.append(
            figures(
                _archived_counts(folder, manifests, pubend, timed=timed),
                next(manifest.start[pubend] for manifest in manifests if pubend in manifest.start),
                ends[pubend],
                gaps,
                timed=timed,
                source="archive",
                client_id=description.client_id,
                subscription=description.subscription,
                pubend=pubend,
                lag_seconds=None if behind is None else behind.get(pubend, 0.0 if timed else None),
            )
        )
    return found


def _subscription(
    connection: gapless.sync.Connection,
    info: SubscriptionInfo,
    pubends: dict[PubendId, PubendInfo],
    max_events: int,
    wait: float,
) -> Iterator[Figures]:
    position, name = info.acknowledged, info.name
    heads = connection.heads(timeout=wait).ticks
    ends = connection.heads(name, after=position, timeout=wait).ticks
    bounds = connection.bound(name, position, max_events=max_events, timeout=wait).ticks
    for pubend, head in sorted(heads.items()):
        start = position.ticks.get(pubend, 0)
        end, bound = max(start, ends.get(pubend, 0)), max(start, bounds.get(pubend, 0))
        timed = reads_as_time(head)
        counts, gaps, first = _outstanding(connection, name, pubend, start, bound, timed=timed)
        complete = bound >= end
        since = pubends[pubend].created if pubend in pubends else None
        created = 0 if since is None else tick_at_time(since)
        yield figures(
            counts,
            max(start, created),
            max(start, created, head if complete else bound),
            gaps,
            timed=timed,
            source="broker",
            client_id=info.client_id,
            subscription=name,
            pubend=pubend,
            lag_events=sum(counts.values()),
            lag_seconds=0.0 if first is None else max(0.0, (head / SECOND if timed else _now()) - first),
            complete=complete,
        )


def _outstanding(
    connection: gapless.sync.Connection, name: str, pubend: PubendId, start: Tick, end: Tick, *, timed: bool
) -> tuple[Counter[int], list[tuple[Tick, Tick]], float | None]:
    """Returns how many events each second has, the gaps, and when the first event was, in seconds since 2020."""
    counts: Counter[int] = Counter()
    gaps: list[tuple[Tick, Tick]] = []
    first: float | None = None
    if start >= end:
        return counts, gaps, first
    with connection.read_range(name, pubend, start, end, on_gap="deliver") as reader:
        for part in reader.parts():
            if isinstance(part, Gap):
                gaps.append((part.start, part.end))
                continue
            for columns in part.columns:
                if timed:
                    seconds = [tick / SECOND for tick in columns.ticks()]
                else:
                    seconds = [(event.timestamp - _BEGINNING).total_seconds() for event in columns.events(pubend)]
                if first is None and seconds:
                    first = seconds[0]
                counts.update(map(floor, seconds))
    return counts, gaps, first


def _archived_counts(
    folder: ArchiveFolder, manifests: Sequence[Manifest], pubend: PubendId, *, timed: bool
) -> Counter[int]:
    counts: Counter[int] = Counter()
    for manifest in manifests:
        for file in manifest.files:
            if file.pubend != pubend:
                continue
            if timed:
                seconds = pc.divide(ticks_of(folder.path / file.path), SECOND)
            else:
                times = times_of(folder.path / file.path).cast(pa.timestamp("s", tz="UTC"), safe=False)
                seconds = pc.subtract(times.cast(pa.int64()), EPOCH_MS // 1000)
            for pair in pc.value_counts(seconds).to_pylist():
                counts[pair["values"]] += pair["counts"]
    return counts


def _now() -> float:
    """Returns the seconds since 2020."""
    return (time.time_ns() // 1_000_000 - EPOCH_MS) / 1000


def _behind(
    description: Description, manifests: Sequence[Manifest], url: str | None, wait: float
) -> dict[PubendId, float] | None:
    """Returns, for each pubend, the seconds that an archive has not got yet, if there is something for it in them.

    A pubend whose ticks are no times has none, unless there is nothing for the archive.
    """
    if url is None:
        return None
    token = gapless.CheckpointToken.parse(manifests[-1].token if manifests else description.token)
    with connected(url, description.client_id, wait) as connection:
        if connection.network != description.network:
            return None
        names = {
            info.name for info in connection.subscriptions(timeout=wait) if info.client_id == description.client_id
        }
        if description.subscription not in names:
            return None
        heads = connection.heads(description.subscription, after=token, timeout=wait).ticks
    behind = {pubend: tick - token.ticks.get(pubend, tick) for pubend, tick in heads.items()}
    return {pubend: ticks / SECOND for pubend, ticks in behind.items() if not ticks or reads_as_time(heads[pubend])}
