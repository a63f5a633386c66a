"""What a stream promises while its volume is open."""

# ruff: noqa: D102 — a test says with its name what it claims
from __future__ import annotations

from random import Random

import pytest

from gapless.spi import LogStream, LogVolume
from gapless_testing.storage.harness import HarnessFixtures, indexes, lacks, same

INDEX_MAX = 2**63 - 1
EVERYTHING = (0, INDEX_MAX)
NAME_BYTES_MAX = 516
"""The longest name of a stream or table: `pfs/` and the id of a pubend."""
RECORD_BYTES_MAX = (64 << 20) + 1024
"""The largest record: a batch is one, as large as the largest frame that a broker can be told to take, and its head."""


def put_written(volume: LogVolume, stream: LogStream, *places: int) -> None:
    """Puts a record at each index and writes them as one batch."""
    for index in places:
        stream.put(index, b"record %d" % index)
    volume.write()


READS = {
    (0, 5): [10],
    (0, 10): [10],
    (0, 11): [10, 20],
    (9, 10): [10],
    (10, 11): [20],
    (10, 20): [20],
    (15, 20): [20],
    (5, 25): [10, 20, 30],
    (20, 30): [30],
    (25, 1000): [30],
    (30, 1000): [],
    (10, 10): [],
    (20, 5): [],
}
"""What reading (after, upto] of the records 10, 20 and 30 gives."""

PIECE_BYTES = 16


def numbered(count: int, index: int = 0) -> bytes:
    """So many pieces, no two alike, in no record that has another index: what is lost, moved or spoilt is noticed."""
    return b"".join([b"%07x.%07x|" % (index, number) for number in range(count)])


def _first_difference(one: bytes, other: bytes) -> int:
    return next((place for place, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), len(one))


