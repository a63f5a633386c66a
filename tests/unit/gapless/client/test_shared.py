"""`Session.subscribe(…, shared=True)`, as an application calls it."""

from __future__ import annotations

import asyncio
import copy
import logging
import pickle
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timezone
from typing import Any

import pytest

import gapless
from gapless.client.holds import HeldBatch
from gapless.core.wire import messages as m
from unit.gapless.client.conftest import ADDRESS, die, until
from unit.gapless.client.fake_broker import PUBEND
from unit.gapless.client.fake_network import FakeNetwork
from unit.gapless.client.sharing_broker import SharingBroker

Jobs = gapless.SharedSubscription[Any, Any]


@pytest.fixture
def broker(network: FakeNetwork) -> SharingBroker:
    """The broker of `network`, which has shared subscriptions."""
    broker = network.broker = SharingBroker()
    return broker


class Work:
    """An application with workers, and its broker."""

    def __init__(self, network: FakeNetwork, connection: gapless.Connection, session: gapless.Session) -> None:
        self.network = network
        self.connection = connection
        self.session = session

    @property
    def broker(self) -> SharingBroker:
        assert isinstance(self.network.broker, SharingBroker)
        return self.network.broker

    def subscribe(self, **options: Any) -> Any:
        return self.session.subscribe("t", name="workers", shared=True, **options)

    def do(self, act: Callable[[], object]) -> None:
        """The broker does something, and says so."""
        act()
        self.network.settle()


@pytest.fixture
async def work(network: FakeNetwork, broker: SharingBroker) -> AsyncIterator[Work]:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        yield Work(network, connection, session)


@pytest.fixture
async def automatic(network: FakeNetwork, broker: SharingBroker) -> AsyncIterator[Work]:
    async with gapless.connect(ADDRESS) as connection, connection.session(gapless.AckMode.AUTO) as session:
        yield Work(network, connection, session)


async def turns(count: int = 20) -> None:
    """Lets everything that is ready happen."""
    for _ in range(count):
        await asyncio.sleep(0)


async def is_waiting(call: Any) -> asyncio.Task[Any]:
    """A task that has begun, and waits."""
    task: asyncio.Task[Any] = asyncio.ensure_future(call)
    await turns()
    assert not task.done()
    return task


async def test_events_are_acknowledged_one_by_one_durably(work: Work) -> None:
    async with work.subscribe() as jobs:
        ticks = work.network.log(b"a", b"b", b"c")
        worker = aiter(jobs)
        first, second = await anext(worker), await anext(worker)
        assert isinstance(first, gapless.HeldEvent)
        assert (first.body, first.topic, first.tick, first.pubend) == (b"a", "t", ticks[0], PUBEND)
        assert (first.redelivered, first.delivery_count) == (False, 1)

        work.broker.slow = []
        task = await is_waiting(jobs.acknowledge(second))
        assert work.broker.only.done == [ticks[1]]
        work.do(work.broker.hurry)
        await task
        await jobs.acknowledge(first)
        assert work.broker.only.done == [ticks[1], ticks[0]]


@pytest.mark.parametrize("form", ["batch", "list", "nested", "generator"])
async def test_many_are_acknowledged_in_one_call(work: Work, form: str) -> None:
    async with work.subscribe() as jobs:
        work.network.log(*(b"%d" % i for i in range(4)))
        batch = await anext(jobs.batches())
        forms = {"batch": batch, "list": list(batch), "nested": [batch], "generator": (event for event in batch)}
        await jobs.acknowledge(forms[form])

    assert len(work.broker.only.done) == 4
    [settle] = work.broker.messages(m.Settle)
    assert [verdict.kind for verdict in settle.verdicts] == [m.Kind.ACKNOWLEDGE]


async def test_verdicts_of_several_tasks_leave_together(work: Work) -> None:
    async with work.subscribe() as jobs:
        work.network.log(*(b"%d" % i for i in range(4)))
        worker = aiter(jobs)
        events = [await anext(worker) for _ in range(4)]
        await asyncio.gather(*map(jobs.acknowledge, events[:3]), jobs.retry(events[3]))

        assert len(work.broker.messages(m.Settle)) == 1


