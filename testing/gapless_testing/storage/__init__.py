"""The conformance suite for storages: what `gapless.spi.LogVolume` promises, as pytest classes.

    from gapless_testing.storage import StorageHarness, StorageSuite

    class TestMyStorage(StorageSuite):
        @pytest.fixture
        def harness(self, tmp_path):
            return MyHarness(tmp_path)

where `MyHarness` is a `StorageHarness` that opens your volume, and fills and breaks it as far as it can; the tests
for what it cannot are skipped. Power cuts and kills are the suite's own (`gapless_testing.storage.power`). Nothing
in the suite asks for a backend by name.
"""

from gapless_testing.storage.crashes import CrashTests
from gapless_testing.storage.failures import FailureTests
from gapless_testing.storage.harness import IDENTITY, StorageHarness
from gapless_testing.storage.machine import PropertyTests
from gapless_testing.storage.powercuts import PowerTests
from gapless_testing.storage.starts import StartTests
from gapless_testing.storage.streams import StreamTests
from gapless_testing.storage.tables import TableTests
from gapless_testing.storage.threads import ThreadTests
from gapless_testing.storage.volumes import VolumeTests

__all__ = ["IDENTITY", "StorageHarness", "StorageSuite"]


# pytest runs what a class inherits last class first: so the simple tests come first, and the random histories last.
class StorageSuite(
    PropertyTests, PowerTests, ThreadTests, CrashTests, FailureTests, StartTests, TableTests, StreamTests, VolumeTests
):
    """All of it. Override the fixture `harness`."""
