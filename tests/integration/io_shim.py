"""What a broker really writes, syncs and sends, in order; and how to make that fail (`io_shim.c`).

Only on Linux: it is preloaded by the dynamic linker and reads /proc. How far it sees:
RocksDB and libuv call libc as we do, and nothing of what a broker does goes through io_uring
(`Shim.environment` keeps libuv from trying).
"""

from __future__ import annotations

import mmap
import os
import shutil
import struct
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

SOURCE = Path(__file__).with_name("io_shim.c")

_MAGIC = 0x53484D31
_RECORD = struct.Struct("<IBBHiiqqII")
_CONTROL = struct.Struct("<8i64s")
_FULL, _FAIL_SYNCS, _HOLD_SYNCS, _HOLD_SENDS, _HELD, _PASS_SYNCS, _FAIL_WRITES, _WRITE_ERROR = range(0, 32, 4)
_MATCH = 32


class Kind(IntEnum):
    """What a call did, as `io_shim.c` numbers it."""

    WRITE = 1
    SYNC = 2
    SEND = 3
    OPEN = 4
    """Only one that may make a file or empty it."""
    RENAME = 5
    UNLINK = 6
    TRUNCATE = 7
    MKDIR = 8
    LINK = 9
    NOTE = 10
    """Nothing that a broker did, but a word of whoever watches it (`Shim.note`)."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the broker. A file is named by its path in the data directory, a peer by its port.

    What renames and links has two names, with a line's end between them.
    """

    kind: Kind
    target: str
    began: int
    """The place in the journal where it began."""
    ended: int
    """The place where it had ended; beyond all others when it never did."""
    result: int
    error: int
    """An errno, or 0."""
    data: bytes
    """What was written or sent; of more than 64 KiB the beginning, unless all that is written was asked for."""
    offset: int = -1
    """Where in the file it was written, or how long the file became; of OPEN, 1 if the file was emptied."""

    @property
    def worked(self) -> bool:
        """Whether it ended, and well."""
        return self.result >= 0 and self.ended < NEVER


NEVER = 1 << 62


def compile_shim(directory: Path) -> Path:
    """Compiles the library into a directory. Fails, and says what to install, where there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise RuntimeError(
            "these tests compile tests/integration/io_shim.c and find no C compiler: install one "
            "(Debian, Ubuntu: apt-get install gcc libc6-dev; Fedora: dnf install gcc)"
        )
    library = directory / "io_shim.so"
    command = [compiler, "-O1", "-Wall", "-Wextra", "-shared", "-fPIC", "-o", str(library), str(SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return library


class Shim:
    """One journal, for every process that runs with `environment`, and what is to go wrong in them."""

    def __init__(self, library: Path, directory: Path, scratch: Path, *, whole: bool = False) -> None:
        """Looks at the files of `directory`, and keeps its own in `scratch`. `whole`: notes all that is written."""
        self._journal = scratch / "journal"
        self._journal.touch()
        control = scratch / "control"
        control.write_bytes(bytes(_CONTROL.size))
        with control.open("r+b") as file:
            self._control = mmap.mmap(file.fileno(), _CONTROL.size)
        self.environment = {
            "LD_PRELOAD": str(library),
            "SHIM_OF_DISK_DIRECTORY": str(directory.resolve()),
            "SHIM_OF_DISK_JOURNAL": str(self._journal),
            "SHIM_OF_DISK_CONTROL": str(control),
            "UV_USE_IO_URING": "0",
        } | ({"SHIM_OF_DISK_WHOLE": "1"} if whole else {})

    # What goes wrong.

    def fill_disk(self, *, full: bool) -> None:
        """Whether every write to a file of the directory fails for want of space."""
        self._set(_FULL, int(full))

    def fail_syncs(self, count: int, match: str, *, after: int = 0) -> None:
        """The next syncs of files whose name ends so fail with EIO, once so many went well.

        With "*" at its end, `match` may stand anywhere in the name.
        """
        self._match(match)
        self._set(_PASS_SYNCS, after)
        self._set(_FAIL_SYNCS, count)

    def fail_writes(self, error: int, match: str, *, count: int = -1) -> None:
        """The next writes to files whose name ends so fail with that errno; without a count all do."""
        self._match(match)
        self._set(_WRITE_ERROR, error)
        self._set(_FAIL_WRITES, count)

    @property
    def writes_to_fail(self) -> int:
        """How many are still to come."""
        (left,) = struct.unpack_from("<i", self._control, _FAIL_WRITES)
        return int(left)

    @property
    def syncs_to_fail(self) -> int:
        """How many are still to come."""
        (left,) = struct.unpack_from("<i", self._control, _FAIL_SYNCS)
        return int(left)

    def hold_syncs(self, *, hold: bool) -> None:
        """Whether syncs wait."""
        self._set(_HOLD_SYNCS, int(hold))

    def hold_sends(self, *, hold: bool) -> None:
        """Whether whatever is sent waits, and with it the thread that sends."""
        self._set(_HOLD_SENDS, int(hold))

    @property
    def held(self) -> int:
        """How many calls wait just now."""
        (held,) = struct.unpack_from("<i", self._control, _HELD)
        return int(held)

    def reset(self) -> None:
        """Nothing goes wrong any more. To be called after a kill, too: who was held does not count down."""
        self._control[:] = bytes(_CONTROL.size)

    # What happened.

    @property
    def journal(self) -> Path:
        """Where it is written down."""
        return self._journal

    def note(self, words: str) -> None:
        """Puts words of our own into the journal."""
        data = words.encode()
        process, thread = os.getpid(), threading.get_native_id()
        begin = _RECORD.pack(_MAGIC, Kind.NOTE, 0, 0, thread, 0, 0, -1, 0, process)
        end = _RECORD.pack(_MAGIC, Kind.NOTE, 1, 0, thread, 0, len(data), -1, len(data), process)
        with self._journal.open("ab", buffering=0) as file:
            file.write(begin + end + data)

    def calls(self) -> list[Call]:
        """All calls so far, in the order in which they began."""
        return read_calls(self._journal)

    def _match(self, match: str) -> None:
        self._control[_MATCH : _MATCH + 64] = match.encode().ljust(64, b"\0")

    def _set(self, at: int, value: int) -> None:
        struct.pack_into("<i", self._control, at, value)

    def close(self) -> None:
        """Lets go of the control file; whoever is held goes on."""
        self.reset()
        self._control.close()


def read_calls(journal: Path) -> list[Call]:
    """All calls in a journal, in the order in which they began."""
    begun: dict[tuple[int, int], tuple[int, Kind, str]] = {}
    calls: list[Call] = []
    for place, (record, target, data) in enumerate(_records(journal.read_bytes())):
        _, kind, ended, _, thread, error, result, offset, _, process = record
        who = process, thread
        if not ended:
            begun[who] = place, Kind(kind), target
            continue
        began, *_ = begun.pop(who)
        calls.append(Call(Kind(kind), target, began, place, result, error, data, offset))
    calls += [Call(kind, target, began, NEVER, 0, 0, b"") for began, kind, target in begun.values()]
    return sorted(calls, key=lambda call: call.began)


def _records(journal: bytes) -> Iterator[tuple[tuple[int, ...], str, bytes]]:
    at = 0
    while at + _RECORD.size <= len(journal):
        record = _RECORD.unpack_from(journal, at)
        assert record[0] == _MAGIC
        data_at = at + _RECORD.size + record[3]
        end = data_at + record[8]
        if end > len(journal):
            return  # it is just being written
        yield record, journal[at + _RECORD.size : data_at].decode(), journal[data_at:end]
        at = end
