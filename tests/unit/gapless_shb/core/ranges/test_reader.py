"""What a range read finds, in a small random world: exactly what the log says (I3, I4, I5, I10)."""

from __future__ import annotations

import pytest

from gapless_shb.core.blocks import TICKS_MAX
from gapless_shb.core.ranges import reader
from gapless_shb.core.ranges.reader import TICKS_FIRST
from unit.gapless_shb.core.harness import Client
from unit.gapless_shb.core.ranges.harness import RangeWorld, forgetful


@pytest.mark.parametrize("first", range(0, 120, 20))
def test_a_range_holds_what_the_log_says(first: int) -> None:
    """However often it is read, whatever is lost, late or crashed; no gap but in what was acknowledged."""
    completed = 0
    for seed in range(first, first + 20):
        world = RangeWorld(seed, selector=("w = 1", "")[seed % 2])
        for _ in range(500):
            world.step()
        world.settle()

        world.check()
        completed += world.completed
    assert completed > 100, "the worlds hardly read anything"


@pytest.mark.parametrize("retain", [None, 500])
def test_the_same_where_little_is_fetched_at_once(retain: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then blocks that were read are used a piece at a time, whatever is chopped, lost or released meanwhile."""
    monkeypatch.setattr(reader, "TICKS_FIRST", 2)
    monkeypatch.setattr(reader, "TICKS_MAX", 3)
    for seed in range(200, 240):
        world = RangeWorld(seed, retain=retain, selector=("w = 1", "")[seed % 2])
        for _ in range(500):
            world.step()
        world.settle()

        world.check()


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_early_release_shows_as_gaps(first: int) -> None:
    """With `max_retain` a gap stands exactly where something is missing."""
    for seed in range(first, first + 20):
        world = RangeWorld(seed, retain=500)
        for _ in range(500):
            world.step()
        world.settle()

        world.check()


def test_a_full_imprecise_block_in_memory_is_filtered_too() -> None:
    """It is closed before the checkpoint that writes it, and says from then on who matched, and not what."""
    world = RangeWorld(10).calm()  # nothing that was delivered stays in memory, and the PFS is imprecise
    world.define()
    world.attach(Client("others", ""), None)
    world.calm(1)
    lo = world.stable
    for _ in range(TICKS_MAX):
        world.publish()
    world.deliver(world.knowledge(lo, world.stable, raw=True, reply=False))

    assert world.take(lo, world.stable).ticks == world.matching(lo, world.stable)


def test_blocks_that_were_read_are_used_up_before_more_are_read() -> None:
    """The events of a few of them are fetched at a time; the others are not read again for that."""
    world, lo = forgetful("")
    for _ in range(3):
        world.calm(300)
    reads: list[int] = []
    answered = world.answer_reads

    def counted() -> None:
        reads.extend(read.after for read in world.reads)
        answered()

    world.answer_reads = counted  # type: ignore[method-assign]

    assert world.take(lo, world.stable).ticks == world.matching(lo, world.stable)
    assert reads == [lo], "a read of this world finds three blocks, and the first is enough for a first fetch"


@pytest.mark.parametrize("sealed", [True, False])
def test_of_a_block_no_more_is_fetched_at_once_than_large_events_allow(sealed: bool) -> None:
    """How large they are is not known at first; then a block may hold more than memory does."""
    world, lo = forgetful("")
    for _ in range(600):
        world.publish()
    if sealed:
        world.calm()
    else:
        world.deliver(world.knowledge(lo, world.stable, raw=True, reply=False))
    fetched: list[int] = []
    answered = world.answer_wants

    def counted(*, lossy: bool) -> None:
        fetched.extend(len(world.matching(*span)) for want in world.wants for span in want.ranges)
        answered(lossy=lossy)

    world.answer_wants = counted  # type: ignore[method-assign]

    assert world.take(lo, world.stable).ticks == world.matching(lo, world.stable)
    assert fetched[0] == TICKS_FIRST
    assert sum(fetched) == 600
