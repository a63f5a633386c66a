"""The demo over Kafka: `gapless demo --kafka`.

A plain Kafka producer writes the flights to a topic, many subscribers consume them through gapless, and what is killed
is gapless's broker, the subscribers, and brokers of Kafka's. With a Kafka of yours nothing of it is killed, and nothing
but a topic of its own is touched.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from typing_extensions import Self

from gapless.errors import ConfigurationError
from gapless_flights.data import TOPIC, fields_of
from gapless_flights.kafka_access import KafkaAccess
from gapless_flights.kafka_records import MAPPING, ORIGINS, value_of
from gapless_flights.kafka_topic import KafkaTopicError, make_topic, remove_topic
from gapless_flights.plan import KAFKA
from gapless_flights.proof import SubscriptionProof, prove_streams
from gapless_flights.run import DemoRun
from gapless_flights.selections import DemoSubscription
from gapless_flights.subscriber import consumed_flights
from gapless_flights.supervisor import Supervisor
from gapless_flights.worker import WorkerFailedError

if TYPE_CHECKING:
    from gapless_testing.kafka import KafkaCluster

BROKERS: Final = 3
"""Of a Kafka of our own: one may be killed while the others go on."""
DATABASES: Final = "databases"
"""Where the subscribers' are."""
CONSUMERS: Final = 4
"""Processes that share the subscriptions."""
OFFSETS: Final = (1 << 44) - 1
"""What of a tick is the offset that is read next: docs/protocol/numbered-logs.md."""


@dataclass(frozen=True, slots=True)
class KafkaRun(DemoRun):
    """What a run over Kafka is to do."""

    own: KafkaAccess | None
    """Somebody's own Kafka; None: one is started."""

    @property
    def introduction(self) -> str:
        """What is going to be done, for people."""
        return (
            f"a Kafka producer that knows nothing of gapless writes {len(self.flights):,} flights;"
            f" {len(self.selections):,} durable subscribers want some of them each; {len(self.plan)} kills"
            f" (seed {self.seed})"
        )

    def supervisor(self, say: Callable[[str], None]) -> Supervisor:
        """All processes of the run, with a Kafka."""
        return KafkaSupervisor(self, say)

    def verdicts(self, expected: Mapping[str, Sequence[str]], supervisor: Supervisor) -> list[SubscriptionProof]:
        """What each subscriber has in its database. The order of each partition counts."""
        values = {line: (fields_of(line)["origin"], value_of(line)) for line in self.flights}
        verdicts = []
        for selection in self.selections:
            streams: dict[str, list[str]] = {origin: [] for origin in ORIGINS}
            for line in expected[selection.name]:
                origin, value = values[line]
                streams[origin].append(value)
            consumed = consumed_flights(supervisor.database(selection))
            verdicts.append(prove_streams(selection.name, selection.selector, streams, consumed))
        return verdicts


def consumer_names(subscribers: int) -> list[str]:
    """The processes that consume, of so many subscribers."""
    return [f"subscribers-{number + 1}" for number in range(min(CONSUMERS, subscribers))]


