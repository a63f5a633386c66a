"""What an SHB makes durable, and when it may say so (protocol: checkpoints, holds; T9, T42, T49)."""

from __future__ import annotations

from gapless.core.ports import Put, Write
from gapless.node.recovery import VolumeReader
from gapless_shb.core.state.rows import recover_positions
from unit.gapless_shb.core.harness import PUBEND, World
from unit.gapless_shb.core.live.test_constream import push, world_with


def checkpoints(world: World) -> list[Write]:
    """Those that are not durable yet."""
    return [write for write in world.unsynced if any(isinstance(operation, Put) for operation in write.operations)]


def test_progress_is_reported_when_the_checkpoint_is_durable_and_not_before() -> None:
    world, _client, stream = world_with()
    push(world, 3)
    delivered = stream.latest_delivered

    world.pause(300)
    assert len(checkpoints(world)) == 1
    assert stream.latest_delivered == delivered < stream.head
    assert world.progress[1] <= delivered

    world.sync()
    assert stream.latest_delivered == world.progress[1] == stream.head


def test_one_checkpoint_is_under_way_at_a_time() -> None:
    """What comes meanwhile is in the next, and claimed by the next only (T42)."""
    world, _client, stream = world_with()
    push(world, 3)
    world.pause(300)
    head = stream.head
    push(world, 3)
    world.pause(300)
    assert len(checkpoints(world)) == 1

    world.sync()
    assert stream.latest_delivered == head
    world.pause(300)
    world.sync()
    assert stream.latest_delivered == stream.head > head


def test_a_hold_goes_with_its_position_when_the_pubend_keeps_it_and_it_has_done_its_work() -> None:
    world, client, stream = world_with("w = 9")
    push(world, 3)
    sid, position = client.sid, stream.positions[client.sid]
    position.held = position.changed = True
    stream.touch(sid, position)
    stream.holds.put(sid, position.acked, world.now)
    world.hosting.write_holds(stream)
    for _ in range(3):
        world.pause(5_000)
        world.sync()
    assert stream.positions[sid].held, "it is not known yet that the pubend keeps it: a late row would bring it back"

    world.answer_holds()
    for _ in range(3):
        world.pause(5_000)
        world.sync()

    assert not stream.positions[sid].held
    assert stream.holds.row == {}
    ((_, rows),) = recover_positions(VolumeReader(world.volume))
    assert not rows[PUBEND].held


def test_nothing_is_released_above_a_hold_that_the_pubend_may_not_have() -> None:
    """A crash would bring its subscription back to there, to a gap where nothing was lost (T49)."""
    world, client, stream = world_with("w = 9")  # nothing is for it, so it is idle
    sid, position = client.sid, stream.positions[client.sid]
    held_from = stream.released
    position.held = position.changed = True
    stream.touch(sid, position)
    stream.holds.put(sid, held_from, world.now)
    world.hosting.write_holds(stream)
    push(world, 3)
    for _ in range(3):
        world.pause(5_000)
        world.sync()
    assert stream.latest_delivered == stream.head > held_from
    assert world.progress[0] == stream.reported == held_from

    world.answer_holds()
    for _ in range(3):
        world.pause(5_000)
        world.sync()
    assert world.progress[0] == stream.head
