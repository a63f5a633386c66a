"""The conformance suite for transports: what `gapless.spi.Transport` and its links promise, as pytest classes.

    from gapless.testing.transport import TransportHarness, TransportSuite

    class TestMyTransport(TransportSuite):
        @pytest.fixture
        def harness(self):
            return MyHarness()

where `MyHarness` is a `TransportHarness` that makes your transport and says how it was configured. The
tests are plain functions that run their own event loop: no plugin of pytest is needed.
"""

from gapless.testing.transport.closing import CloseTests
from gapless.testing.transport.flow import FlowTests, UrgentTests
from gapless.testing.transport.frames import FrameTests, LimitTests
from gapless.testing.transport.handlers import HandlerTests
from gapless.testing.transport.harness import TransportHarness
from gapless.testing.transport.listening import ListenTests
from gapless.testing.transport.raw import ByteTests

__all__ = ["TransportHarness", "TransportSuite"]


class TransportSuite(FrameTests, LimitTests, UrgentTests, FlowTests, CloseTests, HandlerTests, ListenTests, ByteTests):
    """All of it. Override the fixture `harness`."""
