"""What the plugin does when Kafka is not as it was: over a model of Kafka, whose answers a test can change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from gapless.core.ports import (
    Appended,
    Grown,
    LogEnded,
    LogMark,
    LogsFound,
    LogStart,
    LogTrouble,
    Refused,
    Uncertain,
)
from gapless.core.stream.columns import EventColumns
from gapless.core.stream.events import encode_event
from gapless_log.kafka import logs
from gapless_log.kafka.lineage import tick_at
from gapless_log.kafka.messages import (
    UNKNOWN,
    Code,
    Deleted,
    DeleteRecords,
    EpochEnds,
    Fetch,
    FetchAnswer,
    ListOffsets,
    MetadataRequest,
    Produce,
    Produced,
)
from gapless_log.kafka.records import Compression, NewRecord, encode
from gapless_log.kafka.requests import Connection
from gapless_sim.world.kafka_model import Broker, Cluster, Topic, by_producer
from log_host import LogHost, events_of, place


class ModelConnection(Connection):
    """A connection to a broker of the model."""

    def __init__(self, kafka: Kafka, broker: Broker) -> None:
        self._kafka = kafka
        self._broker = broker
        self.address = f"kafka-{broker.id}:9092"
        self.closed = False

    @property
    def is_open(self) -> bool:
        return self._broker.is_up and not self.closed

    async def close(self) -> None:
        self.closed = True

    async def ask(self, request: Any) -> Any:
        has_waited = False
        while True:
            await asyncio.sleep(0.001 if has_waited else 0)
            if not self.is_open:
                raise ConnectionError(f"the connection to Kafka at {self.address} broke")
            self._kafka.asked.append((self._broker.id, request))
            answer = self._broker.ask(request, has_waited=has_waited)
            if answer is not None:
                return self._kafka.changed(self._broker, request, answer)
            has_waited = True


class Kafka:
    """The model, with two brokers and a topic of one partition."""

    def __init__(self) -> None:
        self.cluster = Cluster(2)
        self.topic = self.create("orders")
        self.asked: list[tuple[int, Any]] = []
        self.change: Callable[[Broker, Any, Any], Any] = lambda _broker, _request, answer: answer
        self.connections: list[ModelConnection] = []

    def changed(self, broker: Broker, request: Any, answer: Any) -> Any:
        """What of an answer arrives."""
        return self.change(broker, request, answer)

    def create(self, name: str) -> Topic:
        topic = self.cluster.create(name, 1, {})
        self.learn()
        return topic

    def learn(self) -> None:
        """Every broker knows everything."""
        for broker in self.cluster.brokers:
            broker.learn()

    @property
    def partition(self) -> Any:
        return self.topic.partitions[0]

    def publish(self, *values: bytes) -> None:
        self.partition.append(encode([NewRecord(1000, None, value, []) for value in values], Compression.NONE))

    def elect(self, *, is_clean: bool = True) -> None:
        """Another leader, of whom all know."""
        self.cluster.elect(self.partition, is_clean=is_clean)
        self.learn()

    async def connect(self, address: str) -> Connection:
        number = int(address.partition(":")[0].rpartition("-")[2])
        broker = self.cluster.brokers[number - 1]
        if not broker.is_up:
            raise ConnectionError(f"cannot connect to Kafka at {address}")
        self.connections.append(ModelConnection(self, broker))
        return self.connections[-1]

    def host(self, **options: Any) -> LogHost:
        """A host of the topic."""
        gone_seconds = options.pop("gone_seconds", 60.0)
        follow = options.pop("follow", True)
        known = options.pop("known", {})
        topic = {"name": "orders", **options}
        return LogHost(["kafka-1:9092"], self.connect, topic, follow=follow, gone_seconds=gone_seconds, known=known)


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Kafka:
    for name in ("RETRY_SECONDS", "FIND_SECONDS"):
        monkeypatch.setattr(logs, name, 0.001)
    return Kafka()


@pytest.fixture
async def host(kafka: Kafka) -> AsyncIterator[LogHost]:
    """One that has found the topic, and follows it."""
    async with kafka.host(publish=True) as host:
        await host.found()
        yield host


def only(host: LogHost) -> str:
    """The log."""
    (log,) = host.logs
    return log


def batch(host: LogHost) -> bytes:
    """A batch of ours, encoded."""
    found = host.logs[only(host)]
    mark = LogMark("p", 1, 1, 1, 0, found.decided, b"", False, 7, True)
    event = encode_event("orders", {}, None, b"ours")
    return found.format.encode(mark, EventColumns.of([event], [4]))


async def test_another_leader_is_followed_without_a_word(kafka: Kafka, host: LogHost) -> None:
    kafka.publish(b"a")
    await host.behind(only(host), 1)

    kafka.elect()
    kafka.publish(b"b")
    kafka.elect()
    kafka.publish(b"c")
    events = await host.behind(only(host), 3)

    assert events == [("0/1", b"a"), ("1/2", b"b"), ("2/3", b"c")]
    assert [tuple(map(place, void)) for void in host.logs[only(host)].voids] == [("0/1", "1/1"), ("1/2", "2/2")]
    assert host.troubles() == []


async def test_an_election_before_the_first_record_removes_nothing(kafka: Kafka, host: LogHost) -> None:
    kafka.elect()
    kafka.publish(b"a")
    await host.behind(only(host), 1)
    async with kafka.host() as later:
        found = await later.found()

    assert [place(found.first), place(host.logs[only(host)].first)] == ["0/0", "0/0"]
    assert [tuple(map(place, void)) for void in found.voids] == [("0/0", "1/0")]
    assert host.logs[only(host)].voids == found.voids


async def test_who_has_read_all_that_was_removed_stands_where_the_log_begins(kafka: Kafka, host: LogHost) -> None:
    """Also if Kafka has forgotten the leader epoch in which he stands."""
    kafka.publish(b"a", b"b")
    await host.behind(only(host), 2)
    stood = host.reached(only(host))
    kafka.partition.trim(2)
    kafka.elect()
    kafka.publish(b"c")
    events = await host.behind(only(host), 3)
    found = host.logs[only(host)]
    back = await host.read(found.log, stood, host.reached(found.log))

    assert place(found.first) == place(stood) == "0/2"
    assert [tuple(map(place, void)) for void in found.voids] == [("0/2", "1/2")]
    assert events_of(found, back.pieces) == events[2:] == [("1/3", b"c")]


async def test_an_epoch_does_not_begin_where_records_were_removed_while_it_was_asked_for(kafka: Kafka) -> None:
    """Hostile 20342: of an epoch whose records are gone Kafka says that it ended where the log begins."""
    kafka.publish(b"a")
    kafka.elect()
    kafka.publish(b"b", b"c", b"d")

    def trimmed(_broker: Broker, request: Any, answer: Any) -> Any:
        if isinstance(request, EpochEnds):
            kafka.partition.trim(3)
        return answer

    kafka.change = trimmed
    async with kafka.host() as host:
        found = await host.found()
        read = await host.read(found.log, tick_at(1, 2), tick_at(1, 4))

    assert (place(found.first), found.voids) == ("1/3", ())
    assert (place(read.first), [place(piece.first) for piece in read.pieces]) == ("1/3", ["1/4"])


async def test_voids_are_told_before_what_lies_above_them(kafka: Kafka, host: LogHost) -> None:
    kafka.publish(b"a")
    await host.behind(only(host), 1)
    kafka.elect()
    kafka.publish(b"b")
    await host.behind(only(host), 2)

    for number, said in enumerate(host.said):
        if isinstance(said, Grown):
            told = [each for each in host.said[:number] if isinstance(each, LogsFound)][-1].logs[0].voids
            pieces = said.pieces
            uncovered = [(said.lo, pieces[0].first - 1)] if pieces[0].first - 1 > said.lo else []
            assert all((lo, hi) in told for lo, hi in uncovered)


async def test_a_leader_that_went_on_without_the_end_cuts_the_log(kafka: Kafka, host: LogHost) -> None:
    kafka.publish(*[b"old"] * 6)
    kafka.partition.lag(waits=False)
    kafka.publish(*[b"lost"] * 4)
    await host.behind(only(host), 10)

    kafka.elect(is_clean=False)
    kafka.publish(*[b"new"] * 10)
    events = await host.behind(only(host), 20)
    back = await host.read(only(host), 8, host.reached(only(host)))

    assert [place for place, _ in events[10:]] == [f"1/{6 + n + 1}" for n in range(10)]
    assert [tuple(map(place, void)) for void in host.logs[only(host)].voids] == [("0/6", "1/6")]
    assert [body for _, body in events_of(host.logs[only(host)], back.pieces)] == [b"new"] * 10


async def test_a_position_beyond_the_end_is_a_cut_and_never_a_reset(kafka: Kafka) -> None:
    kafka.publish(*[b"old"] * 6)
    kafka.partition.lag(waits=False)
    kafka.publish(*[b"lost"] * 4)
    async with kafka.host(follow=False) as host:
        found = await host.found()
        kafka.elect(is_clean=False)  # offset 10 is out of range from now on
        host.host.follow(found.log, 10, 1000)
        await asyncio.sleep(0.02)
        kafka.publish(b"new")
        events = await host.behind(found.log, 1)

    assert events == [("1/7", b"new")]


async def test_a_topic_made_anew_ends_the_log_and_is_another_one(kafka: Kafka, host: LogHost) -> None:
    old = only(host)
    kafka.publish(b"old")
    await host.behind(old, 1)
    kafka.cluster.delete(kafka.topic)
    kafka.topic = kafka.create("orders")

    await host.until(lambda: len(host.logs) == 2)
    new = next(log for log in host.logs if log != old)
    kafka.publish(b"new")

    assert await host.behind(new, 1) == [("0/1", b"new")]
    assert host.all_of(LogEnded) == [LogEnded(old, "the Kafka topic orders: it was deleted and made anew")]


async def test_a_topic_that_one_broker_does_not_know_has_not_ended(kafka: Kafka) -> None:
    async with kafka.host(gone_seconds=0.01) as host:
        found = await host.found()
        leader, other = kafka.cluster.brokers
        leader.topics = ()  # it has been told of nothing yet
        await asyncio.sleep(0.1)
        assert host.ended() == []
        other.is_up = leader.is_up = False
        await asyncio.sleep(0.1)
        assert host.ended() == []
        other.is_up = leader.is_up = True
        kafka.learn()
        kafka.publish(b"a")

        assert await host.behind(found.log, 1) == [("0/1", b"a")]


async def test_while_brokers_contradict_each_other_nothing_has_ended(kafka: Kafka) -> None:
    async with kafka.host(gone_seconds=0.01) as host:
        await host.found()
        first, second = kafka.cluster.brokers
        kafka.cluster.delete(kafka.topic)
        kafka.cluster.create("orders", 1, {})
        first.topics = ()
        second.learn()
        await asyncio.sleep(0.1)
        assert host.ended() == []
        first.learn()

        await host.until(host.ended)


async def test_a_topic_that_nobody_knows_any_more_has_ended_after_a_while(kafka: Kafka) -> None:
    async with kafka.host(gone_seconds=0.2) as host:
        found = await host.found()
        kafka.cluster.delete(kafka.topic)
        kafka.learn()
        await asyncio.sleep(0.1)
        assert host.ended() == []

        await host.until(host.ended)

    assert host.all_of(LogEnded) == [LogEnded(found.log, "the Kafka topic orders: it was deleted")]


FORMER = {"orders.0@AAAAAAAAAAAAAAAAAAAAAQ": "model/orders@AAAAAAAAAAAAAAAAAAAAAQ"}
"""The first topic of the model, as a host knows it that has found it."""


async def test_what_a_host_has_found_tells_a_later_life_where_it_was(kafka: Kafka, host: LogHost) -> None:
    assert {only(host): host.logs[only(host)].family} == FORMER


async def test_a_topic_made_anew_while_nobody_looked_has_ended(kafka: Kafka) -> None:
    (former,) = FORMER
    kafka.cluster.delete(kafka.topic)
    kafka.create("orders")

    async with kafka.host(known=FORMER, gone_seconds=0.01) as host:
        await host.until(host.ended)
        found = await host.found()

        assert host.all_of(LogEnded) == [LogEnded(former, "the Kafka topic orders: it was deleted and made anew")]
        assert found.log not in FORMER


async def test_a_former_topic_that_one_broker_still_knows_has_not_ended(kafka: Kafka) -> None:
    """TK2: perhaps the others are the ones that are behind."""
    kafka.cluster.delete(kafka.topic)
    kafka.cluster.create("orders", 1, {})
    kafka.cluster.brokers[0].learn()

    async with kafka.host(known=FORMER, gone_seconds=0.01) as host:
        await asyncio.sleep(0.1)
        assert host.ended() == []
        kafka.learn()

        await host.until(host.ended)


async def test_a_former_topic_of_whose_name_there_is_none_is_asked_for_a_while(kafka: Kafka) -> None:
    """TK2: metadata spreads, so its absence is no evidence at once."""
    kafka.cluster.delete(kafka.topic)
    kafka.learn()

    async with kafka.host(known=FORMER, gone_seconds=0.2) as host:
        await asyncio.sleep(0.1)
        assert host.ended() == []

        await host.until(host.ended)


async def test_a_former_topic_that_is_found_again_goes_on_and_ends_with_all_its_partitions(kafka: Kafka) -> None:
    not_configured = "orders.1@AAAAAAAAAAAAAAAAAAAAAQ"
    known = {**FORMER, not_configured: FORMER[next(iter(FORMER))]}

    async with kafka.host(known=known, gone_seconds=0.01, partitions=[0]) as host:
        await host.found()
        await asyncio.sleep(0.1)
        assert host.ended() == []
        kafka.cluster.delete(kafka.topic)
        kafka.create("orders")

        await host.until(lambda: len(host.ended()) == 2)
        assert {each.log for each in host.all_of(LogEnded)} == set(known)


async def test_a_former_topic_of_another_cluster_or_of_no_section_has_not_ended(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The configuration names other servers than it did, perhaps by mistake."""
    monkeypatch.setattr(logs, "PATIENCE_SECONDS", 0.0)
    known = {"orders.0@AAAAAAAAAAAAAAAAAAAACQ": "other/orders@AAAAAAAAAAAAAAAAAAAACQ", "x.0@AAAA": "model/x@AAAA"}

    async with kafka.host(known=known, gone_seconds=0.01) as host:
        await host.until(lambda: host.all_of(LogTrouble))
        await asyncio.sleep(0.05)

        assert host.ended() == []
        assert host.all_of(LogTrouble) == [
            LogTrouble("orders.0@AAAAAAAAAAAAAAAAAAAACQ", "it is in the Kafka cluster other, and this is model")
        ]


