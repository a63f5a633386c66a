"""The conformance suite for logs: what `gapless.spi.LogPlugin` and the messages of a log promise, as pytest classes.

    from gapless_testing.log import LogHarness, LogSuite

    class TestMyLog(LogSuite):
        @pytest.fixture
        def harness(self, tmp_path):
            return MyHarness(tmp_path)

where `MyHarness` is a `LogHarness` that makes a log and opens it, and lets happen to it what can happen to such a log;
the tests for what cannot are skipped. The tests are plain functions that run their own event loop: no plugin of pytest
is needed.
"""

from gapless_testing.log.appending import AppendTests
from gapless_testing.log.changing import ChangeTests
from gapless_testing.log.closing import CloseTests
from gapless_testing.log.ending import EndTests
from gapless_testing.log.finding import FindTests
from gapless_testing.log.following import FollowTests
from gapless_testing.log.formats import FormatTests
from gapless_testing.log.harness import LogHarness
from gapless_testing.log.locating import LocateTests
from gapless_testing.log.reading import ReadTests

__all__ = ["LogHarness", "LogSuite"]


class LogSuite(
    CloseTests, EndTests, ChangeTests, AppendTests, FormatTests, LocateTests, ReadTests, FollowTests, FindTests
):
    """All of it. Override the fixture `harness`. pytest begins with the class that is named last: the simplest."""
