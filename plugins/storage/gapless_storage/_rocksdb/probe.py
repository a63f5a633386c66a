"""What is flushed: the marks in the database's files, its log left aside.

RocksDB's open can hang for ever with the GIL held (one flipped bit in the MANIFEST is enough), so this
runs in a child process that `watchdog` can kill. It opens for reading only and changes nothing on disk;
what hangs or fails here does so as well when opened for writing.

Nothing of gapless but `layout` is imported here: a child must start fast.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import rocksdict

from gapless_storage._rocksdb.layout import LOG_FAMILY, LOG_MARK_KEY, MARK_KEY


@dataclass(frozen=True, slots=True)
class Flushed:
    """The mark in the files of each family, encoded; None when nothing was flushed yet."""

    default: bytes | None
    log: bytes | None


def inspect(directory: str) -> Flushed:
    """Opens the database for reading, without its log. Raises whatever rocksdict raises."""
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(False)
    options.set_wal_dir(str(Path(directory).parent))  # where there are no logs
    database = rocksdict.Rdict(
        directory,
        options,
        column_families={LOG_FAMILY: rocksdict.Options(raw_mode=True)},
        access_type=rocksdict.AccessType.read_only(False),
    )
    try:
        log = database.get_column_family(LOG_FAMILY)
        return Flushed(database.get(MARK_KEY), log.get(LOG_MARK_KEY))
    finally:
        log = None
        database.close()


def main() -> None:
    """The child: tells its parent on standard output, as JSON, what it found or why it could not."""
    try:
        flushed = inspect(sys.argv[1])
        answer = {"default": _hex(flushed.default), "log": _hex(flushed.log)}
    except Exception as error:  # noqa: BLE001 — rocksdict raises bare exceptions
        answer = {"error": str(error)}
    sys.stdout.write(json.dumps(answer))
    sys.stdout.flush()


def _hex(value: bytes | None) -> str | None:
    return None if value is None else value.hex()
