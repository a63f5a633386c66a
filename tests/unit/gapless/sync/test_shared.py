"""Shared subscriptions without an event loop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import gapless
from gapless import loggers
from gapless.core.wire import messages as m
from unit.gapless.client.conftest import ADDRESS
from unit.gapless.client.fake_network import FakeNetwork
from unit.gapless.client.sharing_broker import SharingBroker
from unit.gapless.sync.conftest import World
from unit.gapless.sync.interrupts import Interrupt, Place, every_place


class Work(World):
    """A connection, and a broker that has shared subscriptions, in the connection's thread."""

    @property
    def broker(self) -> SharingBroker:
        assert isinstance(self.network.broker, SharingBroker)
        return self.network.broker

    def subscribe(self, session: gapless.sync.Session, **options: Any) -> Any:
        return session.subscribe("t", name="workers", shared=True, **options)

    def at_broker(self, act: Callable[[], object]) -> None:
        """The broker does something, and says so."""

        def do() -> None:
            act()
            self.network.settle()

        self.network.do(do)


@pytest.fixture
def work(network: FakeNetwork) -> Iterator[Work]:
    network.broker = SharingBroker()
    with gapless.sync.connect(ADDRESS) as connection:
        yield Work(network, connection)


def eventually(holds: Callable[[], object]) -> None:
    until = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.005)


def test_receive_acknowledge_and_retry(work: Work) -> None:
    with work.connection.session() as session, work.subscribe(session) as jobs:
        assert (jobs.name, jobs.topics, jobs.selector) == ("workers", ("t",), "")
        assert jobs.receive(timeout=0) is None
        assert jobs.receive(timeout=0.02) is None
        ticks = work.log(b"a", b"b")
        first, second = jobs.receive(timeout=5), jobs.receive()
        jobs.extend(first, timeout=5)
        jobs.acknowledge(first, timeout=5)
        jobs.retry(second, delay=0, timeout=5)
        again = jobs.receive(timeout=5)

        assert (again.body, again.redelivered, again.delivery_count) == (b"b", True, 2)
        with pytest.raises(gapless.HoldLostError):
            jobs.acknowledge(second)
        jobs.acknowledge(again)
        assert work.broker.only.done == ticks


def test_an_answer_that_does_not_come_in_time(work: Work) -> None:
    with work.connection.session() as session, work.subscribe(session) as jobs:
        work.log(b"a")
        event = jobs.receive()
        work.broker.slow = []
        with pytest.raises(TimeoutError):
            jobs.acknowledge(event, timeout=0.02)
        work.at_broker(work.broker.hurry)

        jobs.acknowledge(event, timeout=5)
        assert len(work.broker.messages(m.Settle)) == 1


def test_threads_iterate_at_once(work: Work) -> None:
    def worker(jobs: Any) -> list[bytes]:
        handled = []
        for job in jobs:
            jobs.acknowledge(job)
            handled.append(job.body)
        return handled

    with work.connection.session() as session, work.subscribe(session) as jobs, ThreadPoolExecutor(3) as pool:
        tasks = [pool.submit(worker, jobs) for _ in range(3)]
        for i in range(10):
            work.log(*(b"%d" % j for j in range(4 * i, 4 * i + 4)))
        eventually(lambda: len(work.broker.only.done) == 40)
        jobs.drain()
        handled = [body for task in tasks for body in task.result(30)]

    assert sorted(map(int, handled)) == list(range(40))


def test_batches(work: Work) -> None:
    with work.connection.session() as session, work.subscribe(session) as jobs:
        work.log(*(b"%d" % i for i in range(10)))
        found = []
        for batch in jobs.batches(max_events=4):
            jobs.acknowledge(batch)
            found.append(batch.bodies)
            if len(found) == 3:
                jobs.drain()
        with pytest.raises(ValueError, match="max_events"):
            jobs.batches(0)

    assert sorted(body for bodies in found for body in bodies) == [b"%d" % i for i in range(10)]
    assert len(work.broker.only.done) == 10


def test_auto_settles_what_this_thread_received_before(work: Work) -> None:
    with work.connection.session(gapless.AckMode.AUTO) as session, work.subscribe(session) as jobs:
        ticks = work.log(b"a", b"b", b"c")
        first = jobs.receive()
        with ThreadPoolExecutor(1) as pool:
            second = pool.submit(jobs.receive).result(30)
        assert work.broker.only.done == []
        third = jobs.receive()
        eventually(lambda: work.broker.only.done)

        assert [first.tick, second.tick, third.tick] == ticks
        assert work.broker.only.done == [first.tick]


def test_gaps_are_raised_or_handed_out(work: Work) -> None:
    with work.connection.session() as session, work.subscribe(session) as jobs:
        for take in (jobs.receive, lambda: next(iter(jobs)), lambda: next(jobs.batches())):
            work.at_broker(lambda: work.broker.lose_events(next(iter(work.broker.only.frontier.values())) + 5000))
            with pytest.raises(gapless.GapError) as raised:
                take()
            jobs.acknowledge(raised.value.gap)
    assert len(work.broker.only.done) == 3


def test_a_thread_that_forgets_an_event_gives_it_back(work: Work, caplog: pytest.LogCaptureFixture) -> None:
    with work.connection.session() as session, work.subscribe(session) as jobs:
        work.log(b"a")
        event = jobs.receive()
        del event
        again = jobs.receive(timeout=30)
        assert again.redelivered
        jobs.acknowledge(again)

    assert loggers.flush(30)
    assert caplog.text.count("it is retried") == 1


def test_a_subscription_that_does_not_come_in_time(work: Work) -> None:
    with work.connection.session() as session:
        work.network.stalled = True
        with pytest.raises(TimeoutError):
            work.subscribe(session, timeout=0.02)
        work.network.do(work.network.flow)
        with work.subscribe(session) as jobs:
            jobs.abandon()
            with pytest.raises(gapless.SubscriptionError, match="closed"):
                jobs.receive()


@pytest.mark.parametrize("mode", [gapless.AckMode.TOKEN, gapless.AckMode.AUTO])
@pytest.mark.parametrize("by", ["receive", "next", "batches"])
def test_each_event_is_handed_out_once_whatever_interrupts(work: Work, mode: gapless.AckMode, by: str) -> None:
    """What nobody was handed is next, and is not marked."""
    handed: list[bytes] = []
    sent: list[bytes] = []
    with work.connection.session(mode) as session, work.subscribe(session) as jobs:
        iterator, batches = iter(jobs), jobs.batches(max_events=2)
        takes: dict[str, Callable[[], Any]] = {
            "receive": lambda: jobs.receive(timeout=30),
            "next": lambda: next(iterator),
            "batches": lambda: next(batches),
        }

        def take() -> Any:
            return takes[by]()

        def keep(item: Any) -> None:
            for event in [item] if isinstance(item, gapless.HeldEvent) else item:
                assert not event.redelivered
                handed.append(event.body)
            if mode is gapless.AckMode.TOKEN:
                jobs.acknowledge(item)

        def interrupted(place: Place) -> None:
            sent.extend([b"%d" % (2 * place.number), b"%d" % (2 * place.number + 1)])
            work.log(*sent[-2:])
            try:
                with place:
                    item = take()
                keep(item)
            except Interrupt:
                pass
            while len(handed) < len(sent):
                keep(take())
            assert sorted(handed) == sorted(sent), place.where

        assert every_place(interrupted) > 10
    assert threading.active_count() < 20
