"""Finding out about a partition: where its log begins and ends, and which leader epochs wrote it."""

from __future__ import annotations

from gapless_log.kafka.lineage import Lineage
from gapless_log.kafka.messages import UNKNOWN, Code, EpochAsked, EpochFound, OffsetFound, OffsetWanted, Topic
from gapless_log.kafka.requests import Connection
from gapless_log.kafka.tail import PartitionLog


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
    """Asks the leader for all leader epochs above the log's start, from the newest one down. Raises NotNowError."""
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
    return Lineage(reversed(begins))