async def test_what_is_retried_comes_again_marked_after_its_delay(work: Work) -> None:
    async with work.subscribe() as jobs:
        work.network.log(b"a", b"b")
        worker = aiter(jobs)
        first = await anext(worker)
        await jobs.retry(first, delay=1.5)
        assert [entry.delay_ms for entry in work.broker.only.entries] == [1500, 0]
        second = await anext(worker)
        assert second.body == b"b"
        work.do(work.broker.delays_end)

        again = await anext(worker)
        assert (again.body, again.redelivered, again.delivery_count) == (b"a", True, 2)
        await jobs.retry(again)
        third = await anext(worker)
        assert third.delivery_count == 3
        await jobs.acknowledge([second, third])
    assert len(work.broker.only.done) == 2


@pytest.mark.parametrize("delay", [-1, float("inf"), float("nan"), 1e12])
async def test_a_delay_is_a_number_of_seconds(work: Work, delay: float) -> None:
    async with work.subscribe() as jobs:
        work.network.log(b"a")
        event = await anext(aiter(jobs))
        with pytest.raises(ValueError, match="delay is a number of seconds"):
            await jobs.retry(event, delay)
        await jobs.acknowledge(event)


async def test_each_event_goes_to_one_of_many_tasks(work: Work) -> None:
    handled: list[bytes] = []

    async def worker(jobs: Jobs) -> int:
        count = 0
        async for job in jobs:
            handled.append(job.body)
            await asyncio.sleep(0)
            await jobs.acknowledge(job)
            count += 1
        return count

    async with work.subscribe() as jobs:
        tasks = [asyncio.create_task(worker(jobs)) for _ in range(4)]
        for i in range(10):
            work.network.log(*(b"%d" % j for j in range(4 * i, 4 * i + 4)))
            await turns(3)
        await until(lambda: len(work.broker.only.done) == 40)
        jobs.drain()
        counts = await asyncio.gather(*tasks)

    assert sorted(map(int, handled)) == list(range(40))
    assert min(counts) > 0


async def test_events_go_to_all_connections(work: Work) -> None:
    async with gapless.connect(ADDRESS) as other, other.session() as session:
        async with work.subscribe() as jobs, session.subscribe("t", name="workers", shared=True) as others:
            work.network.log(*(b"%d" % i for i in range(8)))
            here = [event.body for event in await anext(jobs.batches())]
            there = [event.body for event in await anext(others.batches())]

    assert sorted(here + there) == [b"%d" % i for i in range(8)]
    assert len(here) == len(there) == 4


async def test_one_connection_subscribes_once(work: Work) -> None:
    async with work.subscribe() as jobs:
        with pytest.raises(gapless.SubscriptionInUseError, match="several tasks may"):
            await work.subscribe()
        work.network.log(b"a")
        await jobs.acknowledge(await anext(aiter(jobs)))
    async with work.subscribe():
        pass


async def test_the_one_who_waits_longest_is_handed_what_comes(work: Work) -> None:
    async with work.subscribe() as jobs:
        tasks = [await is_waiting(anext(aiter(jobs))) for _ in range(3)]
        tasks[0].cancel()
        for body in (b"a", b"b"):
            work.network.log(body)
            await turns()

        assert [task.result().body for task in tasks[1:]] == [b"a", b"b"]


async def test_a_wake_up_of_one_who_is_cancelled_is_passed_on(work: Work) -> None:
    async with work.subscribe() as jobs:
        first, second = [await is_waiting(anext(aiter(jobs))) for _ in range(2)]
        work.network.log(b"a")  # the first is woken
        first.cancel()
        await turns()

        assert second.done()
        assert second.result().body == b"a"


