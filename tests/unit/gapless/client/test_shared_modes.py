"""Who settles what a shared subscription hands out, and how gaps and foreign events are settled."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

import gapless
from gapless.client.holds import HeldBatch
from gapless.core.wire import messages as m
from unit.gapless.client.conftest import ADDRESS, until
from unit.gapless.client.fake_broker import PUBEND
from unit.gapless.client.fake_network import FakeNetwork
from unit.gapless.client.shared_work import Work, turns
from unit.gapless.client.sharing_broker import SharingBroker

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
