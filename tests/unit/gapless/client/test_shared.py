"""`Session.subscribe(…, shared=True)`, as an application calls it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import gapless
from gapless.core.wire import messages as m
from unit.gapless.client.conftest import ADDRESS, die, until
from unit.gapless.client.fake_broker import PUBEND
from unit.gapless.client.fake_network import FakeNetwork
from unit.gapless.client.shared_work import Work, is_waiting, turns
from unit.gapless.client.sharing_broker import SharingBroker

Jobs = gapless.SharedSubscription[Any, Any]


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
