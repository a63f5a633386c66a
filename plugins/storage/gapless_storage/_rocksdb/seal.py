"""What the database's files were when the volume was closed cleanly, so that the next opening is quick.

If they are the same at the next opening, RocksDB will read precisely what it wrote itself, and the log is
empty: neither the watchdog nor the chain has anything to find. RocksDB writes a new MANIFEST whenever it
opens, so a seal breaks by itself. It needs no sync: a seal that a power cut takes or spoils is no seal.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import google_crc32c

from gapless_storage._rocksdb.files import open_private
from gapless_storage._rocksdb.layout import Mark


def seal(path: Path, directory: Path, fence: Mark) -> None:
    """Notes at `path` what the files in `directory` are, and the fence. That it cannot is no error."""
    with contextlib.suppress(OSError), open(path, "w", encoding="utf-8", opener=open_private) as file:
        json.dump({"fence": fence.encode().hex(), "files": _files(directory)}, file)


def is_sealed(path: Path, directory: Path, fence: Mark) -> bool:
    """Whether all is as it was noted at `path`, and no log is left to replay."""
    try:
        noted = json.loads(path.read_bytes())
        files = _files(directory)
    except (OSError, ValueError):
        return False
    return noted == {"fence": fence.encode().hex(), "files": files} and not any(
        size for name, (size, _) in files.items() if name.endswith(".log")
    )


def _files(directory: Path) -> dict[str, list[int]]:
    """Size and checksum of each file that opening reads whole, and the size of each data file."""
    found = {}
    for path in sorted(directory.iterdir()):
        if path.name == "CURRENT" or path.name.startswith("MANIFEST-"):
            content = path.read_bytes()
            found[path.name] = [len(content), int(google_crc32c.value(content))]
        elif path.suffix in (".log", ".sst"):
            found[path.name] = [path.stat().st_size, 0]
    return found
