"""Our logs against the suite that `gapless_testing.log` ships for everyone's; on a real Kafka: tests/kafka."""

from __future__ import annotations

import pytest

from conformance.logs import ModelHarness
from gapless_testing.log import LogHarness, LogSuite


class TestKafkaOverTheModel(LogSuite):
    @pytest.fixture
    def harness(self) -> LogHarness:
        return ModelHarness()
