"""The RocksDB plugin as its users meet it: options, marks on every batch, reclaiming beside writes."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from conformance.storages import SMALL_BUFFERS, RocksdbHarness
from gapless.errors import ConfigurationError, VolumeFailedError, VolumeForeignError
from gapless.spi import Create
from gapless_storage._rocksdb import fence
from gapless_storage._rocksdb.engine import Database
from gapless_storage._rocksdb.fence import Fence
from gapless_storage._rocksdb.layout import Mark, end_key
from gapless_storage.rocksdb import open_storage
from gapless_testing.storage import IDENTITY
from gapless_testing.storage.crashes import newest_whole_batch, write_batch


@pytest.fixture
def harness(tmp_path: Path) -> RocksdbHarness:
    return RocksdbHarness(tmp_path)


def test_open_storage(tmp_path: Path) -> None:
    with closing(open_storage(str(tmp_path), IDENTITY, {"compression": "zstd"}, Create.YES)) as volume:
        write_batch(volume, 1)
        volume.sync()

        assert newest_whole_batch(volume) == 1
        assert volume.capabilities.durable is True
        assert volume.free_bytes > 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"compresion": "lz4"}, "'compresion'.*options of the RocksDB storage are .*compression"),
        ({"compression": "brotli"}, "'compression'"),
        ({"write_buffer_bytes": 1}, "'write_buffer_bytes'"),
        ({"write_buffer_bytes": "much"}, "'write_buffer_bytes'"),
        ({"watchdog_seconds": 0}, "'watchdog_seconds'"),
        ({"fence": "never"}, "'fence'"),
    ],
)
def test_a_wrong_option_is_named(tmp_path: Path, options: Mapping[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        open_storage(str(tmp_path / "volume"), IDENTITY, options, Create.YES)

    assert not (tmp_path / "volume").exists()


def test_it_needs_a_path() -> None:
    with pytest.raises(ConfigurationError, match="needs a path"):
        open_storage("", IDENTITY, {}, Create.YES)


def test_a_sync_costs_two_syncs_and_an_idle_one_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    volume = open_storage(str(tmp_path), IDENTITY, {}, Create.YES)
    calls: list[str] = []
    sync_log, advance = Database.sync_log, Fence.advance

    def noted_sync_log(engine: Database) -> None:
        calls.append("log")
        sync_log(engine)

    def noted_advance(fence: Fence, mark: Mark) -> None:
        calls.append("fence")
        advance(fence, mark)

    monkeypatch.setattr(Database, "sync_log", noted_sync_log)
    monkeypatch.setattr(Fence, "advance", noted_advance)
    write_batch(volume, 1)
    write_batch(volume, 2)

    for _ in range(3):
        volume.sync()
    volume.close()

    assert calls == ["log", "fence"]


def fence_of(harness: RocksdbHarness) -> Mark:
    """What the fence says on the disk."""
    with closing(Fence(harness.directory / "fence")) as written:
        return written.mark


def test_the_fence_comes_after_the_log(harness: RocksdbHarness) -> None:
    """Were it before, a power cut in between would leave a volume that refuses itself."""
    volume = harness.open()
    write_batch(volume, 1)
    before = fence_of(harness)
    harness.fail_next_sync(volume)
    with pytest.raises(VolumeFailedError, match="Input/output error"):
        volume.sync()

    assert fence_of(harness) == before
    volume.close()


def test_a_fence_that_cannot_be_written_fails_the_volume(
    harness: RocksdbHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume = harness.open()
    write_batch(volume, 1)

    def fail(fence: Fence, mark: Mark) -> None:
        raise OSError(5, "injected")

    with monkeypatch.context() as patched:
        patched.setattr(Fence, "advance", fail)
        with pytest.raises(VolumeFailedError, match="the fence cannot be written"):
            volume.sync()
        with pytest.raises(VolumeFailedError, match="must be reopened"):
            volume.write()
        volume.close()

    with closing(harness.open()) as volume:
        assert newest_whole_batch(volume) == 1


@pytest.fixture
def behind(tmp_path: Path) -> RocksdbHarness:
    return RocksdbHarness(tmp_path, {"fence": "behind"})


def test_a_fence_that_follows_is_not_waited_for(behind: RocksdbHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three receipts while it waits to be written, and one write for all of them."""
    volume = behind.open()
    before, advance = fence_of(behind), Fence.advance
    waiting, go_on, written = threading.Event(), threading.Event(), threading.Event()
    marks: list[Mark] = []

    def held_advance(fence: Fence, mark: Mark) -> None:
        waiting.set()
        assert go_on.wait(20)
        advance(fence, mark)
        marks.append(mark)
        written.set()

    monkeypatch.setattr(Fence, "advance", held_advance)
    write_batch(volume, 1)
    volume.sync()
    assert waiting.wait(20)
    for number in range(2, 5):
        write_batch(volume, number)
        volume.sync()
    assert fence_of(behind) == before

    go_on.set()
    assert written.wait(20)
    volume.close()

    assert len(marks) == 2
    assert marks[-1].counter == before.counter + 4


