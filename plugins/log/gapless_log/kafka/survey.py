"""Finding out about a log: where it begins and ends, who wrote it, what is in a part of it, and what became of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gapless.core.ports import LogPiece, LogRead, LogStart, ReadLog
from gapless.core.stream.ticks import Tick
from gapless_log.kafka.cluster import CONNECTION_ERRORS, Cluster
from gapless_log.kafka.lineage import Lineage, offset_of
from gapless_log.kafka.messages import (
    EARLIEST,
    LATEST,
    UNKNOWN,
    Code,
    EpochAsked,
    EpochFound,
    Fetch,
    FetchFrom,
    OffsetFound,
    OffsetWanted,
    Topic,
)
from gapless_log.kafka.requests import Connection
from gapless_log.kafka.tail import PartitionLog, pieces_from, pieces_of
from gapless_log.kafka.topics import FormerTopic


class NotNowError(ConnectionError):
    """Kafka cannot say it at the moment: ask again, perhaps another broker."""


def checked(code: Code) -> None:
    """Raises NotNowError if a request has failed."""
    if code is not Code.NONE:
        raise NotNowError(f"Kafka answers {code.name}")


async def offset_found(
    connection: Connection, topic: Topic, partition: PartitionLog, at: int, *, is_committed: bool = False
) -> OffsetFound:
    """Looks up a place in a log, at its leader. Raises NotNowError."""
    wanted = OffsetWanted(partition.partition, partition.leader_epoch, at)
    (found,) = await connection.list_offsets(topic, [wanted], is_committed=is_committed)
    checked(found.code)
    return found


async def lineage_of(connection: Connection, topic: Topic, partition: PartitionLog) -> Lineage:
    """Asks the leader where the log starts, and for all leader epochs above that. Raises NotNowError."""
    await learn_start(connection, topic, partition)
    current = partition.leader_epoch

    async def ask(epoch: int) -> EpochFound:
        asked = EpochAsked(partition.partition, current, epoch)
        (found,) = await connection.epoch_ends(topic, [asked])
        checked(found.code)
        return found

    newest = await ask(current)
    if newest.leader_epoch == UNKNOWN:
        raise NotNowError(f"the leader of {partition.log} has not begun yet")
    epoch, begins = newest.leader_epoch, list[tuple[int, int]]()
    while epoch > 0:
        # The newest epoch below ends where this one begins. If there is none, Kafka says where the log starts.
        below = await ask(epoch - 1)
        begins.append((epoch, max(below.end, 0)))
        if below.leader_epoch == UNKNOWN or below.end <= partition.start:
            break
        epoch = below.leader_epoch
    if epoch == 0 or begins[-1][1] == 0:
        begins.append((0, 0))  # nothing was ever below, also if no record came under the first leader epoch
    # If records were removed meanwhile, the leader has told of epochs at their place, where none began.
    await learn_start(connection, topic, partition)
    known = next((count for count, (_, begin) in enumerate(begins, 1) if 0 < begin <= partition.start), len(begins))
    return Lineage(reversed(begins[:known]))


async def learn_start(connection: Connection, topic: Topic, partition: PartitionLog) -> None:
    """Asks where a log starts. Raises NotNowError."""
    found = await offset_found(connection, topic, partition, EARLIEST)
    partition.start = max(partition.start, found.offset)


async def place_found(
    connection: Connection, topic: Topic, partition: PartitionLog, at: LogStart | int
) -> tuple[Tick, bool]:
    """Finds a place. Returns its tick, and whether that has shown new leader epochs. Raises NotNowError."""
    if at is LogStart.EARLIEST:
        await learn_start(connection, topic, partition)
        return partition.first, False
    is_committed = at is not LogStart.LATEST
    place = at if isinstance(at, int) else LATEST
    found = await offset_found(connection, topic, partition, place, is_committed=is_committed)
    if found.offset == UNKNOWN:  # no record is that late
        found = await offset_found(connection, topic, partition, LATEST, is_committed=True)
    is_other = found.leader_epoch > partition.lineage.last_epoch
    if is_other:
        partition.learn(await lineage_of(connection, topic, partition))
    return max(partition.lineage.position(found.offset), partition.first), is_other


async def read_range(connection: Connection, partition: PartitionLog, question: ReadLog) -> LogRead | None:
    """Reads what is in a part of a log; None if the log is not what it was. Raises NotNowError."""
    after, upto = question.after, question.upto
    place, recent = partition.place_of(after), partition.recent
    bytes_max = max(1, question.max_bytes)
    known = recent.read(place.offset, offset_of(upto), bytes_max)
    if known and place.offset >= partition.start:
        found = pieces_from(known, place.offset, partition.start, "")
    else:
        start = FetchFrom(
            partition.topic_id, partition.partition, place.offset, partition.leader_epoch, place.last_epoch, bytes_max
        )
        answer = await connection.fetch(Fetch((start,), True, 0, 1, bytes_max))
        checked(answer.code)
        (fetched,) = answer.partitions
        if fetched.diverging is not None or fetched.code is Code.OFFSET_OUT_OF_RANGE:
            return None
        checked(fetched.code)
        partition.start = max(partition.start, fetched.first)
        found = pieces_of(fetched.records, fetched.aborted, place.offset, partition.start)
        if partition.is_other(found.batches):
            return None
        recent.keep(found.batches)
    covered = max(after, partition.first) if place.offset <= partition.start else after
    pieces = []
    for piece in found.pieces:
        if piece.first > upto:
            covered = upto
            break
        pieces.append(LogPiece(piece.first, min(piece.last, upto), piece.raw))  # the rest need not be decoded
        covered = max(covered, piece.last)
    covered = min(partition.lineage.behind(covered), upto)
    error = found.fault if covered <= after else ""
    return LogRead(question.cookie, after, max(covered, after), pieces, partition.first, error)


async def verdict(cluster: Cluster, topic: FormerTopic, time: Callable[[], float], gone_seconds: float) -> str:
    """Returns why a topic is gone, or "" if it is there: never on a guess, however long it takes (TK2)."""
    since: tuple[str, float] | None = None
    while True:
        try:
            found = await _what_became_of(cluster, topic)
        except CONNECTION_ERRORS:
            found = ""
        if found == "it is there":
            return ""
        now = time()
        if not found or since is None or since[0] != found:
            since = (found, now) if found else None
        elif now - since[1] >= (0 if found == "it was deleted and made anew" else gone_seconds):
            return found
        await asyncio.sleep(min(1.0, gone_seconds))


async def _what_became_of(cluster: Cluster, topic: FormerTopic) -> str:
    """Asks every broker for a topic. Returns what all of them say, or "" if they do not agree."""
    await cluster.metadata()
    said = set()
    for broker in cluster.brokers:
        connection = await cluster.connection(broker, "ask")
        (by_id,) = (await connection.metadata(ids=[topic.id])).topics
        if by_id.code is Code.NONE:
            return "it is there"
        (by_name,) = (await connection.metadata(names=[topic.name])).topics
        if by_name.code is Code.NONE and by_name.id != topic.id:
            said.add("it was deleted and made anew")
        elif by_name.code is Code.UNKNOWN_TOPIC_OR_PARTITION and by_id.code is Code.UNKNOWN_TOPIC_ID:
            said.add("it was deleted")
        else:
            said.add("")
    return said.pop() if len(said) == 1 else ""