async def test_every_fetch_names_the_topic_by_its_id_and_both_epochs(kafka: Kafka, host: LogHost) -> None:
    kafka.publish(b"a")
    await host.behind(only(host), 1)
    kafka.elect()
    kafka.publish(b"b")
    await host.behind(only(host), 2)
    await asyncio.sleep(0.02)

    fetches = [request for _, request in kafka.asked if isinstance(request, Fetch)]
    assert {start.topic_id for fetch in fetches for start in fetch.partitions} == {kafka.topic.id}
    assert (fetches[-1].partitions[0].leader_epoch, fetches[-1].partitions[0].last_epoch) == (1, 1)
    assert all(fetch.is_committed for fetch in fetches)
    names = [request.names for _, request in kafka.asked if isinstance(request, MetadataRequest) and request.names]
    assert names == [("orders",)]  # once, to find its id


async def test_a_log_that_stands_still_is_told_after_a_while_and_when_it_goes_on(
    kafka: Kafka, host: LogHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "PATIENCE_SECONDS", 0.05)
    for broker in kafka.cluster.brokers:
        broker.is_up = False
    await host.until(host.troubles)
    for broker in kafka.cluster.brokers:
        broker.is_up = True
    kafka.publish(b"a")
    await host.behind(only(host), 1)
    await host.until(lambda: host.troubles()[-1] == (only(host), ""))

    assert "Kafka" in host.troubles()[0][1]


