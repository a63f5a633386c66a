"""The SHB core as a whole, in a small random world (algorithms.md 1.6: I2, I3, I4, I5, I10)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gapless.errors import VolumeCorruptError
from unit.gapless_shb.core.harness import Disk, World
from unit.gapless_shb.core.test_constream import push, world_with


@pytest.mark.parametrize("first", range(0, 300, 20))
def test_every_client_consumes_exactly_what_it_is_owed(first: int) -> None:
    """Without early release nobody ever meets a gap, whatever is lost, late, repeated or crashed."""
    for seed in range(first, first + 20):
        world = World(seed)
        for _ in range(400):
            world.step()
        world.settle()

        world.check()


@pytest.mark.parametrize("first", range(0, 100, 20))
def test_early_release_shows_as_gaps_and_nothing_else_does(first: int) -> None:
    """With `max_retain`, whoever was away too long is told exactly what may be missing (I5)."""
    for seed in range(first, first + 20):
        world = World(seed, retain=500)
        for _ in range(400):
            world.step()
        world.settle()

        world.check()


def test_a_pfs_that_cannot_be_read_after_a_restart_hides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """S08: one damaged record of it keeps no broker from serving; what it covered is fetched, and pins the log."""
    world, client, _stream = world_with("w = 1")
    push(world, 5)
    world.detach(client)
    push(world, 30)
    for _ in range(3):
        world.pass_time(5_000)
        world.sync()
    read = Disk.records

    def damaged(disk: Disk, stream: str, after: int = 0) -> Iterator[tuple[int, bytes]]:
        yield from [*read(disk, stream, after)][:1]
        raise VolumeCorruptError("block checksum mismatch")

    with monkeypatch.context() as patch:
        patch.setattr(Disk, "records", damaged)
        world.crash()
    (alarm,) = world.alarms
    assert "the PFS of p@1 is damaged" in alarm
    for _ in range(3):
        world.pass_time(5_000)
        world.sync()
    world.release()
    assert world.lost < min(row[0] for row in world.log if row[1]["w"] == 1)

    world.settle()

    world.alarms.clear()
    world.check()
    assert client.consumed
