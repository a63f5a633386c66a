"""What a fetch brings of a partition: pieces whose ticks follow one another, voids before what lies above them."""

from __future__ import annotations

import struct

import google_crc32c
import pytest

from gapless.core.ports import LogPiece
from gapless_log.kafka import gauges
from gapless_log.kafka.lineage import Lineage, Place, tick_at
from gapless_log.kafka.messages import UNKNOWN, Aborted, Code, Fetched
from gapless_log.kafka.records import Compression, NewRecord, encode
from gapless_log.kafka.tail import FETCH_BYTES_MAX, RECENT_BYTES, PartitionLog, Recent, pieces_of

TOPIC = b"t" * 16


def batch(first: int, count: int = 1, *, epoch: int = 0, attributes: int = 0, producer: int = -1) -> bytes:
    """A batch as a broker keeps it."""
    raw = bytearray(encode([NewRecord(1, b"\0\0\0\0", b"v", [])] * count, Compression.NONE))
    struct.pack_into(">q", raw, 0, first)
    struct.pack_into(">i", raw, 12, epoch)
    struct.pack_into(">h", raw, 21, attributes)
    struct.pack_into(">q", raw, 43, producer)
    struct.pack_into(">I", raw, 17, google_crc32c.value(bytes(raw[21:])))
    return bytes(raw)


def fetched(*raws: bytes, first: int = 0, aborted: tuple[Aborted, ...] = ()) -> Fetched:
    return Fetched(TOPIC, 0, Code.NONE, 100, 100, first, aborted, None, None, b"".join(raws))


def partition(after: int = 0, window: int = 10_000) -> PartitionLog:
    """One that is followed."""
    found = PartitionLog("orders.0@t", TOPIC, 0, Lineage([(0, 0)]), leader=1, leader_epoch=4)
    found.follow(after, window)
    return found


def spelt(pieces: object) -> list[tuple[int, int, bool]]:
    assert isinstance(pieces, list | tuple)
    return [(piece.first, piece.last, piece.raw is not None) for piece in pieces if isinstance(piece, LogPiece)]


def test_growth_goes_on_where_it_ended() -> None:
    log = partition()

    first, is_other, fault = log.grow(fetched(batch(0, 3), batch(3, 2)))
    second, _, _ = log.grow(fetched(batch(5)))

    assert first is not None
    assert second is not None
    assert (first.lo, first.hi, spelt(first.pieces)) == (0, 5, [(1, 3, True), (4, 5, True)])
    assert (second.lo, second.hi) == (5, 6)
    assert (is_other, fault) == (False, "")
    assert first.size == len(batch(0, 3)) + len(batch(3, 2))


def test_what_is_asked_for_is_checked_by_the_brokers() -> None:
    log = partition()
    log.learn(Lineage([(0, 0), (4, 3)]))
    log.grow(fetched(batch(0, 3, epoch=0), batch(3, epoch=4)))

    wanted = log.wanted()

    assert wanted is not None
    assert (wanted.offset, wanted.leader_epoch, wanted.last_epoch) == (4, 4, 4)


@pytest.mark.parametrize("missing", [0, 1])
def test_of_another_leader_epoch_nothing_is_taken_before_it_is_known_where_it_began(missing: int) -> None:
    """Hostile 60263: records were missing between the two, and some of them would have been in a void."""
    log = partition()
    brought = fetched(batch(0, 3), batch(3 + missing, epoch=2))

    assert log.grow(brought) == (None, True, "")
    assert (log.wanted(), log.following and log.following.reached) == (partition().wanted(), 0)

    log.learn(Lineage([(0, 0), (2, 3)]))
    grown, is_other, _ = log.grow(brought)
    assert (is_other, log.lineage.voids) == (False, ((3, tick_at(2, 3)),))
    assert grown is not None
    assert spelt(grown.pieces) == [(1, 3, True), (*(2 * (tick_at(2, 4 + missing),)), True)]


def test_markers_and_what_was_aborted_are_covered_and_have_no_events() -> None:
    raws = [
        batch(0, attributes=0x10, producer=7),
        batch(1),
        batch(2, attributes=0x30, producer=7),  # its key says: aborted
        batch(3, attributes=0x10, producer=7),
    ]

    found = pieces_of(b"".join(raws), [Aborted(7, 0)], 0, 0)

    assert spelt(found.pieces) == [(1, 1, False), (2, 2, True), (3, 3, False), (4, 4, True)]


