"""What a volume promises when its disk fails, is full, or has spoilt a record."""

# ruff: noqa: D102 — a test says with its name what it claims
from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress

import pytest

from gapless.errors import RecordsDamagedError, VolumeCorruptError, VolumeFailedError, VolumeFullError
from gapless.spi import LogVolume
from gapless_testing.storage.crashes import newest_whole_batch, write_batch
from gapless_testing.storage.harness import StorageHarness, indexes, need_files, overrides, same
from gapless_testing.storage.power import PowerFixtures
from gapless_testing.storage.streams import EVERYTHING, PIECE_BYTES, numbered, put_written

RECORD_PIECES = 138
"""So many make a record of 2 KiB, which is more than what a page of many an engine holds in one place."""


def piece_of(index: int, where: int = 0) -> bytes:
    """A piece of the record under this index."""
    return numbered(RECORD_PIECES, index)[where * PIECE_BYTES : (where + 1) * PIECE_BYTES]


class FailureTests(PowerFixtures):
    """With what the harness can do to its volume, or under the shim."""

    def test_a_failed_sync_is_final(self, failing: StorageHarness) -> None:
        """A second try might return, and say nothing about what the first one lost."""
        with closing(failing.open()) as volume:
            write_batch(volume, 1)
            volume.sync()
            write_batch(volume, 2)
            failing.fail_next_sync(volume)

            with pytest.raises(VolumeFailedError):
                volume.sync()
            for _ in range(3):
                with pytest.raises(VolumeFailedError):
                    volume.sync()
                with pytest.raises(VolumeFailedError):
                    write_batch(volume, volume.stream("left").last + 1)

    def test_reads_go_on_after_a_failure(self, failing: StorageHarness) -> None:
        with closing(failing.open()) as volume:
            write_batch(volume, 1)
            volume.sync()
            with pytest.raises(VolumeFailedError):
                _fail(failing, volume)

            assert indexes(volume.stream("left").read(*EVERYTHING))[:1] == [1]
            assert volume.table("left").get(b"000001") == b""
            assert [key for key, _ in volume.table("left").scan()][:1] == [b"000001"]
            assert indexes(volume.stream("never seen before").read(*EVERYTHING)) == []

    def test_a_failed_volume_closes_and_opens_again(self, failing: StorageHarness) -> None:
        """In the same process, lock and all; what was synced is there, what failed is there whole or not."""
        volume = failing.open()
        write_batch(volume, 1)
        volume.sync()
        write_batch(volume, 2)
        with pytest.raises(VolumeFailedError) as caught:
            _fail(failing, volume)
        volume.close()
        volume.close()

        with closing(failing.open()) as volume:
            found = newest_whole_batch(volume)
            assert 1 <= found <= 2
            write_batch(volume, found + 1)
            volume.sync()
            assert newest_whole_batch(volume) == found + 1
        assert caught.value is not None  # it was alive all the time, with all that its traceback holds

    def test_it_can_fail_again_and_again(self, failing: StorageHarness) -> None:
        durable = 0
        for _ in range(4):
            volume = failing.open()
            number = newest_whole_batch(volume)
            assert number >= durable
            write_batch(volume, number + 1)
            volume.sync()
            durable = number + 1
            write_batch(volume, number + 2)
            with pytest.raises(VolumeFailedError):
                _fail(failing, volume)
            volume.close()
        with closing(failing.open()) as volume:
            assert newest_whole_batch(volume) >= durable

    def test_a_full_disk_says_so(self, failing: StorageHarness) -> None:
        volume = failing.open()
        write_batch(volume, 1)
        volume.sync()
        failing.fill(volume)

        with pytest.raises(VolumeFullError):
            _write_and_sync(volume, 2)
        with pytest.raises(VolumeFailedError):
            _write_and_sync(volume, 3)

        assert indexes(volume.stream("left").read(*EVERYTHING))[:1] == [1]
        volume.close()
        with closing(failing.open()) as volume:
            found = newest_whole_batch(volume)
            assert 1 <= found <= 2
            write_batch(volume, found + 1)
            volume.sync()
            assert newest_whole_batch(volume) == found + 1

    @pytest.mark.parametrize("where", [0, RECORD_PIECES // 2, RECORD_PIECES - 1], ids=["begin", "middle", "end"])
    def test_a_spoilt_record_is_never_left_out(self, harness: StorageHarness, where: int) -> None:
        """A read raises, or it ends before the record; one that goes on behind it would hide a loss.

        Wherever in it one bit was turned.
        """
        _need_damage(harness)
        volume = harness.open()
        for index in range(1, 201):
            volume.stream("s").put(index, numbered(RECORD_PIECES, index))
        volume.write()
        volume.sync()
        with closing(harness.damage(volume, "s", 100, piece_of(100, where))) as volume:
            stream = volume.stream("s")

            _must_be_refused(lambda: _read_all(volume), "reading all of the stream")
            _must_be_refused(lambda: stream.read(99, 100), "reading the record")
            assert indexes(stream.read(0, 2)) == [1, 2]

    @pytest.mark.parametrize("spoilt", [150, 200])
    def test_a_spoilt_record_harms_nobody_but_who_reads_it(self, harness: StorageHarness, spoilt: int) -> None:
        """Its volume opens, its stream knows its end and goes on there, and what is not near it can be read."""
        _need_damage(harness)
        volume = harness.open()
        volume.stream("other").put(7, b"another stream's")
        for index in range(1, 201):
            volume.stream("s").put(index, numbered(RECORD_PIECES, index))
        volume.write()
        volume.sync()
        with closing(harness.damage(volume, "s", spoilt, piece_of(spoilt))) as volume:
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

    def test_behind_what_is_spoilt_all_else_is_read(self, harness: StorageHarness) -> None:
        """A read ends before it; one that begins with it says behind which index to go on."""
        _need_damage(harness)
        with closing(_with_spoilt_records(harness, 100)) as volume:
            found, holes = _read_around(volume)

            assert len(holes) == 1
            after, upto, given_up = holes[0]
            assert after < 100 <= upto
            assert not given_up
            same(found, [n for n in range(1, 201) if not after < n <= upto], f"the records outside ({after}, {upto}]")
            assert len(found) >= 150, "far more than what was spoilt cannot be read"

    def test_what_is_spoilt_at_the_end_ends_with_the_stream(self, harness: StorageHarness) -> None:
        _need_damage(harness)
        with closing(_with_spoilt_records(harness, 200)) as volume:
            found, holes = _read_around(volume)

            assert [upto for _, upto, _ in holes] == [200]
            assert found == list(range(1, holes[0][0] + 1))

    def test_what_was_given_up_stays_a_hole(self, harness: StorageHarness) -> None:
        """It is told as one, before and after it was removed from the disk, and never looks like nothing."""
        _need_damage(harness)
        volume = _with_spoilt_records(harness, 100)
        found, [(after, upto, _)] = _read_around(volume)
        volume.stream("s").give_up(after, upto)
        volume.write()
        volume.sync()
        assert _read_around(volume) == (found, [(after, upto, True)])
        volume.excise()
        volume.close()

        with closing(harness.open()) as volume:
            stream = volume.stream("s")
            assert volume.damage == ""
            assert list(stream.given_up) == [(after, upto)]
            assert _read_around(volume) == (found, [(after, upto, True)])
            stream.put(201, b"behind it")
            stream.chop(upto)
            volume.write()
            volume.sync()
            assert list(stream.given_up) == []
            assert indexes(stream.read(0, 201, 1 << 20)) == list(range(upto + 1, 202))

    def test_nothing_else_is_removed_from_the_disk(self, harness: StorageHarness) -> None:
        """What was not given up may be read yet, on another machine: excising refuses."""
        _need_damage(harness)
        volume = _with_spoilt_records(harness, 100)
        found, _ = _read_around(volume)

        with pytest.raises(VolumeCorruptError):
            volume.excise()

        volume.close()
        with closing(harness.open()) as volume:
            assert _read_around(volume)[0] == found

    def test_a_volume_says_what_is_in_it(self, harness: StorageHarness) -> None:
        with closing(harness.open()) as volume:
            for name in ("b", "a"):
                volume.stream(name).put(1, b"record")
                volume.table(f"t{name}").put(b"key", b"value")
            volume.write()

            assert [name for name in volume.stream_names() if name in {"a", "b"}] == ["a", "b"]
            assert [name for name in volume.table_names() if name in {"ta", "tb"}] == ["ta", "tb"]
            assert volume.damage == ""

    def test_a_spoilt_record_does_not_keep_a_volume_open(self, harness: StorageHarness) -> None:
        """Its error may live long, and must hold nothing of the volume."""
        _need_damage(harness)
        volume = harness.open()
        for index in range(1, 201):
            volume.stream("s").put(index, numbered(RECORD_PIECES, index))
        volume.write()
        volume.sync()
        volume = harness.damage(volume, "s", 100, piece_of(100))
        with pytest.raises(VolumeCorruptError) as caught:
            _read_all(volume)
        volume.close()

        harness.open().close()

        assert caught.value is not None

    def test_a_failure_concerns_no_other_volume(self, failing: StorageHarness) -> None:
        with closing(failing.open()) as volume, closing(failing.fresh().open()) as other:
            with pytest.raises(VolumeFailedError):
                _fail(failing, volume)
            put_written(other, other.stream("s"), 1)
            other.sync()

            assert indexes(other.stream("s").read(*EVERYTHING)) == [1]


def _need_damage(harness: StorageHarness) -> None:
    if harness.stores_records_changed and not overrides(harness, "damage"):
        pytest.skip(f"{type(harness).__name__} stores records changed, and has no damage() that finds them")
    if not overrides(harness, "damage"):
        need_files(harness)


def _must_be_refused(read: Callable[[], object], what: str) -> None:
    try:
        came = read()
    except VolumeCorruptError:
        return
    raise AssertionError(
        f"one bit of a record was turned on the disk, and {what} raised no VolumeCorruptError"
        + (f": it returned the records {indexes(came)} as if nothing was wrong" if came is not None else "")
    )


def _with_spoilt_records(harness: StorageHarness, index: int) -> LogVolume:
    """A volume with a stream `s` of 200 records, of which one is spoilt, and maybe its neighbours."""
    volume = harness.open()
    for number in range(1, 201):
        volume.stream("s").put(number, numbered(RECORD_PIECES, number))
    volume.write()
    volume.sync()
    return harness.damage(volume, "s", index, piece_of(index))


def _read_around(volume: LogVolume) -> tuple[list[int], list[tuple[int, int, bool]]]:
    """The indexes of all records of `s` that can be read, and the holes."""
    stream, after = volume.stream("s"), 0
    found: list[int] = []
    holes: list[tuple[int, int, bool]] = []
    while after < stream.last:
        try:
            records = stream.read(after, stream.last, 5_000)
        except RecordsDamagedError as error:
            holes.append((error.after, error.upto, error.given_up))
            after = max(after + 1, error.upto)  # the suite ends, whatever a storage says
        else:
            assert records, "a read found nothing, and did not say why"
            found += indexes(records)
            after = records[-1][0]
    return found, holes


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
        same(found, range(after + 1, found[-1] + 1), f"a read behind record {after} left something out")
        after = found[-1]
    assert after == 200, f"the read ended behind record {after} of 200, and said nothing"
