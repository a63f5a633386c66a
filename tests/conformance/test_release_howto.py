"""The policy of docs/howto/write-a-release-policy.md: its tests as the reader runs them, and in a broker."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from documents import ROOT, install_programs
from gapless import plugins
from gapless.core.outbox import Outbox
from gapless.core.stream.ticks import EPOCH_MS, tick_at
from gapless.errors import ConfigurationError
from gapless_phb.config import settings_from
from gapless_phb.core.own_log.clock import TickClock
from gapless_phb.core.own_log.log import Log
from gapless_phb.core.retention.release import Release
from gapless_phb.core.rows import AgeRow, Tables

PAGE = ROOT / "docs" / "howto" / "write-a-release-policy.md"
DAY = 86_400_000

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The page's blocks, saved and installed."""
    install_programs(PAGE, tmp_path, "whole_days")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "whole_days", raising=False)
    plugins.load.cache_clear()
    return tmp_path


def test_the_page(site: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(site)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])}

    done = subprocess.run(command, cwd=site, env=environment, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "9 passed" in done.stdout
    assert "skipped" not in done.stdout


def test_a_pubend_that_names_it_goes_by_it(site: Path) -> None:
    """The third day back goes, as far as it is delivered, although nobody has acknowledged anything."""
    settings = settings_from({"pubends": [{"name": "audit", "release": {"plugin": "whole_days", "days": 1}}]})
    wall = EPOCH_MS + 10 * DAY + DAY // 2
    log = Log(
        "network", "audit@1", Tables("phb"), 0, TickClock(0, 0, AgeRow(0), "", 0, 0, wall), Outbox(), 1, durable=True
    )
    log.stable = tick_at(wall)
    release = Release(settings.pubends[0], log, {"shb@1": 0}, {})

    assert release.target(tick_at(wall)) == 0, "nothing is delivered"
    release.on_released(0, tick_at(wall), now=1)
    assert release.target(tick_at(wall)) == tick_at(EPOCH_MS + 9 * DAY) - 1


def test_a_wrong_option_is_named(site: Path) -> None:
    with pytest.raises(
        ConfigurationError, match=r"^phb\.pubends\.0\.release: the release policy 'whole_days' has no option 'hours'"
    ):
        settings_from({"pubends": [{"name": "audit", "release": {"plugin": "whole_days", "hours": 1}}]})
