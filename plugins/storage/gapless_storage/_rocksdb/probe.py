"""What is flushed: the marks in the database's files, its log left aside.

RocksDB's open can hang for ever with the GIL held (one flipped bit in the MANIFEST is enough), so this
runs in a child process that `watchdog` can kill. It opens for reading only and changes nothing on disk;
what hangs or fails here does so as well when opened for writing.

A child must start fast: it imports rocksdict, and of the standard library what Python has loaded anyway.
"""

from __future__ import annotations

import sys

import rocksdict

from gapless_storage._rocksdb.keys import LOG_FAMILY, LOG_MARK_KEY, MARK_KEY


def inspect(directory: str, no_logs: str) -> tuple[bytes | None, bytes | None]:
    """The encoded mark in the files of the default and of the log family; None: nothing is flushed.

    Opens the database for reading; its logs are looked for in the directory `no_logs`, where none are.
    Raises whatever rocksdict raises.
    """
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(False)
    options.set_wal_dir(no_logs)
    database = rocksdict.Rdict(
        directory,
        options,
        column_families={LOG_FAMILY: rocksdict.Options(raw_mode=True)},
        access_type=rocksdict.AccessType.read_only(False),
    )
    try:
        return database.get(MARK_KEY), database.get_column_family(LOG_FAMILY).get(LOG_MARK_KEY)
    finally:
        database.close()


def main() -> None:
    """The child: tells its parent on standard output what it found, or why it could not."""
    try:
        default, log = (mark.hex() if mark is not None else "-" for mark in inspect(*sys.argv[1:]))
        answer = f"found {default} {log}"
    except Exception as error:  # noqa: BLE001 — rocksdict raises bare exceptions
        answer = f"error {error}"
    sys.stdout.write(answer)
    sys.stdout.flush()