def test_a_batch_is_cut_where_was_asked_and_where_the_log_begins() -> None:
    raws = batch(0, 3) + batch(3, 10)

    assert spelt(pieces_of(raws, (), 5, 0).pieces) == [(6, 13, True)]
    assert spelt(pieces_of(raws, (), 0, 7).pieces) == [(8, 13, True)]
    assert spelt(pieces_of(raws, (), 5, 7).pieces) == [(8, 13, True)]


def test_a_hole_is_covered_by_no_piece() -> None:
    log = partition()

    grown, _, fault = log.grow(fetched(batch(50, 10)))

    assert grown is not None
    assert (grown.lo, grown.hi, spelt(grown.pieces), grown.first) == (0, 60, [(51, 60, True)], 0)
    assert fault == ""


def test_what_is_damaged_ends_what_is_told_and_is_never_skipped() -> None:
    log = partition()
    damaged = batch(3)[:-1] + b"?"

    grown, _, fault = log.grow(fetched(batch(0, 3), damaged, batch(4)))
    again, _, still = log.grow(fetched(damaged, batch(4)))

    assert grown is not None
    assert grown.hi == 3
    assert "does not have its checksum" in fault
    assert (again, still) == (None, fault)
    wanted = log.wanted()
    assert wanted is not None
    assert wanted.offset == 3


def test_the_window_limits_what_is_fetched() -> None:
    log = partition(window=200)
    wanted = log.wanted()
    assert wanted is not None
    assert wanted.bytes_max == 200

    log.grow(fetched(batch(0, 3), batch(3, 20)))
    assert log.following is not None
    assert log.following.room <= 0
    assert log.wanted() is None
    log.following.pending = 150

    assert log.wanted() is not None
    assert FETCH_BYTES_MAX > 200


def test_after_a_cut_one_goes_on_at_the_cut_and_tells_all_from_where_one_was() -> None:
    log = partition(after=1000)
    log.lineage = Lineage([(0, 0), (1, 600)])

    log.seek()
    assert log.following is not None
    assert log.following.place == Place(600, 0)
    grown, _, _ = log.grow(fetched(batch(600, 5, epoch=1)))

    assert grown is not None
    assert (grown.lo, grown.hi) == (1000, tick_at(1, 605))
    assert spelt(grown.pieces) == [(tick_at(1, 601), tick_at(1, 605), True)]


@pytest.mark.parametrize("after", [0, 3, 7])
def test_below_the_start_of_the_log_one_goes_on_there(after: int) -> None:
    log = PartitionLog("orders.0@t", TOPIC, 0, Lineage([(0, 0)]), start=7)

    log.follow(after, 100)

    assert log.following is not None
    assert log.following.place == Place(7, UNKNOWN)
    assert log.first == 7


def kept(*raws: bytes) -> Recent:
    recent = Recent()
    recent.keep(pieces_of(b"".join(raws), (), 0, 0).batches)
    return recent


def test_recent_batches_are_read_as_far_as_they_follow_one_another() -> None:
    recent = kept(batch(0, 3), batch(3, 2), batch(7))

    def read(offset: int, upto: int, bytes_max: int = 1 << 20) -> list[int]:
        return [found.first for found, _ in recent.read(offset, upto, bytes_max)]

    assert (read(0, 100), read(2, 3), read(1, 4), read(4, 100)) == ([0, 3], [0], [0, 3], [3])
    assert (read(5, 100), read(7, 8), read(8, 100)) == ([], [7], [])
    assert (read(0, 100, 1), read(0, 100, len(batch(0, 3) + batch(3, 2)))) == ([0], [0, 3])
    assert recent.longest == 3


def test_of_recent_batches_the_last_used_stay_and_all_go_when_nobody_reads() -> None:
    size = len(batch(0))
    recent = kept(*(batch(offset) for offset in range(RECENT_BYTES // size)))
    recent.read(0, 1, 1)
    recent.keep(pieces_of(batch(1 << 20), (), 0, 0).batches)

    assert (bool(recent.read(0, 1, 1)), recent.read(1, 2, 1)) == (True, [])
    recent.rest()
    assert recent.read(0, 1, 1)
    recent.rest()
    recent.rest()
    assert not recent.read(0, 1, 1)


def test_the_lag_is_what_lies_between_what_was_fetched_and_the_end() -> None:
    log = partition()
    log.grow(fetched(batch(0, 3), batch(3, 2)))

    [lag] = [gauge.value for gauge in log.gauges() if gauge.name == gauges.LAG.name]
    assert lag == 100 - 5
    log.following = None
    assert gauges.LAG.name not in {gauge.name for gauge in log.gauges()}
