"""Brokers inside this process, each on its own volume, shared by all connections to that volume."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from gapless.errors import ConnectionClosedError, GaplessError, VolumeLockedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from gapless.node.node import Node
    from gapless.spi import Link, LinkHandler


@dataclass(slots=True)
class _Shared:
    """A node, and how many connections use it."""

    started: asyncio.Future[Node]
    users: int = 0


_nodes: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Path, _Shared]] = WeakKeyDictionary()
"""The nodes of each loop, because a node lives on the loop that started it."""


class EmbeddedBroker:
    """One connection's use of a broker in this process."""

    def __init__(self, path: str) -> None:
        """`path`: the volume's directory; "": in memory, for this connection alone."""
        self._path = Path(path).resolve() if path else None
        self._node: Node | None = None
        self._process = os.getpid()
        self._watching: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Starts the broker, unless another connection of this loop has started it.

        Raises ConfigurationError, and StorageError if the volume cannot be opened.
        """
        if self._path is None:
            self._node = await _start_node({"plugin": "memory", "path": ""})
            return
        shared = _shared(self._path)
        shared.users += 1
        try:
            # The start is shared: a caller that is cancelled must not cancel it for the others.
            self._node = await asyncio.shield(shared.started)
        except BaseException:
            await self._leave(self._path)
            raise

    async def dial(self, _address: str, accept: Callable[[Link], LinkHandler]) -> Link:
        """Returns a link to the broker."""
        assert self._node is not None
        return await self._node.dial(accept)

    def watch(self, on_ended: Callable[[GaplessError], None]) -> None:
        """Calls this once the broker has given up: its volume is gone, for one. Nobody starts it again."""
        assert self._node is not None
        self._watching = asyncio.create_task(_watch(self._node, on_ended))

    async def stop(self) -> None:
        """Stops the broker, unless another connection uses it."""
        if self._watching is not None and self._process == os.getpid():
            self._watching.cancel()
        node, self._node = self._node, None
        if node is None or self._process != os.getpid():
            return
        if self._path is None:
            await node.stop()
        else:
            await self._leave(self._path)

    def let_go(self) -> None:
        """Its loop has ended without it: another loop may use the volume now."""
        self._node = None
        _let_go_of_ended()

    @staticmethod
    async def _leave(path: Path) -> None:
        nodes = _nodes[asyncio.get_running_loop()]
        shared = nodes[path]
        shared.users -= 1
        if not shared.users:
            del nodes[path]
            await asyncio.wait([shared.started])
            if not shared.started.cancelled() and shared.started.exception() is None:
                await shared.started.result().stop()


async def _watch(node: Node, on_ended: Callable[[GaplessError], None]) -> None:
    try:
        await node.wait()
    except GaplessError as error:
        on_ended(error)
    except Exception as error:  # noqa: BLE001 - whatever it was, there is no broker any more
        on_ended(ConnectionClosedError(f"the embedded broker has given up: {error!r}"))


def _let_go_of_ended() -> None:
    """Lets go of the volumes of brokers whose loops were closed: nobody else can."""
    for loop, nodes in list(_nodes.items()):
        if loop.is_closed():
            del _nodes[loop]
            for shared in nodes.values():
                started = shared.started
                if started.done() and not started.cancelled() and started.exception() is None:
                    started.result().let_go()


def _shared(path: Path) -> _Shared:
    _let_go_of_ended()
    nodes = _nodes.setdefault(asyncio.get_running_loop(), {})
    if any(path in others for others in _nodes.values() if others is not nodes):
        raise VolumeLockedError(
            f"{path} is open on another event loop of this process: an embedded broker is shared by the connections of"
            " one event loop, and by all of gapless.sync; run `gapless broker` for both"
        )
    shared = nodes.get(path)
    if shared is None:
        storage = {"plugin": "rocksdb", "path": str(path)}
        shared = nodes[path] = _Shared(asyncio.ensure_future(_start_node(storage)))
    return shared


async def _start_node(storage: dict[str, Any]) -> Node:
    from gapless.node.config import EMBEDDED, make_config
    from gapless.node.node import Node

    settings = {"node": {"name": EMBEDDED}, "storage": storage, "listen": []}
    return await Node.start(make_config(settings, "an embedded broker"))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_nodes.clear)  # they are the parent's
