"""`connect(archive=…)`: a gap's place is taken by what an archive has of it."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

import gapless
from gapless.client.ranges import archives
from gapless.core.stream.ticks import STEP
from unit.gapless.client.conftest import ADDRESS, until
from unit.gapless.client.fake_broker import BASE, PUBEND
from unit.gapless.client.fake_network import FakeNetwork
from unit.gapless.client.ranges.fake_archive import FakeArchive, events_of

Holes = list[tuple[int, int]]


async def away(network: FakeNetwork, **subscription: Any) -> None:
    """A subscription comes to be, and its application goes away."""
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        async with session.subscribe("t", name="s", **subscription):
            pass


@asynccontextmanager
async def back(archive: Any, **subscription: Any) -> AsyncIterator[Any]:
    """The application comes back, and what it missed is in an archive."""
    async with gapless.connect(ADDRESS, archive=archive) as connection, connection.session() as session:
        async with session.subscribe("t", name="s", **subscription) as consumed:
            yield consumed


def archived(network: FakeNetwork, count: int = 10, *, beyond: int = 2, **options: Any) -> FakeArchive:
    """So many events are logged, archived, and released early, and `beyond` ticks without an event."""
    for n in range(count):
        network.log(b"%d" % n, n=n)
    archive = FakeArchive(network.broker, **options)
    archive.known[PUBEND].add(network.broker.streams[PUBEND].newest, tick(count - 1 + beyond))
    network.broker.release(tick(count - 1 + beyond))
    return archive


def tick(n: int) -> int:
    """Of the n-th event, from 0 on."""
    return BASE + (n + 1) * STEP


def numbers(events: Any) -> list[int]:
    return [event.properties["n"] for event in events]


async def waiting_for(subscription: Any) -> asyncio.Task[Any]:
    """A task that waits for the next event, which does not come."""
    waiting: asyncio.Task[Any] = asyncio.ensure_future(anext(subscription))
    await asyncio.sleep(0.01)
    return waiting


async def take(subscription: Any, count: int) -> list[Any]:
    return [await anext(subscription) for _ in range(count)]


async def test_the_events_are_those_that_the_broker_would_have_delivered(network: FakeNetwork) -> None:
    await away(network, selector="n <> 4")
    archive = archived(network)
    expected = [event for event in archive.stored if event.properties["n"] != 4]
    async with back(archive, selector="n <> 4") as subscription:
        healed = await take(subscription, 9)
        assert healed == expected
        assert not any(event.redelivered for event in healed)
        assert [event.message_id for event in healed] == [event.message_id for event in expected]
        network.log(b"later", n=99)
        assert (await anext(subscription)).body == b"later"


async def test_the_token_follows_the_events_and_ends_behind_the_gap(network: FakeNetwork) -> None:
    await away(network)
    archive = archived(network, 10, beyond=2)
    async with back(archive) as subscription:
        assert subscription.token.ticks == {PUBEND: BASE}
        for n in range(9):
            await anext(subscription)
            assert subscription.token.ticks == {PUBEND: tick(n)}
        await anext(subscription)
        assert subscription.token.ticks == {PUBEND: tick(11)}


@pytest.mark.parametrize("in_batches", [False, True])
@pytest.mark.parametrize("seed", range(12))
async def test_whoever_stops_within_a_gap_and_comes_back_with_the_token_has_each_event_once(
    network: FakeNetwork, monkeypatch: pytest.MonkeyPatch, seed: int, in_batches: bool
) -> None:
    """Against a plain computation, with holes in the archive, and portions of a few events."""
    random = Random(seed)
    monkeypatch.setattr(archives, "EVENTS_AT_ONCE", random.randrange(1, 5))
    await away(network, selector="n <> 7")
    holes: Holes = [(tick(n), tick(n + random.randrange(1, 3))) for n in random.sample(range(-1, 25), 3)]
    archive = archived(network, 25, holes=holes)
    in_hole = [any(start < event.tick <= end for start, end in holes) for event in archive.stored]
    expected = [n for n in range(25) if not in_hole[n] and n != 7]

    network.log(b"the end", n=100)
    found: list[int] = []
    gaps: list[gapless.Gap] = []
    token = None
    while 100 not in found:
        async with gapless.connect(ADDRESS, archive=archive) as connection, connection.session() as session:
            wanted = session.subscribe("t", name="s", selector="n <> 7", start=token, on_gap="deliver")
            async with wanted as subscription:
                source: Any = subscription.batches(random.randrange(1, 6)) if in_batches else subscription
                for _ in range(random.randrange(1, 6)):
                    item = await anext(source)
                    gaps += [item] if isinstance(item, gapless.Gap) else []
                    found += [] if isinstance(item, gapless.Gap) else numbers(item if in_batches else [item])
                    token = subscription.token
                    if 100 in found:
                        break

    assert found == [*expected, 100]
    lost = {event.tick for event, is_lost in zip(archive.stored, in_hole, strict=True) if is_lost}
    told = {each for each in map(tick, range(27)) if any(gap.start < each <= gap.end for gap in gaps)}
    assert lost <= told
    assert not told & {tick(n) for n in expected}


async def test_what_is_not_covered_stays_a_gap_in_its_place(network: FakeNetwork) -> None:
    await away(network)
    archive = archived(network, 6, holes=[(BASE, tick(0)), (tick(2), tick(3))], beyond=0)
    async with back(archive, on_gap="deliver") as subscription:
        items = [(await anext(subscription), subscription.token.ticks[PUBEND]) for _ in range(6)]

    reason = "released early"
    assert [at for _, at in items] == [tick(n) for n in (0, 1, 2, 3, 4, 5)]
    assert items[0][0] == gapless.Gap(PUBEND, BASE, tick(0), reason)
    assert items[3][0] == gapless.Gap(PUBEND, tick(2), tick(3), reason)
    assert [item.properties["n"] for item, _ in items if isinstance(item, gapless.Event)] == [1, 2, 4, 5]


async def test_a_smaller_gap_is_raised_once_and_the_iteration_lives_on(network: FakeNetwork) -> None:
    await away(network)
    archive = archived(network, 6, holes=[(tick(1), tick(2))])
    async with back(archive) as subscription:
        assert numbers(await take(subscription, 2)) == [0, 1]
        with pytest.raises(gapless.GapError) as caught:
            await anext(subscription)
        assert (caught.value.gap.start, caught.value.gap.end) == (tick(1), tick(2))
        assert subscription.token.ticks == {PUBEND: tick(2)}
        assert numbers(await take(subscription, 3)) == [3, 4, 5]


async def test_batches_have_what_was_asked_for_and_their_tokens(
    network: FakeNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "EVENTS_AT_ONCE", 5)
    await away(network)
    archive = archived(network, 12, holes=[(tick(9), tick(10))])
    async with back(archive) as subscription:
        batches = subscription.batches(max_events=3, max_wait=0.01)
        found = [await anext(batches) for _ in range(4)]
        with pytest.raises(gapless.GapError):
            await anext(batches)
        assert subscription.token.ticks == {PUBEND: tick(10)}
        found.append(await anext(batches))

    assert [numbers(batch) for batch in found] == [[0, 1, 2], [3, 4], [5, 6, 7], [8, 9], [11]]
    assert [batch.token.ticks[PUBEND] for batch in found] == [*map(tick, (2, 4, 7, 9)), tick(13)]


async def test_silence_is_reported_to_whom_asks_for_it(network: FakeNetwork) -> None:
    await away(network, selector="n = 1 OR n = 2")
    archive = archived(network, 6, beyond=3)
    async with gapless.connect(ADDRESS, archive=archive) as connection, connection.session() as session:
        wanted = session.subscribe("t", name="s", selector="n = 1 OR n = 2", silence=True)
        async with wanted as subscription:
            assert numbers(await take(subscription, 2)) == [1, 2]
            assert subscription.token.ticks == {PUBEND: tick(2)}
            assert await anext(subscription) == gapless.Silence(PUBEND, tick(2), tick(8))
            assert subscription.token.ticks == {PUBEND: tick(8)}


async def test_silence_moves_the_position_of_whom_does_not_ask(
    network: FakeNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "LOOKED_AT_ONCE", 5)
    await away(network, selector="n = 18 OR n = 100")
    archive = archived(network, 20)
    archive.hold_at = tick(12)
    archive.held.clear()
    async with back(archive, selector="n = 18 OR n = 100") as subscription:
        waiting = asyncio.ensure_future(anext(subscription))
        await until(lambda: subscription.token.ticks == {PUBEND: tick(9)})
        archive.held.set()
        assert (await waiting).properties["n"] == 18
        assert subscription.token.ticks == {PUBEND: tick(18)}
        waiting = asyncio.ensure_future(anext(subscription))
        await until(lambda: subscription.token.ticks == {PUBEND: tick(21)})
        network.log(b"", n=100)
        assert (await waiting).properties["n"] == 100


async def test_a_gap_in_which_nothing_is_selected_is_silence(network: FakeNetwork) -> None:
    await away(network, selector="n = 100")
    archive = archived(network, 20)
    async with back(archive, selector="n = 100") as subscription:
        network.log(b"", n=100)
        assert (await anext(subscription)).properties["n"] == 100


async def test_an_acknowledgement_within_a_gap_hides_nothing_of_it(network: FakeNetwork) -> None:
    """A position is named with an event at or below it: one too low would be silence for an older token."""
    await away(network)
    archive = archived(network)
    async with back(archive) as subscription:
        await take(subscription, 4)
        early = subscription.token
        await take(subscription, 4)
        await subscription.acknowledge(early)
        broker = network.broker.subscriptions[1]
        await until(lambda: broker.acknowledged == {PUBEND: tick(3)})
        assert broker.quiet_from == {PUBEND: tick(3)}
        await take(subscription, 2)
        await subscription.acknowledge()
        await until(lambda: broker.acknowledged == {PUBEND: tick(11)})


async def test_auto_acknowledges_what_was_asked_past(network: FakeNetwork) -> None:
    await away(network)
    archive = archived(network)
    async with gapless.connect(ADDRESS, archive=archive) as connection:
        async with connection.session(gapless.AckMode.AUTO) as session:
            async with session.subscribe("t", name="s") as subscription:
                acknowledged = network.broker.subscriptions[1].acknowledged
                await take(subscription, 3)
                await until(lambda: acknowledged == {PUBEND: tick(1)})
                await asyncio.sleep(0.15)
                assert acknowledged == {PUBEND: tick(1)}
            await until(lambda: acknowledged == {PUBEND: tick(2)})


async def test_the_archive_is_read_in_threads_and_no_further_than_needed(network: FakeNetwork) -> None:
    await away(network)
    archive = archived(network, 30)
    archive.held.clear()
    async with back(archive) as subscription:
        waiting = asyncio.ensure_future(anext(subscription))
        for _ in range(5):
            await asyncio.sleep(0.01)
        assert not waiting.done(), "and the loop turns meanwhile"
        archive.held.set()
        assert (await waiting).properties["n"] == 0
    assert threading.get_ident() not in archive.threads


async def test_it_reads_one_portion_ahead(network: FakeNetwork, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "EVENTS_AT_ONCE", 4)
    await away(network)
    archive = archived(network, 30)
    async with back(archive) as subscription:
        for n in range(30):
            await anext(subscription)
            await asyncio.sleep(0.005)
            assert archive.read <= n + 1 + 8


async def test_a_cancelled_anext_loses_nothing(network: FakeNetwork) -> None:
    await away(network)
    archive = archived(network)
    archive.held.clear()
    async with back(archive) as subscription:
        for _ in range(3):
            waiting = await waiting_for(subscription)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        archive.held.set()
        assert numbers(await take(subscription, 10)) == list(range(10))


async def test_one_at_a_time_iterates(network: FakeNetwork) -> None:
    await away(network)
    archive = archived(network)
    archive.held.clear()
    async with back(archive) as subscription:
        waiting = await waiting_for(subscription)
        with pytest.raises(gapless.SubscriptionError, match="one at a time"):
            await anext(subscription)
        archive.held.set()
        assert (await waiting).properties["n"] == 0


@pytest.mark.parametrize("at_portions_end", [False, True])
async def test_drain_leaves_the_position_behind_what_was_handed_out(
    network: FakeNetwork, monkeypatch: pytest.MonkeyPatch, at_portions_end: bool
) -> None:
    monkeypatch.setattr(archives, "EVENTS_AT_ONCE", 4 if at_portions_end else 5)
    await away(network)
    archive = archived(network)
    async with back(archive) as subscription:
        await take(subscription, 4)
        subscription.drain()
        assert [event async for event in subscription] == []
        assert subscription.token.ticks == {PUBEND: tick(3)}
        await subscription.acknowledge()
    async with back(archive) as subscription:
        assert numbers(await take(subscription, 6)) == list(range(4, 10))


async def test_closing_does_not_wait_for_the_archive(network: FakeNetwork) -> None:
    await away(network)
    archive = archived(network)
    archive.held.clear()
    async with back(archive) as subscription:
        waiting = await waiting_for(subscription)
        subscription.drain()
        with pytest.raises(StopAsyncIteration):
            await waiting
    archive.held.set()


async def test_nothing_is_read_for_a_subscription_that_is_over(network: FakeNetwork) -> None:
    await away(network)
    archive = archived(network)
    archive.held.clear()
    async with back(archive) as subscription:
        waiting = asyncio.ensure_future(anext(subscription))
        await until(lambda: archive.threads)
        await subscription.close()
        with pytest.raises(gapless.SubscriptionError, match="was closed"):
            await waiting
        archive.held.set()
        await asyncio.sleep(0.05)
        assert archive.read == 0
        assert subscription.token.ticks == {PUBEND: BASE}


async def test_what_the_archive_raises_is_raised_and_the_next_try_goes_on_there(
    network: FakeNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An archive that cannot be read just now is no reason to tell of a loss."""
    monkeypatch.setattr(archives, "EVENTS_AT_ONCE", 4)
    await away(network)
    archive = archived(network)
    archive.errors = [OSError("not mounted")]
    async with back(archive) as subscription:
        with pytest.raises(OSError, match="not mounted"):
            await anext(subscription)
        assert subscription.token.ticks == {PUBEND: BASE}
        found = await take(subscription, 1)
        await asyncio.sleep(0.02)
        archive.errors = [gapless.ArchiveError("garbled")]
        found += await take(subscription, 3)
        await asyncio.sleep(0.02)
        found += await take(subscription, 4)
        with pytest.raises(gapless.ArchiveError, match="garbled"):
            await anext(subscription)
        assert subscription.token.ticks == {PUBEND: tick(7)}
        found += await take(subscription, 2)
    assert numbers(found) == list(range(10))


