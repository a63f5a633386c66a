"""A real node in this process, on real storage and real TCP, for tests that need to hold it by hand."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from gapless.node.config import make_config
from gapless.node.node import Node


@contextlib.asynccontextmanager
async def running_node(directory: Path | None = None, **sections: dict[str, Any]) -> AsyncIterator[Node]:
    """A node on a free port of loopback: on RocksDB in `directory`, in memory without one."""
    storage = {"plugin": "memory", "path": ""} if directory is None else {"path": str(directory)}
    settings: dict[str, Any] = {"storage": storage, "listen": [{"address": "127.0.0.1:0"}]} | sections
    node = await Node.start(make_config(settings))
    try:
        yield node
    finally:
        await node.stop()
