"""What a power cut may take: only what was not synced, newest first, whole batches."""

# ruff: noqa: D102 — a test says with its name what it claims
from __future__ import annotations

from contextlib import closing

import pytest

from gapless.spi import LogVolume
from gapless_testing.storage.harness import StorageHarness, indexes, same
from gapless_testing.storage.power import PowerFixtures
from gapless_testing.storage.streams import EVERYTHING, put_written


def write_batch(volume: LogVolume, number: int) -> None:
    """A batch that leaves its number in two streams and two tables."""
    for name in ("left", "right"):
        volume.stream(name).put(number, b"%d" % number)
        volume.table(name).put(b"%06d" % number, b"")
    volume.table("newest").put(b"number", b"%d" % number)
    volume.write()


def newest_whole_batch(volume: LogVolume) -> int:
    """The number of the newest batch; asserts that it and all before it are there whole, and nothing else."""
    number = int(volume.table("newest").get(b"number") or b"0")
    numbers = range(1, number + 1)
    for name in ("left", "right"):
        what = f"the newest batch in table 'newest' is {number}, and"
        same(
            indexes(volume.stream(name).read(*EVERYTHING)),
            numbers,
            f"{what} of the batches' records in stream {name!r}",
        )
        same([int(key) for key, _ in volume.table(name).scan()], numbers, f"{what} of their rows in table {name!r}")
    return number


def survived(volume: LogVolume, synced: int, written: int, what: str) -> int:
    """Asserts that all that was synced is there, and what is there in whole batches. Returns how many there are."""
    found = newest_whole_batch(volume)
    assert synced <= found <= written, (
        f"{what}: sync() had returned for batches 1 to {synced}, and 1 to {written} were written; "
        f"found are " + (f"1 to {found}" if found else "none" + (", in a volume made anew" if volume.created else ""))
    )
    return found


class CrashTests(PowerFixtures):
    """With `StorageHarness.crash`, or under the shim of `gapless_testing.storage.power`."""

    def test_a_volume_survives_right_after_it_was_made(self, crashing: StorageHarness) -> None:
        crashing.crash(crashing.open())

        with closing(crashing.open()) as volume:
            assert newest_whole_batch(volume) == 0
            write_batch(volume, 1)
            volume.sync()
            assert newest_whole_batch(volume) == 1

    @pytest.mark.parametrize("unsynced", [0, 1, 2, 7])
    def test_what_was_synced_is_there(self, crashing: StorageHarness, unsynced: int) -> None:
        volume = crashing.open()
        for number in range(1, 11):
            write_batch(volume, number)
        volume.sync()
        for number in range(11, 11 + unsynced):
            write_batch(volume, number)

        crashing.crash(volume)

        with closing(crashing.open()) as volume:
            survived(volume, 10, 10 + unsynced, "after a power cut")

    def test_what_was_only_staged_is_not_there(self, crashing: StorageHarness) -> None:
        volume = crashing.open()
        write_batch(volume, 1)
        volume.sync()
        volume.stream("left").put(2, b"")
        volume.table("newest").put(b"number", b"2")

        crashing.crash(volume)

        with closing(crashing.open()) as volume:
            assert newest_whole_batch(volume) == 1

    def test_it_goes_on_where_it_ended(self, crashing: StorageHarness) -> None:
        """Crash after crash: what an opening found is as durable as what was synced before."""
        expected = 0
        for _ in range(5):
            volume = crashing.open()
            found = survived(volume, expected, expected + 1, "after a power cut")
            for number in range(found + 1, found + 4):
                write_batch(volume, number)
            volume.sync()
            expected = found + 3
            write_batch(volume, expected + 1)
            crashing.crash(volume)

        with closing(crashing.open()) as volume:
            survived(volume, expected, expected + 1, "after the last of five power cuts")

    def test_a_crash_after_nothing_takes_nothing(self, crashing: StorageHarness) -> None:
        """An opening makes what it found durable, or a later crash would undo what was shown."""
        volume = crashing.open()
        write_batch(volume, 1)
        volume.sync()
        write_batch(volume, 2)
        crashing.crash(volume)
        volume = crashing.open()
        shown = newest_whole_batch(volume)
        crashing.crash(volume)

        with closing(crashing.open()) as volume:
            survived(
                volume, shown, shown, "after a power cut right after an opening that showed what an earlier cut left"
            )

    def test_closing_syncs(self, crashing: StorageHarness) -> None:
        volume = crashing.open()
        write_batch(volume, 1)
        volume.close()
        crashing.crash(crashing.open())

        with closing(crashing.open()) as volume:
            survived(volume, 1, 1, "after close() and a power cut")

    def test_a_synced_chop_stays(self, crashing: StorageHarness) -> None:
        volume = crashing.open()
        put_written(volume, volume.stream("s"), 10, 20, 30)
        volume.stream("s").chop(20)
        volume.write()
        volume.sync()
        crashing.crash(volume)

        with closing(crashing.open()) as volume:
            stream = volume.stream("s")
            assert (stream.first, stream.last) == (20, 30)
            assert indexes(stream.read(*EVERYTHING)) == [30]

    def test_a_chop_that_is_lost_brings_its_records_back(self, crashing: StorageHarness) -> None:
        """Even when somebody reclaimed meanwhile: space goes only where the removal is durable."""
        volume = crashing.open()
        for index in range(1, 101):
            volume.stream("s").put(index, b"x" * 2_000)
        volume.write()
        volume.sync()
        volume.stream("s").chop(100)
        volume.write()
        volume.reclaim()
        crashing.crash(volume)

        with closing(crashing.open()) as volume:
            stream = volume.stream("s")
            assert stream.first in (0, 100)
            assert stream.last == 100
            assert indexes(stream.read(*EVERYTHING)) == list(range(stream.first + 1, 101))

    def test_reclaimed_space_stays_reclaimed(self, crashing: StorageHarness) -> None:
        volume = crashing.open()
        for index in range(1, 101):
            volume.stream("s").put(index, b"x" * 2_000)
            write_batch(volume, index)
        volume.stream("s").chop(60)
        volume.write()
        volume.sync()
        volume.reclaim()
        write_batch(volume, 101)
        volume.sync()
        crashing.crash(volume)

        with closing(crashing.open()) as volume:
            assert newest_whole_batch(volume) == 101
            assert indexes(volume.stream("s").read(*EVERYTHING)) == list(range(61, 101))
            assert volume.stream("s").last == 100

    def test_large_batches_are_whole_or_absent(self, crashing: StorageHarness) -> None:
        volume = crashing.open()
        for number in range(1, 9):
            volume.stream("big").put(number, bytes([number]) * (1 << 20))
            write_batch(volume, number)
            if number == 4:
                volume.sync()
        crashing.crash(volume)

        with closing(crashing.open()) as volume:
            newest = newest_whole_batch(volume)
            records = volume.stream("big").read(*EVERYTHING, max_bytes=1 << 30)
            assert newest >= 4
            assert list(records) == [(n, bytes([n]) * (1 << 20)) for n in range(1, newest + 1)]
