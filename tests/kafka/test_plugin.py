"""The plugin on a real Kafka: what is found, followed, read and looked up, and what happens to a log meanwhile."""

from __future__ import annotations

import time

import pytest

from gapless.core.ports import Appended, LogMark, LogsFound, LogStart, Refused
from gapless.core.stream.columns import EventColumns
from gapless.core.stream.events import encode_event
from gapless_log.kafka.records import Compression
from gapless_testing.kafka import KafkaCluster
from kafka_kit import KafkaLog, add_partitions
from log_host import events_of, host_of, place


def columns(topic: str, *bodies: bytes) -> EventColumns:
    """Events to be published."""
    events = [encode_event(topic, {"kind": "test", "n": n}, None, body) for n, body in enumerate(bodies)]
    return EventColumns.of(events, map(len, bodies))


async def test_what_is_appended_is_told_in_order_and_once(kafka: KafkaCluster, log: KafkaLog) -> None:
    await log.publish(b"before")
    async with host_of(kafka, log.topic.name) as host:
        found = await host.found()
        await log.publish(b"a", b"b")
        await log.publish(b"c")

        events = await host.behind(found.log, 3)

    assert place(found.decided) == "0/1"
    assert place(found.first) == "0/0"
    assert events == [("0/2", b"a"), ("0/3", b"b"), ("0/4", b"c")]
    assert host.troubles() == []


@pytest.mark.parametrize("compression", Compression)
async def test_every_compression_is_read(kafka: KafkaCluster, log: KafkaLog, compression: Compression) -> None:
    async with host_of(kafka, log.topic.name) as host:
        found = await host.found()
        await log.publish(*[b"x" * 1000] * 20, compression=compression)

        assert [body for _, body in await host.behind(found.log, 20)] == [b"x" * 1000] * 20


async def test_what_lies_back_is_read_by_ranges(kafka: KafkaCluster, log: KafkaLog) -> None:
    for batch in (b"ab", b"cde", b"f"):
        await log.publish(*(bytes([body]) for body in batch))
    async with host_of(kafka, log.topic.name) as host:
        found = await host.found()

        inside = await host.read(found.log, 3, 4)
        everything = await host.read(found.log, 0, 6)
        some = await host.read(found.log, 0, 6, max_bytes=1)

    assert (inside.lo, inside.hi, events_of(found, inside.pieces)) == (3, 4, [("0/4", b"d")])
    assert [body for _, body in events_of(found, everything.pieces)] == [b"a", b"b", b"c", b"d", b"e", b"f"]
    assert (everything.hi, everything.first, everything.error) == (6, 0, "")
    assert (some.hi, len(some.pieces)) == (2, 1)


async def test_places_are_found(kafka: KafkaCluster, log: KafkaLog) -> None:
    now = time.time_ns() // 1_000_000  # what is old would go by retention
    await log.publish_at([(now + 1_000, b"a"), (now + 5_000, b"b"), (now + 2_000, b"c")])
    async with host_of(kafka, log.topic.name) as host:
        found = await host.found()
        by_time = [await host.locate(found.log, now + wall) for wall in (0, 1_500, 5_000, 5_001)]
        named = [await host.locate(found.log, at) for at in LogStart]

    assert by_time == [0, 1, 1, 3]
    assert named == [0, 3, 3]


async def test_aborted_and_open_transactions(kafka: KafkaCluster, log: KafkaLog) -> None:
    async with host_of(kafka, log.topic.name) as host, log.producer(transactional_id=log.topic.name) as producer:
        found = await host.found()
        await log.publish(b"0")
        for value, commits in ((b"void", False), (b"1", True)):
            await producer.begin_transaction()
            await producer.send_and_wait(log.topic.name, value, partition=0)
            await (producer.commit_transaction() if commits else producer.abort_transaction())
        await producer.begin_transaction()
        await producer.send_and_wait(log.topic.name, b"2", partition=0)
        await log.publish(b"3")
        await host.behind(found.log, 2)
        held_up, latest = host.reached(found.log), await host.locate(found.log, LogStart.LATEST)
        decided = await host.locate(found.log, LogStart.DECIDED)
        await producer.commit_transaction()
        events = await host.behind(found.log, 4)
        await host.until(lambda: host.reached(found.log) == 8)
        again = await host.read(found.log, 0, 8)

    assert (held_up, decided, latest) == (5, 5, 7)
    assert events == [("0/1", b"0"), ("0/4", b"1"), ("0/6", b"2"), ("0/7", b"3")]
    assert events_of(found, again.pieces) == events
    covered = [tick for piece in again.pieces for tick in range(piece.first, piece.last + 1)]
    assert covered == [1, 2, 3, 4, 5, 6, 7, 8]  # markers and what was aborted, too


