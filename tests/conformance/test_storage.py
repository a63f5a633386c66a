"""Our storages against the suite that `gapless_testing.storage` ships for everyone's."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.storages import MemoryHarness, RocksdbHarness, UncompressedRocksdbHarness
from gapless_storage._rocksdb import opening, watchdog
from gapless_testing.storage import StorageHarness, StorageSuite

pytestmark = pytest.mark.timeout(300)  # the histories take long on a slow disk


class TestMemory(StorageSuite):
    history_examples = 50

    @pytest.fixture
    def harness(self) -> StorageHarness:
        return MemoryHarness()


class RocksdbSuite(StorageSuite):
    """With what an opening inspects inspected by itself: a process for each would cost as much as all else.

    In the suite's own processes it is as it is; `tests/unit/gapless_storage/_rocksdb/test_watchdog.py` is about it.
    """

    history_examples = 6

    @pytest.fixture(autouse=True)
    def _unwatched(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(opening, "inspect_within", lambda directory, _: watchdog._ask_ourselves(directory))


class TestRocksdb(RocksdbSuite):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> StorageHarness:
        return RocksdbHarness(tmp_path)


class TestRocksdbWithSmallBuffers(RocksdbSuite):
    """Small enough that data files, several logs and compactions occur in every test."""

    test_the_largest_record_outlives_closing = None  # type: ignore[assignment]  # it is as large for any buffer
    test_a_damaged_file_is_a_storage_error = None  # type: ignore[assignment]  # the files of a closed volume are the same, and so is who opens them

    @pytest.fixture
    def harness(self, tmp_path: Path) -> StorageHarness:
        return UncompressedRocksdbHarness(tmp_path)
