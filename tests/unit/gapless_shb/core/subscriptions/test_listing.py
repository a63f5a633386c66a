"""Listings count what is not acknowledged, open and sealed records alike, and say whether that is all."""

from __future__ import annotations

import pytest

from gapless.core.ports import ClientSession, Tell
from gapless.core.principals import NOBODY
from gapless.core.stream.ticks import FOREVER, SECOND, wall_at
from gapless.core.wire import messages as m
from gapless_shb.core.live.constream import Constream
from gapless_shb.core.pfs.index import stream_name
from gapless_shb.core.state.positions import SubscriptionPosition
from gapless_shb.core.subscriptions import listing
from unit.gapless_shb.core.harness import BASE, PUBEND, Client, World
from unit.gapless_shb.core.live.test_constream import push, world_with
from unit.gapless_shb.core.records import create


def parts(world: World) -> list[m.SubscriptionList]:
    """What was told of lists."""
    return [effect.message for effect in world.sent(Tell) if isinstance(effect.message, m.SubscriptionList)]


def listed(world: World) -> m.ListedSubscription:
    """The one row of the list."""
    world.said.clear()
    world.feed(m.ListSubscriptions(5), ClientSession(1, "c", "i1", NOBODY))
    world.read()
    (row,) = [row for part in parts(world) for row in part.rows]
    return row


def pause(world: World, seconds: int) -> None:
    """Nothing is published for a while."""
    lo, world.stable = world.stable, world.stable + seconds * SECOND
    world.deliver(world.knowledge(lo, world.stable, raw=True, reply=False))


def test_the_lag_counts_matching_events_that_are_not_acknowledged() -> None:
    """In records that are still open, and in sealed ones, over several reads."""
    world, client, _ = world_with("w < 2")
    for _ in range(9):
        push(world, 3)
        world.pause(300)
        world.sync()
    push(world, 4)
    due = [row[0] for row in world.log if row[1]["w"] < 2]

    assert listed(world).lag_events == len(due)
    acknowledge = m.Acknowledge(client.sid, [m.Acknowledged(PUBEND, due[4], due[4])])
    world.feed(acknowledge, world.session_of(client))

    row = listed(world)
    assert row.lag_events == len(due) - 5
    assert row.lag_seconds == (wall_at(world.stable) - wall_at(due[5])) / 1000
    assert row.lag_complete
    assert row.acknowledged == [m.Position(PUBEND, due[4])]
    assert row.connected


def test_a_block_that_is_sealed_while_the_list_is_made_counts_too() -> None:
    """It was not in what was read, and is not open any more."""
    world, _, _ = world_with("TRUE")
    push(world, 3)
    world.said.clear()
    world.feed(m.ListSubscriptions(5), world.session_of(world.clients[0]))
    world.pump()
    world.pause(300)
    world.sync()

    world.read()
    world.pump()
    world.read()

    (row,) = [row for part in parts(world) for row in part.rows]
    assert row.lag_events == 3