async def test_a_lost_connection_does_not_disturb_it(network: FakeNetwork) -> None:
    await away(network)
    archive = archived(network)
    async with back(archive) as subscription:
        found = await take(subscription, 4)
        network.cut()
        await asyncio.sleep(0.05)
        network.log(b"", n=10)
        found += await take(subscription, 7)
    assert numbers(found) == list(range(11))


async def test_a_subscription_that_asks_for_more_than_the_archive_has_is_told(
    network: FakeNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    await away(network)
    archive = archived(network, selector="n > 3")
    with caplog.at_level(logging.WARNING, "gapless.client"):
        async with gapless.connect(ADDRESS, archive=archive) as connection, connection.session() as session:
            async with session.subscribe("t", name="s") as subscription:
                with pytest.raises(gapless.GapError):
                    await anext(subscription)
                assert subscription.token.ticks == {PUBEND: tick(11)}
    assert [record.getMessage() for record in caplog.records] == [
        "gaps of subscription 's' will not be filled from the archive: the archive has only events with n > 3"
    ]


async def test_an_archive_of_another_network_is_refused(network: FakeNetwork) -> None:
    archive = FakeArchive(network.broker, network="other")
    with pytest.raises(gapless.ConfigurationError, match="the archive is of network 'other'"):
        await gapless.connect(ADDRESS, archive=archive)
    assert not any(link.open for link in network.links.values())
    wrong: Any = "./archive"
    with pytest.raises(gapless.ConfigurationError, match=r"as gapless\.Archive says"):
        _ = gapless.connect(ADDRESS, archive=wrong)


async def test_without_a_gap_the_archive_is_not_asked(network: FakeNetwork) -> None:
    await away(network)
    network.log(b"", n=1)
    archive = FakeArchive(network.broker)
    async with back(archive) as subscription:
        assert numbers(await take(subscription, 1)) == [1]
    assert not archive.threads
    assert numbers(events_of(network.broker)) == [1]
