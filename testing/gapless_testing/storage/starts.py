"""What a volume promises when it is opened: that all is as it was, or that it says what is wrong."""

# ruff: noqa: D102 — a test says with its name what it claims
from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from gapless.errors import StorageError
from gapless.spi import LogVolume
from gapless_testing.storage.crashes import write_batch
from gapless_testing.storage.harness import (
    IDENTITY,
    HarnessFixtures,
    StorageHarness,
    files_below,
    need_files,
    need_reopening,
    same,
)
from gapless_testing.storage.power import another_process
from gapless_testing.storage.remote import ProcessEndedError, RemoteVolume
from gapless_testing.storage.streams import EVERYTHING, INDEX_MAX, NAME_BYTES_MAX, RECORD_BYTES_MAX
from gapless_testing.storage.tables import HARD_KEYS, KEY_BYTES_MAX

HARD_INDEXES = [1, 2**15, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 2**40, 2**53 + 1, 2**62, INDEX_MAX]
"""Where numbers of 16, 32, 53 and 63 bits end."""


class StartTests(HarnessFixtures):
    """Numbers, names and sizes after a reopening; files that are damaged, or somebody else's."""

    def test_indexes_outlive_closing(self, harness: StorageHarness) -> None:
        need_reopening(harness)
        with closing(harness.open()) as volume:
            for index in HARD_INDEXES:
                volume.stream("s").put(index, b"%d" % index)
            volume.write()
        chopped = 2**32
        with closing(harness.open()) as volume:
            _has_hard_indexes(volume, 0)
            with pytest.raises(ValueError, match=str(INDEX_MAX)):
                volume.stream("s").put(INDEX_MAX, b"again")
            volume.stream("s").chop(chopped)
            volume.write()
            volume.sync()
            volume.reclaim()
        with closing(harness.open()) as volume:
            _has_hard_indexes(volume, chopped)

    def test_the_end_of_a_stream_outlives_its_records(self, harness: StorageHarness) -> None:
        need_reopening(harness)
        with closing(harness.open()) as volume:
            for last in HARD_INDEXES:
                volume.stream(f"up to {last}").put(last, b"record")
            volume.write()
            for last in HARD_INDEXES:
                volume.stream(f"up to {last}").chop(last)
            volume.write()
        with closing(harness.open()) as volume:
            for last in HARD_INDEXES:
                stream = volume.stream(f"up to {last}")
                found = (stream.first, stream.last)

                assert found == (last, last), f"first and last were {(last, last)}, and after a reopening are {found}"

    def test_sizes_outlive_closing(self, harness: StorageHarness) -> None:
        """About: what comes to the records for each is the storage's own business."""
        need_reopening(harness)
        with closing(harness.open()) as volume:
            for number in range(1, 65):
                volume.stream("even").put(number, bytes(8 << 10))
                volume.stream("one large").put(number, bytes((512 << 10) if number == 32 else 10))
            volume.write()
            before = {name: volume.stream(name).size for name in ("even", "one large")}
        with closing(harness.open()) as volume:
            after = {name: volume.stream(name).size for name in before}

            assert all(400_000 <= size <= 1_300_000 for size in before.values()), f"of half a MB: {before}"
            assert all(abs(after[name] - before[name]) <= before[name] // 10 for name in before), (
                f"sizes before and after a reopening: {before}, {after}"
            )

    def test_the_largest_record_outlives_closing(self, harness: StorageHarness) -> None:
        need_reopening(harness)
        record = Random(1).randbytes(1 << 20) * (RECORD_BYTES_MAX >> 20) + bytes(RECORD_BYTES_MAX % (1 << 20))  # noqa: S311
        with closing(harness.open()) as volume:
            volume.stream("s").put(1, record)
            volume.stream("s").put(2, b"behind it")
            volume.write()
        with closing(harness.open()) as volume:
            found = [*volume.stream("s").read(0, 1), *volume.stream("s").read(1, 2)]

            assert [index for index, _ in found] == [1, 2]
            assert len(found[0][1]) == len(record), f"a record of {len(record)} bytes is one of {len(found[0][1])}"
            assert found[0][1] == record, "a large record is another one after a reopening"
            assert found[1][1] == b"behind it"

    def test_rows_outlive_closing(self, harness: StorageHarness) -> None:
        """As the last word of each batch left them: replaced, empty, deleted, and put once more."""
        need_reopening(harness)
        expected = {key: b"value of " + key for key in HARD_KEYS}
        with closing(harness.open()) as volume:
            table = volume.table("t")
            for key in HARD_KEYS:
                table.put(key, b"replaced")
                table.put(b"gone " + key, b"x")
            volume.write()
            for key, value in expected.items():
                table.delete(key)
                table.put(key, value)
                table.put(b"gone " + key, b"once more")
                table.delete(b"gone " + key)
            table.put(b"empty", b"")
            volume.write()
        with closing(harness.open()) as volume:
            same(volume.table("t").scan(), sorted((expected | {b"empty": b""}).items()), "the rows after a reopening")

    def test_long_names_and_keys_outlive_closing(self, harness: StorageHarness) -> None:
        need_reopening(harness)
        names = ["n" * (NAME_BYTES_MAX - 1) + last for last in "ab"]
        keys = [b"k" * (KEY_BYTES_MAX - 1) + last for last in (b"", b"\x00", b"a", b"\xff")]
        with closing(harness.open()) as volume:
            for name in names:
                volume.stream(name).put(1, name.encode())
                for key in keys:
                    volume.table(name).put(key, name.encode() + key)
            volume.write()
        with closing(harness.open()) as volume:
            for name in names:
                assert list(volume.stream(name).read(*EVERYTHING)) == [(1, name.encode())]
                same(volume.table(name).scan(), [(key, name.encode() + key) for key in keys], f"rows of {name[-5:]!r}")

    # ------------------------------------------------------------------------- what is no whole volume

    def test_somebody_elses_files_are_no_volume(self, harness: StorageHarness) -> None:
        """Files of the volume's names, with other content in all of them: refused by a StorageError, and left alone."""
        files = _at_rest(harness)
        strange = b"Dear diary, this is no volume at all.\n" * 200
        for path in files:
            path.write_bytes(strange)

        _opening(harness, "all files hold somebody else's text", must_refuse=True)

        left = [path for path in files if path.exists() and path.read_bytes().startswith(strange[:30])]
        assert left, "an opening that was refused has written over all of somebody else's files"

    @pytest.mark.parametrize("damage", ["garbled", "cut"])
    def test_a_damaged_file_is_a_storage_error(self, harness: StorageHarness, damage: str) -> None:
        """Or it does no harm. The engine's own errors mean nothing to a broker: it would crash and start for ever."""
        files = _at_rest(harness)
        pristine = {path: content for path in files if (content := path.read_bytes()).strip(b"\0")}
        # The others are locks, or room that is kept aside: nothing that could be damaged.
        for path, content in pristine.items():
            path.write_bytes(DAMAGES[damage](content))
            _opening(harness, f"{path.name} was {damage}")
            _put_back(harness.place, files, pristine)


