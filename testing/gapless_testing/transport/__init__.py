"""The conformance suite for transports: what `gapless.spi.Transport` and its links promise, as pytest classes.

    from gapless_testing.transport import TransportHarness, TransportSuite

    class TestMyTransport(TransportSuite):
        @pytest.fixture
        def harness(self):
            return MyHarness()

where `MyHarness` is a `TransportHarness` that makes your transport and says how it was configured. The
tests are plain functions that run their own event loop: no plugin of pytest is needed.
"""

from gapless_testing.transport.certificates import CertificateTests
from gapless_testing.transport.closing import CloseTests
from gapless_testing.transport.flow import FlowTests, UrgentTests
from gapless_testing.transport.frames import FrameTests, LimitTests
from gapless_testing.transport.handlers import HandlerTests
from gapless_testing.transport.harness import TransportHarness
from gapless_testing.transport.isolation import IsolationTests
from gapless_testing.transport.listening import ListenTests
from gapless_testing.transport.raw import ByteTests
from gapless_testing.transport.strangers import StrangerTests

__all__ = ["TransportHarness", "TransportSuite"]


class TransportSuite(
    ByteTests,
    StrangerTests,
    CertificateTests,
    HandlerTests,
    CloseTests,
    IsolationTests,
    FlowTests,
    UrgentTests,
    LimitTests,
    ListenTests,
    FrameTests,
):
    """All of it. Override the fixture `harness`. pytest begins with the class that is named last: the simplest."""
