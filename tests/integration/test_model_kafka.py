"""The Kafka in this process, which brokers of tests are connected to."""

from __future__ import annotations

import pickle
import socket
import threading
from typing import Any

from gapless_log.kafka.messages import Fetch, MetadataRequest
from integration.model_kafka import LENGTH, PORT, ModelKafka


def test_nobody_is_left_who_serves_when_it_is_over() -> None:
    """Who waited for records went on in the tests that came after, and looked at the clock in the run of one."""
    before = {*threading.enumerate()}
    with socket.socket() as broker:
        with ModelKafka(t=1) as kafka:
            broker.connect(("127.0.0.1", int(kafka.environment[PORT])))
            send(broker, MetadataRequest((), ()))
            assert broker.recv(1), "it is served"
            send(broker, Fetch((), is_committed=True, wait_ms=3_600_000, bytes_min=1, bytes_max=1))

        assert {*threading.enumerate()} <= before


def send(broker: socket.socket, request: Any) -> None:
    data = pickle.dumps(request)
    broker.sendall(LENGTH.pack(len(data)) + data)