def _garbled(content: bytes) -> bytes:
    """One byte in the middle and one near the beginning."""
    spoilt = bytearray(content)
    for place in (len(spoilt) // 2, min(20, len(spoilt) - 1)):
        spoilt[place] ^= 0x5A
    return bytes(spoilt)


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "garbled": _garbled,
    "cut": lambda content: content[: len(content) // 2],
}


def _at_rest(harness: StorageHarness) -> list[Path]:
    """The files of a volume with two batches, closed. Skips the test if there are none."""
    need_files(harness)
    need_reopening(harness)
    with closing(harness.open()) as volume:
        for number in (1, 2):
            write_batch(volume, number)
            volume.stream("large").put(number, bytes(range(256)) * 100)
        volume.write()
    files = files_below(harness.place)
    assert files, f"no file is below {harness.place}: say where they are with StorageHarness.place"
    return files


def _put_back(place: Path | None, files: list[Path], pristine: dict[Path, bytes]) -> None:
    for path in files_below(place):
        if path not in files:
            path.unlink()
    for path, content in pristine.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_bytes() != content:
            path.write_bytes(content)


def _opening(harness: StorageHarness, what: str, *, must_refuse: bool = False) -> None:
    """Opens and reads, in a process of its own. Only a StorageError may be raised."""
    process = another_process(harness)
    try:
        volume = RemoteVolume(process, "open", IDENTITY)
        assert not must_refuse, f"{what}, and it was opened" + (" as a new volume" if volume.created else "")
        _read_everything(volume)
        volume.close()
    except StorageError:
        return
    except (AssertionError, ProcessEndedError, ValueError) as error:
        raise AssertionError(f"{what}, and no StorageError was raised: {error}") from None
    finally:
        process.kill()


def _read_everything(volume: LogVolume) -> None:
    for name in volume.stream_names():
        stream = volume.stream(name)
        after = 0
        while after < stream.last and (records := stream.read(after, stream.last)):
            after = records[-1][0]
    for name in volume.table_names():
        list(volume.table(name).scan())


def _has_hard_indexes(volume: LogVolume, chopped: int) -> None:
    stream = volume.stream("s")
    left = [index for index in HARD_INDEXES if index > chopped]
    found = list(stream.read(*EVERYTHING))
    same([index for index, _ in found], left, "the indexes after a reopening")
    same(found, [(index, b"%d" % index) for index in left], "the records after a reopening")
    assert (stream.first, stream.last) == (chopped, INDEX_MAX)
    for before, index in zip([chopped, *left], left, strict=False):
        assert [place for place, _ in stream.read(before, index)] == [index], (
            f"reading ({before}, {index}] after a reopening"
        )
