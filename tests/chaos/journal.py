"""What a process did, a line of JSON each: written at once, so that a kill takes no more than the line in hand."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

Line: TypeAlias = Mapping[str, Any]


class Journal:
    """A file that only grows; each start of a process has one of its own."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(self, kind: str, **fields: Any) -> None:
        """Writes a line: it is there when this returns, whatever becomes of the process."""
        line = json.dumps({"kind": kind, **fields}, separators=(",", ":")) + "\n"
        os.write(self._file, line.encode())


def journal_path(directory: Path, worker: str, start: int) -> Path:
    """Where a worker's nth start writes."""
    return directory / f"{worker}.{start:04}.jsonl"


def lines(directory: Path, worker: str) -> Iterator[Line]:
    """All that a worker's starts have written, in order. A last line that was cut is none."""
    for path in sorted(directory.glob(f"{worker}.[0-9]*.jsonl")):
        text = path.read_bytes()
        for line in text[: text.rfind(b"\n") + 1].splitlines():
            yield json.loads(line)
