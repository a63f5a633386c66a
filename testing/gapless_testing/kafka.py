"""A real Apache Kafka for tests and demonstrations: one broker or three, on loopback, in processes of their own.

It is made of the jars of Maven Central, and needs Java 17 and, to fetch them once, Maven; its helpers need
`gapless[kafka]`. Everything it writes is below one directory, its logs too (`node-1/kafka.log`). By hand:

    python -m gapless_testing.kafka --brokers 3 DIRECTORY
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from typing_extensions import Self

from gapless_testing.jars import JarsUnavailableError, print_progress
from gapless_testing.kafka_node import (
    JARS,
    KafkaFailedError,
    KafkaUnavailableError,
    Node,
    PortTakenError,
    Secured,
    properties,
    setting_name,
    setting_value,
)
from gapless_testing.ports import free_ports

START_SECONDS_MAX: Final = 60.0
"""For a broker to serve: it takes 5 to 15 s on two cores."""
END_SECONDS_MAX: Final = 10.0
"""For a broker to end after SIGTERM: the last ones of a quorum never do."""
ASK_SECONDS_MAX: Final = 20.0
"""For what an administrator asks."""

_FOR_TESTS: Final[Mapping[str, object]] = {
    "auto.create.topics.enable": False,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    # What a test would wait for comes soon: who is gone is out, and what is to be deleted or compacted is.
    "broker.session.timeout.ms": 6000,
    "replica.lag.time.max.ms": 4000,
    "log.initial.task.delay.ms": 500,
    "log.retention.check.interval.ms": 1000,
    "log.cleaner.backoff.ms": 200,
    "num.network.threads": 2,
    "num.io.threads": 4,
    "log.cleaner.dedupe.buffer.size": 4 << 20,
}

_STARTS: Final = 5
_POLL: Final = 0.05
_CLUSTER: Final = "Z2FwbGVzcy10ZXN0aW5nIQ"
_SERVES: Final = "Kafka Server started"
_BATCH_HEAD: Final = struct.Struct(">qi")
_LATEST: Final = -1
_TOPIC: Final = 2
_SET_FOR_THE_TOPIC: Final = 1

_GUARD: Final = """\
import os, signal, sys
pids = set()
for line in sys.stdin:
    (pids.add if line[0] == "+" else pids.discard)(int(line[1:]))
