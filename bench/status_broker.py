"""A broker that says how it is: an ordinary one, but for a line of JSON on its output for each line it is sent.

python -m bench.status_broker CONFIG
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from msgspec import to_builtins

from gapless.cli.connecting import run
from gapless.node.config import load_config
from gapless.node.node import Node, serve


def main(config: str) -> None:
    """Runs until it is told to stop."""

    def announce(node: Node) -> None:
        print(json.dumps({"url": node.url}), flush=True)
        asyncio.get_running_loop().add_reader(sys.stdin, _answer, node)

    run(serve(load_config(Path(config), os.environ, create=True), announce))


def _answer(node: Node) -> None:
    if sys.stdin.readline():
        print(json.dumps([to_builtins(gauge) for gauge in node.gauges()]), flush=True)
    else:
        asyncio.get_running_loop().remove_reader(sys.stdin)


if __name__ == "__main__":
    main(sys.argv[1])