async def test_a_second_verdict_is_no_other(work: Work) -> None:
    """To acknowledge once more waits for the first time; what was given back cannot be acknowledged."""
    async with work.subscribe() as jobs:
        work.network.log(b"a", b"b")
        worker = aiter(jobs)
        first, second = await anext(worker), await anext(worker)
        work.broker.slow = []
        tasks = [await is_waiting(jobs.acknowledge(first)), await is_waiting(jobs.acknowledge([first, first]))]
        work.do(work.broker.hurry)
        await asyncio.gather(*tasks)
        await jobs.acknowledge(first)
        with pytest.raises(gapless.HoldLostError):
            await jobs.retry(first)

        await jobs.retry([second, second])
        with pytest.raises(gapless.HoldLostError) as raised:
            await jobs.acknowledge([first, second])
        assert raised.value.events == (second,)
        assert len(work.broker.messages(m.Settle)) == 2


async def test_a_call_may_name_something_twice(work: Work) -> None:
    async with work.subscribe() as jobs:
        work.network.log(b"a", b"b", b"c")
        batch = await anext(jobs.batches())
        await jobs.acknowledge([batch[0], batch[0], batch[2], batch, batch[1]])

    assert len(work.broker.only.done) == 3


async def test_what_is_lost_is_told_and_the_rest_counts(work: Work) -> None:
    async with work.subscribe() as jobs:
        ticks = work.network.log(b"a", b"b", b"c")
        batch = await anext(jobs.batches())
        for entry in work.broker.only.entries:  # the broker knows, and has not said it
            if entry.tick == ticks[1]:
                entry.number += 100
        with pytest.raises(gapless.HoldLostError) as raised:
            await jobs.acknowledge(batch)

        assert [event.body for event in raised.value.events] == [b"b"]
        assert raised.value.events[0] is batch[1]
        assert f"ID:{PUBEND}:{ticks[1]} is not held any more" in str(raised.value)
        assert work.broker.only.done == [ticks[0], ticks[2]]
        with pytest.raises(gapless.HoldLostError) as again:
            await jobs.acknowledge(batch)
        assert again.value.events == (batch[1],)


async def test_the_time_of_a_hold_may_end(work: Work) -> None:
    async with work.subscribe(hold_seconds=30, resume_seconds=0.25) as jobs:
        assert work.broker.only.sharing.hold_ms == 30_000
        assert work.broker.only.sharing.resume_ms == 250
        work.network.log(b"a", b"b")
        worker = aiter(jobs)
        first, second = await anext(worker), await anext(worker)
        await jobs.extend([first, second])
        await turns()
        [extend] = work.broker.messages(m.Extend)
        assert extend.holds.ticks == (first.tick, second.tick)
        work.do(lambda: work.broker.lose_holds(first.delivery_number))

        with pytest.raises(gapless.HoldLostError) as raised:
            await jobs.extend([first, second])
        assert raised.value.events == (first,)
        with pytest.raises(gapless.HoldLostError):
            await jobs.acknowledge(first)
        again = await anext(worker)
        assert (again.body, again.redelivered, again.delivery_count) == (b"a", True, 2)
        await jobs.acknowledge([second, again])


async def test_nobody_may_know_what_became_of_a_settlement(work: Work) -> None:
    async with work.subscribe() as jobs:
        work.network.log(b"a")
        event = await anext(aiter(jobs))
        work.broker.uncertain = True
        with pytest.raises(gapless.SettlementUncertainError, match="does not know any more") as raised:
            await jobs.acknowledge(event)

        assert raised.value.events == (event,)
        for again in (jobs.acknowledge, jobs.retry):
            with pytest.raises(gapless.SettlementUncertainError):
                await again(event)
        assert len(work.broker.messages(m.Settle)) == 1


async def test_after_a_reconnect_work_goes_on(work: Work) -> None:
    """What is in hand stays there, what has no answer is repeated, and what was buffered is handed out unmarked."""
    async with work.subscribe() as jobs:
        work.network.log(b"a", b"b", b"c")
        worker = aiter(jobs)
        first, second = await anext(worker), await anext(worker)
        work.broker.slow = []
        task = await is_waiting(jobs.acknowledge(first))
        work.network.cut()
        await turns()
        waits = await is_waiting(anext(worker))
        work.broker.slow = None
        await task
        third = await waits

        assert (third.body, third.redelivered) == (b"c", False)
        await jobs.acknowledge([second, third])
        assert len(work.broker.only.done) == 3
        assert [settle.number for settle in work.broker.messages(m.Settle)] == [1, 1, 2]


