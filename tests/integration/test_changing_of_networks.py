"""A subscription gets another selector at one SHB, and its client goes on at another one: at home and elsewhere."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import gapless
import gapless.sync
from gapless import jms
from gapless.core.ports import Roaming
from gapless_shb.core.state.places import home_of
from integration.broker_process import bounded
from integration.networks_in_process import TestNetwork, network_of

CLIENT = "desk-7"
PLACES = ("shb", "shb2")
HOME = home_of(CLIENT, Roaming(PLACES, b""))
ELSEWHERE = "shb" if HOME == "shb2" else "shb2"
ODD, EVEN, ALL = "odd = TRUE", "odd = FALSE", ""
WAYS = [(HOME, ELSEWHERE), (ELSEWHERE, HOME), (ELSEWHERE, ELSEWHERE)]
"""Where the selector is changed, and where the client is afterwards."""
Seen = list[tuple[int, bool]]
"""The numbers that came, and whether they were marked as redelivered."""


@pytest.fixture
async def network(tmp_path: Path) -> AsyncIterator[TestNetwork]:
    """PHB – IB – two SHBs."""
    async with network_of(tmp_path, "phb", "ib", *PLACES) as network:
        network.network["router"] = "knowledge"
        await network.start_all()
        await network.until_linked("phb", "ib")
        await network.until_linked("ib", "shb")
        await network.until_linked("shb", "shb2")
        yield network


async def publish(network: TestNetwork, *numbers: int) -> None:
    async with gapless.connect(network.nodes["phb"].url) as connection, connection.session() as session:
        messages = [gapless.Message(b"%d" % n, {"odd": n % 2 == 1}) for n in numbers]
        await bounded(session.publisher("t", name="loader").send_batch(messages))


class FailsError(Exception):
    """An application that fails: what it has in hand is not acknowledged."""


async def by_asyncio(url: str, mode: gapless.AckMode, selector: str, count: int, fails: bool) -> Seen:
    seen: Seen = []
    try:
        async with gapless.connect(url, client_id=CLIENT) as connection, connection.session(mode) as session:
            wanted = session.subscribe("t", name="s", selector=selector, on_change="keep_position", in_use="wait")
            async with await bounded(wanted, 30) as subscription:
                while len(seen) < count:
                    event = await bounded(anext(subscription), 30)
                    seen.append((int(event.body), event.redelivered))
                if fails:
                    raise FailsError
                await done_with(subscription, session)
    except FailsError:
        pass
    return seen


async def done_with(subscription: Any, session: gapless.Session) -> None:
    """What was handed out is acknowledged; AUTO does it by asking for the next one, or by an orderly end."""
    if session.ack_mode is gapless.AckMode.CLIENT:
        await session.acknowledge()
    elif session.ack_mode is gapless.AckMode.TOKEN:
        await subscription.acknowledge()


async def by_blocking(url: str, mode: gapless.AckMode, selector: str, count: int, fails: bool) -> Seen:
    def consume() -> Seen:
        seen: Seen = []
        try:
            with gapless.sync.connect(url, client_id=CLIENT) as connection, connection.session(mode) as session:
                with session.subscribe(
                    "t", name="s", selector=selector, on_change="keep_position", in_use="wait", timeout=30
                ) as subscription:
                    while len(seen) < count:
                        event = subscription.receive(timeout=30)
                        assert event is not None
                        seen.append((int(event.body), event.redelivered))
                    if fails:
                        raise FailsError
                    if mode is gapless.AckMode.CLIENT:
                        session.acknowledge()
                    elif mode is gapless.AckMode.TOKEN:
                        subscription.acknowledge()
        except FailsError:
            pass
        return seen

    return await bounded(asyncio.to_thread(consume), 60)


Consume = Callable[[str, gapless.AckMode, str, int, bool], Awaitable[Seen]]


@pytest.mark.parametrize("consume", [by_asyncio, by_blocking])
@pytest.mark.parametrize("mode", [gapless.AckMode.TOKEN, gapless.AckMode.AUTO, gapless.AckMode.CLIENT])
@pytest.mark.parametrize(("changed_at", "then_at"), WAYS, ids=["home-away", "away-home", "away-away"])
async def test_its_position_is_kept_wherever_it_is_changed_and_read(
    network: TestNetwork, consume: Consume, mode: gapless.AckMode, changed_at: str, then_at: str
) -> None:
    """Of what is behind the position the new selector alone decides; nothing of before it comes, and nothing twice."""
    at = {name: network.nodes[name].url for name in PLACES}
    await consume(at[HOME], mode, ODD, 0, False)
    await publish(network, *range(1, 9))

    assert await consume(at[HOME], mode, ODD, 2, False) == [(1, False), (3, False)]
    assert await consume(at[changed_at], mode, EVEN, 2, False) == [(4, False), (6, False)]
    assert await consume(at[then_at], mode, EVEN, 1, False) == [(8, False)]
    await publish(network, 9, 10)
    assert await consume(at[HOME], mode, ALL, 2, False) == [(9, False), (10, False)]


@pytest.mark.parametrize("consume", [by_asyncio, by_blocking])
@pytest.mark.parametrize("mode", [gapless.AckMode.AUTO, gapless.AckMode.CLIENT])
@pytest.mark.parametrize("selector", [ALL, EVEN], ids=["wider", "others"])
@pytest.mark.parametrize(("died_at", "then_at"), WAYS, ids=["home-away", "away-home", "away-away"])
async def test_what_was_in_hand_comes_marked_elsewhere_under_another_selector(
    network: TestNetwork, consume: Consume, mode: gapless.AckMode, selector: str, died_at: str, then_at: str
) -> None:
    """Its application failed with the event 3 in hand. AUTO has committed the event 1, CLIENT nothing."""
    at = {name: network.nodes[name].url for name in PLACES}
    await consume(at[HOME], mode, ODD, 0, False)
    await publish(network, *range(1, 9))
    assert await consume(at[died_at], mode, ODD, 2, True) == [(1, False), (3, False)]

    committed = 1 if mode is gapless.AckMode.AUTO else 0
    expected = [n for n in range(committed + 1, 9) if selector == ALL or n % 2 == 0]
    seen = await consume(at[then_at], mode, selector, len(expected), False)

    assert [n for n, _ in seen] == expected
    in_hand = {1, 3} & set(expected)
    announced = {3} if mode is gapless.AckMode.AUTO else {1, 3, 5, 7}
    assert in_hand <= {n for n, redelivered in seen if redelivered} <= announced & set(expected)


def made(context: jms.JMSContext, selector: str | None) -> jms.JMSConsumer:
    """The durable consumer. The home may not know yet that the last one has left, and JMS has no `in_use="wait"`."""
    for _ in range(100):
        with suppress(jms.IllegalStateError):
            return context.create_durable_consumer(context.create_topic("t"), "s", selector)
        time.sleep(0.1)
    raise AssertionError("the last consumer has not left in 10 s")


@pytest.mark.parametrize("place", [HOME, ELSEWHERE], ids=["home", "away"])
async def test_jms_goes_on_with_what_was_changed_and_changes_as_jms_has_it(network: TestNetwork, place: str) -> None:
    """With the selector that asyncio has given it the backlog comes; with another one it is lost, as JMS has it."""
    at = {name: network.nodes[name].url for name in PLACES}

    def consume(selector: str, count: int) -> list[int]:
        with jms.ConnectionFactory(at[place], client_id=CLIENT).create_context(jms.AUTO_ACKNOWLEDGE) as context:
            consumer = made(context, selector or None)
            numbers: list[int] = []
            while len(numbers) < count:
                message = consumer.receive(30_000)
                assert message is not None
                numbers.append(int(message.get_body(bytes) or b""))
            return numbers

    await by_asyncio(at[HOME], gapless.AckMode.AUTO, ODD, 0, False)
    await publish(network, *range(1, 9))
    assert await by_asyncio(at[HOME], gapless.AckMode.AUTO, ODD, 2, False) == [(1, False), (3, False)]
    assert await by_asyncio(at[ELSEWHERE], gapless.AckMode.AUTO, EVEN, 1, False) == [(4, False)]

    assert await bounded(asyncio.to_thread(consume, EVEN, 1), 60) == [6]
    await bounded(asyncio.to_thread(consume, ODD, 0), 60)
    await publish(network, 9, 10, 11)
    assert await bounded(asyncio.to_thread(consume, ODD, 2), 60) == [9, 11]


@pytest.mark.parametrize("place", [HOME, ELSEWHERE], ids=["home", "away"])
async def test_whoever_consumes_elsewhere_while_it_is_changed_is_told(network: TestNetwork, place: str) -> None:
    """A takeover by a request with another selector: the former consumer gets none of the new selector's events."""
    at = {name: network.nodes[name].url for name in PLACES}
    async with gapless.connect(at[ELSEWHERE], client_id=CLIENT) as connection, connection.session() as session:
        async with await bounded(session.subscribe("t", name="s", selector=ODD), 30) as former:
            await publish(network, 1)
            assert (await bounded(anext(former), 30)).body == b"1"
            token = former.token  # before 2 is published, which is silence for the former one
            await publish(network, 2, 3)
            async with gapless.connect(at[place], client_id=CLIENT) as other, other.session() as second:
                wanted = second.subscribe(
                    "t", name="s", selector=EVEN, on_change="keep_position", in_use="takeover", start=token
                )
                async with await bounded(wanted, 30) as successor:
                    assert (await bounded(anext(successor), 30)).body == b"2"
                    with pytest.raises((gapless.SubscriptionTakenOverError, gapless.SubscriptionMismatchError)):
                        await bounded(anext(former), 30)