def test_a_long_list_is_told_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message has its limits, and other sessions wait: a part at a time, also of two lists at once."""
    monkeypatch.setattr(listing, "ROWS_MAX", 2)
    world, _, _ = world_with("w = 9")
    registry = world.hosting.registry
    streams = world.hosting.streams.values()
    for number in range(4):
        subscription, _ = create(registry, "c", f"other-{number}")
        for stream in streams:
            stream.add(subscription.sid, SubscriptionPosition(0), subscription.version)
    for request in (5, 6):
        world.feed(m.ListSubscriptions(request), world.session_of(world.clients[0]))
    world.pump()
    world.read()
    assert [part.request for part in parts(world)] == [5]
    removed = registry.find("c", "other-2")
    assert removed is not None
    registry.remove(removed)
    for _ in range(10):
        world.pause(1)

    for request in (5, 6):
        names = [row.name for part in parts(world) if part.request == request for row in part.rows]
        assert sorted(names) == ["other-0", "other-1", "other-3", world.clients[0].name]
        assert [part.more for part in parts(world) if part.request == request] in ([True, True, False], [True, False])


def test_who_is_at_the_head_lags_by_nothing() -> None:
    """Neither by events nor by seconds."""
    world, _, _ = world_with("w = 9")
    push(world, 5)

    row = listed(world)

    assert row.lag_events == 0
    assert row.lag_seconds == 0.0
    assert row.lag_complete


def test_the_age_is_that_of_the_oldest_event_that_is_due() -> None:
    """Whatever else was logged since the position that was acknowledged."""
    world, _, _ = world_with("w = 1")
    pause(world, 100)
    push(world, 30)
    due = [row[0] for row in world.log if row[1]["w"] == 1]
    pause(world, 2)

    row = listed(world)

    assert row.lag_events == len(due)
    assert row.lag_seconds == (wall_at(world.stable) - wall_at(due[0])) / 1000


def test_of_several_pubends_the_oldest_event_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    world, client, stream = world_with("")
    push(world, 3)
    first = world.log[0][0]
    world.hosting.streams["q@1"] = other = world_with("")[2]
    other.positions[client.sid] = SubscriptionPosition(0, since=0)
    other.head = first + 7 * SECOND
    other.pfs.append([first], {client.sid: 1})
    monkeypatch.setattr(stream, "head", first + 5 * SECOND)

    row = listed(world)

    assert row.lag_events == 4
    assert row.lag_seconds == 7.0


def test_what_cannot_be_read_is_not_said_to_be_nothing() -> None:
    world, _, _ = world_with("w < 2")
    push(world, 9)
    world.pause(300)
    world.sync()
    stream = stream_name(PUBEND)
    world.disk.faults.unreadable.update((stream, index) for index, _ in world.records(stream))

    assert not listed(world).lag_complete


@pytest.mark.parametrize("since", [FOREVER, 1 << 50], ids=["joining", "joined"])
def test_what_was_there_before_a_subscription_is_not_counted_and_the_row_says_so(since: int) -> None:
    """A subscription from `earliest` that nobody consumes: the PFS knows nothing of what was there before."""
    world, client, stream = world_with("w < 2")
    push(world, 5)
    stream.positions[client.sid] = SubscriptionPosition(0, since=since if since == FOREVER else stream.head, held=True)
    stream.pfs.forget(client.sid)
    before = len(world.log)
    push(world, 40)
    due = [] if since == FOREVER else [row[0] for row in world.log[before:] if row[1]["w"] < 2]

    row = listed(world)

    assert row.lag_events == len(due)
    assert row.lag_seconds == ((wall_at(world.stable) - wall_at(due[0])) / 1000 if due else 0.0)
    assert not row.lag_complete


def test_who_has_settled_all_from_before_it_joined_is_counted_whole() -> None:
    """What it holds back of the log is another question."""
    world, client, stream = world_with("w = 9")
    push(world, 5)
    stream.positions[client.sid] = SubscriptionPosition(0, since=stream.head, acked=stream.head, held=True)

    row = listed(world)

    assert (row.lag_events, row.lag_seconds, row.lag_complete) == (0, 0.0, True)


def from_the_past(*, credit: int, matching: str = "w < 2") -> tuple[World, Client, Constream]:
    """A subscription from `earliest`, of which the PFS knows nothing, with a consumer that reads it from the log."""
    world, client, stream = world_with(matching)
    push(world, 40)
    world.sync()
    world.detach(client)
    stream.positions[client.sid] = SubscriptionPosition(BASE, since=stream.head, acked=BASE, held=True)
    stream.pfs.forget(client.sid)
    world.attach(client, BASE, credit)
    world.sync()
    world.answer_wants()
    return world, client, stream


@pytest.mark.parametrize("credit", [1, 100])
def test_who_is_stuck_at_its_first_event_lags_by_all_that_its_reader_found(credit: int) -> None:
    """With its consumer, without it, and with what came since, which the PFS counts."""
    world, client, _ = from_the_past(credit=credit)
    due = [row[0] for row in world.log if row[1]["w"] < 2]

    row = listed(world)
    assert (row.lag_events, row.lag_complete) == (len(due), True)
    assert row.lag_seconds == (wall_at(world.stable) - wall_at(due[0])) / 1000

    world.detach(client)
    push(world, 40)
    due = [row[0] for row in world.log if row[1]["w"] < 2]
    row = listed(world)
    assert (row.lag_events, row.lag_complete) == (len(due), True)
    assert row.lag_seconds == (wall_at(world.stable) - wall_at(due[0])) / 1000


def test_what_is_acknowledged_of_it_is_not_due_any_more() -> None:
    """And when all of it is, nothing is kept."""
    world, client, stream = from_the_past(credit=100)
    due = [row[0] for row in world.log if row[1]["w"] < 2]

    world.feed(m.Acknowledge(client.sid, [m.Acknowledged(PUBEND, due[4], due[4])]), world.session_of(client))
    row = listed(world)
    assert row.lag_events == len(due) - 5
    assert row.lag_seconds == (wall_at(world.stable) - wall_at(due[5])) / 1000

    head = stream.head
    world.feed(m.Acknowledge(client.sid, [m.Acknowledged(PUBEND, head, due[-1])]), world.session_of(client))
    assert stream.positions[client.sid].before is None
    assert (listed(world).lag_events, listed(world).lag_complete) == (0, True)


def test_of_one_for_which_there_is_nothing_nothing_is_kept() -> None:
    """As of most subscriptions on most pubends; it is done with what its reader has passed."""
    world, client, stream = from_the_past(credit=100, matching="w = 9")

    assert stream.positions[client.sid].before is None
    row = listed(world)
    assert (row.lag_events, row.lag_seconds, row.lag_complete) == (0, 0.0, True)


def test_another_filter_forgets_what_readers_found_with_the_former_one() -> None:
    _, client, stream = from_the_past(credit=100)
    assert stream.positions[client.sid].before is not None

    stream.change(client.sid, 9)

    assert stream.positions[client.sid].before is None


def test_what_readers_find_while_a_list_is_told_does_not_make_an_earlier_count_complete(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Local 4157333: all was read between count and row, so "all counted" was said of what was counted before."""
    monkeypatch.setattr(listing, "ROWS_MAX", 1)
    world, client, stream = world_with("w < 2")
    push(world, 40)
    world.sync()
    world.detach(client)
    stream.positions[client.sid] = SubscriptionPosition(BASE, since=stream.head, acked=BASE, held=True)
    stream.pfs.forget(client.sid)
    other, _ = create(world.hosting.registry, "c", "other")
    stream.add(other.sid, SubscriptionPosition(0), other.version)
    world.attach(client, BASE, 100)
    world.sync()
    due = sum(row[1]["w"] < 2 for row in world.log)

    world.said.clear()
    for request in (5, 6):
        world.feed(m.ListSubscriptions(request), ClientSession(9, "c", "i9", NOBODY))
    world.pump()
    world.read()
    assert not [row for part in parts(world) if part.request == 6 for row in part.rows]
    world.answer_wants()
    for _ in range(5):
        world.pause(1)

    rows = [row for part in parts(world) if part.request == 6 for row in part.rows if row.sid == client.sid]
    assert [(row.lag_events, row.lag_complete) for row in rows] == [(0, False)]
    assert stream.positions[client.sid].before is not None
    monkeypatch.setattr(listing, "ROWS_MAX", 100)
    world.said.clear()
    world.feed(m.ListSubscriptions(7), ClientSession(9, "c", "i9", NOBODY))
    world.read()
    (row,) = [row for part in parts(world) for row in part.rows if row.sid == client.sid]
    assert (row.lag_events, row.lag_complete) == (due, True)
