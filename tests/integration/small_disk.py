"""A disk of its own for a test: a file system in memory, small enough to be filled."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(place: Path, size: int) -> Iterator[None]:
    """Mounted at `place`, with so many bytes. Skips the test where this process may not mount."""
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "gapless-test", str(place)]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.decode().strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(place)], capture_output=True, check=False)
