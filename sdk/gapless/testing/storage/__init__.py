"""The conformance suite for storages: what `gapless.spi.LogVolume` promises, as pytest classes.

    from gapless.testing.storage import StorageHarness, StorageSuite

    class TestMyStorage(StorageSuite):
        @pytest.fixture
        def harness(self, tmp_path):
            return MyHarness(tmp_path)

where `MyHarness` is a `StorageHarness` that opens your volume, and crashes, fills and breaks it as far as
it can; the tests for what it cannot are skipped. Nothing in the suite asks for a backend by name.
"""

from gapless.testing.storage.crashes import CrashTests
from gapless.testing.storage.failures import FailureTests
from gapless.testing.storage.harness import IDENTITY, StorageHarness
from gapless.testing.storage.machine import PropertyTests
from gapless.testing.storage.streams import StreamTests
from gapless.testing.storage.tables import TableTests
from gapless.testing.storage.threads import ThreadTests
from gapless.testing.storage.volumes import VolumeTests

__all__ = ["IDENTITY", "StorageHarness", "StorageSuite"]


class StorageSuite(StreamTests, TableTests, VolumeTests, CrashTests, FailureTests, ThreadTests, PropertyTests):
    """All of it. Override the fixture `harness`."""
