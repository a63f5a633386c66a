"""A caller that is interrupted, anywhere: what it was not handed goes back, and what it was not told is told later."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

import gapless
from gapless import jms
from gapless.core.stream.ticks import STEP
from unit.gapless.client.conftest import ADDRESS
from unit.gapless.client.fake_broker import BASE, PUBEND, logged
from unit.gapless.client.fake_network import FakeNetwork
from unit.gapless.sync.conftest import World
from unit.gapless.sync.interrupts import Interrupt, Place, every_place


def received(subscription: Any) -> Any:
    return subscription.receive(timeout=30)


def batched(subscription: Any) -> Any:
    return next(subscription.batches(max_events=2))


def bodies(item: Any) -> list[bytes]:
    return [event.body for event in item] if isinstance(item, gapless.Batch) else [item.body]


@pytest.mark.parametrize("take", [received, next, batched])
@pytest.mark.parametrize("mode", list(gapless.AckMode))
def test_each_event_is_handed_out_once(world: World, mode: gapless.AckMode, take: Callable[[Any], Any]) -> None:
    """The subscription goes on after the interrupt, with the event that nobody was handed."""
    handed: list[bytes] = []
    sent: list[bytes] = []
    with world.connection.session(mode) as session, session.subscribe("t", name="s") as subscription:

        def interrupted(place: Place) -> None:
            sent.extend([b"%d" % (2 * place.number), b"%d" % (2 * place.number + 1)])
            ticks = world.log(*sent[-2:])
            try:
                with place:
                    item = take(subscription)
                handed.extend(bodies(item))
            except Interrupt:
                if place.number % 2:  # reading it waits until the event has gone back; the next call has to, too
                    assert subscription.token.ticks.get(PUBEND, 0) < ticks[0], place.where
            while len(handed) < len(sent):
                handed.extend(bodies(take(subscription)))
            assert handed == sent, place.where

        assert every_place(interrupted) > 10
    world.connection.pubends()
    if mode in (gapless.AckMode.AUTO, gapless.AckMode.DUPS_OK):
        assert world.network.broker.subscriptions[1].acknowledged == {
            PUBEND: world.network.broker.streams[PUBEND].newest
        }


@pytest.mark.parametrize("take", [received, next, batched])
@pytest.mark.parametrize("mode", [gapless.AckMode.AUTO, gapless.AckMode.DUPS_OK])
def test_what_was_not_handed_out_is_not_acknowledged(
    world: World, mode: gapless.AckMode, take: Callable[[Any], Any]
) -> None:
    """The interrupt is caught within the block of the subscription, which ends well; the next one gets the rest."""
    handed: list[bytes] = []
    sent: list[bytes] = []
    with world.connection.session(mode) as session:
        session.subscribe("t", name="s").close()

        def interrupted(place: Place) -> None:
            sent.append(b"%d" % place.number)
            world.log(sent[-1])
            with session.subscribe("t", name="s") as subscription:
                try:
                    with place:
                        item = take(subscription)
                    handed.extend(bodies(item))
                except Interrupt:
                    pass
            with session.subscribe("t", name="s") as subscription:
                while len(handed) < len(sent):
                    handed.extend(bodies(take(subscription)))
                assert subscription.receive(timeout=0) is None
            assert handed == sent, place.where

        assert every_place(interrupted) > 10


def test_a_gap_is_told_once(world: World) -> None:
    with world.connection.session() as session:
        for on_gap in ("raise", "deliver"):

            def interrupted(place: Place, on_gap: Any = on_gap) -> None:
                session.subscribe("t", name="s").close()
                ticks = world.log(b"lost", b"kept")
                world.network.broker.release(ticks[0])
                told = 0
                with session.subscribe("t", name="s", on_gap=on_gap) as subscription:
                    for block in (place, nullcontext(), nullcontext()):
                        try:
                            with block:
                                item = subscription.receive(timeout=1)
                        except Interrupt:
                            assert subscription.token.ticks.get(PUBEND, 0) < ticks[0], place.where
                        except gapless.GapError:
                            told += 1
                        else:
                            told += isinstance(item, gapless.Gap)
                    assert subscription.token.ticks[PUBEND] >= ticks[0]
                assert told == 1, place.where
                world.connection.unsubscribe("s")

            assert every_place(interrupted) > 10


def test_a_silence_goes_back(world: World) -> None:
    with world.connection.session() as session, session.subscribe("t", name="s", silence=True) as subscription:
        subscription.receive(timeout=0)

        def interrupted(place: Place) -> None:
            before = subscription.token.ticks.get(PUBEND, 0)
            upto = world.network.do(lambda: world.network.silence(BASE + place.number * STEP))
            try:
                with place:
                    item = subscription.receive(timeout=30)
            except Interrupt:
                assert subscription.token.ticks.get(PUBEND, 0) == before, place.where
                item = subscription.receive(timeout=30)
            assert isinstance(item, gapless.Silence), place.where
            assert item.end == upto
            assert subscription.token.ticks[PUBEND] == upto

        assert every_place(interrupted) > 10


def test_each_batch_of_a_transform_is_handed_out_once(world: World) -> None:
    sent: list[bytes] = []
    with world.connection.session() as session:
        with session.transform("t", to="out", name="enrich", start="latest", max_events=4) as work:

            def interrupted(place: Place) -> None:
                sent.append(b"%d" % place.number)
                world.log(sent[-1])
                try:
                    with place:
                        batch = next(work)
                except Interrupt:
                    batch = next(work)
                assert isinstance(batch, gapless.sync.InputBatch)
                batch.publish([gapless.Message(event.body) for event in batch])

            assert every_place(interrupted) > 10

    assert [body for body in logged(world.network.broker) if body in sent] == sorted(sent * 2, key=int)


def test_each_event_of_a_range_is_handed_out_once() -> None:
    with gapless.sync.connect("embedded:", client_id="c") as connection:
        connection.attach("s", "t")
        bodies = [b"%d" % n for n in range(2000)]
        receipt = connection.publish("p", 0, 0, [gapless.Message(body) for body in bodies], topic="t")
        with connection.read_range("s", receipt.pubend, 0, receipt.ticks[-1]) as reader:
            handed: list[bytes] = []

            def interrupted(place: Place) -> None:
                try:
                    with place:
                        handed.append(next(reader).body)
                except Interrupt:
                    assert reader.position < receipt.ticks[len(handed)], place.where

            every_place(interrupted)
            assert handed == bodies[: len(handed)]
            handed += [event.body for event in reader]
            assert handed == bodies
        with connection.read_range("s", receipt.pubend, 0, receipt.ticks[-1]) as reader:
            parts: list[int] = []

            def part_interrupted(place: Place) -> None:
                reading = reader.parts(1.0)
                try:
                    with place:
                        part = next(reading, None)
                except Interrupt:
                    part = None
                parts.extend(() if part is None else part.ticks)  # type: ignore[union-attr]

            assert every_place(part_interrupted) > 10
            for part in reader.parts():
                parts.extend(part.ticks)  # type: ignore[union-attr]
            assert parts == list(receipt.ticks)


# What was begun, and nobody has.


def test_a_subscription_that_nobody_has_is_detached(world: World) -> None:
    with world.connection.session() as session:

        def interrupted(place: Place) -> None:
            try:
                with place:
                    subscription = session.subscribe("t", name="s")
                subscription.close()
            except Interrupt:
                pass
            session.subscribe("t", name="s", timeout=30).close()  # and not SubscriptionInUseError
            assert [each.connected for each in world.connection.subscriptions()] == [False], place.where

        assert every_place(interrupted) > 10
    with world.connection.session() as session:

        def interrupted_transform(place: Place) -> None:
            try:
                with place:
                    work = session.transform("t", to="out", name="enrich")
                work.close()
            except Interrupt:
                pass
            session.transform("t", to="out", name="enrich", in_use="error", timeout=30).close()

        assert every_place(interrupted_transform) > 10


def test_a_connection_that_nobody_has_is_closed(network: FakeNetwork) -> None:
    gapless.sync.connect(ADDRESS).close()  # what is imported is imported then

    def interrupted(place: Place) -> None:
        try:
            with place:
                connection = gapless.sync.connect(ADDRESS)
            connection.close()
        except Interrupt:
            pass

    assert every_place(interrupted) > 10
    assert not [link for link in network.links.values() if link.open]


def test_recover_may_be_repeated(world: World) -> None:
    with world.connection.session(gapless.AckMode.CLIENT) as session, session.subscribe("t", name="s") as subscription:

        def interrupted(place: Place) -> None:
            world.log(b"a", b"b")
            assert received(subscription).body == b"a"
            try:
                with place:
                    session.recover(timeout=30)
            except Interrupt:
                session.recover(timeout=30)
            again = [subscription.receive(timeout=30) for _ in range(2)]
            assert [event and (event.body, event.redelivered) for event in again] == [(b"a", True), (b"b", False)]
            session.acknowledge(timeout=30)

        assert every_place(interrupted) > 10


# What was sent, and nobody was told.


def sends(publisher: Any) -> None:
    publisher.send(b"a", timeout=0.01)


def sends_a_batch(publisher: Any) -> None:
    publisher.send_batch([gapless.Message(b"a")], timeout=0.01)


def sends_all(publisher: Any) -> None:
    list(publisher.send_all([gapless.Message(b"a")], timeout=0.01))


def flushes(publisher: Any) -> None:
    publisher.submit(gapless.Message(b"a")).cancel()
    publisher.flush(timeout=0.01)


@pytest.mark.parametrize("send", [sends, sends_a_batch, sends_all, flushes])
@pytest.mark.parametrize("closes", ["publisher", "session", "connection"])
def test_what_has_no_receipt_is_told_at_close(network: FakeNetwork, send: Callable[[Any], None], closes: str) -> None:
    connection = gapless.sync.connect(ADDRESS)
    session = connection.session()
    publisher = session.publisher("t")
    publisher.recover(timeout=30)
    closers = {"publisher": publisher.close, "session": session.close, "connection": connection.close}
    network.stalled = True
    with pytest.raises(TimeoutError):
        send(publisher)
    network.do(network.cut)
    network.unreachable = True

    try:
        with pytest.raises(gapless.PublishUncertainError):
            closers[closes]()
    finally:
        connection.close()


def test_a_close_that_was_interrupted_is_told_by_the_next(network: FakeNetwork) -> None:
    def interrupted(place: Place) -> None:
        network.unreachable = network.stalled = False
        connection = gapless.sync.connect(ADDRESS)
        publisher = connection.session().publisher("t")
        publisher.recover(timeout=30)
        network.stalled = True
        network.kept.clear()
        with pytest.raises(TimeoutError):
            publisher.send(b"a", timeout=0.01)
        network.do(network.cut)
        network.unreachable = True

        told = 0
        for _ in range(3):
            try:
                with place:
                    connection.close()
            except Interrupt:
                pass
            except gapless.PublishUncertainError:
                told += 1
        assert told == 1, place.where

    assert every_place(interrupted) > 10


def test_a_send_that_is_interrupted_anywhere_is_logged_or_told(network: FakeNetwork) -> None:
    """The broker is gone before it answers: each event that was sent is uncertain, and close says so."""

    def interrupted(place: Place) -> None:
        network.unreachable = network.stalled = False
        connection = gapless.sync.connect(ADDRESS)
        publisher = connection.session().publisher("t")
        publisher.recover(timeout=30)
        network.stalled = True
        network.kept.clear()
        try:
            with place:
                publisher.send(b"a", timeout=0.01)
        except (Interrupt, TimeoutError):
            pass
        was_sent = network.do(lambda: publisher._awaited.has_unanswered)
        network.do(network.cut)
        network.unreachable = True
        try:
            connection.close()
        except gapless.PublishUncertainError:
            is_told = True
        else:
            is_told = False
        assert is_told == was_sent, place.where

    assert every_place(interrupted) > 10


def test_a_commit_that_was_interrupted_takes_effect_once() -> None:
    """The next one waits for it: each input is consumed once, and each output is there once."""
    with jms.ConnectionFactory("embedded:", "c").create_context(jms.SessionMode.SESSION_TRANSACTED) as context:
        consumer = context.create_durable_consumer("orders", "audit")
        other = context.create_context(jms.SessionMode.AUTO_ACKNOWLEDGE)
        outputs = other.create_consumer("out")

        def interrupted(place: Place) -> None:
            other.create_producer().send("orders", "in")
            assert consumer.receive_body(str, 30_000) == "in"
            message = context.create_text_message(str(place.number))
            context.create_producer().send("out", message)
            try:
                with place:
                    context.commit()
            except Interrupt:
                context.commit()
            assert outputs.receive_body(str, 30_000) == str(place.number), place.where

        assert every_place(interrupted) > 10
        assert outputs.receive(50) is None
        consumer.close()
        assert context.create_durable_consumer("orders", "audit").receive(50) is None
        other.close()


# jms


@pytest.mark.parametrize("mode", [jms.SessionMode.AUTO_ACKNOWLEDGE, jms.SessionMode.CLIENT_ACKNOWLEDGE])
def test_each_message_is_handed_out_once_by_jms(mode: jms.SessionMode) -> None:
    with jms.ConnectionFactory("embedded:", "c").create_context(mode) as context:
        consumer = context.create_durable_consumer("orders", "audit")
        for way in (lambda: consumer.receive(30_000), lambda: consumer.receive_body(str, 30_000)):

            def interrupted(place: Place, way: Callable[[], Any] = way) -> None:
                context.create_producer().send("orders", str(place.number))
                try:
                    with place:
                        got = way()
                except Interrupt:
                    got = way()
                text = got.get_text() if isinstance(got, jms.TextMessage) else got
                assert text == str(place.number), place.where

            assert every_place(interrupted) > 10
        assert consumer.receive_no_wait() is None