async def test_what_others_have_got_meanwhile_is_not_handed_out(work: Work) -> None:
    async with work.subscribe() as jobs:
        work.network.log(b"a", b"b", b"c")
        worker = aiter(jobs)
        first = await anext(worker)
        work.network.cut()
        work.broker.let_go()
        work.broker.only.entries[0].instance = work.broker.only.entries[1].instance = "another's"
        third = await anext(worker)

        assert (third.body, third.redelivered) == (b"c", True)
        with pytest.raises(gapless.HoldLostError):
            await jobs.acknowledge(first)
        await jobs.acknowledge(third)


async def test_the_last_reference_gives_an_event_back(work: Work, caplog: pytest.LogCaptureFixture) -> None:
    async with work.subscribe() as jobs:
        work.network.log(b"a", b"b")
        worker = aiter(jobs)
        event = await anext(worker)
        other, name = event, event.message_id
        del event
        await turns()
        assert not work.broker.messages(m.Settle)
        del other
        await turns()

        [settle] = work.broker.messages(m.Settle)
        assert [verdict.kind for verdict in settle.verdicts] == [m.Kind.RETRY]
        assert f"nobody refers any more to {name} of subscription 'workers'" in caplog.text
        caplog.clear()
        for event in [await anext(worker), await anext(worker)]:
            await jobs.acknowledge(event)
        del event
        await turns()
        assert caplog.text == ""
        assert len(work.broker.only.done) == 2


async def test_events_of_a_batch_are_held_together(work: Work, caplog: pytest.LogCaptureFixture) -> None:
    async with work.subscribe() as jobs:
        work.network.log(b"a", b"b", b"c", b"d")
        batch = await anext(jobs.batches())
        last = batch[-1]
        await jobs.acknowledge(batch[0])
        del batch
        await turns()
        assert len(work.broker.messages(m.Settle)) == 1
        del last
        await turns()

        assert sorted(entry.attempts for entry in work.broker.only.entries) == [1, 1, 1]
        assert "3 more" not in caplog.text
        assert caplog.text.count("ID:") == 3


async def test_nobody_is_told_of_what_is_dropped_when_it_is_over(work: Work, caplog: pytest.LogCaptureFixture) -> None:
    async with work.subscribe() as jobs:
        work.network.log(b"a")
        event = await anext(aiter(jobs))
    del event
    await turns()

    assert caplog.text == ""


async def test_leaving_gives_back_what_is_buffered_and_marks_what_was_handed_out(work: Work) -> None:
    async with work.subscribe() as jobs:
        work.network.log(b"a", b"b", b"c")
        event = await anext(aiter(jobs))
    await until(lambda: not work.broker.held())

    assert [entry.attempts for entry in work.broker.only.entries] == [1, 0, 0]
    with pytest.raises(gapless.SubscriptionError, match="closed"):
        await jobs.acknowledge(event)
    async with work.subscribe() as jobs:
        work.network.settle()
        batches = jobs.batches()
        found = [*await anext(batches), *await anext(batches)]
        assert sorted((each.body, each.redelivered) for each in found) == [(b"a", True), (b"b", False), (b"c", False)]


async def test_what_comes_while_it_leaves_goes_back_unmarked(work: Work) -> None:
    async with work.subscribe() as jobs:
        work.network.log(b"a", b"b")
        await jobs.acknowledge(await anext(aiter(jobs)))
        work.broker.slow = []
        closing = await is_waiting(jobs.close())
        work.network.log(b"c")  # it was on its way
        await turns()
        work.do(work.broker.hurry)
        await closing

    assert [entry.attempts for entry in work.broker.only.entries] == [0, 0]
    assert work.broker.held() == []


async def test_leaving_without_a_broker_waits_for_nothing(work: Work) -> None:
    async with work.subscribe() as jobs:
        work.network.log(b"a", b"b")
        await jobs.acknowledge(await anext(aiter(jobs)))
        work.network.unreachable = True
        work.network.cut()
        began = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - began < 2


