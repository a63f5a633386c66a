"""What cannot be read is got rid of, and a crash at any step leaves a volume that opens."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from conformance.storages import RocksdbHarness
from gapless.errors import RecordsDamagedError, VolumeCorruptError
from gapless.spi import Create, VolumeIdentity
from gapless_storage._rocksdb import excision
from gapless_storage.rocksdb import RocksdbVolume, open_storage

COUNT = 1000


def opened(directory: Path) -> RocksdbVolume:
    return open_storage(str(directory), VolumeIdentity("network", "node"), {}, Create.YES)


def spoilt(directory: Path) -> tuple[int, int]:
    """A volume with a hole in the stream `a`, which was given up. Returns the hole."""
    with closing(opened(directory)) as volume:
        for index in range(1, COUNT + 1):
            volume.stream("a").put(index, b"a %d " % index * 80)
            volume.stream("b").put(index, b"b %d " % index * 80)
            volume.table("t").put(b"%d" % index, b"row")
        volume.write()
        volume.sync()
    largest = max((directory / "rocksdb").glob("*.sst"), key=lambda path: path.stat().st_size)
    content = bytearray(largest.read_bytes())
    content[len(content) // 4] ^= 4
    largest.write_bytes(content)
    with closing(opened(directory)) as volume:
        assert volume.damage == ""
        [hole] = holes(volume)
        assert "Corruption" in volume.damage
        volume.stream("a").give_up(*hole)
        volume.write()
        volume.sync()
    return hole


def holes(volume: RocksdbVolume) -> list[tuple[int, int]]:
    """Where the stream `a` cannot be read; all else is there."""
    found, missing = [], []
    stream, after = volume.stream("a"), 0
    while after < stream.last:
        try:
            records = stream.read(after, stream.last)
        except RecordsDamagedError as error:
            missing.append((error.after, error.upto))
            after = error.upto
        else:
            found += [index for index, _ in records]
            after = found[-1]
    expected = [index for index in range(1, COUNT + 1) if not any(lo < index <= hi for lo, hi in missing)]
    assert [index for index in found if index <= COUNT] == expected
    assert [index for index, _ in volume.stream("b").read(0, COUNT, 1 << 30)] == list(range(1, COUNT + 1))
    assert len(list(volume.table("t").scan())) == COUNT
    return missing


def test_the_database_is_made_anew_and_the_old_one_is_kept(tmp_path: Path) -> None:
    hole = spoilt(tmp_path)
    volume = opened(tmp_path)
    assert not RocksdbHarness.engine(volume).compacting, "what was found is remembered"

    said = volume.excise()

    assert "rocksdb.damaged-1" in said
    assert (tmp_path / "rocksdb.damaged-1").is_dir()
    with closing(opened(tmp_path)) as volume:
        assert (volume.damage, RocksdbHarness.engine(volume).compacting) == ("", True)
        assert holes(volume) == [hole]
        volume.stream("a").put(COUNT + 1, b"goes on")
        volume.stream("a").chop(COUNT - 1)
        volume.write()
        volume.sync()
        assert volume.reclaim() > 0
        assert volume.stream("a").given_up == ()
    opened(tmp_path).excise()
    assert (tmp_path / "rocksdb.damaged-2").is_dir()


class CrashError(Exception):
    """The power is gone."""


@pytest.mark.parametrize("step", range(4))
def test_a_crash_at_any_step_leaves_a_volume_that_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    hole = spoilt(tmp_path)
    volume = opened(tmp_path)
    calls = 0

    def crash(_directory: Path) -> None:
        nonlocal calls
        calls += 1
        if calls == step + 2:  # the first is before anything of the old database is touched
            raise CrashError

    with monkeypatch.context() as patched:
        patched.setattr(excision, "sync_directory", crash)
        with pytest.raises(CrashError):
            volume.excise()
    volume.close()
    volume._opened.lock.release()

    with closing(opened(tmp_path)) as again:
        assert holes(again) == [hole]
    opened(tmp_path).excise()
    with closing(opened(tmp_path)) as again:
        assert (holes(again), again.damage) == ([hole], "")


def test_what_was_not_given_up_is_not_removed(tmp_path: Path) -> None:
    after, upto = spoilt(tmp_path)
    volume = opened(tmp_path)
    volume.stream("a")._given_up._ranges.remove(after, upto)

    with pytest.raises(VolumeCorruptError, match="nothing was changed"):
        volume.excise()

    volume.close()
    assert not (tmp_path / "rocksdb.repaired").exists()
    with closing(opened(tmp_path)) as volume:
        assert holes(volume) == [(after, upto)]
