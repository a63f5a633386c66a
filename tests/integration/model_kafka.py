"""A Kafka for brokers that are real processes: the simulator's model (`world.kafka_model`), in this process.

The broker is the one of production, and so is its log plugin; it needs `gapless[kafka]`, and neither Java nor Maven.
Only what carries requests to Kafka and answers back is another: `model_kafka_broker` sends them here, pickled.
"""

from __future__ import annotations

import pickle
import socket
import struct
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from typing_extensions import Self

from gapless_log.kafka.messages import Fetch
from gapless_log.kafka.records import Compression, NewRecord, encode
from gapless_sim.world.kafka_model import Cluster, Partition, Topic

PROGRAM: Final = ("-m", "integration.model_kafka_broker")
"""What Python runs as a broker that is connected to it."""
PORT: Final = "MODEL_KAFKA_PORT"
"""The environment variable that tells the broker where it is."""
LENGTH: Final = struct.Struct("<I")


class ModelKafka:
    """One broker of Kafka's, with some topics. As a block it listens; records are lost at its end."""

    def __init__(self, **topics: int) -> None:
        """`topics`: how many partitions each has."""
        self._cluster = Cluster(1)
        self._changed = threading.Condition()
        self._topics = {
            name: self._cluster.create(name, count, {"min.insync.replicas": "1"}) for name, count in topics.items()
        }
        self._learn()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._serving: list[tuple[threading.Thread, socket.socket]] = []
        self._is_over = False

    def __enter__(self) -> Self:
        self._accepting.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        socket.create_connection(self._listener.getsockname()).close()  # whoever waits for a connection looks up
        self._accepting.join()
        self._listener.close()
        for thread, connection in self._serving:
            with suppress(OSError):  # it is closed
                connection.shutdown(socket.SHUT_RDWR)
            thread.join()

    @property
    def environment(self) -> Mapping[str, str]:
        """What a broker that runs `PROGRAM` has to know."""
        return {PORT: str(self._listener.getsockname()[1]), "PYTHONPATH": str(Path(__file__).parents[1])}

    def section(self, *topics: Mapping[str, Any] | str, **more: Any) -> dict[str, Any]:
        """The section `[[phb.kafka]]` of a broker's configuration."""
        return {"servers": ["kafka-1:9092"], "topics": list(topics), **more}

    def append(self, name: str, values: Iterable[bytes], at: int | None = None, partition: int = 0) -> None:
        """Appends records in one batch, as a stranger does: `at` a time, in milliseconds since 1970, or now."""
        when = time.time_ns() // 1_000_000 if at is None else at
        new = [NewRecord(when, b"k" + value, value, [("n", value)]) for value in values]
        with self._changed:
            self._partition(name, partition).append(encode(new, Compression.NONE))
            self._changed.notify_all()

    def remove_before(self, name: str, offset: int, partition: int = 0) -> None:
        """Retention removes the records before an offset."""
        with self._changed:
            self._partition(name, partition).trim(offset)
            self._changed.notify_all()

    def elect(self, name: str, partition: int = 0) -> None:
        """The partition has a leader anew, in another leader epoch; nothing is lost."""
        with self._changed:
            self._partition(name, partition).elect(1, is_clean=True)
            self._learn()
            self._changed.notify_all()

    def add_partition(self, name: str) -> None:
        """A topic has one partition more."""
        with self._changed:
            self._cluster.add_partition(self._topics[name])
            self._learn()
            self._changed.notify_all()

    def _partition(self, name: str, number: int) -> Partition:
        topic: Topic = self._topics[name]
        return topic.partitions[number]

    def _learn(self) -> None:
        for broker in self._cluster.brokers:
            broker.learn()

    def _accept(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            if self._is_over:
                connection.close()
                return
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._serving.append((thread, connection))
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        cut_off = OSError, EOFError, struct.error, pickle.UnpicklingError
        with connection, connection.makefile("rb") as requests, suppress(*cut_off):
            while head := requests.read(LENGTH.size):
                request = pickle.loads(requests.read(*LENGTH.unpack(head)))
                answer = pickle.dumps(self._answer(request))
                connection.sendall(LENGTH.pack(len(answer)) + answer)

    def _answer(self, request: Any) -> Any:
        wait = request.wait_ms / 1000 if isinstance(request, Fetch) else 0.0
        until = time.monotonic() + wait
        with self._changed:
            while not self._is_over:
                left = until - time.monotonic()
                answer = self._cluster.brokers[0].ask(request, has_waited=left <= 0)
                if answer is not None:
                    self._changed.notify_all()  # it may have been a produce
                    return answer
                self._changed.wait(left)
        raise ConnectionAbortedError("this Kafka is over")