async def test_leaving_without_a_broker_that_has_not_answered_is_told(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gapless.client.driver.ANSWER_SECONDS", 0.1)
    monkeypatch.setattr("gapless.client.driver.LOOK_SECONDS", 0.05)
    jobs = await work.subscribe()
    work.network.log(b"a", b"b")
    work.broker.slow = []
    task = await is_waiting(jobs.acknowledge(await anext(aiter(jobs))))
    work.network.unreachable = True
    work.network.cut()
    with pytest.raises(gapless.ConnectionClosedError, match="what was settled last"):
        await jobs.close()
    with pytest.raises(gapless.SettlementUncertainError):
        await task


async def test_leaving_waits_for_what_was_settled(work: Work) -> None:
    work.broker.slow = []
    async with work.subscribe() as jobs:
        work.network.log(b"a")
        task = await is_waiting(jobs.acknowledge(await anext(aiter(jobs))))
        asyncio.get_running_loop().call_later(0.02, work.do, work.broker.hurry)

    await task
    assert len(work.broker.only.done) == 1


async def test_leaving_by_an_exception_waits_for_nothing(work: Work) -> None:
    work.broker.slow = []
    with pytest.raises(ZeroDivisionError):
        async with work.subscribe() as jobs:
            work.network.log(b"a")
            event = await anext(aiter(jobs))
            task = await is_waiting(jobs.acknowledge(event))
            raise ZeroDivisionError

    with pytest.raises(gapless.SettlementUncertainError, match="closed before the broker answered") as raised:
        await task
    assert raised.value.events == (event,)


async def test_a_connection_that_ends_leaves_settlements_in_doubt(network: FakeNetwork, broker: SharingBroker) -> None:
    connection = await gapless.connect(ADDRESS)
    jobs = await connection.session().subscribe("t", name="workers", shared=True)
    network.log(b"a")
    event = await anext(aiter(jobs))
    broker.slow = []
    task = await is_waiting(jobs.acknowledge(event))
    die(jobs)

    with pytest.raises(gapless.SettlementUncertainError):
        await task
    with pytest.raises(gapless.ConnectionClosedError):
        await anext(aiter(jobs))


async def test_drain_ends_all_iterations_and_gives_back_the_rest(work: Work) -> None:
    async with work.subscribe() as jobs:
        waits = await is_waiting(anext(jobs.batches(max_events=64, max_wait=30)))
        waits.cancel()
        work.network.log(b"a", b"b", b"c", b"d", b"e")
        handled = []
        async for job in jobs:
            handled.append(job)
            if len(handled) == 2:
                jobs.drain()
        await until(lambda: len(work.broker.held()) == 2)
        await jobs.acknowledge(handled)
        with pytest.raises(StopAsyncIteration):
            await anext(jobs.batches())

    assert [entry.attempts for entry in work.broker.only.entries] == [0, 0, 0]


async def test_drain_ends_those_that_wait(work: Work) -> None:
    async with work.subscribe() as jobs:
        waiting = [await is_waiting(anext(aiter(jobs))), await is_waiting(anext(jobs.batches(max_wait=30)))]
        jobs.drain()
        for task in waiting:
            with pytest.raises(StopAsyncIteration):
                await task


async def test_a_session_that_drains_drains_those_that_follow(work: Work) -> None:
    work.connection.drain()
    async with work.subscribe() as jobs:
        assert [job async for job in jobs] == []


async def test_batches_wait_for_more(work: Work) -> None:
    async with work.subscribe() as jobs:
        with pytest.raises(ValueError, match="max_events"):
            jobs.batches(0)
        batches = jobs.batches(max_events=6, max_wait=30)
        task = await is_waiting(anext(batches))
        work.network.log(b"0", b"1", b"2", b"3")
        await turns()
        assert not task.done()
        work.network.log(b"4", b"5", b"6")
        batch = await task
        assert isinstance(batch, gapless.HeldBatch)
        assert (len(batch), batch.pubend, batch.bodies) == (6, PUBEND, [b"%d" % i for i in range(6)])
        rest = await anext(jobs.batches(max_wait=0.01))
        assert rest.bodies == [b"6"]
        await jobs.acknowledge([batch, rest])


async def test_what_may_have_been_handed_out_is_gathered_too(work: Work) -> None:
    async with work.subscribe() as jobs:
        work.network.log(b"0", b"1", b"2", b"3")
        await jobs.retry(await anext(jobs.batches()))
        batch = await anext(jobs.batches(max_events=4, max_wait=30))

        assert [event.delivery_count for event in batch] == [2, 2, 2, 2]
        await jobs.acknowledge(batch)


# Ack modes.


async def test_auto_settles_an_event_when_that_iterator_asks_for_its_next(automatic: Work) -> None:
    async with automatic.subscribe() as jobs:
        automatic.network.log(b"a", b"b", b"c", b"d")
        first, second = aiter(jobs), aiter(jobs)
        bodies = [(await anext(first)).body, (await anext(second)).body, (await anext(first)).body]
        await until(lambda: automatic.broker.only.done)

        assert bodies == [b"a", b"b", b"c"]
        assert len(automatic.broker.only.done) == 1
        automatic.broker.slow = []
        assert (await anext(second)).body == b"d", "it does not wait"
        jobs.drain()
        with pytest.raises(StopAsyncIteration):
            await anext(second)
        automatic.do(automatic.broker.hurry)
    assert len(automatic.broker.only.done) == 3


async def test_auto_settles_batches_too(automatic: Work) -> None:
    async with automatic.subscribe() as jobs:
        automatic.network.log(*(b"%d" % i for i in range(8)))
        batches = jobs.batches(max_events=4)
        for _ in range(2):
            await anext(batches)
        await until(lambda: len(automatic.broker.only.done) == 4)


async def test_auto_gives_back_what_its_iterator_had_in_hand(automatic: Work, caplog: pytest.LogCaptureFixture) -> None:
    async with automatic.subscribe() as jobs:
        automatic.network.log(b"a")
        with pytest.raises(ZeroDivisionError):
            async for _ in jobs:
                raise ZeroDivisionError
        del _
        await until(lambda: automatic.broker.messages(m.Settle))

    assert "it is retried" in caplog.text
    assert automatic.broker.only.done == []


async def test_auto_tells_the_log_what_was_lost(automatic: Work, caplog: pytest.LogCaptureFixture) -> None:
    async with automatic.subscribe() as jobs:
        automatic.network.log(b"a", b"b")
        worker = aiter(jobs)
        event = await anext(worker)
        automatic.do(lambda: automatic.broker.lose_holds(event.delivery_number))
        await anext(worker)

    assert f"{event.message_id} is not held any more" in caplog.text


@pytest.mark.parametrize("mode", [gapless.AckMode.CLIENT, gapless.AckMode.DUPS_OK])
async def test_other_modes_are_refused(network: FakeNetwork, broker: SharingBroker, mode: gapless.AckMode) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session(mode) as session:
        with pytest.raises(gapless.ConfigurationError, match="event by event"):
            _ = session.subscribe("t", name="workers", shared=True)

    assert not broker.messages(m.Subscribe)


# Gaps.


async def test_a_gap_is_handed_out_and_settled_like_an_event(work: Work) -> None:
    async with work.subscribe(on_gap="deliver") as jobs:
        [tick] = work.network.log(b"a")
        work.do(lambda: work.broker.lose_events(tick + 5000))
        worker = aiter(jobs)
        event, gap = await anext(worker), await anext(worker)

        assert isinstance(gap, gapless.Gap)
        assert (gap.pubend, gap.start, gap.end, gap.reason) == (PUBEND, tick, tick + 5000, "released early")
        await jobs.retry(gap)
        again = await anext(jobs.batches())
        assert isinstance(again, gapless.Gap)
        await jobs.acknowledge([event, again])
        assert work.broker.only.done == [tick, tick + 5000]
        assert pickle.loads(pickle.dumps(again)) == gapless.Gap(PUBEND, tick, tick + 5000, "released early")


@pytest.mark.parametrize("mode", [gapless.AckMode.TOKEN, gapless.AckMode.AUTO])
async def test_a_gap_that_is_raised_is_settled_when_the_error_is_gone(
    network: FakeNetwork, broker: SharingBroker, mode: gapless.AckMode, caplog: pytest.LogCaptureFixture
) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session(mode) as session:
        async with session.subscribe("t", name="workers", shared=True) as jobs:
            broker.lose_events(broker.only.frontier[PUBEND] + 5000)
            network.settle()
            try:
                await anext(aiter(jobs))
            except gapless.GapError as error:
                await turns()
                assert broker.only.done == []
                assert error.gap.reason == "released early"
            await until(lambda: broker.only.done)
    assert caplog.text == ""


async def test_a_gap_that_is_raised_may_be_acknowledged(work: Work) -> None:
    async with work.subscribe() as jobs:
        work.do(lambda: work.broker.lose_events(work.broker.only.frontier[PUBEND] + 5000))
        with pytest.raises(gapless.GapError) as raised:
            await anext(jobs.batches())
        await jobs.acknowledge(raised.value.gap)

    assert len(work.broker.only.done) == 1


async def test_another_is_told_of_a_gap_by_which_the_block_was_left(work: Work) -> None:
    with pytest.raises(gapless.GapError):
        async with work.subscribe() as jobs:
            work.do(lambda: work.broker.lose_events(work.broker.only.frontier[PUBEND] + 5000))
            await anext(aiter(jobs))
    await until(lambda: not work.broker.held())

    assert work.broker.only.done == []


# What is not its own.


async def test_only_what_it_has_handed_out_is_settled(work: Work) -> None:
    async with gapless.connect(ADDRESS) as other, other.session() as session:
        async with work.subscribe() as jobs, session.subscribe("t", name="others", shared=True) as others:
            work.network.log(b"a")
            mine, theirs = await anext(aiter(jobs)), await anext(aiter(others))
            for wrong in (theirs, pickle.loads(pickle.dumps(mine)), gapless.Event.make("t"), 5, b"a", "a", [b"a"]):
                with pytest.raises(gapless.SubscriptionError):
                    await jobs.acknowledge(wrong)
            with pytest.raises(gapless.SubscriptionError):
                await jobs.acknowledge([mine, theirs])
            await jobs.acknowledge([])
            assert not work.broker.messages(m.Settle)
            await jobs.acknowledge(mine)


async def test_a_pickle_is_a_plain_event(work: Work) -> None:
    async with work.subscribe() as jobs:
        work.network.log(b"a", b"b", n=1)
        batch = await anext(jobs.batches())
        plain = pickle.loads(pickle.dumps(batch[0]))
        assert type(plain) is gapless.Event
        assert (plain.body, plain.properties, plain.tick, plain.pubend) == (b"a", {"n": 1}, batch[0].tick, PUBEND)
        assert [type(each) for each in pickle.loads(pickle.dumps(batch))] == [gapless.Event, gapless.Event]
        found: Any = batch[0]
        match found:
            case gapless.Event(topic, body, properties):
                assert [topic, body, properties] == ["t", b"a", {"n": 1}]
        assert isinstance(batch, HeldBatch)
        assert copy.copy(batch[1]) == batch[1]
        assert repr(batch) == f"<HeldBatch of 2 events of {PUBEND}>"
        await jobs.acknowledge([copy.copy(batch[0]), batch[1]])


@pytest.mark.parametrize("error", [gapless.HoldLostError, gapless.SettlementUncertainError])
def test_the_errors_pickle(error: Any) -> None:
    made = error("it is gone", (gapless.Event.make("t", b"a"),))
    again = pickle.loads(pickle.dumps(made))

    assert (type(again), str(again), again.events) == (error, "it is gone", made.events)


# Options.

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no name": ({"name": None}, "needs a name"),
    "a token": ({"start": gapless.CheckpointToken("net", {})}, "no position, so no token"),
    "silence": ({"silence": True}, "silence=True: it has no position"),
    "order": ({"order": "total"}, "order='total': its events go to many"),
    "no_local": ({"no_local": True}, "no_local=True: whose events"),
    "in_use": ({"in_use": "takeover"}, "in_use='takeover': many may consume"),
    "no window": ({"window": 0}, "window is a number of events from 1 to 1,048,576"),
    "a large window": ({"window": 1 << 21}, "window is"),
    "half an event": ({"window": 1.5}, "window is"),
    "a negative time": ({"hold_seconds": -1}, "hold_seconds is a number of seconds"),
    "no time": ({"resume_seconds": None}, "resume_seconds is a number of seconds"),
    "a long time": ({"resume_seconds": 1e10}, "resume_seconds is 4,398,046,511 seconds at most"),
    "prefetch": ({"prefetch": 0}, "prefetch"),
}


