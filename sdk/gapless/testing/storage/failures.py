"""What a volume promises when its disk fails, is full, or has spoilt a record."""

# ruff: noqa: D102 — a test says with its name what it claims
from __future__ import annotations

from contextlib import closing, suppress

import pytest

from gapless.errors import VolumeCorruptError, VolumeFailedError, VolumeFullError
from gapless.spi import LogVolume
from gapless.testing.storage.crashes import newest_whole_batch, write_batch
from gapless.testing.storage.harness import HarnessFixtures, StorageHarness, indexes, need
from gapless.testing.storage.streams import EVERYTHING, put_written


class FailureTests(HarnessFixtures):
    """Needs `StorageHarness.fail_next_sync`, `fill` and `damage`, each for its own tests."""

    def test_a_failed_sync_is_final(self, harness: StorageHarness) -> None:
        """A second try might return, and say nothing about what the first one lost."""
        need(harness, "fail_next_sync")
        with closing(harness.open()) as volume:
            write_batch(volume, 1)
            volume.sync()
            write_batch(volume, 2)
            harness.fail_next_sync(volume)

            with pytest.raises(VolumeFailedError):
                volume.sync()
            for _ in range(3):
                with pytest.raises(VolumeFailedError):
                    volume.sync()
                with pytest.raises(VolumeFailedError):
                    write_batch(volume, volume.stream("left").last + 1)

    def test_reads_go_on_after_a_failure(self, harness: StorageHarness) -> None:
        need(harness, "fail_next_sync")
        with closing(harness.open()) as volume:
            write_batch(volume, 1)
            volume.sync()
            with pytest.raises(VolumeFailedError):
                _fail(harness, volume)

            assert indexes(volume.stream("left").read(*EVERYTHING))[:1] == [1]
            assert volume.table("left").get(b"000001") == b""
            assert [key for key, _ in volume.table("left").scan()][:1] == [b"000001"]
            assert indexes(volume.stream("never seen before").read(*EVERYTHING)) == []

    def test_a_failed_volume_closes_and_opens_again(self, harness: StorageHarness) -> None:
        """In the same process, lock and all; what was synced is there, what failed is there whole or not."""
        need(harness, "fail_next_sync")
        volume = harness.open()
        write_batch(volume, 1)
        volume.sync()
        write_batch(volume, 2)
        with pytest.raises(VolumeFailedError) as caught:
            _fail(harness, volume)
        volume.close()
        volume.close()

        with closing(harness.open()) as volume:
            found = newest_whole_batch(volume)
            assert 1 <= found <= 2
            write_batch(volume, found + 1)
            volume.sync()
            assert newest_whole_batch(volume) == found + 1
        assert caught.value is not None  # it was alive all the time, with all that its traceback holds

    def test_it_can_fail_again_and_again(self, harness: StorageHarness) -> None:
        need(harness, "fail_next_sync")
        durable = 0
        for _ in range(4):
            volume = harness.open()
            number = newest_whole_batch(volume)
            assert number >= durable
            write_batch(volume, number + 1)
            volume.sync()
            durable = number + 1
            write_batch(volume, number + 2)
            with pytest.raises(VolumeFailedError):
                _fail(harness, volume)
            volume.close()
        with closing(harness.open()) as volume:
            assert newest_whole_batch(volume) >= durable

    def test_a_full_disk_says_so(self, harness: StorageHarness) -> None:
        need(harness, "fill")
        volume = harness.open()
        write_batch(volume, 1)
        volume.sync()
        harness.fill(volume)

        with pytest.raises(VolumeFullError):
            _write_and_sync(volume, 2)
        with pytest.raises(VolumeFailedError):
            _write_and_sync(volume, 3)

        assert indexes(volume.stream("left").read(*EVERYTHING))[:1] == [1]
        volume.close()
        with closing(harness.open()) as volume:
            found = newest_whole_batch(volume)
            assert 1 <= found <= 2
            write_batch(volume, found + 1)
            volume.sync()
            assert newest_whole_batch(volume) == found + 1

    def test_a_spoilt_record_is_never_left_out(self, harness: StorageHarness) -> None:
        """A read raises, or it ends before the record; one that goes on behind it would hide a loss."""
        need(harness, "damage")
        volume = harness.open()
        for index in range(1, 201):
            volume.stream("s").put(index, b"record %d " % index * 200)
        volume.write()
        volume.sync()
        with closing(harness.damage(volume, "s", 100)) as volume:
            stream = volume.stream("s")

            with pytest.raises(VolumeCorruptError):
                _read_all(volume)
            with pytest.raises(VolumeCorruptError):
                stream.read(99, 100)
            assert indexes(stream.read(0, 2)) == [1, 2]

    @pytest.mark.parametrize("spoilt", [150, 200])
    def test_a_spoilt_record_harms_nobody_but_who_reads_it(self, harness: StorageHarness, spoilt: int) -> None:
        """Its volume opens, its stream knows its end and goes on there, and what is not near it can be read."""
        need(harness, "damage")
        volume = harness.open()
        volume.stream("other").put(7, b"another stream's")
        for index in range(1, 201):
            volume.stream("s").put(index, b"record %d " % index * 200)
        volume.write()
        volume.sync()
        with closing(harness.damage(volume, "s", spoilt)) as volume:
            stream = volume.stream("s")

            assert stream.last == 200
            assert volume.stream("other").read(*EVERYTHING) == [(7, b"another stream's")]
            assert indexes(stream.read(0, 2)) == [1, 2]
            with pytest.raises(VolumeCorruptError):
                stream.read(spoilt - 1, spoilt)
            with pytest.raises(ValueError, match="200"):
                stream.put(200, b"again")
            stream.put(201, b"behind it")
            volume.write()
            volume.sync()
            assert stream.last == 201
            with suppress(VolumeCorruptError):  # a storage may keep neighbours in one block
                assert stream.read(200, 201) == [(201, b"behind it")]

    def test_a_spoilt_record_does_not_keep_a_volume_open(self, harness: StorageHarness) -> None:
        """Its error may live long, and must hold nothing of the volume."""
        need(harness, "damage")
        volume = harness.open()
        for index in range(1, 201):
            volume.stream("s").put(index, b"record %d " % index * 200)
        volume.write()
        volume.sync()
        volume = harness.damage(volume, "s", 100)
        with pytest.raises(VolumeCorruptError) as caught:
            _read_all(volume)
        volume.close()

        harness.open().close()

        assert caught.value is not None

    def test_a_failure_concerns_no_other_volume(self, harness: StorageHarness) -> None:
        need(harness, "fail_next_sync")
        with closing(harness.open()) as volume, closing(harness.fresh().open()) as other:
            with pytest.raises(VolumeFailedError):
                _fail(harness, volume)
            put_written(other, other.stream("s"), 1)
            other.sync()

            assert indexes(other.stream("s").read(*EVERYTHING)) == [1]


def _fail(harness: StorageHarness, volume: LogVolume) -> None:
    stream = volume.stream("fails")
    put_written(volume, stream, stream.last + 1)
    harness.fail_next_sync(volume)
    volume.sync()


def _write_and_sync(volume: LogVolume, number: int) -> None:
    write_batch(volume, number)
    volume.sync()


def _read_all(volume: LogVolume) -> None:
    after = 0
    while records := volume.stream("s").read(after, 1 << 60, 50_000):
        found = indexes(records)
        assert found == list(range(after + 1, after + 1 + len(found))), "a record was left out"
        after = found[-1]
    assert after == 200, "the read ended before the last record and said nothing"
