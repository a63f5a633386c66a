"""File descriptors: the storage has its share of them, whatever clients do."""

from __future__ import annotations

import errno

import pytest

from gapless import DescriptorsExhaustedError, descriptors
from gapless.node.config import LimitsSection
from gapless_storage._rocksdb.engine import _meaning
from gapless_storage._rocksdb.files import storage_error
from gapless_transport.tcp_options import REFUSED_MAX, connections_default


@pytest.mark.parametrize(
    ("limit", "storage", "connections"),
    [(64, 16, 32), (256, 64, 128), (1024, 256, 704), (1 << 20, 256, (1 << 20) - 320), (1, 1, 1)],
)
def test_connections_leave_what_the_storage_needs(
    limit: int, storage: int, connections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(descriptors, "limit", lambda: limit)

    assert (descriptors.for_storage(), descriptors.for_connections()) == (storage, connections)
    assert connections_default() == connections + REFUSED_MAX
    assert LimitsSection().of_sessions.links == min(connections, 10_000)
    assert LimitsSection(connections=5).of_sessions.links == min(connections, 5)


def test_the_limit_is_that_of_this_process() -> None:
    resource = pytest.importorskip("resource")

    assert descriptors.limit() == min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], 1 << 20)


def test_no_descriptor_is_no_failure_of_the_disk() -> None:
    errors = (
        storage_error(OSError(errno.EMFILE, "Too many open files"), "opening"),
        _meaning("IO error: While open a file for appending: x.log: Too many open files"),
    )
    for error in errors:
        assert isinstance(error, DescriptorsExhaustedError)
        assert "ulimit -n" in str(error)