def damage(_broker: Broker, _request: Any, answer: Any) -> Any:
    """Turns bits of what a fetch brings."""
    if not isinstance(answer, FetchAnswer) or not answer.partitions[0].records:
        return answer
    (fetched,) = answer.partitions
    return FetchAnswer(Code.NONE, (msgspec.structs.replace(fetched, records=fetched.records[:-1] + b"?"),))


async def test_what_cannot_be_read_is_told_and_not_skipped(
    kafka: Kafka, host: LogHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "DAMAGED_SECONDS", 0.01)
    kafka.change = damage
    kafka.publish(b"a")
    await host.until(host.troubles)
    read = await host.read(only(host), 0, 1)
    assert host.grown(only(host)) == []
    kafka.change = lambda _broker, _request, answer: answer
    events = await host.behind(only(host), 1)

    assert "it cannot be read any further: the batch at offset 0" in host.troubles()[0][1]
    assert (read.hi, read.pieces) == (0, [])
    assert "checksum" in read.error
    assert events == [("0/1", b"a")]


async def test_a_transaction_that_hangs_is_told_also_if_its_records_are_gone_when_they_are_looked_at(
    kafka: Kafka, host: LogHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "STUCK_SECONDS", 0.0)
    monkeypatch.setattr(logs, "WAIT_MS", 1)

    def without_records(_broker: Broker, request: Any, answer: Any) -> Any:
        if not isinstance(request, Fetch) or request.is_committed:
            return answer
        return FetchAnswer(Code.NONE, (msgspec.structs.replace(answer.partitions[0], records=b""),))

    kafka.change = without_records
    kafka.partition.append(by_producer(encode([NewRecord(1000, None, b"a", [])], Compression.NONE), 7))

    trouble = await host.until(host.troubles)

    assert trouble[0][1] == "a transaction is open at offset 0: nothing behind it is decided"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (Code.NONE, Appended),
        (Code.MESSAGE_TOO_LARGE, Refused),
        (Code.TOPIC_AUTHORIZATION_FAILED, Refused),
        (Code.NOT_LEADER_OR_FOLLOWER, Uncertain),  # it may have led, and stepped down before the others had it
        (Code.REQUEST_TIMED_OUT, Uncertain),
        (Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND, Uncertain),
        (Code.UNKNOWN_TOPIC_ID, Uncertain),
        (Code.UNKNOWN_SERVER_ERROR, Uncertain),
    ],
)
async def test_an_append_is_sent_once_and_refused_only_where_nothing_was_appended(
    kafka: Kafka, host: LogHost, code: Code, kind: type[object]
) -> None:
    def answered(_broker: Broker, _request: Any, answer: Any) -> Any:
        return msgspec.structs.replace(answer, code=code) if isinstance(answer, Produced) else answer

    kafka.change = answered

    answer = await host.append(only(host), batch(host))

    assert type(answer) is kind
    assert len([request for _, request in kafka.asked if isinstance(request, Produce)]) == 1
    if isinstance(answer, Appended):
        assert list(answer.indices) == [tick_at(0, 1)]