def test_closing_waits_for_the_fence(behind: RocksdbHarness) -> None:
    volume = behind.open()
    before = fence_of(behind)
    write_batch(volume, 1)
    volume.close()

    assert fence_of(behind) == before.next()
    assert not any(thread.name == "gapless-fence" for thread in threading.enumerate())


def test_a_fence_that_cannot_follow_fails_the_volume(behind: RocksdbHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    volume = behind.open()
    failed = threading.Event()

    def fail(fence: Fence, mark: Mark) -> None:
        failed.set()
        raise OSError(5, "injected")

    with monkeypatch.context() as patched:
        patched.setattr(Fence, "advance", fail)
        write_batch(volume, 1)
        volume.sync()
        assert failed.wait(20)
        while any(thread.name == "gapless-fence" for thread in threading.enumerate()):
            time.sleep(0.001)

        with pytest.raises(VolumeFailedError, match="the fence cannot be written"):
            volume.tend()
        volume.close()
    with closing(behind.open()) as volume:
        assert newest_whole_batch(volume) == 1


@pytest.mark.parametrize("noticed_by", ["sync", "reclaim", "close"])
@pytest.mark.parametrize("synced", ["before", "behind"])
def test_a_volume_with_a_newer_owner_leaves_his_files_alone(
    harness: RocksdbHarness, monkeypatch: pytest.MonkeyPatch, noticed_by: str, synced: str
) -> None:
    """S17: to close RocksDB would be to flush it and to remove what is not its own; so it is not closed.

    Whose it is, is looked at before each receipt, also where the fence follows.
    """
    monkeypatch.setattr(fence, "FOLLOWING_SECONDS", 60)  # else the thread that follows might notice first
    harness.options["fence"] = synced
    volume = harness.open()
    for number in range(1, 4):
        write_batch(volume, number)
    volume.stream("s").put(1, b"x")
    volume.write()
    volume.stream("s").chop(1)
    volume.write()
    volume.sync()
    with closing(Fence(harness.directory / "fence")) as newer:
        mark = newer.mark
        newer.advance(Mark(mark.volume, mark.generation + 1, 5, mark.opening, mark.counter + 1))
    before = files_of(harness.directory)
    if noticed_by == "sync":
        write_batch(volume, 4)
        before = files_of(harness.directory)
        with pytest.raises(VolumeForeignError, match="newer owner"):
            volume.sync()
        with pytest.raises(VolumeForeignError, match="newer owner"):
            volume.write()
    elif noticed_by == "reclaim":
        with pytest.raises(VolumeForeignError, match="newer owner"):
            volume.reclaim()
    volume.close()

    assert files_of(harness.directory) == before


def test_a_reclaim_does_not_take_the_volumes_own_sync_for_a_newer_owner(
    harness: RocksdbHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the fence is being synced it says already what the volume does not know yet."""
    volume = harness.open()
    volume.stream("s").put(1, b"x")
    volume.write()
    volume.stream("s").chop(1)
    volume.write()
    syncing, go_on = threading.Event(), threading.Event()

    def hold(descriptor: int) -> None:
        syncing.set()
        assert go_on.wait(20)

    monkeypatch.setattr(fence, "sync_file", hold)
    with ThreadPoolExecutor(2) as threads:
        sync = threads.submit(volume.sync)
        assert syncing.wait(20)
        reclaim = threads.submit(volume.reclaim)
        wait([reclaim], timeout=0.2)
        go_on.set()

        assert sync.exception(20) is None
        assert reclaim.exception(20) is None
    volume.close()


def files_of(directory: Path) -> dict[str, bytes]:
    """Every file but RocksDB's log for people."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != "LOG"
    }


def test_a_last_sync_that_fails_is_logged(
    harness: RocksdbHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    volume = harness.open()
    write_batch(volume, 1)
    harness.fail_next_sync(volume)

    with caplog.at_level(logging.WARNING):
        volume.close()

    assert "the last sync failed" in caplog.text
    harness.open().close()


def test_reclaiming_gives_the_disk_its_space_back(tmp_path: Path) -> None:
    harness = RocksdbHarness(tmp_path, {**SMALL_BUFFERS, "compression": "none"})
    with closing(harness.open()) as volume:
        for index in range(1, 201):
            volume.stream("s").put(index, b"%04d" % index * 2_500)
            volume.write()
        volume.sync()
        harness.engine(volume).flush_log_family()
        full = data_bytes(harness)
        volume.stream("s").chop(180)
        volume.write()
        volume.sync()

        freed = volume.reclaim()

        assert full >= 1_500_000
        assert freed >= 1_500_000
        assert data_bytes(harness) <= full // 3
    with closing(harness.open()) as volume:
        assert volume.reclaimable == 0
        assert [index for index, _ in volume.stream("s").read(0, 999)] == list(range(181, 201))


def data_bytes(harness: RocksdbHarness) -> int:
    return sum(path.stat().st_size for path in harness.directory.rglob("*.sst"))


def test_what_is_chopped_and_not_reclaimed_is_known_after_reopening(harness: RocksdbHarness) -> None:
    with closing(harness.open()) as volume:
        for index in range(1, 101):
            volume.stream("s").put(index, bytes(10_000))
        volume.stream("s").chop(50)
        volume.write()
        before = volume.reclaimable

    with closing(harness.open()) as volume:
        assert volume.reclaimable == 0  # not asked for yet
        volume.stream("s")
        assert volume.reclaimable == before
        volume.reclaim()
        assert volume.reclaimable == 0


def test_reclaim_writes_no_batch_number(harness: RocksdbHarness) -> None:
    """It repeats the newest one, so that a staged batch keeps the number it has been given."""
    volume = harness.open()
    write_batch(volume, 1)
    volume.stream("left").chop(1)
    volume.write()
    volume.stream("left").put(2, b"staged")
    engine = harness.engine(volume)
    before = (engine.mark(), engine.log_mark())
    volume.reclaim()
    assert (engine.mark(), engine.log_mark()) == before
    for name in ("left", "right"):
        volume.table(name).put(b"000002", b"")
    volume.stream("right").put(2, b"2")
    volume.table("newest").put(b"number", b"2")
    volume.write()
    volume.sync()
    harness.crash(volume)

    with closing(harness.open()) as volume:
        assert [index for index, _ in volume.stream("left").read(0, 99)] == [2]
        assert volume.table("newest").get(b"number") == b"2"


def test_the_end_of_a_stream_is_found_where_an_earlier_version_did_not_keep_it(harness: RocksdbHarness) -> None:
    with closing(harness.open()) as volume:
        for index in range(1, 101):
            volume.stream("s").put(index, bytes(10_000))
        volume.stream("s").chop(20)
        volume.write()
        size = volume.stream("s").size
        engine = harness.engine(volume)
        batch = engine.marked_batch(Mark.decode(engine.mark() or b""))
        batch.delete(end_key(volume.stream("s").stream_id))
        engine.write(batch)

    with closing(harness.open()) as volume:
        stream = volume.stream("s")
        assert (stream.last, stream.first, stream.size) == (100, 20, size)
        stream.put(101, b"the end is kept from here on")
        volume.write()

    with closing(harness.open()) as volume:
        assert volume.stream("s").last == 101


def test_a_stream_is_opened_without_reading_its_records(
    harness: RocksdbHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else one that is damaged, however near the end, would keep the whole volume from being used."""
    with closing(harness.open()) as volume:
        for index in range(1, 101):
            volume.stream("s").put(index, bytes(10_000))
        volume.write()
        size = volume.stream("s").size

    with closing(harness.open()) as volume:
        monkeypatch.setattr(Database, "records", None)
        assert (volume.stream("s").last, volume.stream("s").size) == (100, size)
