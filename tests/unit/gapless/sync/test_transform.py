"""Transforms without an event loop."""

from __future__ import annotations

import threading

import pytest

import gapless
from unit.gapless.client.fake_broker import PUBEND
from unit.gapless.sync.conftest import World


def test_a_transform_publishes_and_moves_on(world: World) -> None:
    with world.connection.session() as session:
        with session.transform("t", to="out", name="enrich", start="latest", max_events=2, timeout=5) as work:
            ticks = world.log(b"a", b"b", b"c")
            for batch in work:
                assert isinstance(batch, gapless.sync.InputBatch)
                batch.publish(gapless.Message(event.body.upper()) for event in batch)
                if batch[-1].tick == ticks[-1]:
                    work.drain()
            assert work.name == "enrich"
            assert work.token.ticks == {PUBEND: ticks[-1]}
        recovery = session.publisher("out", name="enrich").recover(timeout=5)

    assert (recovery.sequence, recovery.token) == (3, work.token)


def test_the_callers_thread_makes_the_outputs(world: World) -> None:
    threads = []

    def output(event: gapless.Event) -> gapless.Message:
        threads.append(threading.current_thread())
        return gapless.Message(event.body)

    with world.connection.session() as session, session.transform("t", to="out", name="enrich") as work:
        world.log(b"a")
        batch = next(work)
        batch.publish(map(output, batch), timeout=5)

    assert threads == [threading.current_thread()]


def test_a_fenced_transform(world: World) -> None:
    with world.connection.session() as session:
        work = session.transform("t", to="out", name="enrich")
        session.transform("t", to="out", name="enrich").close()
        with pytest.raises(gapless.PublisherFencedError):
            next(work)
        with pytest.raises(gapless.PublisherFencedError):
            work.close(timeout=5)


def test_a_token_with_a_batch(world: World) -> None:
    token = gapless.CheckpointToken("net", {"in@1": 5}, 1, 1)
    with world.connection.session() as session:
        publisher = session.publisher("t", name="enrich")
        publisher.send_batch([gapless.Message(b"a")], token=token, timeout=5)
        assert publisher.send_batch((), token=[token.advance({"in@1": 6})]) == []
        with pytest.raises(gapless.StaleTokenError):
            publisher.send_batch([gapless.Message(b"b")], token=token)
        assert publisher.recover().token == token.advance({"in@1": 6})