@pytest.mark.parametrize(
    ("code", "troubles"),
    [
        (Code.TOPIC_AUTHORIZATION_FAILED, ["Kafka deletes no records: TOPIC_AUTHORIZATION_FAILED", ""]),
        (Code.NOT_LEADER_OR_FOLLOWER, []),
    ],
)
async def test_records_that_kafka_does_not_delete_are_told_where_it_never_will(
    kafka: Kafka, code: Code, troubles: list[str]
) -> None:
    """The operator has to allow it; and whoever wants it asks again, for more."""
    kafka.publish(*[b"a"] * 5)
    async with kafka.host(retention="delete") as host:
        found = await host.found()
        kafka.change = lambda _broker, request, answer: (
            Deleted(code, UNKNOWN) if isinstance(request, DeleteRecords) else answer
        )
        host.host.trim(found.log, 2)
        await asyncio.sleep(0.02)
        kafka.change = lambda _broker, _request, answer: answer
        host.host.trim(found.log, 3)
        await host.until(lambda: host.logs[found.log].first == 3)
        await asyncio.sleep(0.02)

    assert host.troubles() == [(f"retention of {found.log}", why) for why in troubles]


async def test_an_append_without_an_answer_is_uncertain(kafka: Kafka, host: LogHost) -> None:
    def lost(_broker: Broker, request: Any, answer: Any) -> Any:
        if isinstance(request, Produce):
            raise ConnectionError("it broke")
        return answer

    kafka.change = lost

    answer = await host.append(only(host), batch(host))

    assert isinstance(answer, Uncertain)
    assert await host.locate(only(host), LogStart.LATEST) == 1  # it is there
    assert await host.behind(only(host), 1) == [("0/1", b"ours")]


