"""One step of the constream: to whom, what is remembered, who falls behind (algorithms.md 3.3 `advance`)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gapless.core.effects import Transmit
from gapless.core.ticks import STEP
from gapless_shb.core.delivery import above
from unit.gapless_shb.core.test_constream import push, world_with


@given(st.lists(st.integers(0, 50), unique=True).map(sorted), st.integers(0, 50))
def test_above_is_what_its_name_says(ticks: list[int], floor: int) -> None:
    assert above(ticks, floor) == sum(1 << at for at, tick in enumerate(ticks) if tick > floor)


def test_only_matches_are_recorded_and_only_for_durable_subscriptions() -> None:
    """I6: what nobody wants costs the PFS nothing."""
    world, client, stream = world_with("w = 1")
    push(world, 30)
    record = stream.pfs.open_ticks(client.sid, 0)

    assert record == [row[0] for row in world.log if row[1]["w"] == 1]


def test_a_consumer_ahead_of_the_head_gets_nothing_twice() -> None:
    """T11: its own position is the floor."""
    world, client, stream = world_with()
    push(world)
    while client.inbox:
        world.consume(client)
    stream.floors[client.sid] = stream.head + 3 * STEP
    floor = stream.floors[client.sid]

    push(world, 8)
    while client.inbox:
        world.consume(client)

    assert client.consumed[1:] == [row[0] for row in world.log[1:] if row[0] > floor]


def test_the_part_before_since_is_left_to_the_reader() -> None:
    """A subscription is covered from `since` on, in the middle of a step if need be (T45)."""
    world, client, stream = world_with()
    push(world)
    stream.positions[client.sid].since = stream.head + 2 * STEP
    since = stream.positions[client.sid].since
    delivered: list[Transmit] = []
    seen = world._do
    world._do = lambda effect: delivered.append(effect) if isinstance(effect, Transmit) else seen(effect)  # type: ignore[method-assign]

    push(world, 6)

    count = sum(int.from_bytes(body[:4], "little") for effect in delivered for _, body in effect.payloads)
    assert count == sum(row[0] > since for row in world.log)


def test_bytes_are_credit_too() -> None:
    """A consumer with room for many events but few bytes is served by a reader."""
    world, client, stream = world_with()
    push(world)
    world.shb._hosting.around.consumers[client.sid].credit_bytes = 10

    push(world, 3)

    assert client.sid in stream.readers
    assert client.sid not in stream.live