class StreamTests(HarnessFixtures):
    """Records, indexes, reads, chops and sizes."""

    def test_a_new_stream_is_empty(self, volume: LogVolume) -> None:
        stream = volume.stream("events")

        assert lacks(stream, LogStream) == []
        assert stream.name == "events"
        assert (stream.first, stream.last, stream.size) == (0, 0, 0)
        assert indexes(stream.read(*EVERYTHING)) == []

    def test_one_name_is_one_object(self, volume: LogVolume) -> None:
        assert volume.stream("events") is volume.stream("events")
        assert volume.stream("events") is not volume.stream("others")

    def test_a_record_is_seen_once_it_is_written(self, volume: LogVolume) -> None:
        stream = volume.stream("events")

        stream.put(7, b"staged")
        before = list(stream.read(*EVERYTHING))
        volume.write()

        assert before == []
        assert list(stream.read(*EVERYTHING)) == [(7, b"staged")]

    def test_last_counts_what_is_staged(self, volume: LogVolume) -> None:
        """Else two records staged in one turn could not be told to increase."""
        stream = volume.stream("events")

        stream.put(7, b"")

        assert stream.last == 7
        assert stream.first == 0

    def test_an_index_that_does_not_increase_is_refused(self, volume: LogVolume) -> None:
        for index in (6, 7, 1):
            stream = volume.stream(f"events before {index}")
            stream.put(7, b"seven")

            with pytest.raises(ValueError, match=str(index)):
                stream.put(index, b"again")
            volume.write()

            same(stream.read(*EVERYTHING), [(7, b"seven")], f"the records after {index} was refused behind 7")
            with pytest.raises(ValueError, match=str(index)):
                stream.put(index, b"again")

    def test_an_index_out_of_bounds_is_refused(self, volume: LogVolume) -> None:
        for index in (-1, 0, INDEX_MAX + 1, 2**64):
            stream = volume.stream(f"events without {index}")

            with pytest.raises(ValueError, match=str(index)):
                stream.put(index, b"")
            volume.write()

            assert stream.last == 0, f"index {index} was refused, and `last` is {stream.last}"
            same(indexes(stream.read(*EVERYTHING)), [], f"the records after index {index} was refused")

    def test_the_lowest_and_the_highest_index(self, volume: LogVolume) -> None:
        stream = volume.stream("events")

        put_written(volume, stream, 1, INDEX_MAX)

        assert indexes(stream.read(*EVERYTHING)) == [1, INDEX_MAX]
        assert indexes(stream.read(1, 2)) == [INDEX_MAX]
        assert stream.last == INDEX_MAX

    def test_a_read_returns_what_overlaps(self, volume: LogVolume) -> None:
        """A record covers what lies between the index before it and its own."""
        stream = volume.stream("events")
        put_written(volume, stream, 10, 20, 30)

        for (after, upto), expected in READS.items():
            same(indexes(stream.read(after, upto)), expected, f"of the records 10, 20, 30 those in ({after}, {upto}]")

    def test_a_read_ends_once_max_bytes_are_reached(self, volume: LogVolume) -> None:
        """But never before the first record, or a large one could not be read at all."""
        stream = volume.stream("events")
        for index in range(1, 6):
            stream.put(index, bytes(100))
        volume.write()

        for max_bytes, count in {-1: 1, 0: 1, 1: 1, 100: 1, 101: 2, 200: 2, 201: 3, 10**6: 5}.items():
            found = indexes(stream.read(0, INDEX_MAX, max_bytes))
            same(found, range(1, count + 1), f"of five records of 100 bytes those that max_bytes={max_bytes} allows")

    def test_a_read_goes_on_where_the_last_one_ended(self, volume: LogVolume) -> None:
        stream = volume.stream("events")
        put_written(volume, stream, *range(3, 300, 3))

        found: list[int] = []
        while records := stream.read(found[-1] if found else 0, INDEX_MAX, 64):
            found += indexes(records)

        same(found, range(3, 300, 3), "the records, read bit by bit")

    @pytest.mark.parametrize("size", [0, 1, 4096, 100_000, 1 << 20])
    def test_a_record_comes_back_as_it_was(self, volume: LogVolume, size: int) -> None:
        record = Random(size).randbytes(size)  # noqa: S311 — no secret
        stream = volume.stream("events")

        stream.put(1, record)
        stream.put(2, b"behind it")
        volume.write()
        volume.sync()

        found = list(stream.read(0, 2, max_bytes=size + 1))
        assert indexes(found) == [1, 2]
        came = found[0][1]
        assert len(came) == size, f"a record of {size} bytes came back with {len(came)}"
        assert came == record, f"a record of {size} bytes is another one from byte {_first_difference(came, record)} on"
        assert found[1][1] == b"behind it"

    def test_many_records_in_many_batches(self, volume: LogVolume) -> None:
        stream = volume.stream("events")
        for batch in range(40):
            for index in range(batch * 25 + 1, batch * 25 + 26):
                stream.put(index, b"%d" % index)
            volume.write()

        assert list(stream.read(*EVERYTHING)) == [(index, b"%d" % index) for index in range(1, 1001)]

    def test_streams_do_not_mix(self, volume: LogVolume) -> None:
        """Not even when one name begins with another, is as long as can be, or is a table's too."""
        names = ["a", "ab", "a.b", "b", "A", "α/β with spaces", "x" * NAME_BYTES_MAX, "x" * (NAME_BYTES_MAX - 1) + "y"]
        for place, name in enumerate(names, 1):
            volume.stream(name).put(place, name.encode())
            volume.table(name).put(b"key", b"in a table")
        volume.write()

        for place, name in enumerate(names, 1):
            assert list(volume.stream(name).read(*EVERYTHING)) == [(place, name.encode())]
            assert volume.stream(name).last == place

    def test_a_chop_takes_effect_once_it_is_written(self, volume: LogVolume) -> None:
        stream = volume.stream("events")
        put_written(volume, stream, 10, 20, 30)

        stream.chop(20)
        before = (stream.first, indexes(stream.read(*EVERYTHING)))
        volume.write()

        assert before == (0, [10, 20, 30])
        assert stream.first == 20
        assert indexes(stream.read(*EVERYTHING)) == [30]

    def test_a_chop_may_fall_between_records(self, volume: LogVolume) -> None:
        for upto, expected in {1: [10, 20], 9: [10, 20], 10: [20], 15: [20]}.items():
            stream = volume.stream(f"events above {upto}")
            put_written(volume, stream, 10, 20)

            stream.chop(upto)
            volume.write()

            assert stream.first == upto, f"after chop({upto}) `first` is {stream.first}"
            same(indexes(stream.read(*EVERYTHING)), expected, f"of the records 10, 20 those after chop({upto})")
            assert indexes(stream.read(0, 1)) == expected[:1]

    def test_a_chop_never_goes_back(self, volume: LogVolume) -> None:
        stream = volume.stream("events")
        put_written(volume, stream, 10, 20, 30)

        for upto in (20, 10, 0, -5):
            stream.chop(upto)
        volume.write()
        stream.chop(15)
        volume.write()

        assert stream.first == 20
        assert indexes(stream.read(*EVERYTHING)) == [30]

    def test_a_chop_ends_at_the_last_record(self, volume: LogVolume) -> None:
        """It removes what is there; a record that is put later stays, whatever its index."""
        for upto in (30, 31, 1000, INDEX_MAX):
            stream = volume.stream(f"events above {upto}")
            put_written(volume, stream, 10, 30)

            stream.chop(upto)
            stream.put(31, b"later")
            volume.write()

            found = (stream.first, stream.last)
            assert found == (30, 31), f"after chop({upto}) behind 30, and 31 put: first and last are {found}"
            same(stream.read(*EVERYTHING), [(31, b"later")], f"the records after chop({upto}) and one put later")

    def test_chopping_an_empty_stream_does_nothing(self, volume: LogVolume) -> None:
        stream = volume.stream("events")

        stream.chop(100)
        volume.write()
        put_written(volume, stream, 50)

        assert stream.first == 0
        assert indexes(stream.read(*EVERYTHING)) == [50]

    def test_a_record_and_its_chop_in_one_batch(self, volume: LogVolume) -> None:
        stream = volume.stream("events")

        stream.put(1, b"")
        stream.put(2, b"")
        stream.chop(1)
        stream.put(3, b"")
        volume.write()

        assert stream.first == 1
        assert indexes(stream.read(*EVERYTHING)) == [2, 3]

    def test_last_outlives_the_record(self, volume: LogVolume) -> None:
        stream = volume.stream("events")
        put_written(volume, stream, 10, 20)

        stream.chop(20)
        volume.write()
        volume.sync()
        volume.reclaim()

        assert (stream.first, stream.last) == (20, 20)
        with pytest.raises(ValueError, match="20"):
            stream.put(20, b"")

    def test_what_was_read_stays_as_it_was(self, volume: LogVolume) -> None:
        stream = volume.stream("events")
        put_written(volume, stream, 10, 20)

        records = stream.read(*EVERYTHING)
        stream.chop(10)
        put_written(volume, stream, 30)

        assert indexes(records) == [10, 20]

    def test_size_follows_puts_and_chops(self, volume: LogVolume) -> None:
        """About: half of the records are half of the bytes, give or take half of that."""
        stream = volume.stream("events")
        for index in range(1, 257):
            stream.put(index, bytes(16 << 10))
            volume.write()
        full = stream.size
        stream.chop(128)
        volume.write()
        half = stream.size
        stream.chop(256)
        volume.write()

        assert 3 << 20 <= full <= 6 << 20
        assert full // 4 <= half <= 3 * full // 4
        assert stream.size <= full // 20