async def test_the_end_is_under_the_epoch_that_wrote_it_although_it_was_not_met_yet(kafka: Kafka) -> None:
    async with kafka.host(follow=False) as host:
        found = await host.found()
        kafka.publish(b"a")
        kafka.elect()
        idle = await host.locate(found.log, LogStart.LATEST)
        kafka.publish(b"b")
        latest = await host.locate(found.log, LogStart.LATEST)

    assert (place(idle), place(latest)) == ("0/1", "1/2")


async def test_a_read_waits_for_a_leader_and_gives_up_in_time(
    kafka: Kafka, host: LogHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.publish(b"a")
    await host.behind(only(host), 1)
    kafka.cluster.elect(kafka.partition, is_clean=True)  # nobody has learned of it
    reading = asyncio.ensure_future(host.read(only(host), 0, 1))
    await asyncio.sleep(0.02)
    kafka.learn()
    read = await reading
    kafka.publish(b"b")
    await host.behind(only(host), 2)
    monkeypatch.setattr(logs, "READ_SECONDS", 0.0)
    kafka.cluster.elect(kafka.partition, is_clean=True)
    failed = await host.read(only(host), tick_at(1, 1), tick_at(1, 2))

    assert [body for _, body in events_of(host.logs[only(host)], read.pieces)] == [b"a"]
    assert failed.hi == tick_at(1, 1)
    assert failed.error in {"Kafka answers NOT_LEADER_OR_FOLLOWER", f"{only(host)} has no leader at the moment"}


def reads(kafka: Kafka) -> int:
    """How many fetches were no following."""
    return sum(isinstance(request, Fetch) and request.wait_ms == 0 for _, request in kafka.asked)


async def test_a_batch_is_fetched_once_for_all_who_read_in_it_at_one_time(kafka: Kafka, host: LogHost) -> None:
    kafka.publish(b"a", b"b", b"c")
    kafka.publish(b"d")
    await host.behind(only(host), 4)

    found = await asyncio.gather(*(host.read(only(host), at, at + 1) for at in range(4)))

    assert [body for read in found for _, body in events_of(host.logs[only(host)], read.pieces)] == [
        *b"a b c d".split()
    ]
    assert reads(kafka) == 1


async def test_what_was_read_before_the_log_was_cut_is_not_read_again(kafka: Kafka, host: LogHost) -> None:
    kafka.publish(b"a")
    kafka.publish(b"b")
    await host.behind(only(host), 2)
    await host.read(only(host), 0, 2)
    kafka.partition.copied = 1
    kafka.elect(is_clean=False)
    kafka.publish(b"other")
    await host.behind(only(host), 3)

    read = await host.read(only(host), 0, tick_at(1, 2))

    assert [body for _, body in events_of(host.logs[only(host)], read.pieces)] == [b"a", b"other"]


@pytest.mark.parametrize("after", [0, 1])
async def test_a_read_of_what_was_cut_off_is_answered_when_the_void_is_told(kafka: Kafka, after: int) -> None:
    """TK20; found by the simulator: its host called the topic compacted, or said that nothing was read."""
    kafka.publish(b"a")
    kafka.publish(b"b")
    async with kafka.host(follow=False) as host:
        found = await host.found()
        kafka.partition.copied = 1
        kafka.elect(is_clean=False)
        if after == 0:
            kafka.publish(b"other")
        read = await host.read(found.log, after, 2)
        voids = host.logs[found.log].voids

    assert [tuple(map(place, void)) for void in voids] == [("0/1", "1/1")]
    assert (read.error, read.hi) == ("", 2)
    assert [body for _, body in events_of(found, read.pieces)] == [b"a"][after:]


async def test_what_was_removed_before_it_was_read_is_told_although_nothing_comes(kafka: Kafka, host: LogHost) -> None:
    """Hostile 31266: publishers waited for an emptied log to grow."""
    kafka.publish(*[b"old"] * 4)
    await host.behind(only(host), 4)
    kafka.partition.copied = 0
    kafka.elect(is_clean=False)
    kafka.publish(*[b"new"] * 5)
    kafka.partition.trim(5)
    await host.until(lambda: place(host.reached(only(host))) == "1/5" or None)

    removed = host.grown(only(host))[-1]
    assert (place(removed.lo), place(removed.first), removed.pieces) == ("0/4", "1/5", ())


async def test_what_is_asked_of_a_log_that_is_gone_is_answered(kafka: Kafka, host: LogHost) -> None:
    log = only(host)
    kafka.cluster.delete(kafka.topic)
    kafka.topic = kafka.create("orders")
    await host.until(host.ended)

    answer = await host.append(log, b"x")
    read = await host.read(log, 0, 1)

    assert isinstance(answer, Refused)
    assert answer.why == "the log is gone"
    assert read.error == "the log is gone"


async def test_closed_it_asks_and_answers_nothing(kafka: Kafka) -> None:
    async with kafka.host() as host:
        await host.found()
    kafka.publish(b"a")
    asked, said = len(kafka.asked), len(host.said)
    await asyncio.sleep(0.02)

    assert all(connection.closed for connection in kafka.connections)
    assert (len(kafka.asked), len(host.said)) == (asked, said)


async def test_closed_while_it_waits_to_read_again_it_does_not_begin_anew(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "DAMAGED_SECONDS", 0.02)
    async with kafka.host() as host:
        await host.found()
        kafka.change = damage
        kafka.publish(b"a")
        await host.until(host.troubles)
    asked = len(kafka.asked)
    await asyncio.sleep(0.05)

    assert len(kafka.asked) == asked


async def test_new_partitions_are_all_followed_also_if_a_connection_breaks_between_them(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hostile 31479: the first one was described, but not there when its host wanted to follow it."""
    monkeypatch.setattr(logs, "METADATA_SECONDS", 0.001)
    broken: list[Any] = []

    def breaks_once(_broker: Broker, request: Any, answer: Any) -> Any:
        if isinstance(request, ListOffsets) and request.partitions[0].partition == 2 and not broken:
            broken.append(request)
            raise ConnectionError("the connection broke")
        return answer

    async with kafka.host() as host:
        await host.found()
        kafka.change = breaks_once
        for _ in range(2):
            kafka.cluster.add_partition(kafka.topic)
        kafka.learn()
        added = [await host.found(number) for number in (1, 2)]
        for number, partition in enumerate(kafka.topic.partitions[1:]):
            partition.append(encode([NewRecord(1000, None, b"%d" % number, [])], Compression.NONE))
        events = [await host.behind(found.log, 1) for found in added]

    assert broken
    assert [body for ((_, body),) in events] == [b"0", b"1"]


async def test_a_topic_is_looked_for_until_it_is_there(kafka: Kafka) -> None:
    kafka.cluster.delete(kafka.topic)
    kafka.learn()
    async with kafka.host() as host:
        await host.until(host.troubles)
        kafka.topic = kafka.create("orders")
        await host.found()

    assert host.all_of(LogTrouble) == [LogTrouble("orders", "Kafka has no topic orders"), LogTrouble("orders", "")]


async def test_a_gateway_tells_how_far_it_is_behind_what_it_fetched_and_who_was_elected(
    kafka: Kafka, host: LogHost
) -> None:
    def told() -> dict[str, float]:
        labels = {pair for gauge in host.plugin.gauges() for pair in gauge.labels if pair[0] == "pubend"}
        assert labels == {("pubend", only(host))}
        return {gauge.name: gauge.value for gauge in host.plugin.gauges()}

    kafka.publish(b"a", b"b")
    await host.behind(only(host), 2)
    before = told()
    assert isinstance(await host.append(only(host), batch(host)), Appended)
    kafka.elect()
    kafka.publish(b"c")
    await host.behind(only(host), 3)

    assert (before["gapless_gateway_lag_offsets"], before["gapless_gateway_elections_total"]) == (0, 0)
    assert before["gapless_gateway_fetched_bytes_total"] > 0
    assert "gapless_gateway_produce_seconds_count" not in before
    assert told()["gapless_gateway_elections_total"] == 1
    assert told()["gapless_gateway_produce_seconds_count"] == 1
    assert told()["gapless_gateway_fetched_bytes_total"] > before["gapless_gateway_fetched_bytes_total"]