@pytest.mark.parametrize(("options", "text"), REFUSED.values(), ids=REFUSED)
async def test_what_a_shared_one_cannot_be_is_refused_at_once(work: Work, options: dict[str, Any], text: str) -> None:
    with pytest.raises(gapless.ConfigurationError, match=text):
        _ = work.session.subscribe("t", shared=True, **{"name": "workers", **options})

    assert not work.broker.messages(m.Subscribe)


@pytest.mark.parametrize("option", ["durable", "window", "hold_seconds", "resume_seconds"])
async def test_its_options_are_of_no_other(work: Work, option: str) -> None:
    options: dict[str, Any] = {option: 5}
    with pytest.raises(gapless.ConfigurationError, match=f"{option} is an option of shared subscriptions"):
        _ = work.session.subscribe("t", name="s", **options)


async def test_its_options_go_to_the_broker(work: Work) -> None:
    at = datetime(2024, 1, 1, tzinfo=timezone.utc)
    async with work.subscribe(
        start=at, durable=False, window=10, selector="n > 1", prefetch=7, on_change="keep_position", order="pubend"
    ) as jobs:
        assert (jobs.name, jobs.topics, jobs.selector) == ("workers", ("t",), "n > 1")
        assert repr(jobs) == "<SharedSubscription 'workers' to t>"
        assert (jobs.was_there, jobs.is_over) == (False, False)
    assert repr(jobs) == "<SharedSubscription 'workers' to t, over>"

    [asked] = work.broker.messages(m.Subscribe)
    assert asked.sharing == m.Sharing(window=10, durable=False)
    assert (asked.selector, asked.credit_events, asked.on_change) == ("n > 1", 7, m.OnChange.KEEP_POSITION)
    assert (asked.start, asked.start_wall) == (m.StartAt.TIME, 1_704_067_200_000)


