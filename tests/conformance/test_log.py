"""Our logs against the suite that `gapless_testing.log` ships for everyone's; on a real Kafka: tests/kafka."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from conformance.logs import ModelHarness
from conformance.storages import MemoryHarness, RocksdbHarness
from conformance.volume_log import VolumeHarness
from gapless_testing.log import LogHarness, LogSuite


class TestKafkaOverTheModel(LogSuite):
    @pytest.fixture
    def harness(self) -> LogHarness:
        return ModelHarness()


class TestVolume(LogSuite):
    """What a log of the volume has in common with a numbered one; `conformance.volume_log` says what it has not."""

    test_every_mark_comes_back = None  # type: ignore[assignment]  # its records have no duplicates
    test_a_second_node_reads_what_a_first_has_appended = None  # type: ignore[assignment]  # likewise
    test_a_batch_comes_back_as_it_was_published = None  # type: ignore[assignment]  # likewise
    test_an_event_that_the_log_cannot_contain_is_a_value_error = None  # type: ignore[assignment]  # its host checks that

    @pytest.fixture(params=["memory", "rocksdb"])
    def harness(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LogHarness]:
        storage = MemoryHarness() if request.param == "memory" else RocksdbHarness(tmp_path)
        with closing(storage.open()) as volume:
            yield VolumeHarness(volume)
