"""A broker that says how it is: an ordinary one, but for a line of JSON on its output for each line it is sent.

python -m bench.status_broker CONFIG [SECONDS]      each sync of its volume takes so much longer, as on a slower disk
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path

from msgspec import to_builtins

from gapless.cli.connecting import run
from gapless.node.config import load_config
from gapless.node.node import Node, serve
from gapless_storage.rocksdb import RocksdbVolume


def main(config: str, slower_sync: str = "0") -> None:
    """Runs until it is told to stop."""
    if float(slower_sync):
        slow_down(float(slower_sync))

    def announce(node: Node) -> None:
        print(json.dumps({"url": node.url}), flush=True)
        asyncio.get_running_loop().add_reader(sys.stdin, _answer, node)

    run(serve(load_config(Path(config), os.environ, create=True), announce))


def slow_down(seconds: float) -> None:
    """From now on syncs take so much longer, in this process."""
    fast = RocksdbVolume.sync

    def sync(self: RocksdbVolume) -> None:
        time.sleep(seconds)
        fast(self)

    RocksdbVolume.sync = sync  # type: ignore[method-assign]


def _answer(node: Node) -> None:
    if sys.stdin.readline():
        print(json.dumps([to_builtins(gauge) for gauge in node.gauges()]), flush=True)
    else:
        asyncio.get_running_loop().remove_reader(sys.stdin)


if __name__ == "__main__":
    main(*sys.argv[1:])
