"""What an SHB knows again after a restart (protocol: shb-recovery; T49)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from gapless.core.network.facts import PubendMeta
from gapless.core.stream.ticks import FOREVER, STEP
from gapless_shb.core.pfs.index import stream_name
from gapless_shb.core.recovery import _recovered, _with_rows
from gapless_shb.core.state.positions import SubscriptionPosition
from gapless_shb.core.state.rows import PositionRow, position_row
from unit.gapless_shb.core.harness import PUBEND, World
from unit.gapless_shb.core.live.test_constream import push, world_with


def rest(world: World) -> None:
    """Everything that is written becomes durable, and is reported."""
    for _ in range(3):
        world.pause(5_000)
        world.sync()


def test_a_pubend_stands_where_the_last_durable_checkpoint_left_it() -> None:
    world, client, stream = world_with()
    push(world, 5)
    rest(world)
    push(world, 5)
    world.pause(5_000)  # this checkpoint is not durable

    world.crash()

    again = world.stream
    assert again is not stream
    assert again.head == again.latest_delivered == stream.latest_delivered < stream.head
    assert (again.reported, again.enrolled_at) == (stream.reported, stream.enrolled_at)
    assert again.holds.version >= stream.holds.version
    assert again.positions[client.sid].last_tick == world.log[4][0]


def test_it_knows_the_voids_that_it_knew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or whoever comes before the pubend is heard of could begin with a token of lost data."""
    world, _, stream = world_with()
    void = (stream.head + 10, stream.head + 10_000)
    stream.learn(replace(stream.meta, voids=(void,), residue=7))
    push(world, 5)
    rest(world)

    world.seen = False  # nobody tells it again
    world.crash()

    again = world.stream
    assert again.is_lost(void[0] + (7 - void[0]) % STEP)
    assert not again.is_lost(void[0] + (8 - void[0]) % STEP)


def test_what_was_reported_as_released_is_released_after_a_restart() -> None:
    """It had nothing of its own to acknowledge, so no row tells how far it went along."""
    world, client, stream = world_with("w = 9")
    push(world, 9)
    rest(world)
    world.crash()

    position = world.stream.positions[client.sid]
    assert position.acked < stream.reported == position.released


def test_a_pfs_that_cannot_be_read_after_a_restart_hides_nothing() -> None:
    """S08: one damaged record of it keeps no broker from serving; what it covered is fetched, and pins the log."""
    world, client, _stream = world_with("w = 1")
    push(world, 5)
    world.detach(client)
    push(world, 30)
    rest(world)
    pfs = stream_name(PUBEND)
    spoilt = world.records(pfs)

    world.disk.faults.unreadable.update((pfs, index) for index, _ in spoilt)
    world.crash()
    world.disk.faults.unreadable.clear()
    (alarm,) = world.alarms
    assert "the PFS of p@1 is damaged" in alarm
    rest(world)
    world.release()
    assert world.lost < min(row[0] for row in world.log if row[1]["w"] == 1)

    world.rest()

    world.check()
    assert client.consumed


@pytest.mark.parametrize(
    ("row", "acked", "since", "released"),
    [
        (None, 5, FOREVER, 70),
        (PositionRow(5, 60, 50, 10, held=False), 60, 10, 70),
        (PositionRow(5, 90, 50, 0, held=False), 90, FOREVER, 90),
        (PositionRow(5, 60, 50, 10, held=True), 60, 10, 60),
    ],
)
def test_a_position_has_released_what_was_reported_unless_it_is_held(
    row: PositionRow | None, acked: int, since: int, released: int
) -> None:
    """Of one that has a hold nothing was part of what was reported."""
    subscription: Any = SimpleNamespace()
    meta = PubendMeta(PUBEND, "broker")
    stream: Any = SimpleNamespace(pubend=PUBEND, reported=70, start_of=lambda _: 5, seeks=lambda _: False, meta=meta)

    position = _recovered(subscription, stream, row)

    assert (position.start, position.acked, position.since, position.released) == (5, acked, since, released)


@pytest.mark.parametrize("since", [0, 7, FOREVER])
def test_where_ticks_are_no_times_a_position_may_be_covered_from_0_on(since: int) -> None:
    """Found by the simulator: it was taken for one that joins, and nobody knew what it had matched."""
    written = position_row(1, "orders", SubscriptionPosition(0, since, 5))
    row = msgspec.msgpack.decode(written.value, type=PositionRow)
    subscription: Any = SimpleNamespace()
    meta = PubendMeta("orders", "broker", grain=1)
    stream: Any = SimpleNamespace(pubend="orders", reported=0, seeks=lambda _: False, meta=meta)

    assert _recovered(subscription, stream, row).since == since


def test_rows_find_their_subscriptions() -> None:
    """A subscription may have none, and a row that is left over belongs to nobody."""
    subscriptions: Any = [SimpleNamespace(sid=sid) for sid in (2, 3, 5)]
    rows: Any = iter([(1, {"p": 1}), (2, {"p": 2}), (4, {"p": 4}), (5, {"p": 5}), (6, {"p": 6})])

    found: list[Any] = [(subscription.sid, row) for subscription, row in _with_rows(subscriptions, rows)]

    assert found == [(2, {"p": 2}), (3, {}), (5, {"p": 5})]
