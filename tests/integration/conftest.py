"""Every test of this folder bears the mark `integration`."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from gapless.sync import connection
from integration.bystander import Bystander, bystanding
from integration.io_shim import Shim, compile_shim
from integration.spark_kit import OWN_LOG, LocalBroker, broker_over, local_spark


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what lies below this folder; pytest hands over all that was collected anywhere."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.integration)


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> None:
    """A shell that runs the tests in the background has them, and all they start, ignore an interrupt."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="module", autouse=True)
def nobody_dials_on() -> Iterator[None]:
    """What a module leaves open would dial its brokers for ever, in a thread, and warn in the midst of other tests."""
    yield
    if "pyspark" not in sys.modules:  # whose readers keep connections of their own
        connection._close_all()


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The I/O shim, compiled."""
    return compile_shim(tmp_path_factory.mktemp("shim"))


@pytest.fixture
def shim(library: Path, tmp_path: Path) -> Iterator[Shim]:
    """A journal of what a broker on `tmp_path` does."""
    shim = Shim(library, tmp_path / "volume", tmp_path)
    yield shim
    shim.close()


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """A session of a Spark in this process's children."""
    yield from local_spark()


@pytest.fixture
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalBroker]:
    """A broker that is a process of its own, over its own log, or over the one that a test names (`OVER_BOTH_LOGS`)."""
    with broker_over(getattr(request, "param", OWN_LOG), tmp_path) as broker:
        yield broker


@pytest.fixture
def url(broker: LocalBroker) -> str:
    """Where it listens."""
    return broker.url


@pytest.fixture
async def bystander(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Bystander]:
    """Somebody at work, who at the end of the test must not have noticed a thing."""
    caplog.set_level(logging.WARNING)
    async with bystanding(tmp_path / "volume") as bystander:
        bystander.before = await bystander.listing()
        yield bystander
        assert await bystander.listing() == bystander.before
        assert bystander.is_undisturbed()
        await bystander.works()
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