async def test_by_default_a_consumer_has_little_on_its_way(work: Work) -> None:
    async with work.subscribe():
        pass

    [asked] = work.broker.messages(m.Subscribe)
    assert asked.sharing == m.Sharing(window=4096, durable=True, hold_ms=0, resume_ms=5000)
    assert asked.credit_events == 256


async def test_an_older_broker_is_told_apart(work: Work) -> None:
    work.broker.answers = ()
    work.network.cut()
    with pytest.raises(gapless.ConfigurationError, match="too old for shared subscriptions"):
        await work.subscribe()


async def test_it_is_removed_while_it_is_consumed(work: Work) -> None:
    async with work.subscribe() as jobs:
        work.network.log(b"a")
        event = await anext(aiter(jobs))
        work.broker.slow = []
        settles = await is_waiting(jobs.acknowledge(event))
        waits = await is_waiting(anext(aiter(jobs)))
        work.do(work.broker.remove)
        await turns()
        for task in (settles, waits, jobs.extend(event)):
            with pytest.raises(gapless.SubscriptionNotFoundError):
                await task


async def test_a_connection_of_another_loop_is_told(work: Work) -> None:
    jobs = await work.subscribe()

    def elsewhere() -> None:
        async def run() -> None:
            with pytest.raises(gapless.ConnectionClosedError):
                await anext(aiter(jobs))

        asyncio.run(run())

    await asyncio.to_thread(elsewhere)


@pytest.fixture(autouse=True)
def _only_warnings(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
