"""Consuming and publishing without an event loop: design.md 4."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

import gapless
from gapless.core import messages as m
from gapless.core.ticks import STEP
from unit.gapless.client.conftest import ADDRESS
from unit.gapless.client.fake_broker import BASE, PUBEND
from unit.gapless.client.fake_network import FakeNetwork


class World:
    """A connection and its broker, which lives in the connection's thread."""

    def __init__(self, network: FakeNetwork, connection: gapless.sync.Connection) -> None:
        self.network = network
        self.connection = connection

    def log(self, *bodies: bytes) -> list[int]:
        return self.connection._runner.do(lambda: self.network.log(*bodies))

    def silence(self) -> int:
        return self.connection._runner.do(self.network.silence)


@pytest.fixture
def world(network: FakeNetwork) -> Iterator[World]:
    with gapless.sync.connect(ADDRESS) as connection:
        yield World(network, connection)


def test_receive_gives_the_next_event_or_none(world: World) -> None:
    with world.connection.session() as session, session.subscribe("t", name="s") as subscription:
        assert subscription.receive(timeout=0) is None
        assert subscription.receive(timeout=0.02) is None
        ticks = world.log(b"a", b"b")
        event = subscription.receive(timeout=5)
        assert event is not None
        assert event.body == b"a"
        assert subscription.token.ticks == {PUBEND: ticks[0]}
        event = subscription.receive()
        assert event is not None
        assert event.body == b"b"
        assert subscription.receive(timeout=0.02) is None


def test_iteration_and_acknowledging(world: World) -> None:
    with world.connection.session() as session:
        with session.subscribe("t", name="s") as subscription:
            ticks = world.log(*(b"%d" % i for i in range(10)))
            for event in subscription:
                if event.body == b"3":
                    break
            subscription.acknowledge(timeout=5)
            token = subscription.token
        world.connection.pubends()
        assert world.network.broker.subscriptions[1].acknowledged == {PUBEND: ticks[3]}
        assert subscription.token == token
        with session.subscribe("t", name="s", start=token) as subscription:
            assert [next(subscription).body for _ in range(6)] == [b"%d" % i for i in range(4, 10)]


def test_batches(world: World) -> None:
    with world.connection.session() as session, session.subscribe("t", name="s") as subscription:
        ticks = world.log(*(b"%d" % i for i in range(10)))
        sizes = []
        for batch in subscription.batches(max_events=6):
            sizes.append(len(batch))
            if batch[-1].tick == ticks[-1]:
                subscription.drain()
        assert sizes == [6, 4]
        assert subscription.token.ticks == {PUBEND: ticks[-1]}
        with pytest.raises(ValueError, match="max_events"):
            subscription.batches(0)


def test_silence_gap_and_their_types(world: World) -> None:
    with world.connection.session() as session:
        session.subscribe("t", name="s").close()
        ticks = world.log(b"a", b"b", b"c")
        world.network.broker.release(ticks[1])
        with session.subscribe("t", name="s", silence=True) as subscription:
            with pytest.raises(gapless.GapError):
                next(subscription)
            assert next(subscription).body == b"c"  # type: ignore[union-attr]
            upto = world.silence()
            assert next(subscription) == gapless.Silence(PUBEND, ticks[2], upto)
        with session.subscribe("t", name="s", on_gap="deliver") as delivering:
            assert isinstance(delivering.receive(timeout=5), gapless.Gap)


def test_silence_moves_the_token(world: World) -> None:
    with world.connection.session() as session, session.subscribe("t", name="s") as subscription:
        upto = world.silence()
        assert subscription.receive(timeout=0) is None
        assert subscription.token.ticks == {PUBEND: upto}


def test_auto(world: World) -> None:
    with world.connection.session(gapless.AckMode.AUTO) as session:
        assert session.ack_mode is gapless.AckMode.AUTO
        with session.subscribe("t", name="s") as subscription:
            ticks = world.log(b"a", b"b")
            next(subscription)
            next(subscription)
            time.sleep(0.15)
            assert world.network.broker.subscriptions[1].acknowledged == {PUBEND: ticks[0]}
        world.connection.pubends()
        assert world.network.broker.subscriptions[1].acknowledged == {PUBEND: ticks[1]}


def test_errors_come_through(world: World) -> None:
    with world.connection.session() as session:
        with pytest.raises(gapless.InvalidTopicError):
            session.subscribe()
        with session.subscribe("t", name="s") as subscription:
            with pytest.raises(gapless.SubscriptionInUseError):
                session.subscribe("t", name="s")
            with pytest.raises(TimeoutError):
                session.subscribe("t", name="s", in_use="wait", timeout=0.05)
            world.connection.unsubscribe("s")
            with pytest.raises(gapless.SubscriptionNotFoundError):
                subscription.receive(timeout=5)
            with pytest.raises(gapless.SubscriptionNotFoundError):
                next(subscription)
        assert repr(subscription).startswith("<Subscription 's'")
        assert (subscription.name, subscription.topics, subscription.selector) == ("s", ("t",), "")


def test_the_block_survives_a_reconnect(world: World) -> None:
    with world.connection.session() as session, session.subscribe("t", name="s") as subscription:
        world.log(b"a")
        world.connection._runner.do(world.network.cut)
        world.log(b"b")
        assert [next(subscription).body for _ in range(2)] == [b"a", b"b"]


def logged(network: FakeNetwork) -> list[bytes]:
    stream = network.broker.streams[PUBEND]
    return [event[len(event) - n :] for event, n in zip(stream.events, stream.body_lengths, strict=True)]


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

    assert logged(world.network) == [b"a", b"0", b"1", b"2"]


def test_send_all(world: World) -> None:
    messages = (gapless.Message(b"%d" % i) for i in range(30_000))
    with world.connection.session() as session:
        ticks = [receipt.tick for receipt in session.publisher("t").send_all(messages, timeout=5)]

    assert ticks == world.network.broker.streams[PUBEND].ticks
    assert logged(world.network) == [b"%d" % i for i in range(30_000)]
    assert max(batch.events.count for batch in world.network.broker.messages(m.Publish)) == 512


def test_send_all_raises_in_its_place(world: World) -> None:
    wrong: list[Any] = [gapless.Message(b"a"), gapless.Message(b"b"), gapless.Message(5), gapless.Message(b"c")]
    seen = []
    with world.connection.session() as session:
        publisher = session.publisher("t")
        with pytest.raises(gapless.InvalidMessageError):
            for receipt in publisher.send_all(wrong):
                seen.append(receipt)
        with pytest.raises(gapless.InvalidMessageError):
            list(publisher.send_all([b"no message"]))  # type: ignore[list-item]

    assert len(seen) == 2
    assert logged(world.network) == [b"a", b"b"]


def test_send_all_of_a_slow_source_does_not_wait_for_a_batch(world: World) -> None:
    def source() -> Iterator[gapless.Message]:
        for i in range(3):
            time.sleep(0.01)
            yield gapless.Message(b"%d" % i)

    with world.connection.session() as session:
        assert len(list(session.publisher("t").send_all(source()))) == 3

    assert [batch.events.count for batch in world.network.broker.messages(m.Publish)] == [1, 1, 1]