class KafkaSupervisor(Supervisor):
    """The processes of a run, and its Kafka."""

    def __init__(self, run: KafkaRun, say: Callable[[str], None]) -> None:
        super().__init__(run.directory, run.flights, run.selections, run.rate)
        self._run = run
        self._say = say
        self._topic = f"gapless-demo-{secrets.token_hex(4)}"
        self._access = run.own or KafkaAccess("")
        self._cluster: KafkaCluster | None = None
        self._has_topic = False
        self._back: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the broker of Kafka's that was killed last serves again."""
        self._back.set_result(None)
        self._kafka_kills = 0
        (run.directory / DATABASES).mkdir()

    async def __aenter__(self) -> Self:
        """Starts Kafka, if it is not there, makes the topic, and then starts the rest."""
        try:
            if self._run.own is None:
                await self._start_kafka()
            await self._make_topic()
            self._say(f"starting a gapless broker over it, and {len(self._run.selections):,} subscribers")
        except BaseException:
            await self.__aexit__()
            raise
        return await super().__aenter__()

    async def __aexit__(self, *_: object) -> None:
        """Ends every process that is left, and removes the topic."""
        await super().__aexit__()
        self._back.cancel()
        await asyncio.wait([self._back])
        if self._cluster is not None:
            await self._cluster.kill_all()
        elif self._has_topic:
            await self._remove_topic()

    @property
    def kills(self) -> dict[str, int]:
        """How often each process was killed; brokers of Kafka's together."""
        kills = super().kills
        return kills if self._cluster is None else {KAFKA: self._kafka_kills, **kills}

    async def kill(self, name: str) -> bool:
        """Kills a process; a broker of Kafka's no sooner than all of them serve."""
        if not name.startswith(f"{KAFKA}-"):
            return await super().kill(name)
        assert self._cluster is not None
        await self._back
        await self._cluster.kill(int(name.partition("-")[2]))
        self._kafka_kills += 1
        back = asyncio.create_task(self._restart_kafka())
        back.add_done_callback(self._on_ended)
        self._back = back
        return True

    def consumers(self) -> Mapping[str, Sequence[DemoSubscription]]:
        """A few processes that share the subscriptions."""
        selections = self._run.selections
        names = consumer_names(len(selections))
        return {name: selections[number :: len(names)] for number, name in enumerate(names)}

    def database(self, selection: DemoSubscription) -> Path:
        """They are many: they have a directory of their own."""
        return self.directory / DATABASES / f"{selection.name}.sqlite"

    def configuration(self) -> str:
        """The topic, as pubends."""
        return (
            f"{self._access.configuration}"
            f"\n[[phb.kafka.topics]]\nname = {json.dumps(self._topic)}\ntopic = {json.dumps(TOPIC)}\n{MAPPING}"
        )

    def publisher(self) -> list[str]:
        """The Kafka producer."""
        options = ["--servers", self._access.servers, "--topic", self._topic]
        if self._access.file is not None:
            options += ["--access", str(self._access.file.resolve())]
        options += ["--flights", str(self.flights), "--rate", str(self.rate)]
        return [sys.executable, "-m", "gapless_flights.kafka_producer", *options]

    def position_of(self, ticks: Mapping[str, int]) -> Mapping[str, int]:
        """The offset that is read next, by partition."""
        found = {}
        for pubend, tick in ticks.items():
            name = pubend.partition("@")[0]
            if name.startswith(f"{self._topic}."):
                found[name.rpartition(".")[2]] = tick & OFFSETS
        return found

    # Kafka.

    async def _start_kafka(self) -> None:
        from gapless_testing.kafka import KafkaCluster
        from gapless_testing.kafka_node import KafkaFailedError, KafkaUnavailableError

        self._say(f"starting Apache Kafka, {BROKERS} brokers: this takes about ten seconds")
        self._cluster = KafkaCluster(self.directory / KAFKA, BROKERS, self._say)
        try:
            await self._cluster.start()
        except KafkaUnavailableError as error:
            raise ConfigurationError(
                f"gapless demo --kafka starts a Kafka, unless --bootstrap says where yours is, and cannot: {error}"
            ) from error
        except KafkaFailedError as error:
            raise WorkerFailedError(str(error)) from error
        self._access = KafkaAccess(self._cluster.bootstrap)
        self._say(f"Kafka serves at {self._access.servers}")

    async def _restart_kafka(self) -> None:
        from gapless_testing.kafka_node import KafkaFailedError

        assert self._cluster is not None
        try:
            await self._cluster.start()
        except KafkaFailedError as error:
            raise WorkerFailedError(str(error)) from error

    async def _make_topic(self) -> None:
        copies = await make_topic(self._access, self._topic, len(ORIGINS))
        self._has_topic = True
        self._say(f"made the topic {self._topic}: {len(ORIGINS)} partitions, replicas: {copies}")

    async def _remove_topic(self) -> None:
        try:
            await remove_topic(self._access, self._topic)
        except KafkaTopicError as error:  # what the run has shown is worth more
            self._say(f"the topic {self._topic} stays: {error}")
        else:
            self._say(f"removed the topic {self._topic}")


def check_aiokafka() -> None:
    """Raises ConfigurationError where the producer cannot be run, nor the broker read a topic."""
    if find_spec("aiokafka") is None:
        raise ConfigurationError(
            "gapless demo --kafka needs aiokafka, for its producer and for the broker that reads the topic:"
            ' pip install "gapless[demo,kafka]"'
        )
