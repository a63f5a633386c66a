"""Storages that are installed for a test: the example's, and one that forgets."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from documents import ROOT
from gapless import plugins

FORGETFUL = '''
"""The example's storage, but for one thing: whenever it is opened again, the newest record of each stream is gone."""

import sqlite3
from contextlib import closing
from pathlib import Path

import gapless_sqlite_storage as sound
from gapless.plugins import hookimpl


@hookimpl
def open_storage(path, identity, options, create):
    file = Path(path) / "volume.sqlite"
    if file.exists():
        with closing(sqlite3.connect(file)) as database, database:
            newest = "(SELECT stream, MAX(position) FROM records GROUP BY stream)"
            database.execute(f"DELETE FROM records WHERE (stream, position) IN {newest}")
    return sound.open_storage(path=path, identity=identity, options=options, create=create)
'''


def install(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installs `sqlite` and `forgetful` in the directory `site`, for this process and those that it starts."""
    info = site / "storages-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: storages\nVersion: 1.0\n", "utf-8")
    points = "[gapless.storage]\nsqlite = gapless_sqlite_storage\nforgetful = forgetful_storage\n"
    (info / "entry_points.txt").write_text(points, "utf-8")
    (site / "forgetful_storage.py").write_text(FORGETFUL, "utf-8")
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "sqlite_storage"))
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delitem(sys.modules, "forgetful_storage", raising=False)
    plugins.load.cache_clear()
