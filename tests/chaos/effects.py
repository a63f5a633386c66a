"""What a consumer did, and its token, in one SQLite transaction: as an application keeps them that wants each once."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

SCHEMA = """
CREATE TABLE IF NOT EXISTS effect (
    place INTEGER PRIMARY KEY, pubend TEXT, tick INTEGER, event TEXT, checksum INTEGER, start INTEGER, reason TEXT,
    attach INTEGER
);
CREATE TABLE IF NOT EXISTS position (what TEXT PRIMARY KEY, token TEXT)
"""
INSERT = "INSERT INTO effect (pubend, tick, event, checksum, start, reason, attach) VALUES (?, ?, ?, ?, ?, ?, ?)"


class Effects:
    """The tables of one subscription. An effect is an event, or a gap: then `start` is where it begins."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = OFF")  # processes die here, not machines
        self._db.executescript(SCHEMA)

    def token(self, what: str = "now") -> str | None:
        """The stored position; `what` "start": the first one."""
        row = self._db.execute("SELECT token FROM position WHERE what = ?", (what,)).fetchone()
        return row and str(row[0])

    def store(self, rows: Iterable[tuple[Any, ...]], token: str, *, is_start: bool = False) -> None:
        """Effects and position, or none of it."""
        self._db.execute("BEGIN")
        self._db.executemany(INSERT, rows)
        names = ("now", "start") if is_start else ("now",)
        for name in names:
            self._db.execute("INSERT OR REPLACE INTO position VALUES (?, ?)", (name, token))
        self._db.execute("COMMIT")

    def close(self) -> None:
        """Ends the use of the file."""
        self._db.close()


def read_effects(path: Path) -> tuple[str | None, str | None, list[tuple[Any, ...]]]:
    """The first position, the last, and all effects in their order."""
    with closing(Effects(path)) as effects:
        rows = effects._db.execute(
            "SELECT pubend, tick, event, checksum, start, reason, attach FROM effect ORDER BY place"
        )
        return effects.token("start"), effects.token(), rows.fetchall()