for pid in pids:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
"""
"""Lives until whoever started brokers is gone, however that came about, and then kills those that are left."""


class KafkaCluster:
    """One broker, or three, that keep everything in `directory`. As a block it is started, and killed at the end.

    `config`: settings of every broker, with `_` for each dot (`log_retention_ms=1000`). Brokers are numbered from 1.
    A new one is made: what an earlier one left in the directory is deleted. No
    process is left when the one that started it ends, in whatever way.
    """

    def __init__(
        self,
        directory: Path,
        brokers: Literal[1, 3] = 1,
        tell: Callable[[str], object] = print_progress,
        secured: Secured | None = None,
        **config: object,
    ) -> None:
        """`tell`: what is told how fetching goes. `secured`: there is a second listener, which asks for that."""
        self.directory = directory
        self._config = {setting_name(name): value for name, value in config.items()}
        self._nodes = {number: Node(number, directory / f"node-{number}") for number in range(1, brokers + 1)}
        self._ports: dict[int, tuple[int, int]] = {}
        self._secured = secured
        self._secured_ports: dict[int, int] = {}
        self._tell = tell
        self._guard: subprocess.Popen[str] | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill_all()

    # ---------------------------------------------------------------------------------------- processes

    @property
    def bootstrap(self) -> str:
        """Where all brokers listen, for a client's `bootstrap_servers`."""
        return ",".join(self.address(number) for number in self._nodes)

    def address(self, node: int) -> str:
        """Where one broker listens, as `HOST:PORT`."""
        return f"127.0.0.1:{self._ports[node][0]}"

    def secured_address(self, node: int = 1) -> str:
        """Where it listens for who has a name and a password."""
        return f"127.0.0.1:{self._secured_ports[node]}"

    def log(self, node: int = 1) -> Path:
        """Where a broker logs."""
        return self._nodes[node].log

    def runs(self, node: int = 1) -> bool:
        """Whether a broker's process lives."""
        return self._nodes[node].runs

    async def start(self) -> None:
        """Starts all brokers that do not run, and waits until they serve; first makes a cluster if there is none.

        Raises KafkaUnavailableError where something must be installed, and KafkaFailedError.
        """
        try:
            await asyncio.to_thread(JARS.fetch, self._tell)
        except JarsUnavailableError as error:
            raise KafkaUnavailableError(str(error)) from error
        if self._ports:
            await self._run([node for node in self._nodes.values() if not node.runs])
            return
        for attempt in range(_STARTS):
            self._choose_ports()
            try:
                await self._format()
                await self._run(list(self._nodes.values()))
                return
            except PortTakenError as error:
                await self.kill_all()
                if attempt == _STARTS - 1:
                    raise KafkaFailedError(str(error)) from error
            except BaseException:
                await self.kill_all()
                raise

    async def kill(self, node: int = 1) -> None:
        """SIGKILL; nothing if it does not run."""
        process = self._nodes[node].process
        if process is not None:
            process.kill()
            await self._reap(self._nodes[node], END_SECONDS_MAX)

    async def kill_all(self) -> None:
        """The same, of every broker at once."""
        await asyncio.gather(*(self.kill(number) for number in self._nodes))
        if self._guard is not None:
            with self._guard:
                pass  # its input ends, and so does it
            self._guard = None

    async def stop(self, node: int = 1) -> bool:
        """SIGTERM, and SIGKILL if it has not ended in time; whether it ended by itself."""
        process = self._nodes[node].process
        if process is None:
            return True
        process.terminate()
        if await self._reap(self._nodes[node], END_SECONDS_MAX):
            return True
        await self.kill(node)
        return False

    async def restart(self, node: int = 1) -> None:
        """SIGKILL, and a start on the same data and ports."""
        await self.kill(node)
        await self._run([self._nodes[node]])

    def pause(self, node: int = 1) -> None:
        """SIGSTOP: it does nothing, and its connections stay."""
        self._signal(node, signal.SIGSTOP)

    def go_on(self, node: int = 1) -> None:
        """SIGCONT."""
        self._signal(node, signal.SIGCONT)

    def _signal(self, node: int, number: signal.Signals) -> None:
        process = self._nodes[node].process
        assert process is not None
        process.send_signal(number)

    def _choose_ports(self) -> None:
        free = free_ports(3 * len(self._nodes))
        self._ports = {number: (free.pop(), free.pop()) for number in self._nodes}
        self._secured_ports = {number: free.pop() for number in self._nodes}
        for number, node in self._nodes.items():
            config = {**_FOR_TESTS, **self._config}
            if self._secured is not None:
                config |= self._secured.properties(self._ports[number], self._secured_ports[number])
            node.configure(properties(number, self._ports, node.directory, config))

    async def _format(self) -> None:
        arguments = ["kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", "server.properties"]
        arguments += self._secured.format_options() if self._secured is not None else []
        nodes = list(self._nodes.values())
        for node in nodes:
            node.process = node.spawn(*arguments)
        for node in nodes:
            process = node.process
            assert process is not None
            if not await self._reap(node, START_SECONDS_MAX) or process.returncode:
                raise node.failure("Kafka could not format its storage")

    async def _run(self, nodes: Sequence[Node]) -> None:
        self._guard = self._guard or _start_guard()
        for node in nodes:
            node.process = node.spawn("kafka.Kafka", "server.properties")
            self._tell_guard("+", node.process.pid)
        await asyncio.gather(*map(self._until_it_serves, nodes))

    async def _until_it_serves(self, node: Node) -> None:
        end = time.monotonic() + START_SECONDS_MAX
        while _SERVES not in node.said():
            if not node.runs:
                raise node.failure(f"Kafka {node.number} ended")
            if time.monotonic() > end:
                raise node.failure(f"Kafka {node.number} does not serve after {START_SECONDS_MAX:g} s")
            await asyncio.sleep(_POLL)

    async def _reap(self, node: Node, seconds: float) -> bool:
        """Whether it has ended within so many seconds."""
        process, end = node.process, time.monotonic() + seconds
        assert process is not None
        while process.poll() is None:
            if time.monotonic() > end:
                return False
            await asyncio.sleep(_POLL)
        self._tell_guard("-", process.pid)
        node.process = None
        return True

    def _tell_guard(self, sign: str, pid: int) -> None:
        if self._guard is not None and self._guard.stdin is not None:
            self._guard.stdin.write(f"{sign}{pid}\n")
            self._guard.stdin.flush()

    # ---------------------------------------------------------------------------------------- administration

    async def create_topic(self, name: str, partitions: int = 1, replicas: int | None = None, **config: object) -> None:
        """Makes a topic; returns when every broker that runs knows who leads its partitions, and these do."""
        from aiokafka.protocol.admin import CreateTopicsRequest

        settings = [(setting_name(key), setting_value(value)) for key, value in config.items()]
        assignment: list[object] = []  # the brokers choose
        topic = (name, partitions, replicas or len(self._nodes), assignment, settings)
        async with self._client() as client:
            answer = await client.send(client.get_random_node(), CreateTopicsRequest([topic], _milliseconds(), False))
            self._check(f"make the topic {name}", [(code, why) for _, code, why in answer.topic_errors])
            await self._until(lambda: self._leads(client, name), f"leaders of {name}")

    async def delete_topic(self, name: str) -> None:
        """Deletes a topic; returns when no broker that runs knows it."""
        from aiokafka.protocol.admin import DeleteTopicsRequest

        async with self._client() as client:
            answer = await client.send(client.get_random_node(), DeleteTopicsRequest([name], _milliseconds()))
            self._check(f"delete the topic {name}", [(code, "") for _, code in answer.topic_error_codes])
            await self._until(lambda: self._is_gone(client, name), f"the end of {name}")

    async def alter_topic(self, name: str, **config: object) -> None:
        """Changes settings of a topic; the others stay. Returns when every broker that runs has the new ones."""
        from aiokafka.protocol.admin import AlterConfigsRequest

        wanted = {setting_name(key): setting_value(value) for key, value in config.items()}
        async with self._client() as client:
            node = client.get_random_node()
            settings = list({**await self._settings(client, node, name), **wanted}.items())
            answer = await client.send(node, AlterConfigsRequest([(_TOPIC, name, settings)]))
            self._check(f"change the settings of {name}", [(code, why) for code, why, *_ in answer.resources])
            await self._until(lambda: self._has(client, name, wanted), f"new settings of {name}")

    async def delete_records(self, name: str, before: int, partition: int = 0) -> None:
        """Deletes what lies before an offset: at once for readers."""
        from aiokafka.protocol.admin import DeleteRecordsRequest

        async with self._client() as client:
            leader = (await self._partitions(client, client.get_random_node(), name))[partition]
            answer = await client.send(leader, DeleteRecordsRequest([(name, [(partition, before)])], _milliseconds()))
            ((_, ((_, _, code, *_),), *_),) = answer.topics
            self._check(f"delete records of {name}", [(code, "")])

    async def roll(self, name: str) -> None:
        """From now on every batch of a topic gets a segment of its own, if it is not as old as the one before.

        Only what lies in a segment that is no longer written to is compacted, or deleted because of its age.
        """
        await self.alter_topic(name, segment_ms=1)

    def segments(self, name: str, partition: int = 0, node: int = 1) -> list[Path]:
        """The files of a partition's log, the oldest first."""
        return sorted((self._nodes[node].data / f"{name}-{partition}").glob("*.log"))

    def cut(self, name: str, offset: int, partition: int = 0, node: int = 1) -> None:
        """Loses what a broker that was killed had from an offset on, as when its machine lost power.

        A batch goes as a whole. What the last segment does not hold is not cut.
        """
        assert not self._nodes[node].runs
        segment = self.segments(name, partition, node)[-1]
        data, at = segment.read_bytes(), 0
        while at + _BATCH_HEAD.size <= len(data):
            first, length = _BATCH_HEAD.unpack_from(data, at)
            if first >= offset or length <= 0:  # segments may be larger than what is in them
                break
            at += _BATCH_HEAD.size + length
        os.truncate(segment, at)

    @contextlib.asynccontextmanager
    async def _client(self) -> AsyncIterator[Any]:
        from aiokafka.client import AIOKafkaClient

        running = [self.address(number) for number, node in self._nodes.items() if node.runs]
        client = AIOKafkaClient(bootstrap_servers=running, request_timeout_ms=_milliseconds())
        try:
            await client.bootstrap()
            yield client
        finally:
            await client.close()

    async def _partitions(self, client: Any, node: int, name: str) -> dict[int, int]:
        """The leaders of a topic as one broker knows them; -1: nobody leads it."""
        from aiokafka.protocol.metadata import MetadataRequest

        answer = await client.send(node, MetadataRequest([name], False))
        return {number: leader for topic in answer.topics for _, number, leader, *_ in topic[-1]}

    async def _leads(self, client: Any, name: str) -> bool:
        from aiokafka.protocol.offset import OffsetRequest

        known = [await self._partitions(client, number, name) for number, node in self._nodes.items() if node.runs]
        if not all(leaders and min(leaders.values()) >= 0 for leaders in known):
            return False
        for partition, leader in known[0].items():  # it may know that it is to lead, and not do so yet
            answer = await client.send(leader, OffsetRequest(-1, 0, [(name, [(partition, _LATEST)])]))
            ((_, ((_, code, *_),)),) = answer.topics
            if code:
                return False
        return True

    async def _settings(self, client: Any, node: int, name: str) -> dict[str, str]:
        """What is set for a topic, as one broker knows it: not what it has by default."""
        from aiokafka.protocol.admin import DescribeConfigsRequest

        answer = await client.send(node, DescribeConfigsRequest([(_TOPIC, name, None)]))
        ((code, why, _, _, found),) = answer.resources
        self._check(f"read the settings of {name}", [(code, why)])
        return {key: value for key, value, _, source, *_ in found if source == _SET_FOR_THE_TOPIC}

    async def _has(self, client: Any, name: str, wanted: Mapping[str, str]) -> bool:
        known = [await self._settings(client, number, name) for number, node in self._nodes.items() if node.runs]
        return all(settings.items() >= wanted.items() for settings in known)

    async def _is_gone(self, client: Any, name: str) -> bool:
        known = [await self._partitions(client, number, name) for number, node in self._nodes.items() if node.runs]
        return not any(known)

    async def _until(self, holds: Callable[[], Any], what: str) -> None:
        end = time.monotonic() + ASK_SECONDS_MAX
        while not await holds():
            if time.monotonic() > end:
                raise KafkaFailedError(f"waited {ASK_SECONDS_MAX:g} s in vain for {what}")
            await asyncio.sleep(_POLL)

    def _check(self, what: str, errors: Sequence[tuple[int, str | None]]) -> None:
        from aiokafka.errors import for_code

        for code, why in errors:
            if code:
                raise KafkaFailedError(f"Kafka did not {what}: {why or for_code(code).__name__}")


def _start_guard() -> subprocess.Popen[str]:
    return subprocess.Popen(  # noqa: S603 - a program of ours
        [sys.executable, "-c", _GUARD], stdin=subprocess.PIPE, text=True, start_new_session=True
    )


def _milliseconds() -> int:
    return int(ASK_SECONDS_MAX * 1000)


async def _serve(directory: Path, brokers: Literal[1, 3]) -> None:
    async with KafkaCluster(directory, brokers) as cluster:
        print(cluster.bootstrap, flush=True)  # noqa: T201 - it talks to a person
        await asyncio.Event().wait()


def main() -> None:
    """Runs a cluster until it is interrupted, or fetches what it needs."""
    parser = argparse.ArgumentParser("python -m gapless_testing.kafka", description=main.__doc__)
    parser.add_argument("directory", type=Path, nargs="?", help="where it keeps everything; none: it is only fetched")
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=1)
    arguments = parser.parse_args()
    try:
        if arguments.directory is None:
            JARS.fetch(print_progress)
        else:
            with contextlib.suppress(KeyboardInterrupt):
                asyncio.run(_serve(arguments.directory.absolute(), arguments.brokers))
    except (JarsUnavailableError, KafkaUnavailableError, KafkaFailedError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
