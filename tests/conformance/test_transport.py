"""Our transports through the suite that we ship for everyone's; sockets on every loop that they may meet."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

import pytest

from conformance.transports import LOOPS, MemoryHarness, TcpHarness, TlsHarness, write_certificates
from gapless_testing.transport import TransportHarness, TransportSuite


@pytest.fixture(scope="session")
def certificate_files(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    return write_certificates(tmp_path_factory.mktemp("certificates"), "127.0.0.1", "localhost")


@pytest.fixture(params=list(LOOPS))
def loop(request: pytest.FixtureRequest) -> str:
    return cast("str", request.param)


class TestMemory(TransportSuite):
    @pytest.fixture
    def harness(self) -> TransportHarness:
        return MemoryHarness("asyncio")


class TestMemoryWithHarmlessFaults(TransportSuite):
    """Delays and chopping change when things happen, and nothing else."""

    @pytest.fixture
    def harness(self) -> TransportHarness:
        return MemoryHarness("uvloop", delay_min=0.0005, delay_mean=0.0005, chop=3000, seed=7)


class TestTcp(TransportSuite):
    @pytest.fixture
    def harness(self, loop: str) -> TransportHarness:
        return TcpHarness(loop)


@pytest.mark.filterwarnings("ignore:unclosed transport <asyncio.sslproto:ResourceWarning")
class TestTcpWithTls(TransportSuite):
    @pytest.fixture(autouse=True)
    def _transports_of_python_310(self) -> Iterator[None]:
        """There, asyncio warns of TLS transports whose handshake failed, although their sockets are closed."""
        if sys.version_info >= (3, 11):
            yield
            return
        gc.freeze()  # so that only what the test made is looked through
        yield
        gc.collect()
        gc.unfreeze()

    @pytest.fixture
    def harness(self, loop: str, certificate_files: Mapping[str, Path]) -> TransportHarness:
        return TlsHarness(loop, certificate_files)
