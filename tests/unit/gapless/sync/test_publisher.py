"""Publishing without an event loop."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

import gapless
from gapless.core.stream.ticks import STEP
from gapless.core.wire import messages as m
from unit.gapless.client.fake_broker import BASE, PUBEND, logged
from unit.gapless.sync.conftest import World


def test_publishing(world: World) -> None:
    with world.connection.session() as session, session.publisher("t", name="p") as publisher:
        assert (publisher.name, publisher.topic) == ("p", "t")
        assert publisher.send(b"a", {"x": 1}, priority=7, timeout=5).tick == BASE + STEP
        receipts = publisher.send_batch((gapless.Message(b"%d" % i) for i in range(3)), timeout=5)
        assert len(receipts) == 3
        assert publisher.recover().sequence == 4
        publisher.flush()
        publisher.close()
        with pytest.raises(gapless.ConnectionClosedError):
            publisher.send(b"late")
        assert "over" in repr(publisher)

    assert logged(world.network.broker) == [b"a", b"0", b"1", b"2"]


def test_submit_does_not_wait(world: World) -> None:
    with world.connection.session() as session, session.publisher("t") as publisher:
        futures = [publisher.submit(gapless.Message(b"%d" % i)) for i in range(3)]
        refused = publisher.submit(gapless.Message(5))

        assert [future.result(5).tick for future in futures] == world.network.broker.streams[PUBEND].ticks
        with pytest.raises(gapless.InvalidMessageError):
            refused.result(5)


def test_send_all(world: World) -> None:
    messages = (gapless.Message(b"%d" % i) for i in range(30_000))
    with world.connection.session() as session:
        ticks = [receipt.tick for receipt in session.publisher("t").send_all(messages, timeout=5)]

    assert ticks == world.network.broker.streams[PUBEND].ticks
    assert logged(world.network.broker) == [b"%d" % i for i in range(30_000)]
    assert max(batch.events.count for batch in world.network.broker.messages(m.Publish)) == 512


def test_send_all_raises_in_its_place(world: World) -> None:
    wrong: list[Any] = [gapless.Message(b"a"), gapless.Message(b"b"), gapless.Message(5), gapless.Message(b"c")]
    seen: list[gapless.Receipt] = []
    with world.connection.session() as session:
        publisher = session.publisher("t")
        with pytest.raises(gapless.InvalidMessageError):
            seen.extend(publisher.send_all(wrong))
        with pytest.raises(gapless.InvalidMessageError):
            list(publisher.send_all([b"no message"]))  # type: ignore[list-item]

    assert len(seen) == 2
    assert logged(world.network.broker) == [b"a", b"b"]


def test_send_all_of_a_slow_source_does_not_wait_for_a_batch(world: World) -> None:
    def source() -> Iterator[gapless.Message]:
        for i in range(3):
            time.sleep(0.01)
            yield gapless.Message(b"%d" % i)

    with world.connection.session() as session:
        assert len(list(session.publisher("t").send_all(source()))) == 3

    assert [batch.events.count for batch in world.network.broker.messages(m.Publish)] == [1, 1, 1]
