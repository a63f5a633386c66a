"""Every test of this folder bears the mark `integration`, and needs what the I/O shim needs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from power.recording import Recording, record


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what lies below this folder; pytest hands over all that was collected anywhere."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.integration)
            item.add_marker(pytest.mark.skipif(sys.platform != "linux", reason="the I/O shim needs LD_PRELOAD"))


@pytest.fixture(scope="session")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """A broker at work, recorded once."""
    return record(tmp_path_factory.mktemp("power") / "recording", events=6, seed=1, fence="before")


@pytest.fixture(scope="session")
def recording_behind(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """The same with a fence that follows the receipts."""
    return record(tmp_path_factory.mktemp("power") / "recording-behind", events=6, seed=1, fence="behind")
