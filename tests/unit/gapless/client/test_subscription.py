"""`Session.subscribe`, as an application calls it."""

from __future__ import annotations

import asyncio
import pickle
import signal
from typing import Any

import pytest

import gapless
from gapless.core.stream.ticks import STEP, time_at
from gapless.core.wire import messages as m
from unit.gapless.client.conftest import ADDRESS, until
from unit.gapless.client.fake_broker import BASE, PUBEND
from unit.gapless.client.fake_network import FakeNetwork


async def take(subscription: Any, count: int) -> list[Any]:
    return [await anext(subscription) for _ in range(count)]


async def test_events_come_with_all_they_carry(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        async with session.subscribe("t.*", name="s", selector="n > 1") as subscription:
            ticks = network.log(b"no", topic="t.a", n=1) + network.log(b"yes", topic="t.b", n=2, x="é")
            event = await anext(subscription)

    assert (event.topic, event.body, event.properties) == ("t.b", b"yes", {"n": 2, "x": "é"})
    assert (event.pubend, event.tick) == (PUBEND, ticks[1])
    assert event.message_id == f"ID:{PUBEND}:{ticks[1]}"
    assert event.timestamp == time_at(ticks[1])
    assert (event.redelivered, event.delivery_count, event.priority, event.expiration) == (False, 1, 4, None)
    found: Any = event
    match found:
        case gapless.Event(topic, body, properties):
            assert [topic, body, properties] == ["t.b", b"yes", {"n": 2, "x": "é"}]
    assert pickle.loads(pickle.dumps(event)) == event


async def test_the_token_is_behind_what_was_handed_out(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        async with session.subscribe("t", name="s") as subscription:
            assert subscription.token.ticks == {PUBEND: BASE}
            ticks = network.log(*(b"%d" % i for i in range(10)))
            async for event in subscription:
                assert subscription.token.ticks == {PUBEND: event.tick}
                if event.tick == ticks[-1]:
                    break

            token = subscription.token
            assert (token.network, token.sid, token.generation, token.seal) == ("net", 1, 1001, b"seal of 1")
            assert gapless.CheckpointToken.parse(str(token)) == token
    assert subscription.token == token


async def test_an_application_that_comes_back_with_its_token_misses_nothing(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        async with session.subscribe("t", name="s") as subscription:
            network.log(*(b"%d" % i for i in range(10)))
            await take(subscription, 4)
            token = subscription.token
    network.log(b"10")
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        async with session.subscribe("t", name="s", start=token) as subscription:
            events = await take(subscription, 7)

    assert [event.body for event in events] == [b"%d" % i for i in range(4, 11)]


async def test_without_a_token_it_resumes_where_it_was_acknowledged(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        async with session.subscribe("t", name="s") as subscription:
            network.log(*(b"%d" % i for i in range(10)))
            await take(subscription, 3)
            await subscription.acknowledge()
            await take(subscription, 2)
        async with session.subscribe("t", name="s", start="earliest") as subscription:
            assert (await anext(subscription)).body == b"3"


async def test_acknowledge_takes_an_earlier_token(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        async with session.subscribe("t", name="s") as subscription:
            ticks = network.log(*(b"%d" % i for i in range(5)))
            await take(subscription, 2)
            token = subscription.token
            await take(subscription, 2)
            await subscription.acknowledge(token)
            await asyncio.sleep(0.01)

            assert network.broker.subscriptions[1].acknowledged == {PUBEND: ticks[1]}
            assert network.broker.subscriptions[1].quiet_from == {PUBEND: ticks[1]}


async def test_acknowledgements_are_few(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        async with session.subscribe("t", name="s") as subscription:
            ticks = network.log(*(b"%d" % i for i in range(1000)))
            began = asyncio.get_running_loop().time()
            for _ in range(1000):
                await anext(subscription)
                await subscription.acknowledge()
            await until(lambda: network.broker.subscriptions[1].acknowledged == {PUBEND: ticks[-1]})

            elapsed = asyncio.get_running_loop().time() - began
            assert len(network.broker.messages(m.Acknowledge)) <= 2 + elapsed / 0.1


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (gapless.CheckpointToken("other", {PUBEND: 5}, 1, 1001, b""), gapless.TokenMismatchError),
        (gapless.CheckpointToken("net", {PUBEND: 5}, 2, 1001, b""), gapless.TokenMismatchError),
        (gapless.CheckpointToken("net", {PUBEND: 5}, 1, 1000, b""), gapless.TokenMismatchError),
        ("gl1.text", gapless.InvalidTokenError),
    ],
    ids=["network", "subscription", "generation", "text"],
)
async def test_a_wrong_token_is_not_acknowledged(network: FakeNetwork, wrong: Any, error: type[Exception]) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        async with session.subscribe("t", name="s") as subscription:
            with pytest.raises(error):
                await subscription.acknowledge(wrong)


async def test_auto_acknowledges_an_event_when_the_next_is_asked_for(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session(gapless.AckMode.AUTO) as session:
        async with session.subscribe("t", name="s") as subscription:
            ticks = network.log(b"a", b"b", b"c")
            acknowledged = network.broker.subscriptions[1].acknowledged

            await anext(subscription)
            await asyncio.sleep(0.15)
            assert acknowledged == {PUBEND: BASE}
            await anext(subscription)
            await until(lambda: acknowledged == {PUBEND: ticks[0]})
            await asyncio.sleep(0.15)
            await anext(subscription)
            await until(lambda: acknowledged != {PUBEND: ticks[0]})
            assert acknowledged == {PUBEND: ticks[1]}
        await until(lambda: acknowledged == {PUBEND: ticks[2]})


@pytest.mark.parametrize("batches", [False, True])
async def test_auto_acknowledges_all_but_the_last_of_a_block_left_by_an_exception(
    network: FakeNetwork, batches: bool
) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session(gapless.AckMode.AUTO) as session:
        with pytest.raises(ZeroDivisionError):
            async with session.subscribe("t", name="s") as subscription:
                ticks = network.log(*(b"%d" % i for i in range(10)))
                if batches:
                    async for batch in subscription.batches(max_events=2):
                        if batch[-1].tick == ticks[5]:
                            raise ZeroDivisionError
                async for event in subscription:
                    if event.tick == ticks[4]:
                        raise ZeroDivisionError
        await asyncio.sleep(0.15)

        assert network.broker.subscriptions[1].acknowledged == {PUBEND: ticks[3]}


async def test_auto_in_batches_ends_well(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session(gapless.AckMode.AUTO) as session:
        async with session.subscribe("t", name="s") as subscription:
            ticks = network.log(*(b"%d" % i for i in range(10)))
            async for batch in subscription.batches():
                if batch[-1].tick == ticks[-1]:
                    break
        await until(lambda: network.broker.subscriptions[1].acknowledged == {PUBEND: ticks[-1]})


async def test_dups_ok_acknowledges_what_arrived_together_when_more_is_asked_for(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session(gapless.AckMode.DUPS_OK) as session:
        async with session.subscribe("t", name="s") as subscription:
            ticks = network.log(b"a", b"b", b"c")
            acknowledged = network.broker.subscriptions[1].acknowledged
            for _ in ticks:
                await anext(subscription)
            await asyncio.sleep(0.15)
            assert acknowledged == {PUBEND: BASE}

            more = network.log(b"d", b"e")
            await anext(subscription)
            await until(lambda: acknowledged == {PUBEND: ticks[-1]})
        await until(lambda: acknowledged == {PUBEND: more[0]})


async def test_dups_ok_acknowledges_nothing_of_what_is_in_hand_when_a_block_fails(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session(gapless.AckMode.DUPS_OK) as session:
        with pytest.raises(ZeroDivisionError):
            async with session.subscribe("t", name="s") as subscription:
                ticks = network.log(*(b"%d" % i for i in range(10)))
                async for batch in subscription.batches(max_events=2):
                    if batch[-1].tick == ticks[5]:
                        raise ZeroDivisionError
        await asyncio.sleep(0.15)

        assert network.broker.subscriptions[1].acknowledged == {PUBEND: ticks[3]}


async def test_a_cancelled_anext_loses_nothing(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        async with session.subscribe("t", name="s") as subscription:
            seen = []
            for i in range(50):
                waiting = asyncio.ensure_future(anext(subscription))
                await asyncio.sleep(0)
                network.log(b"%d" % i)
                for _ in range(i % 4):
                    await asyncio.sleep(0)
                waiting.cancel()
                await asyncio.wait([waiting])
                if not waiting.cancelled():
                    seen.append(waiting.result().body)
            while len(seen) < 50:
                seen.append((await anext(subscription)).body)

    assert seen == [b"%d" % i for i in range(50)]


async def test_one_task_at_a_time_iterates_but_tasks_may_take_turns(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        async with session.subscribe("t", name="s") as subscription:
            first = asyncio.create_task(take(subscription, 1))
            await asyncio.sleep(0)
            with pytest.raises(gapless.SubscriptionError, match="one at a time"):
                await anext(subscription)
            with pytest.raises(gapless.SubscriptionError, match="one at a time"):
                await anext(subscription.batches(max_wait=1))
            network.log(b"a", b"b")
            assert [event.body for event in await first] == [b"a"]
            assert (await anext(subscription)).body == b"b"


async def test_silence_moves_the_token_although_nothing_is_handed_out(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        async with session.subscribe("t", name="s") as subscription:
            upto = network.silence()
            assert subscription.token.ticks == {PUBEND: upto}
            (tick,) = network.log(b"a")
            await anext(subscription)
            assert subscription.token.ticks == {PUBEND: tick}
            upto = network.silence()
            assert subscription.token.ticks == {PUBEND: upto}


async def test_silence_is_handed_out_where_it_is_wanted(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        async with session.subscribe("t", name="s", silence=True) as subscription:
            upto = network.silence()
            silence = await anext(subscription)
            assert silence == gapless.Silence(PUBEND, BASE, upto)
            assert subscription.token.ticks == {PUBEND: upto}
            match silence:
                case gapless.Silence(pubend, start, end):
                    assert (pubend, start, end) == (PUBEND, BASE, upto)
            assert pickle.loads(pickle.dumps(silence)) == silence


async def _with_a_gap(network: FakeNetwork, connection: gapless.Connection) -> list[int]:
    ticks = network.log(b"a", b"b", b"c", b"d")
    network.broker.release(ticks[2])
    return ticks


async def test_a_gap_is_raised_once_and_the_iteration_lives_on(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        async with session.subscribe("t", name="s"):
            pass
        ticks = await _with_a_gap(network, connection)
        async with session.subscribe("t", name="s") as subscription:
            with pytest.raises(gapless.GapError) as caught:
                async for _ in subscription:
                    pass
            gap = caught.value.gap
            assert gap == gapless.Gap(PUBEND, BASE, ticks[2], "released early")
            assert (gap.since, gap.until) == (time_at(BASE), time_at(ticks[2]))
            assert "may have been lost: released early" in str(caught.value)
            assert subscription.token.ticks == {PUBEND: ticks[2]}
            assert pickle.loads(pickle.dumps(caught.value)).gap == gap

            async for event in subscription:
                assert event.body == b"d"
                break


async def test_a_gap_is_delivered_where_that_is_wanted(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        async with session.subscribe("t", name="s"):
            pass
        await _with_a_gap(network, connection)
        async with session.subscribe("t", name="s", on_gap="deliver") as subscription:
            kinds = [type(item) for item in await take(subscription, 2)]

    assert kinds == [gapless.Gap, gapless.Event]


@pytest.mark.parametrize("on_gap", ["raise", "deliver"])
async def test_batches_meet_gaps_as_events_do(network: FakeNetwork, on_gap: Any) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        async with session.subscribe("t", name="s"):
            pass
        await _with_a_gap(network, connection)
        async with session.subscribe("t", name="s", on_gap=on_gap) as subscription:
            batches = subscription.batches()
            if on_gap == "raise":
                with pytest.raises(gapless.GapError):
                    await anext(batches)
            else:
                assert isinstance(await anext(batches), gapless.Gap)
            batch = await anext(batches)
            assert [event.body for event in batch] == [b"d"]


async def test_batches_are_sequences_with_a_token(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        async with session.subscribe("t", name="s") as subscription:
            ticks = network.log(*(b"%d" % i for i in range(10)))
            batches = subscription.batches(max_events=7)
            first = await anext(batches)
            assert (len(first), first.pubend) == (7, PUBEND)
            assert subscription.token == first.token
            second = await anext(batches)

    assert first.token.ticks == {PUBEND: ticks[6]}
    assert second.token.ticks == {PUBEND: ticks[9]}
    assert first.bodies == [b"%d" % i for i in range(7)]
    assert [event.body for event in first] == first.bodies
    assert first[0].body == b"0"
    assert [event.body for event in first[-2:]] == [b"5", b"6"]
    assert first[3] in first
    copy = pickle.loads(pickle.dumps(first))
    assert copy.bodies == first.bodies
    assert copy == first
    assert copy.token == first.token
    assert first != second
    assert "7 events" in repr(first)


async def test_batches_go_on_where_the_iteration_over_events_stopped(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        async with session.subscribe("t", name="s") as subscription:
            ticks = network.log(b"a", b"b", b"c", b"d")
            await anext(subscription)
            batch = await anext(subscription.batches(max_events=2))
            assert [event.body for event in batch] == [b"b", b"c"]
            assert batch.token.ticks == subscription.token.ticks == {PUBEND: ticks[2]}
            assert (await anext(subscription)).body == b"d"


async def test_batches_wait_for_more_only_if_asked_to(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        async with session.subscribe("t", name="s") as subscription:
            loop = asyncio.get_running_loop()
            network.log(b"0")
            assert len(await anext(subscription.batches())) == 1

            for i in range(3):
                loop.call_later(0.01 * (i + 1), network.log, b"%d" % i)
            began = loop.time()
            assert len(await anext(subscription.batches(max_events=3, max_wait=50))) == 3
            assert loop.time() - began < 40

            network.log(b"4")
            loop.call_soon(network.log, b"5")
            assert len(await anext(subscription.batches(max_events=100, max_wait=0.1))) == 2


@pytest.mark.parametrize(("max_events", "max_wait"), [(0, 0), (1, -1)])
async def test_wrong_batches(network: FakeNetwork, max_events: int, max_wait: float) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        async with session.subscribe("t") as subscription:
            with pytest.raises(ValueError, match="max_events"):
                subscription.batches(max_events, max_wait)


@pytest.mark.parametrize("whose", ["subscription", "connection", "signal"])
async def test_drain_ends_the_iteration_behind_what_is_in_hand(network: FakeNetwork, whose: str) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        async with session.subscribe("t", name="s") as subscription:
            ticks = network.log(*(b"%d" % i for i in range(10)))
            drain = connection.drain if whose == "connection" else subscription.drain
            before = signal.signal(signal.SIGUSR1, lambda *_: drain())
            try:
                seen = []
                async for event in subscription:
                    seen.append(event.body)
                    if len(seen) == 3:
                        if whose == "signal":
                            signal.raise_signal(signal.SIGUSR1)
                        else:
                            drain()
            finally:
                signal.signal(signal.SIGUSR1, before)
            assert seen == [b"0", b"1", b"2"]
            assert subscription.token.ticks == {PUBEND: ticks[2]}
            await subscription.acknowledge()
            await session.publisher("t").send(b"still works")
            assert [event async for event in subscription] == []
            assert [batch async for batch in subscription.batches()] == []
        await until(lambda: network.broker.subscriptions[1].acknowledged == {PUBEND: ticks[2]})


async def test_drain_wakes_whoever_waits(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        async with session.subscribe("t") as subscription, session.subscribe("t") as other:
            waiting = asyncio.create_task(_bodies(subscription))
            also = asyncio.create_task(_bodies(other.batches(max_wait=10)))
            await asyncio.sleep(0)
            connection.drain()
            assert await waiting == []
            assert await also == []
        async with session.subscribe("t") as late:
            assert [event async for event in late] == []


async def _bodies(iteration: Any) -> list[Any]:
    return [item async for item in iteration]


async def test_a_reconnect_is_not_noticed(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        async with session.subscribe("t", name="s") as subscription, session.subscribe("t") as other:
            seen: list[bytes] = []
            also: list[bytes] = []
            for i in range(5):
                network.log(b"%da" % i, b"%db" % i)
                seen.append((await anext(subscription)).body)
                network.cut()
                network.log(b"%dc" % i)
                seen += [(await anext(subscription)).body for _ in range(2)]
                also += [(await anext(other)).body for _ in range(3)]

    expected = [body for i in range(5) for body in (b"%da" % i, b"%db" % i, b"%dc" % i)]
    assert seen == expected
    assert also == expected


async def test_tokens_of_one_that_is_not_durable_stay_good(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        async with session.subscribe("t") as subscription:
            network.log(b"a")
            await anext(subscription)
            token = subscription.token
            network.cut()
            network.log(b"b")
            await anext(subscription)
            await subscription.acknowledge(token)
            assert subscription.token.sid != token.sid


async def test_taken_over(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, gapless.connect(ADDRESS) as another:
        async with connection.session() as session, another.session() as other:
            async with session.subscribe("t", name="s") as subscription:
                network.log(b"a", b"b", b"c")
                await anext(subscription)
                with pytest.raises(gapless.SubscriptionInUseError):
                    await other.subscribe("t", name="s")
                async with other.subscribe("t", name="s", in_use="takeover") as taken:
                    assert (await anext(taken)).body == b"a"
                    with pytest.raises(gapless.SubscriptionTakenOverError):
                        await anext(subscription)
                    with pytest.raises(gapless.SubscriptionTakenOverError):
                        await subscription.acknowledge()
                    assert subscription.token.ticks != {}


async def test_waiting_for_a_subscription_in_use(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, gapless.connect(ADDRESS) as another:
        async with connection.session() as session, another.session() as other:
            subscription = await session.subscribe("t", name="s")
            given_up = asyncio.ensure_future(_subscribed(other, "wait"))
            waiting = asyncio.ensure_future(_subscribed(other, "wait"))
            await asyncio.sleep(0.02)
            given_up.cancel()
            await asyncio.sleep(0.02)
            assert not waiting.done()
            await subscription.close()
            network.log(b"a")
            assert (await anext(await waiting)).body == b"a"


async def _subscribed(session: gapless.Session, in_use: Any) -> Any:
    return await session.subscribe("t", name="s", in_use=in_use)


async def test_removed_while_it_is_consumed(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        async with session.subscribe("t", name="s") as subscription:
            await connection.unsubscribe("s")
            with pytest.raises(gapless.SubscriptionNotFoundError):
                await anext(subscription)
        with pytest.raises(gapless.SubscriptionNotFoundError):
            await connection.unsubscribe("s")


async def test_it_exists_with_another_selector(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        await (await session.subscribe("t", name="s", selector="a = 1")).close()
        with pytest.raises(gapless.SubscriptionMismatchError):
            await session.subscribe("t", name="s", selector="a = 2")
        await (await session.subscribe("t", name="s", selector=gapless.Selector("a = 1"))).close()


async def test_a_token_of_another_subscription_is_for_the_broker_to_judge(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        async with session.subscribe("t", name="one") as one, session.subscribe("t", name="two"):
            token = one.token
        with pytest.raises(gapless.TokenMismatchError):
            await session.subscribe("t", name="two", start=token)
        network.log(b"a")
        async with session.subscribe("t", name="three", start=token) as three:
            assert (await anext(three)).body == b"a"


async def test_nothing_happens_until_it_is_awaited_or_entered(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        _ = session.subscribe("t", name="s")
        await asyncio.sleep(0.01)

    assert network.broker.messages(m.Subscribe) == []


async def test_a_cancelled_subscribe_leaves_nothing_behind(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        network.stalled = True
        subscribing = asyncio.ensure_future(_subscribed(session, "error"))
        await asyncio.sleep(0.01)
        subscribing.cancel()
        network.flow()
        await asyncio.sleep(0.01)
        assert network.broker.subscriptions[1].session is None

        async with session.subscribe("t", name="s") as subscription:
            network.log(b"a")
            assert (await anext(subscription)).body == b"a"


async def test_events_that_are_none_end_the_subscription_with_an_error(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        async with session.subscribe("#") as subscription:
            stream = network.broker.streams[PUBEND]
            stream.ticks.append(stream.newest + STEP)
            stream.events.append(b"\xc1\xc1")
            stream.body_lengths.append(1)
            stream.headers.append(type("Header", (), {"topic": "t", "properties": {}}))
            network.broker.deliver()
            network.settle()
            with pytest.raises(gapless.RemoteProtocolError, match="malformed"):
                await anext(subscription)


async def test_what_a_subscription_says_of_itself(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        async with session.subscribe("t", "u.#", name="s", selector="a = 1") as subscription:
            assert subscription.name == "s"
            assert subscription.topics == ("t", "u.#")
            assert subscription.selector == "a = 1"
            assert repr(subscription) == "<Subscription 's' to t, u.#>"
        with pytest.raises(gapless.SubscriptionError, match="closed"):
            await anext(subscription)
