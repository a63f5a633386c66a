"""I6: an event is written once, and an SHB writes ticks alone."""

from __future__ import annotations

from struct import pack
from typing import Any

from gapless.core.ports import Put, Set
from gapless_sim.oracles.logs import I6OneLog
from unit.gapless_sim.oracles.model_fixture import NODE, ModelFixture, P, violates


def writes(fixture: ModelFixture, *operations: Any, broker: str = NODE) -> None:
    fixture.observe.written(fixture.world.brokers[broker], operations)


def runs(fixture: ModelFixture, *, boots: int) -> None:
    broker = fixture.world.brokers[NODE]
    broker.boots, broker.life.over = boots, False


def test_an_event_is_written_nowhere_else() -> None:
    fixture = ModelFixture(I6OneLog)
    runs(fixture, boots=1)
    written = fixture.record(1)

    with violates("I6"):
        writes(fixture, Put(f"phb.{P}", 10, written), Set("cache", b"1", b"copy of " + written[4:]))


def test_there_are_no_other_streams() -> None:
    fixture = ModelFixture(I6OneLog)

    with violates("I6"):
        writes(fixture, Put("journal", 10, b"something"))


# The PFS.


def one_tick(*sids: int) -> bytes:
    """A block of one tick that these subscriptions match, none of which has an earlier block."""
    return pack("<BBHI", 0, 0, 1, len(sids)) + bytes(sids) + bytes(len(sids))


def test_a_tick_costs_eight_bytes_and_sixteen_per_match() -> None:
    fixture = ModelFixture(I6OneLog)
    fixture.log((10, 1))
    fixture.subscribe(fixture.row())
    wide = pack("<BBHIQQ", 3 << 2 | 3 << 4, 0, 1, 1, 1, 0)

    writes(fixture, Put(f"pfs/{P}", 10, one_tick(1)))
    writes(fixture, Put(f"pfs/{P}", 10, wide))
    with violates("I6"):
        writes(fixture, Put(f"pfs/{P}", 10, wide + b"more"))
    with violates("I6"):
        writes(fixture, Put(f"pfs/{P}", 10, one_tick(1, 2)))


def test_a_tick_that_nobody_matches_costs_nothing() -> None:
    fixture = ModelFixture(I6OneLog)
    fixture.log((10, 1))
    fixture.subscribe(fixture.row(k=7))

    with violates("I6"):
        writes(fixture, Put(f"pfs/{P}", 10, one_tick(1)))


def test_several_ticks_share_a_block() -> None:
    fixture = ModelFixture(I6OneLog)
    fixture.publication(2, k=2)
    fixture.log((10, 1), (20, 2))
    fixture.subscribe(fixture.row(k=1))
    fixture.subscribe(fixture.row())
    head = pack("<BBHIB", 0, 1, 2, 2, 5) + bytes([1, 2]) + bytes(2)

    writes(fixture, Put(f"pfs/{P}", 20, head + bytes([1, 255]) + bytes([0])))
    with violates("I6"):
        writes(fixture, Put(f"pfs/{P}", 20, head + bytes([255, 255])))
    with violates("I6"):
        writes(fixture, Put(f"pfs/{P}", 20, head + bytes([1, 1]) + bytes([0, 0])))


def test_a_pfs_has_no_tick_that_is_not_logged() -> None:
    fixture = ModelFixture(I6OneLog)
    fixture.log((10, 1))
    fixture.subscribe(fixture.row())

    with violates("I6"):
        writes(fixture, Put(f"pfs/{P}", 11, one_tick(1)))
