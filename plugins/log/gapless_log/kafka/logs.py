"""The topics of one `[[phb.kafka]]` section, as a node's roles know them: logs that are asked, and that answer.

    open ──▶ found ──▶ followed ──▶ ended
      ▲        │ what is asked: each by a task of its own, which asks again until it has an answer
      └────────┘

One task looks for each topic until it is there; one asks for metadata, now and then, and when a leader is not where it
was; one for each broker fetches what is followed there, and waits for more. Nothing of it ends by an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import accumulate, islice
from typing import Any, Final

from gapless.core.gauges import Gauge
from gapless.core.ports import (
    Append,
    Appended,
    Follow,
    Locate,
    Located,
    LogAnswer,
    LogEnded,
    LogQuestion,
    LogRead,
    LogsFound,
    LogTrouble,
    OpenLogs,
    ReadLog,
    Refused,
    Taken,
    Trim,
    Uncertain,
)
from gapless.core.stream.ticks import Tick
from gapless_log.kafka.cluster import CONNECTION_ERRORS, Cluster
from gapless_log.kafka.format import joined
from gapless_log.kafka.lineage import TicksExhaustedError, offset_of, tick_at
from gapless_log.kafka.messages import LATEST, UNKNOWN, Code, Fetch, Fetched, FetchFrom, PartitionState
from gapless_log.kafka.options import KafkaSection, TopicSection
from gapless_log.kafka.records import CorruptBatchError, batches
from gapless_log.kafka.requests import Connection, UnfitKafkaError
from gapless_log.kafka.survey import (
    NotNowError,
    checked,
    lineage_of,
    offset_found,
    place_found,
    read_range,
    verdict,
)
from gapless_log.kafka.tail import FETCH_BYTES_MAX, PartitionLog
from gapless_log.kafka.topics import FormerTopic, OpenTopic, unfit

WAIT_MS: Final = 500
"""How long a broker waits for records before it answers a fetch with none."""
BUSY_WAIT_MS: Final = 10
"""The same, while something is left out of the fetch because there is no room for it."""
RETRY_SECONDS: Final = 0.2
FIND_SECONDS: Final = 2.0
"""How often a topic that is not there, or not fit, is looked for."""
METADATA_SECONDS: Final = 10.0
"""How often the topics are looked at although nothing is wrong: a partition may have been added."""
SETTINGS_SECONDS: Final = 60.0
PATIENCE_SECONDS: Final = 5.0
"""After so long without success a log stands still, and that is said."""
STUCK_SECONDS: Final = 10.0
"""After so long an open transaction holds a log up."""
READ_SECONDS: Final = 20.0
"""How long a read is tried."""
READS_MAX: Final = 16
"""So many reads are under way at once."""
PRODUCE_MS: Final = 20_000
GONE_SECONDS: Final = 60.0
DAMAGED_SECONDS: Final = 5.0
"""How soon one tries again to read what could not be read."""

_REFUSED: Final = frozenset(
    {
        Code.MESSAGE_TOO_LARGE,
        Code.RECORD_LIST_TOO_LARGE,
        Code.INVALID_RECORD,
        Code.INVALID_TIMESTAMP,
        Code.CORRUPT_MESSAGE,
        Code.TOPIC_AUTHORIZATION_FAILED,
        Code.CLUSTER_AUTHORIZATION_FAILED,
        Code.POLICY_VIOLATION,
        Code.INVALID_REQUEST,
        Code.UNSUPPORTED_VERSION,
    }
)
"""Nothing was done, and nothing would be another time. With any other error an append may have been: a leader
that steps down while it waits for its followers answers as one that never led."""


class KafkaLogs:
    """See `gapless.spi.Logs`."""

    def __init__(
        self,
        section: KafkaSection,
        known: Mapping[str, str],
        connect: Callable[[str], Awaitable[Connection]],
        answer: Callable[[LogAnswer], None],
        wall: Callable[[], int],
        *,
        gone_seconds: float = GONE_SECONDS,
    ) -> None:
        """`known`: logs that were found before, each with its family. `wall`: milliseconds since 1970.

        `connect` opens a connection to an address. A topic that no broker has known for `gone_seconds` is gone.
        """
        self._cluster = Cluster(section.servers, connect)
        self._time = asyncio.get_running_loop().time
        self._answer = answer
        self._wall = wall
        self._gone_seconds = gone_seconds
        self._is_closed = False
        self._topics: dict[bytes, OpenTopic] = {}
        self._logs: dict[str, tuple[OpenTopic, PartitionLog]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._fetching: dict[int, asyncio.Event] = {}
        """For each broker that is fetched from, what wakes the task."""
        self._judged: set[bytes] = set()
        """The topics of which it is being found out whether they are gone."""
        self._stale = asyncio.Event()
        """What is known of leaders is out of date."""
        self._reads = asyncio.Semaphore(READS_MAX)
        self._reading: dict[str, list[tuple[int, int, asyncio.Event]]] = {}
        """Of each log the reads under way: the offsets between which they read, and what is set at their ends."""
        self._failing: dict[str, float] = {}
        """Of what does not work, since when."""
        self._troubles: dict[str, str] = {}
        """What was said of it."""
        self._told: dict[str, object] = {}
        """What was said of each log, but for its end."""
        self._stuck: dict[str, tuple[int, float]] = {}
        """Where a transaction holds a log up, and since when."""
        self._known: dict[bytes, list[str]] = {}
        """The logs that were found before, by the id of their topic."""
        sections = {topic.name: topic for topic in section.topics}
        for topic in section.topics:
            self._run(self._find(topic))
        for log_name, family in known.items():
            former = FormerTopic.parse(family)
            if former.name in sections:
                self._known.setdefault(former.id, []).append(log_name)
                if len(self._known[former.id]) == 1:
                    self._run(self._miss(former))
        self._run(self._watch())

    # ------------------------------------------------------------------------------------ what is asked

    def ask(self, question: LogQuestion) -> None:
        """Takes a question about a log."""
        assert not isinstance(question, OpenLogs)
        if question.log not in self._logs:
            self._decline(question)
            return
        topic, partition = self._logs[question.log]
        if isinstance(question, Follow):
            partition.follow(question.after, question.window)
            self._stuck.pop(question.log, None)
            self._fetch_soon(partition)
        elif isinstance(question, Taken):
            if partition.following is not None:
                partition.following.pending -= question.size
                self._wake(partition)
        elif isinstance(question, ReadLog):
            self._run(self._read(question))
        elif isinstance(question, Locate):
            self._run(self._locate(question))
        elif isinstance(question, Trim):
            self._run(self._trim(topic, partition, question.upto))
        else:
            self._run(self._append(topic, partition, question))

    def _decline(self, question: LogQuestion) -> None:
        """The log has ended, and whoever asks has not heard of it yet."""
        why = "the log is gone"
        if isinstance(question, ReadLog):
            self._answer_soon(LogRead(question.cookie, question.after, question.after, (), 0, why))
        elif isinstance(question, Append):
            self._answer_soon(Refused(question.cookie, why))

    def _answer_soon(self, answer: LogAnswer) -> None:
        """An answer never comes from within the question."""
        asyncio.get_running_loop().call_soon(lambda: self._answer(answer))

    def gauges(self) -> Iterator[Gauge]:
        """Yields the figures of each partition."""
        for _, partition in self._logs.values():
            yield from partition.gauges()

    async def close(self) -> None:
        """Ends all tasks, and closes all connections."""
        self._answer, self._is_closed = _nobody, True
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:  # also if the node does not wait any longer
            await self._cluster.close()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        if self._is_closed:
            work.close()
            return
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            said = {"message": "a task of the Kafka plugin has failed", "exception": error, "task": task}
            task.get_loop().call_exception_handler(said)

    # ------------------------------------------------------------------------------------ what goes wrong

    def _trouble(self, name: str, why: str) -> None:
        if self._troubles.get(name, "") != why:
            self._troubles[name] = why
            self._answer(LogTrouble(name, why))

    def _fails(self, name: str, why: str) -> None:
        """It does not work at the moment. Nobody is told before that has lasted."""
        now = self._time()
        if now - self._failing.setdefault(name, now) >= PATIENCE_SECONDS:
            self._trouble(name, why)

    def _works(self, name: str) -> None:
        self._failing.pop(name, None)
        self._trouble(name, "")

    # ------------------------------------------------------------------------------------ finding topics

    async def _find(self, section: TopicSection) -> None:
        """Looks for a topic until it is there and fit."""
        while True:
            try:
                why = await self._open(section)
            except UnfitKafkaError as error:
                self._trouble(section.rules.topic, _text(error))
            except CONNECTION_ERRORS as error:
                self._fails(section.rules.topic, _text(error))
            else:
                if not why:
                    self._works(section.rules.topic)
                    return
                self._trouble(section.rules.topic, why)
            await asyncio.sleep(FIND_SECONDS)

    async def _open(self, section: TopicSection) -> str:
        """Opens a topic and tells of its partitions. Returns why it cannot be a pubend, or ""."""
        metadata = await self._cluster.metadata(names=[section.name])
        (state,) = metadata.topics
        if state.code is Code.UNKNOWN_TOPIC_OR_PARTITION:
            return f"Kafka has no topic {section.name}"
        if state.code is Code.TOPIC_AUTHORIZATION_FAILED:
            return f"this broker may not read the Kafka topic {section.name}"
        checked(state.code)
        partitions = {partition.partition: partition for partition in state.partitions}
        if missing := sorted(set(section.partitions or ()) - set(partitions)):
            return f"the Kafka topic {section.name} has no partition {', '.join(map(str, missing))}"
        topic = OpenTopic(section, metadata.cluster, state.id, {}, min(len(each.replicas) for each in state.partitions))
        why = await self._learn_settings(topic)
        if not why:
            await self._add(topic, [partitions[each] for each in section.partitions or sorted(partitions)])
        return why

    async def _learn_settings(self, topic: OpenTopic) -> str:
        """Asks for a topic's settings. Returns why it cannot be a pubend, or ""."""
        connection = await self._cluster.connection(self._cluster.brokers[0], "ask")
        config = await connection.describe(topic.topic)
        if config.code is Code.TOPIC_AUTHORIZATION_FAILED:
            return f"this broker may not describe the settings of the Kafka topic {topic.section.name}"
        checked(config.code)
        topic.settings = config.settings
        return unfit(config.settings) and f"the Kafka topic {topic.section.name}: {unfit(config.settings)}"

    async def _add(self, topic: OpenTopic, partitions: Sequence[PartitionState]) -> None:
        """Tells of partitions that are new, all in one message, as soon as all is known of each of them."""
        found: list[tuple[PartitionLog, Tick]] = []
        for state in partitions:
            partition = PartitionLog(topic.log_of(state.partition), topic.id, state.partition)
            partition.leader, partition.leader_epoch = state.leader, state.leader_epoch
            connection = await self._leader(partition)
            partition.learn(await lineage_of(connection, topic.topic, partition))
            end = await offset_found(connection, topic.topic, partition, LATEST, is_committed=True)
            found.append((partition, partition.lineage.position(end.offset)))
        if topic.logs and topic.id not in self._topics:
            return  # meanwhile it has ended
        self._topics[topic.id] = topic
        for partition, decided in found:
            topic.logs[partition.partition], topic.decided[partition.partition] = partition, decided
            self._logs[partition.log] = topic, partition
        self._tell(topic, *(state.partition for state in partitions))

    def _tell(self, topic: OpenTopic, *partitions: int) -> None:
        """Describes those of these partitions of which something has changed."""
        found = [topic.numbered(partition) for partition in partitions]
        changed = []
        for each in found:
            said = (each.first, each.voids, each.refuses, each.warnings, each.capabilities)
            if self._told.get(each.log) != said:
                self._told[each.log] = said
                changed.append(each)
        if changed:
            self._answer(LogsFound(changed))

    # ------------------------------------------------------------------------------------ who leads

    async def _leader(self, partition: PartitionLog, use: str = "ask") -> Connection:
        if partition.leader < 0:
            raise NotNowError(f"{partition.log} has no leader at the moment")
        return await self._cluster.connection(partition.leader, use)

    def _lost_leader(self, partition: PartitionLog) -> None:
        partition.leader = -1
        self._stale.set()

    async def _watch(self) -> None:
        """Knows who leads, finds new partitions, and notices what becomes of topics."""
        settings_due = self._time() + SETTINGS_SECONDS
        while True:
            await _wait(self._stale, METADATA_SECONDS)
            self._stale.clear()
            if not self._topics:
                continue
            try:
                await self._refresh()
                if self._time() >= settings_due:
                    settings_due = self._time() + SETTINGS_SECONDS
                    await self._refresh_settings()
            except CONNECTION_ERRORS as error:
                for name, (_, partition) in self._logs.items():
                    if partition.leader < 0:
                        self._fails(name, _text(error))
                self._stale.set()
            if any(partition.leader < 0 for _, partition in self._logs.values()):
                self._stale.set()
            await asyncio.sleep(RETRY_SECONDS)

    async def _refresh(self) -> None:
        for state in (await self._cluster.metadata(ids=[*self._topics])).topics:
            topic = self._topics.get(state.id)
            if topic is None:
                continue
            if state.code is Code.UNKNOWN_TOPIC_ID:
                self._suspect(topic)
                continue
            checked(state.code)
            added = []
            for each in state.partitions:
                partition = topic.logs.get(each.partition)
                if partition is not None:
                    partition.recent.rest()
                    self._led(partition, each)
                elif topic.section.partitions is None:
                    added.append(each)
            if added:
                await self._add(topic, added)

    def _led(self, partition: PartitionLog, state: PartitionState) -> None:
        if state.leader_epoch < partition.leader_epoch:  # of a broker that has not heard of the latest election
            return
        partition.elections += state.leader_epoch - partition.leader_epoch
        partition.leader, partition.leader_epoch = state.leader, state.leader_epoch
        if state.leader < 0:
            self._fails(partition.log, "it has no leader")
        else:
            self._fetch_soon(partition)

    async def _refresh_settings(self) -> None:
        for topic in [*self._topics.values()]:
            if why := await self._learn_settings(topic):
                self._trouble(topic.section.rules.topic, why)
            self._tell(topic, *topic.logs)

    # ------------------------------------------------------------------------------------ following

    def _fetch_soon(self, partition: PartitionLog) -> None:
        """Sees to it that a task fetches from the partition's leader."""
        if partition.following is None:
            return
        if partition.leader < 0:
            self._stale.set()
        elif partition.leader in self._fetching:
            self._wake(partition)
        else:
            self._fetching[partition.leader] = asyncio.Event()
            self._run(self._fetch_from(partition.leader))

    def _wake(self, partition: PartitionLog) -> None:
        if partition.leader in self._fetching:
            self._fetching[partition.leader].set()

    async def _fetch_from(self, broker: int) -> None:
        """Fetches what is followed at a broker, until nothing is."""
        wake = self._fetching[broker]
        try:
            while True:
                led = [each for _, each in self._logs.values() if each.leader == broker and each.is_followed]
                if not led:
                    return
                starts = {each.log: start for each in led if (start := each.wanted()) is not None}
                if not starts:
                    await wake.wait()
                    wake.clear()
                    continue
                await self._fetch_once(broker, starts, WAIT_MS if len(starts) == len(led) else BUSY_WAIT_MS)
        finally:
            del self._fetching[broker]

    async def _fetch_once(self, broker: int, starts: Mapping[str, FetchFrom], wait_ms: int) -> None:
        try:
            connection = await self._cluster.connection(broker, "follow")
            fetch = Fetch(tuple(starts.values()), True, wait_ms, 1, FETCH_BYTES_MAX)
            answer = await connection.fetch(fetch)
            checked(answer.code)
        except CONNECTION_ERRORS as error:
            for name in starts:
                if name in self._logs:
                    self._fails(name, _text(error))
                    self._lost_leader(self._logs[name][1])
            await asyncio.sleep(RETRY_SECONDS)
            return
        asked = {(start.topic_id, start.partition): (name, start) for name, start in starts.items()}
        for fetched in answer.partitions:
            name, start = asked[fetched.topic_id, fetched.partition]
            if name in self._logs:
                topic, partition = self._logs[name]
                following = partition.following
                if following is not None and following.place.offset == start.offset and partition.leader == broker:
                    self._take(topic, partition, fetched)

    def _take(self, topic: OpenTopic, partition: PartitionLog, fetched: Fetched) -> None:
        """Takes what was fetched of a partition."""
        if fetched.code in (Code.UNKNOWN_TOPIC_ID, Code.INCONSISTENT_TOPIC_ID):
            self._fails(partition.log, "Kafka does not know its topic at the moment")
            self._suspect(topic)
            self._lost_leader(partition)
        elif fetched.diverging is not None or fetched.code is Code.OFFSET_OUT_OF_RANGE:
            self._regain_soon(topic, partition)
        elif fetched.code is not Code.NONE:
            self._fails(partition.log, f"Kafka answers {fetched.code.name}")
            self._lost_leader(partition)
        else:
            self._grow(topic, partition, fetched)

    def _grow(self, topic: OpenTopic, partition: PartitionLog, fetched: Fetched) -> None:
        is_trimmed = fetched.first > partition.start
        try:
            grown, is_other, fault = partition.grow(fetched)
        except TicksExhaustedError as error:
            grown, is_other, fault = None, False, str(error)
        if is_other:
            self._regain_soon(topic, partition)
        elif is_trimmed and grown is None:
            self._tell(topic, partition.partition)
        if grown is not None:
            self._answer(grown)
        if fault:
            self._trouble(partition.log, f"it cannot be read any further: {fault}")
            partition.is_paused = True
            asyncio.get_running_loop().call_later(DAMAGED_SECONDS, self._go_on, partition)
        elif not self._is_stuck(topic, partition, fetched):
            self._works(partition.log)

    def _regain_soon(self, topic: OpenTopic, partition: PartitionLog) -> None:
        partition.is_paused = True  # meanwhile the broker's other partitions go on
        self._run(self._regain(topic, partition))

    def _go_on(self, partition: PartitionLog) -> None:
        partition.is_paused = False
        self._fetch_soon(partition)

    def _is_stuck(self, topic: OpenTopic, partition: PartitionLog, fetched: Fetched) -> bool:
        """Whether an open transaction has held the log up for long; then somebody finds out whose it is."""
        if fetched.stable >= fetched.high_watermark:
            self._stuck.pop(partition.log, None)
            return False
        now = self._time()
        at, since = self._stuck.get(partition.log, (-1, now))
        if at != fetched.stable:
            self._stuck[partition.log] = fetched.stable, now
            return False
        if now - since < STUCK_SECONDS:
            return False
        if not self._troubles.get(partition.log):
            self._run(self._name_producer(topic, partition, fetched.stable))
        return True

    async def _name_producer(self, topic: OpenTopic, partition: PartitionLog, offset: int) -> None:
        start = FetchFrom(topic.id, partition.partition, offset, partition.leader_epoch, UNKNOWN, 1)
        producer = ""
        with suppress(*CONNECTION_ERRORS, CorruptBatchError):
            answer = await (await self._leader(partition)).fetch(Fetch((start,), False, 0, 1, 1))
            for batch in islice(batches(answer.partitions[0].records), 1):  # none, if it has ended or is gone meanwhile
                producer = f" of producer id {batch.producer_id}"
        self._trouble(
            partition.log, f"a transaction{producer} is open at offset {offset}: nothing behind it is decided"
        )

    async def _regain(self, topic: OpenTopic, partition: PartitionLog) -> None:
        try:
            await self._relearn(topic, partition)
        finally:
            self._go_on(partition)

    async def _relearn(self, topic: OpenTopic, partition: PartitionLog) -> None:
        """The log is not what it was: it was cut, or its beginning was removed. Goes on where that leaves its reader.

        Never at the beginning or the end just because an offset is out of range (TK5).
        """
        try:
            connection = await self._leader(partition)
            partition.learn(await lineage_of(connection, topic.topic, partition))
        except CONNECTION_ERRORS as error:
            self._fails(partition.log, _text(error))
            self._lost_leader(partition)
            await asyncio.sleep(RETRY_SECONDS)
            return
        self._tell(topic, partition.partition)
        partition.seek()
        if (removed := partition.removed()) is not None:
            self._answer(removed)

    # ------------------------------------------------------------------------------------ the end of a topic

    def _suspect(self, topic: OpenTopic) -> None:
        if topic.id not in self._judged:
            self._judged.add(topic.id)
            self._run(self._judge(topic))

    async def _judge(self, topic: OpenTopic) -> None:
        """Finds out whether a topic is gone."""
        why = await self._verdict(topic.former)
        if why:
            self._end(topic, f"the Kafka topic {topic.section.name}: {why}")
        self._judged.discard(topic.id)
        self._stale.set()

    async def _miss(self, former: FormerTopic) -> None:
        """Finds out what became of a topic of a former life, until it is open again, or gone.

        A cluster knows nothing of another one's topics: perhaps the configuration names the wrong servers.
        """
        while former.id in self._known and former.id not in self._topics:
            with suppress(*CONNECTION_ERRORS):
                cluster = (await self._cluster.metadata()).cluster
                if cluster != former.cluster:
                    for name in self._known[former.id]:
                        self._fails(name, f"it is in the Kafka cluster {former.cluster}, and this is {cluster}")
                elif (why := await self._verdict(former)) and former.id not in self._topics:
                    self._end_all(self._known.pop(former.id, ()), f"the Kafka topic {former.name}: {why}")
            await asyncio.sleep(FIND_SECONDS)

    async def _verdict(self, former: FormerTopic) -> str:
        return await verdict(self._cluster, former, self._time, self._gone_seconds)

    def _end(self, topic: OpenTopic, why: str) -> None:
        """The topic is gone for good; if there is one of its name again, that is another one."""
        del self._topics[topic.id]
        for partition in topic.logs.values():
            partition.following = None
            del self._logs[partition.log]
            self._reading.pop(partition.log, None)
            self._failing.pop(partition.log, None)
            self._troubles.pop(partition.log, None)
            self._wake(partition)
        # A former life may have had partitions that this one is not configured for.
        known = self._known.pop(topic.id, [])
        self._end_all(dict.fromkeys([*(partition.log for partition in topic.logs.values()), *known]), why)
        self._run(self._find(topic.section))

    def _end_all(self, names: Iterable[str], why: str) -> None:
        for name in names:
            self._answer(LogEnded(name, why))

    # ------------------------------------------------------------------------------------ single questions

    async def _read(self, question: ReadLog) -> None:
        """Reads a part of a log, with as many attempts as there is time for."""
        due = self._time() + READ_SECONDS
        async with self._reads:
            while question.log in self._logs:
                topic, partition = self._logs[question.log]
                try:
                    self._answer(await self._read_once(topic, partition, question))
                    return
                except (*CONNECTION_ERRORS, TicksExhaustedError) as error:
                    if self._time() >= due:
                        why = _text(error)
                        self._answer(LogRead(question.cookie, question.after, question.after, (), partition.first, why))
                        return
                self._stale.set()
                await asyncio.sleep(RETRY_SECONDS)
        self._decline(question)

    async def _read_once(self, topic: OpenTopic, partition: PartitionLog, question: ReadLog) -> LogRead:
        async with self._behind_others(partition, question):
            read = await read_range(await self._leader(partition, "read"), partition, question)
        if read is not None and (read.error or read.hi > question.after):
            return read
        before = partition.lineage
        await self._relearn(topic, partition)
        if read is not None and partition.lineage == before:
            return read  # nothing is there yet, or nothing is decided any more
        if partition.first < question.upto:
            raise NotNowError("the log is not what it was")
        return LogRead(question.cookie, question.after, question.upto, (), partition.first, "")

    @asynccontextmanager
    async def _behind_others(self, partition: PartitionLog, question: ReadLog) -> AsyncIterator[None]:
        """Waits for reads that began before and may bring the same batches, so that these are fetched once."""
        under_way = self._reading.setdefault(partition.log, [])
        lo, hi = offset_of(question.after), offset_of(question.upto)
        far = partition.recent.longest or hi
        near = [done for low, high, done in under_way if low <= hi + far and lo <= high + far]
        mine = (lo, hi, asyncio.Event())
        under_way.append(mine)
        try:
            for done in near:
                await done.wait()
            yield
        finally:
            under_way.remove(mine)
            mine[2].set()

    async def _locate(self, question: Locate) -> None:
        """Finds a place, however long it takes."""
        while question.log in self._logs:
            topic, partition = self._logs[question.log]
            try:
                tick, is_other = await place_found(await self._leader(partition), topic.topic, partition, question.at)
            except (*CONNECTION_ERRORS, TicksExhaustedError):
                self._stale.set()
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if is_other:
                self._tell(topic, partition.partition)
            self._answer(Located(question.cookie, tick))
            return

    async def _trim(self, topic: OpenTopic, partition: PartitionLog, upto: Tick) -> None:
        """Asks once: who wants it asks again, for more."""
        before = partition.place_of(upto).offset
        with suppress(*CONNECTION_ERRORS):
            connection = await self._leader(partition)
            deleted = await connection.delete_records(topic.topic, partition.partition, before, PRODUCE_MS)
            retention = f"retention of {partition.log}"
            if deleted.code is Code.NONE:
                partition.start = max(partition.start, deleted.first)
                self._tell(topic, partition.partition)
                self._trouble(retention, "")
            elif deleted.code in _REFUSED:
                self._trouble(retention, f"Kafka deletes no records: {deleted.code.name}")
            else:
                self._stale.set()

    async def _append(self, topic: OpenTopic, partition: PartitionLog, append: Append) -> None:
        """Appends once. It is never sent again from here: whether it may have to be is for the host to find out."""
        try:
            batch = joined(append.records, self._wall())
            if len(batch) > int(topic.settings.get("max.message.bytes", len(batch))):
                self._answer(
                    Refused(append.cookie, f"the Kafka topic {topic.section.name} takes no {len(batch):,} bytes")
                )
                return
            epoch = partition.leader_epoch
            connection = await self._leader(partition, "write")
            began = self._time()
            produced = await connection.produce(topic.topic, partition.partition, batch, PRODUCE_MS)
            partition.on_produced(self._time() - began)
        except CONNECTION_ERRORS as error:
            self._lost_leader(partition)
            await asyncio.sleep(RETRY_SECONDS)
            self._answer(Uncertain(append.cookie, _text(error)))
            return
        why = f"Kafka answers {produced.code.name} {produced.why}".strip()
        if produced.code is Code.NONE:
            ends = accumulate((next(batches(raw)).record_count for raw in append.records), initial=produced.offset)
            self._answer(Appended(append.cookie, [tick_at(epoch, end) for end in list(ends)[1:]]))
        elif produced.code in _REFUSED:
            self._answer(Refused(append.cookie, why))
        else:
            self._stale.set()
            await asyncio.sleep(RETRY_SECONDS)
            self._answer(Uncertain(append.cookie, why))


async def _wait(event: asyncio.Event, seconds: float) -> None:
    """Waits for an event, for so long."""
    waiting = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait([waiting], timeout=seconds)
    finally:
        waiting.cancel()


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _nobody(_: LogAnswer) -> None:
    """It is closed."""
