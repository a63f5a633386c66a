"""The model of Kafka answers as the real one does: the same facts as in tests/kafka, under the same names."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gapless_log.kafka.messages import (
    EARLIEST,
    LATEST,
    UNKNOWN,
    Code,
    DeleteRecords,
    EpochAsked,
    EpochEnd,
    EpochEnds,
    EpochFound,
    Fetch,
    FetchAnswer,
    Fetched,
    FetchFrom,
    ListOffsets,
    MetadataRequest,
    OffsetFound,
    OffsetWanted,
    Produce,
    Produced,
)
from gapless_log.kafka.messages import Topic as TopicName
from gapless_log.kafka.records import Batch, Compression, NewRecord, batches, encode, records, without_aborted
from gapless_sim.world.kafka_model import Broker, Cluster, Partition, by_producer


class Log:
    """Partition 0 of a topic, and what is asked about it."""

    def __init__(self, brokers: int = 1) -> None:
        self.cluster = Cluster(brokers)
        self.topic = self.cluster.create("t", 1, {})
        self.learn()

    def learn(self) -> None:
        for broker in self.cluster.brokers:
            broker.learn()

    @property
    def partition(self) -> Partition:
        return self.topic.partitions[0]

    @property
    def broker(self) -> Broker:
        return self.cluster.brokers[self.partition.leader - 1]

    def publish(self, *values: bytes, producer: int | None = None, times: Sequence[int] = ()) -> Produced:
        times = times or [1] * len(values)
        batch = encode(
            [NewRecord(time, None, value, ()) for time, value in zip(times, values, strict=True)], Compression.NONE
        )
        if producer is not None:
            batch = by_producer(batch, producer)
        request = Produce(TopicName(self.topic.name, self.topic.id), 0, batch, 1000)
        produced: Produced = self.broker.ask(request, has_waited=False)
        return produced

    def fetch(
        self, offset: int, *, epoch: int = UNKNOWN, last: int = UNKNOWN, is_committed: bool = True, size: int = 1 << 20
    ) -> Fetched:
        start = FetchFrom(self.topic.id, 0, offset, epoch, last, size)
        answer: FetchAnswer = self.broker.ask(Fetch((start,), is_committed, 0, 1, 1 << 20), has_waited=True)
        return answer.partitions[0]

    def batches(self, offset: int) -> list[Batch]:
        return list(batches(self.fetch(offset).records))

    def offset_of(self, at: int, *, epoch: int = UNKNOWN, is_committed: bool = False) -> OffsetFound:
        found: tuple[OffsetFound, ...] = self.broker.ask(
            ListOffsets("t", (OffsetWanted(0, epoch, at),), is_committed), has_waited=False
        )
        return found[0]

    def end_of(self, epoch: int, *, current: int = UNKNOWN) -> EpochFound:
        found: tuple[EpochFound, ...] = self.broker.ask(
            EpochEnds("t", (EpochAsked(0, current, epoch),)), has_waited=False
        )
        return found[0]

    def told(self, offset: int) -> list[tuple[int, bool]]:
        fetched = self.fetch(offset)
        found = list(batches(fetched.records))
        return [(batch.first, counts) for batch, counts in without_aborted(found, fetched.aborted)]


@pytest.fixture
def log() -> Log:
    return Log()


def test_deleting_in_the_middle_of_a_batch(log: Log) -> None:
    log.publish(*[b"x"] * 100)

    deleted = log.broker.ask(DeleteRecords("t", 0, 40, 1000), has_waited=False)
    before, at = log.fetch(39), log.fetch(40)

    assert (deleted.code, deleted.first) == (Code.NONE, 40)
    assert before.code is Code.OFFSET_OUT_OF_RANGE
    assert (at.code, at.first) == (Code.NONE, 40)
    assert [(batch.first, batch.last) for batch in log.batches(40)] == [(0, 99)]
    assert (log.offset_of(EARLIEST).offset, log.offset_of(EARLIEST).leader_epoch) == (40, 0)


def test_deleting_beyond_the_end_is_refused(log: Log) -> None:
    log.publish(b"a", b"b")

    assert log.broker.ask(DeleteRecords("t", 0, 3, 1000), has_waited=False).code is Code.OFFSET_OUT_OF_RANGE
    assert log.offset_of(EARLIEST).offset == 0


def test_beyond_the_end_is_the_same_error_as_before_the_beginning(log: Log) -> None:
    log.publish(b"a", b"b")

    at_the_end, beyond = log.fetch(2), log.fetch(3)

    assert (at_the_end.code, at_the_end.records, at_the_end.high_watermark) == (Code.NONE, b"", 2)
    assert beyond.code is Code.OFFSET_OUT_OF_RANGE


def test_the_end_of_an_epoch_whose_records_are_deleted_is_the_log_start(log: Log) -> None:
    log.publish(*[b"x"] * 10)
    log.partition.trim(10)

    end = log.end_of(0)

    assert (end.code, end.leader_epoch, end.end) == (Code.NONE, 0, 10)


def test_a_time_finds_the_first_record_that_is_not_earlier(log: Log) -> None:
    for second in (1, 5, 2, 9, 3):
        log.publish(b"x", times=[second * 1000])

    found = [log.offset_of(at) for at in (0, 1001, 3000, 5001, 9000)]

    assert [each.offset for each in found] == [0, 1, 1, 3, 3]
    assert [each.timestamp for each in found] == [1000, 5000, 5000, 9000, 9000]
    assert (log.offset_of(9001).code, log.offset_of(9001).offset) == (Code.NONE, UNKNOWN)


def test_a_time_is_found_within_a_batch(log: Log) -> None:
    log.publish(*[b"x"] * 50, times=[second * 1000 for second in range(50)])

    assert log.offset_of(20_500).offset == 21


def test_a_leader_epoch_that_the_broker_does_not_know(log: Log) -> None:
    log.publish(b"a")

    assert log.offset_of(LATEST, epoch=7).code is Code.UNKNOWN_LEADER_EPOCH
    assert log.end_of(0, current=7).code is Code.UNKNOWN_LEADER_EPOCH
    assert log.fetch(0, epoch=7).code is Code.UNKNOWN_LEADER_EPOCH
    assert log.fetch(0, epoch=0).code is Code.NONE


def test_the_end_of_an_epoch_that_is_still_to_come(log: Log) -> None:
    found = log.end_of(9)

    assert (found.code, found.leader_epoch, found.end) == (Code.NONE, UNKNOWN, UNKNOWN)


def test_an_open_transaction_holds_up_the_stable_offset(log: Log) -> None:
    log.publish(b"0", b"1", b"2")
    log.publish(b"3", producer=7)
    log.publish(b"4", producer=7)
    log.publish(b"5")

    committed, all_there_is = log.fetch(0), log.fetch(0, is_committed=False)

    assert (committed.stable, committed.high_watermark) == (3, 6)
    assert [batch.first for batch in batches(committed.records)] == [0]
    assert [batch.first for batch in batches(all_there_is.records)] == [0, 3, 4, 5]
    assert [log.offset_of(LATEST, is_committed=each).offset for each in (True, False)] == [3, 6]


def test_what_a_producer_writes_after_its_abort_counts(log: Log) -> None:
    log.publish(b"void", producer=7)
    log.partition.end_transaction(7, commits=False)
    log.publish(b"good", producer=7)
    log.partition.end_transaction(7, commits=True)

    assert [(each.first, each.producer_id) for each in log.fetch(0).aborted] == [(0, 7)]
    assert log.told(0) == [(0, False), (1, False), (2, True), (3, False)]
    assert log.told(2) == [(2, True), (3, False)]
    assert [counts for _, counts in log.partition.committed()] == [False, False, True, False]


def test_a_fetch_in_the_middle_of_an_aborted_transaction_still_names_it(log: Log) -> None:
    for value in (b"0", b"1", b"2"):
        log.publish(value, producer=7)
    log.partition.end_transaction(7, commits=False)

    assert log.told(2) == [(2, False), (3, False)]


def test_a_clean_election(log: Log) -> None:
    """An epoch more, and everything is there."""
    log.publish(*[b"old"] * 1000)
    log.cluster.elect(log.partition, is_clean=True)

    old_end = log.end_of(0, current=1)

    assert (old_end.code, old_end.leader_epoch, old_end.end) == (Code.NONE, 0, 1000)
    assert log.end_of(0, current=0).code is Code.FENCED_LEADER_EPOCH
    assert log.offset_of(LATEST, epoch=0).code is Code.FENCED_LEADER_EPOCH
    assert log.fetch(1000, epoch=0).code is Code.FENCED_LEADER_EPOCH
    assert log.fetch(1000, epoch=1, last=0).diverging is None
    assert log.publish(b"new").offset == 1000
    assert [batch.leader_epoch for batch in log.batches(0)] == [0, 1]


def test_a_log_that_was_cut_has_others_at_the_same_offsets() -> None:
    log = Log(brokers=2)
    log.publish(*[b"old"] * 600)
    log.partition.lag(waits=False)
    log.publish(*[b"old"] * 400)
    assert log.fetch(600).high_watermark == 1000

    log.cluster.elect(log.partition, is_clean=False)
    log.learn()
    beyond = log.fetch(1000, epoch=1)
    log.publish(*[b"new"] * 1000)
    plain, with_epoch = log.fetch(1000), log.fetch(1000, epoch=1, last=0)

    assert beyond.code is Code.OFFSET_OUT_OF_RANGE
    assert plain.code is Code.NONE
    assert {record.value for batch in batches(plain.records) for record in records(batch)} == {b"new"}
    assert (with_epoch.code, with_epoch.diverging, with_epoch.records) == (Code.NONE, EpochEnd(0, 600), b"")
    assert (log.end_of(0).leader_epoch, log.end_of(0).end) == (0, 600)
    assert (log.end_of(1).leader_epoch, log.end_of(1).end) == (1, 1600)
    assert log.end_of(2).leader_epoch == UNKNOWN


def test_epochs_in_which_nothing_was_written_leave_no_trace(log: Log) -> None:
    log.publish(b"a")
    for _ in range(3):
        log.cluster.elect(log.partition, is_clean=True)
    log.publish(b"b")

    assert [log.end_of(epoch).end for epoch in (0, 1, 2, 3)] == [1, 1, 1, 2]
    assert [log.end_of(epoch).leader_epoch for epoch in (0, 1, 2, 3)] == [0, 0, 0, 3]


def test_what_waits_for_copies_is_not_read_and_may_come_out_later(log: Log) -> None:
    log.publish(b"a")
    log.partition.lag(waits=True)

    produced = log.publish(b"b")

    assert produced.code is Code.REQUEST_TIMED_OUT
    assert log.fetch(1).high_watermark == 1
    log.partition.copy()
    assert log.fetch(1).high_watermark == 2


def test_a_topic_that_is_made_again_is_another_one(log: Log) -> None:
    log.publish(b"old")
    old = log.topic
    log.cluster.delete(old)
    log.topic = log.cluster.create("t", 1, {})
    log.learn()
    log.publish(*[b"new"] * 20)

    start = FetchFrom(old.id, 0, 0, UNKNOWN, UNKNOWN, 1 << 20)
    refused = log.broker.ask(Fetch((start,), is_committed=True, wait_ms=0, bytes_min=1, bytes_max=1), has_waited=False)
    (found,) = log.broker.ask(MetadataRequest((), (old.id,)), has_waited=False).topics

    assert refused.partitions[0].code is Code.UNKNOWN_TOPIC_ID
    assert (found.code, found.partitions) == (Code.UNKNOWN_TOPIC_ID, ())
    assert (log.end_of(0).leader_epoch, log.end_of(0).end) == (0, 20)


def test_a_broker_that_is_behind_does_not_know_a_new_topic() -> None:
    """That is no evidence that there is none."""
    log = Log(brokers=2)
    late = log.cluster.create("late", 1, {})
    log.cluster.brokers[0].learn()

    found = [broker.ask(MetadataRequest((), (late.id,)), has_waited=False).topics[0] for broker in log.cluster.brokers]

    assert [each.code for each in found] == [Code.NONE, Code.UNKNOWN_TOPIC_ID]


def test_only_the_leader_answers() -> None:
    log = Log(brokers=2)
    start = FetchFrom(log.topic.id, 0, 0, UNKNOWN, UNKNOWN, 1)
    other = next(broker for broker in log.cluster.brokers if broker is not log.broker)

    answer = other.ask(Fetch((start,), is_committed=True, wait_ms=0, bytes_min=1, bytes_max=1), has_waited=False)

    assert answer.partitions[0].code is Code.NOT_LEADER_OR_FOLLOWER
    log.cluster.fail(log.broker)
    assert log.broker is other


def test_a_fetch_waits_until_there_is_something(log: Log) -> None:
    start = FetchFrom(log.topic.id, 0, 0, UNKNOWN, UNKNOWN, 1 << 20)
    fetch = Fetch((start,), is_committed=True, wait_ms=100, bytes_min=1, bytes_max=1 << 20)

    assert log.broker.ask(fetch, has_waited=False) is None
    assert log.broker.ask(fetch, has_waited=True).partitions[0].records == b""
    log.publish(b"a")
    assert log.broker.ask(fetch, has_waited=False).partitions[0].records


def test_a_compacted_log_has_a_hole_and_no_error(log: Log) -> None:
    for number in range(3):
        log.publish(b"%d" % number)
    log.partition.compact(0)

    assert (log.fetch(0).code, log.fetch(0).first) == (Code.NONE, 0)
    assert [batch.first for batch in log.batches(0)] == [1, 2]


def test_a_batch_that_is_larger_than_the_topic_takes(log: Log) -> None:
    log.topic.settings["max.message.bytes"] = "100"

    assert log.publish(b"x" * 200).code is Code.MESSAGE_TOO_LARGE
    assert log.partition.end == 0
