"""Our storages against the suite that `gapless_testing.storage` ships for everyone's."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.storages import MemoryHarness, RocksdbHarness, UncompressedRocksdbHarness
from gapless_testing.storage import StorageHarness, StorageSuite

pytestmark = pytest.mark.timeout(300)  # the histories take long on a slow disk


class TestMemory(StorageSuite):
    history_examples = 50

    @pytest.fixture
    def harness(self) -> StorageHarness:
        return MemoryHarness()


class TestRocksdb(StorageSuite):
    history_examples = 6

    @pytest.fixture
    def harness(self, tmp_path: Path) -> StorageHarness:
        return RocksdbHarness(tmp_path)


class TestRocksdbWithSmallBuffers(StorageSuite):
    """Small enough that data files, several logs and compactions occur in every test."""

    history_examples = 6

    @pytest.fixture
    def harness(self, tmp_path: Path) -> StorageHarness:
        return UncompressedRocksdbHarness(tmp_path)