async def test_records_deleted_in_the_middle_of_a_batch(kafka: KafkaCluster, log: KafkaLog) -> None:
    await log.publish(*(b"%d" % n for n in range(10)))
    async with host_of(kafka, {"name": log.topic.name, "retention": "delete"}) as host:
        found = await host.found()
        host.host.trim(found.log, 4)
        await host.until(lambda: host.logs[found.log].first == 4)
        read = await host.read(found.log, 0, 10)
        gone = await host.read(found.log, 1, 3)
        earliest = await host.locate(found.log, LogStart.EARLIEST)
        await log.publish(b"10")
        events = await host.behind(found.log, 1)

    assert found.capabilities.trims
    assert (read.first, read.hi, read.pieces[0].first) == (4, 10, 5)
    assert events_of(found, read.pieces) == [(f"0/{n + 1}", b"%d" % n) for n in range(4, 10)]
    assert (list(gone.pieces), gone.hi, gone.first) == ([], 3, 4)
    assert earliest == 4
    assert events == [("0/11", b"10")]


async def test_a_follower_below_the_start_of_the_log_goes_on_there(kafka: KafkaCluster, log: KafkaLog) -> None:
    await log.publish(b"a", b"b", b"c")
    async with host_of(kafka, log.topic.name, follow=False) as host:
        found = await host.found()
        await kafka.delete_records(log.topic.name, 2)
        host.host.follow(found.log, 0, 1000)
        events = await host.behind(found.log, 1)

    assert events == [("0/3", b"c")]
    assert [(grown.lo, grown.hi, grown.first) for grown in host.grown(found.log)] == [(0, 2, 2), (2, 3, 2)]


async def test_a_topic_that_is_made_anew_is_another_log(kafka: KafkaCluster, log: KafkaLog) -> None:
    await log.publish(b"old")
    async with host_of(kafka, log.topic.name) as host:
        old = await host.found()
        await kafka.delete_topic(log.topic.name)
        await kafka.create_topic(log.topic.name)
        await host.until(lambda: len(host.logs) == 2)
        new = await host.found()
        async with KafkaLog(kafka, log.topic.name) as other:
            await other.publish(b"new")
        events = await host.behind(new.log, 1)
        read = await host.read(old.log, 0, 1)

    assert host.ended() == [old.log]
    assert new.log != old.log
    assert events == [("0/1", b"new")]
    assert read.error == "the log is gone"


async def test_a_topic_that_is_deleted_has_ended_once_that_is_certain(kafka: KafkaCluster, log: KafkaLog) -> None:
    async with host_of(kafka, log.topic.name, gone_seconds=3) as host:
        found = await host.found()
        await kafka.delete_topic(log.topic.name)
        await host.until(host.ended)

    assert host.ended() == [found.log]


