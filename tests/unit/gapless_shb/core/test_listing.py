"""Listings count exactly what is not acknowledged, open and sealed records alike."""

from __future__ import annotations

import pytest

from gapless.core import messages as m
from gapless.core.effects import Tell
from gapless.core.ticks import FOREVER, SECOND
from gapless_shb.core import listing
from gapless_shb.core.positions import Position
from unit.gapless_shb.core.harness import PUBEND, World
from unit.gapless_shb.core.test_constream import push, world_with


def listed(world: World) -> m.SubscriptionRow:
    """The one row of the list."""
    rows: list[m.SubscriptionRow] = []
    do = world._do

    def spy(effect: object) -> None:
        if isinstance(effect, Tell) and isinstance(effect.message, m.SubscriptionList):
            rows.extend(effect.message.rows)
        else:
            do(effect)

    world._do = spy  # type: ignore[method-assign]
    world.shb._listings.on_list(1, 5)
    for _ in range(10):
        world.pump()
        world.answer_reads()
    world._do = do  # type: ignore[method-assign]
    (row,) = rows
    return row


def test_the_lag_counts_matching_events_that_are_not_acknowledged() -> None:
    """In records that are still open, and in sealed ones, over several reads."""
    world, client, _ = world_with("w < 2")
    for _ in range(9):
        push(world, 3)
        world.pass_time(300)
        world.sync()
    push(world, 4)
    due = [row[0] for row in world.log if row[1]["w"] < 2]

    assert listed(world).lag_events == len(due)
    acknowledge = m.Acknowledge(client.sid, [m.Acknowledged(PUBEND, due[4], due[4])])
    world.shb._on_acknowledge(world.session_of(client), acknowledge, world.now, world.wall)

    row = listed(world)
    assert row.lag_events == len(due) - 5
    assert row.acknowledged == [m.Position(PUBEND, due[4])]
    assert row.connected


def test_a_long_list_is_told_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message has its limits, and other sessions wait: a part at a time, also of two lists at once."""
    monkeypatch.setattr(listing, "ROWS_MAX", 2)
    world, _, _ = world_with("w = 9")
    registry = world.shb._hosting.registry
    streams = world.shb._hosting.streams.values()
    for number in range(4):
        subscription, _ = registry.create("c", f"other-{number}", ("t",), "", 0, {})
        for stream in streams:
            stream.add(subscription.sid, Position(0), subscription.version)
    told: list[tuple[int, list[str], bool]] = []

    def spy(effect: object) -> None:
        if isinstance(effect, Tell) and isinstance(effect.message, m.SubscriptionList):
            told.append((effect.message.request, [row.name for row in effect.message.rows], effect.message.more))
        else:
            do(effect)

    do, world._do = world._do, spy  # type: ignore[method-assign]
    for request in (5, 6):
        world.shb._on_list(world.session_of(world.clients[0]), m.ListSubscriptions(request), world.now, world.wall)
    world.pump()
    world.answer_reads()
    assert [part[0] for part in told] == [5]
    removed = registry.find("c", "other-2")
    assert removed is not None
    registry.remove(removed)
    for _ in range(10):
        world.pass_time(1)

    for request in (5, 6):
        names = [name for number, part, _ in told if number == request for name in part]
        assert sorted(names) == ["other-0", "other-1", "other-3", world.clients[0].name]
        assert [more for number, _, more in told if number == request] in ([True, True, False], [True, False])


def test_who_is_at_the_head_lags_by_nothing() -> None:
    """Neither by events nor by seconds."""
    world, _, _ = world_with("w = 9")
    push(world, 5)

    row = listed(world)

    assert row.lag_events == 0
    assert row.lag_seconds == 0.0


@pytest.mark.parametrize("position", [Position(0, since=FOREVER), Position(0, held=True)], ids=["joining", "held"])
def test_who_needs_what_the_pfs_never_named_lags_by_time_alone(position: Position) -> None:
    """A subscription from `earliest` keeps a log of which nothing was ever matched: an operator must see it."""
    world, client, stream = world_with("w = 9")
    push(world, 5)
    position.acked = stream.head - 2 * SECOND
    stream.positions[client.sid] = position

    row = listed(world)

    assert row.lag_events == 0
    assert row.lag_seconds == 2.0
