"""Our storages against the suite that `gapless_testing.storage` ships for everyone's."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.storages import MemoryHarness, RocksdbHarness, UncompressedRocksdbHarness
from gapless_testing.storage import StorageHarness, StorageSuite

pytestmark = pytest.mark.timeout(300)  # the histories take long on a slow disk


class TestMemory(StorageSuite):
    history_examples = 42

    @pytest.fixture
    def harness(self) -> StorageHarness:
        return MemoryHarness()


def unwatched(harness: RocksdbHarness, request: pytest.FixtureRequest) -> RocksdbHarness:
    """Without a process for each opening, which would cost as much as all else, but where files are damaged.

    `tests/unit/gapless_storage/_rocksdb/test_watchdog.py` is about that process.
    """
    harness.watched = "file" in request.node.name
    return harness


class TestRocksdb(StorageSuite):
    history_examples = 5

    @pytest.fixture
    def harness(self, tmp_path: Path, request: pytest.FixtureRequest) -> StorageHarness:
        return unwatched(RocksdbHarness(tmp_path), request)


class TestRocksdbWithSmallBuffers(StorageSuite):
    """Small enough that data files, several logs and compactions occur in every test; and the fence follows."""

    test_the_largest_record_outlives_closing = None  # type: ignore[assignment]  # it is as large for any buffer
    test_a_damaged_file_is_a_storage_error = None  # type: ignore[assignment]  # the files of a closed volume are the same, and so is who opens them

    history_examples = 5

    @pytest.fixture
    def harness(self, tmp_path: Path, request: pytest.FixtureRequest) -> StorageHarness:
        return unwatched(UncompressedRocksdbHarness(tmp_path), request)