async def test_a_partition_that_is_added_is_found(
    kafka: KafkaCluster, log: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gapless_log.kafka.logs.METADATA_SECONDS", 0.2)
    async with host_of(kafka, log.topic.name) as host:
        first = await host.found()
        await add_partitions(kafka, log.topic.name, 3)
        await host.until(lambda: len(host.logs) == 3)

    told = [[each.log.partition("@")[0][-2:] for each in found.logs] for found in host.all_of(LogsFound)]
    assert told in ([[".0"], [".1", ".2"]], [[".0"], [".1"], [".2"]])
    assert {log.family for log in host.logs.values()} == {first.family}


async def test_what_others_remove_is_told_although_nothing_comes(kafka: KafkaCluster, log: KafkaLog) -> None:
    await log.publish(b"a", b"b", b"c")
    async with host_of(kafka, log.topic.name) as host:
        found = await host.found()
        await kafka.delete_records(log.topic.name, 2)
        await host.until(lambda: host.logs[found.log].first == 2)


async def test_a_transaction_that_hangs_is_told_with_its_producer(
    kafka: KafkaCluster, log: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gapless_log.kafka.logs.STUCK_SECONDS", 0.5)
    async with host_of(kafka, log.topic.name) as host, log.producer(transactional_id=log.topic.name) as producer:
        found = await host.found()
        await producer.begin_transaction()
        await producer.send_and_wait(log.topic.name, b"a", partition=0)
        (batch,) = await log.batches(0, is_committed=False)
        await host.until(host.troubles)
        await producer.commit_transaction()
        await host.behind(found.log, 1)
        await host.until(lambda: len(host.troubles()) == 2)

    why = f"a transaction of producer id {batch.producer_id} is open at offset 0: nothing behind it is decided"
    assert host.troubles() == [(found.log, why), (found.log, "")]


@pytest.mark.timeout(120)
async def test_a_compacted_topic_is_refused_and_a_hole_is_covered_by_no_piece(kafka: KafkaCluster, name: str) -> None:
    await kafka.create_topic(
        name, min_cleanable_dirty_ratio=0.001, segment_ms=1, max_compaction_lag_ms=1, retention_ms=-1
    )
    async with KafkaLog(kafka, name) as log, host_of(kafka, name, follow=False) as host:
        found = await host.found()
        for number in range(6):
            await log.publish_at([(number * 1000 + each, b"%d" % number) for each in range(10)], key=b"the same")
        await kafka.alter_topic(name, cleanup_policy="compact")
        while (await log.batches(0))[0].last < 40:
            pass
        host.host.has_holes = True
        end = await host.locate(found.log, LogStart.DECIDED)
        read = await host.read(found.log, 0, end)
        async with host_of(kafka, name) as other:
            await other.until(other.troubles)

    assert (end, read.lo, read.first) == (60, 0, 0)
    assert min(piece.first for piece in read.pieces) > 10  # and nothing is said of what lies below
    assert "cleanup.policy is compact" in other.troubles()[0][1]
    assert other.logs == {}


async def test_a_topic_that_is_not_there_is_told_and_found_when_it_is_made(kafka: KafkaCluster, name: str) -> None:
    async with host_of(kafka, name) as host:
        await host.until(host.troubles)
        await kafka.create_topic(name)
        await host.found()

    assert host.troubles() == [(name, f"Kafka has no topic {name}"), (name, "")]


async def test_the_window_is_kept(kafka: KafkaCluster, log: KafkaLog) -> None:
    async with host_of(kafka, log.topic.name) as host:
        host.host.takes = False
        found = await host.found()
        for _ in range(30):
            await log.publish(b"x" * 100_000)
        await host.until(lambda: sum(grown.size for grown in host.grown(found.log)) >= 1 << 20)
        stands = host.reached(found.log)
        read = await host.read(found.log, 0, 30, max_bytes=100_000)  # nothing waits for that
        assert host.reached(found.log) == stands < 15
        host.host.takes = True
        host.host.take_all(found.log)
        await host.behind(found.log, 30)

    assert read.hi == 1


async def test_a_batch_of_ours_is_appended_with_its_mark(kafka: KafkaCluster, log: KafkaLog) -> None:
    topic = log.topic.name
    async with host_of(kafka, {"name": topic, "topic": "shop.orders", "publish": True}) as host:
        found = await host.found()
        marks = [LogMark("p", 3, first, 2, 99, found.decided, b"", False, 7, first == 1) for first in (1, 3)]
        bodies = columns("shop.orders", b"a", b"b"), columns("shop.orders", b"c", b"d")
        raws = [found.format.encode(mark, each) for mark, each in zip(marks, bodies, strict=True)]
        answer = await host.append(found.log, *raws)
        events = await host.behind(found.log, 4)
        (piece,) = [piece for grown in host.grown(found.log) for piece in grown.pieces]
        batch, met = found.format.decode(piece, found.rules)
        large = found.format.encode(marks[0], columns("shop.orders", b"x" * 2_000_000))
        refused = await host.append(found.log, large)

    assert found.refuses == ""
    assert isinstance(answer, Appended)
    assert list(answer.indices) == [2, 4]
    assert events == [("0/1", b"a"), ("0/2", b"b"), ("0/3", b"c"), ("0/4", b"d")]
    assert list(met) == [(1, marks[0]), (3, marks[1])]
    assert [header.properties for header in batch.headers] == [{"kind": "test", "n": n} for n in (0, 1, 0, 1)]
    assert isinstance(refused, Refused)


async def test_a_broker_that_restarts_makes_a_void_and_loses_nothing(kafka: KafkaCluster, log: KafkaLog) -> None:
    async with host_of(kafka, log.topic.name) as host:
        found = await host.found()
        await log.publish(b"a")
        await host.behind(found.log, 1)
        await kafka.restart()
        async with KafkaLog(kafka, log.topic.name) as again:
            await again.leader_epoch()
            await again.publish(b"b")
        events = await host.behind(found.log, 2)
        voids = host.logs[found.log].voids
        back = await host.read(found.log, 0, host.reached(found.log))

    assert [body for _, body in events] == [b"a", b"b"]
    ((lo, hi),) = voids
    assert (place(lo), events[1][0]) == ("0/1", place(hi + 1))
    assert [body for _, body in events_of(found, back.pieces)] == [b"a", b"b"]
    kinds = [type(each).__name__ for each in host.said if type(each).__name__ != "LogTrouble"]
    assert kinds == ["LogsFound", "Grown", "LogsFound", "Grown", "LogRead"]  # the void before what lies above it


@pytest.mark.timeout(120)
async def test_a_log_that_was_cut_goes_on_at_the_cut_and_what_is_gone_is_a_void(
    kafka: KafkaCluster, log: KafkaLog
) -> None:
    name = log.topic.name
    async with host_of(kafka, name) as host:
        found = await host.found()
        await log.publish(*[b"old"] * 600)
        await log.publish(*[b"lost"] * 400)
        await host.behind(found.log, 1000)
        before = place(host.reached(found.log))
        await kafka.kill()
        kafka.cut(name, 600)
        await kafka.start()
        async with KafkaLog(kafka, name) as again:
            epoch = await again.leader_epoch()
            await again.publish(*[b"new"] * 1000)
        events = await host.behind(found.log, 2000)
        (void,) = host.logs[found.log].voids
        back = await host.read(found.log, 700, host.reached(found.log))

    assert before == "0/1000"
    assert [body for _, body in events] == [b"old"] * 600 + [b"lost"] * 400 + [b"new"] * 1000
    assert [at for at, _ in events[1000:]] == [f"{epoch}/{600 + n + 1}" for n in range(1000)]
    assert tuple(map(place, void)) == ("0/600", f"{epoch}/600")
    assert [body for _, body in events_of(found, back.pieces)] == [b"new"] * 1000  # who stands at 700 goes on there
