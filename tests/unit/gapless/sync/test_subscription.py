"""Consuming and publishing without an event loop."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import gapless
from unit.gapless.client.conftest import ADDRESS
from unit.gapless.client.fake_broker import BASE, PUBEND
from unit.gapless.client.fake_network import FakeNetwork
from unit.gapless.client.ranges.fake_archive import FakeArchive
from unit.gapless.sync.conftest import World


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
            time.sleep(0.3)
            assert world.network.broker.subscriptions[1].acknowledged == {PUBEND: ticks[0]}
        world.connection.pubends()
        assert world.network.broker.subscriptions[1].acknowledged == {PUBEND: ticks[1]}


def test_settled_and_abandoned(world: World) -> None:
    with world.connection.session(gapless.AckMode.AUTO) as session:
        subscription = session.subscribe("t", name="s")
        ticks = world.log(b"a", b"b", b"c")
        next(subscription)
        subscription.settle()
        assert world.network.broker.subscriptions[1].acknowledged == {PUBEND: ticks[0]}
        assert subscription.receive(timeout=0) is not None
        subscription.abandon()
        subscription.abandon()
        session.abandon()
        with pytest.raises(gapless.SubscriptionError, match="closed"):
            session.publisher("t")
    world.connection.pubends()
    assert world.network.broker.subscriptions[1].acknowledged == {PUBEND: ticks[0]}


def test_nothing_is_settled_where_nothing_waits(world: World) -> None:
    with world.connection.session() as session, session.subscribe("t", name="s") as subscription:
        world.log(b"a")
        next(subscription)
        subscription.settle()
        world.connection.pubends()

        assert world.network.broker.subscriptions[1].acknowledged == {PUBEND: BASE}


def test_dups_ok(world: World) -> None:
    with world.connection.session(gapless.AckMode.DUPS_OK) as session:
        with session.subscribe("t", name="s") as subscription:
            ticks = world.log(b"a", b"b")
            next(subscription)
            next(subscription)
            time.sleep(0.3)
            assert world.network.broker.subscriptions[1].acknowledged == {PUBEND: BASE}

            assert subscription.receive(timeout=0.3) is None
            assert world.network.broker.subscriptions[1].acknowledged == {PUBEND: ticks[1]}
            more = world.log(b"c")
            next(subscription)
        world.connection.pubends()
        assert world.network.broker.subscriptions[1].acknowledged == {PUBEND: more[0]}


def test_dups_ok_acknowledges_nothing_of_what_is_in_hand_when_a_block_fails(world: World) -> None:
    with world.connection.session(gapless.AckMode.DUPS_OK) as session:
        with pytest.raises(ZeroDivisionError), session.subscribe("t", name="s") as subscription:
            world.log(b"a", b"b")
            next(subscription)
            raise ZeroDivisionError
        world.connection.pubends()
        assert world.network.broker.subscriptions[1].acknowledged == {PUBEND: BASE}


def test_the_status_of_the_broker(world: World) -> None:
    assert world.connection.status(timeout=5).value("gapless_node_sessions") == 3


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
        world.network.do(world.network.cut)
        world.log(b"b")
        assert [next(subscription).body for _ in range(2)] == [b"a", b"b"]


@pytest.mark.parametrize("in_batches", [False, True])
def test_an_archive_fills_a_gap(network: FakeNetwork, in_batches: bool) -> None:
    archive = FakeArchive(network.broker)
    with gapless.sync.connect(ADDRESS, archive=archive, timeout=5) as connection, connection.session() as session:
        session.subscribe("t", name="s").close()
        ticks = network.do(lambda: network.log(*(b"%d" % n for n in range(10))))
        archive.store(network.broker)
        network.do(lambda: network.broker.release(ticks[7]))

        with session.subscribe("t", name="s") as subscription:
            found: list[bytes] = []
            for item in subscription.batches(max_events=3) if in_batches else subscription:
                found += [event.body for event in item] if isinstance(item, gapless.Batch) else [item.body]
                assert subscription.token.ticks == {PUBEND: ticks[len(found) - 1]}
                if len(found) == 10:
                    break
    assert found == [b"%d" % n for n in range(10)]


def test_a_refused_second_thread_leaves_the_first_ones_time_limit_alone(world: World) -> None:
    with world.connection.session() as session, session.subscribe("t", name="s") as subscription:
        with ThreadPoolExecutor() as threads:
            first = threads.submit(subscription.receive, 0.5)
            while world.network.do(lambda: subscription._awaited._waiting) is None:
                time.sleep(0.001)
            for again in (lambda: subscription.receive(timeout=0), lambda: next(subscription), subscription.wait):
                with pytest.raises(gapless.SubscriptionError, match="one at a time iterates"):
                    again()

            assert first.result(20) is None


def test_a_subscription_that_gave_up_leaves_nothing_attached(world: World) -> None:
    with world.connection.session() as session:
        for name in ("s", None):
            world.network.stalled = True
            with pytest.raises(TimeoutError):
                session.subscribe("t", name=name, timeout=0.01)
            world.network.do(world.network.flow)
            session.subscribe("t", name=name, timeout=20).close()
        world.connection.pubends()

        assert not [each for each in world.network.broker.subscriptions.values() if each.session is not None]


def test_a_subscription_that_could_not_be_closed_in_time_is_detached(world: World) -> None:
    with world.connection.session(gapless.AckMode.AUTO) as session:
        subscription = session.subscribe("t", name="s")
        world.log(b"a")
        next(subscription)
        world.network.stalled = True
        with pytest.raises(TimeoutError):
            subscription.close(timeout=0.01)
        world.network.do(world.network.flow)

        session.subscribe("t", name="s", timeout=20).close()
