"""What a range read finds, in a small world: exactly what the log says (I3, I4, I5, I10)."""

from __future__ import annotations

from itertools import combinations

import pytest

from gapless.core.network.facts import Want
from gapless.core.wire import messages as m
from gapless_shb.core.pfs.blocks import TICKS_MAX
from gapless_shb.core.ranges import reader
from gapless_shb.core.ranges.reader import TICKS_FIRST
from gapless_shb.core.state.broker_state import CatchUp
from unit.gapless_shb.core.harness import CACHED, FORGETFUL, Client
from unit.gapless_shb.core.ranges.harness import RangeWorld, forgetful


@pytest.mark.parametrize("catch_up", [CACHED, FORGETFUL])
@pytest.mark.parametrize("selector", ["", "w = 1"])
@pytest.mark.parametrize("few", [True, False])
def test_any_range_holds_what_the_log_says(
    monkeypatch: pytest.MonkeyPatch, catch_up: CatchUp, selector: str, few: bool
) -> None:
    """However often it is read, before and after a loss of power; also where little is fetched at once."""
    if few:
        monkeypatch.setattr(reader, "TICKS_FIRST", 2)
        monkeypatch.setattr(reader, "TICKS_MAX", 3)
    world = RangeWorld(catch_up, selector=selector).calm()
    world.define()
    world.calm(20).calm(20)
    edges = [world.start, *[tick for tick, *_ in world.log[::7]], world.stable]

    for _ in range(2):
        for lo, hi in combinations(edges, 2):
            assert world.take(lo, hi).ticks == world.matching(lo, hi)
        world.crash()
        world.calm()


def test_what_was_acknowledged_and_released_is_a_gap_and_all_else_is_there() -> None:
    world = RangeWorld(FORGETFUL).calm()
    world.define()
    world.calm(20)
    world.acknowledge(world.log[9][0])
    world.forget(world.log[9][0])

    reading = world.take(world.start, world.stable)

    assert reading.gaps
    assert reading.ticks == world.matching(world.lost, world.stable)


def test_what_is_lost_is_not_asked_for_one_tick_at_a_time_where_memory_is_little() -> None:
    """A range whose events are all gone would take an answer for each of them."""
    world = RangeWorld(FORGETFUL, selector="").calm()
    world.body = bytes(10_000)
    world.define()
    world.calm(60)
    memory = world.hosting.memory
    memory._most, memory.least = 100_000, 100
    number = world.read_range(world.start, world.stable)
    world.calm()
    world.say(m.EndRead(number))  # now it is known how large they are
    world.acknowledge(world.stable)
    world.forget(world.stable)
    world.said.clear()

    reading = world.take(world.start, world.stable)
    assert reading.gaps
    assert 0 < len(world.sent(Want)) < 20


def test_a_full_imprecise_block_in_memory_is_filtered_too() -> None:
    """It is closed before the checkpoint that writes it, and says from then on who matched, and not what."""
    world = RangeWorld(FORGETFUL).calm()  # nothing that was delivered stays in memory, and the PFS is imprecise
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
    assert not world.stream.scheduler.readers, "nobody reads but the range"
    reads = world.performed
    reads.clear()

    assert world.take(lo, world.stable).ticks == world.matching(lo, world.stable)
    assert [read.after for read in reads] == [lo], (
        "a read of this world finds three blocks, and the first is enough for a first fetch"
    )


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
    world.said.clear()

    assert world.take(lo, world.stable).ticks == world.matching(lo, world.stable)
    fetched = [len(world.matching(*span)) for want in world.sent(Want) for span in want.ranges]
    assert fetched[0] == TICKS_FIRST
    assert sum(fetched) == 600
