"""Lines of a file, a pipe or a terminal, for an event loop that must not wait for them."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from typing import Final

from gapless.errors import InvalidMessageError

CHUNK_BYTES: Final = 1 << 18
CHUNKS_AHEAD: Final = 4
"""How many chunks are read before anybody wants them."""
LINE_BYTES_MAX: Final = 1 << 24
"""A longer line cannot be an event, whatever escapes it is written with."""


class LineReader:
    """Reads lines in a thread of its own, as they come; iterate it once.

    The thread is a daemon: one that waits for a terminal must not keep the process from ending.
    """

    def __init__(self, descriptor: int) -> None:
        # Its own, which the thread closes: nobody can close it under the thread and open something else there.
        self._descriptor = os.dup(descriptor)
        self._loop = asyncio.get_running_loop()
        self._chunks: asyncio.Queue[bytes | OSError] = asyncio.Queue()
        self._room = threading.Semaphore(CHUNKS_AHEAD)
        self._stopped = False

    def stop(self) -> None:
        """Ends the iteration after the lines that were read."""
        self._stopped = True
        self._chunks.put_nowait(b"")

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Raises OSError as reading does, InvalidMessageError for a line that is far too long."""
        threading.Thread(target=self._read, name="lines", daemon=True).start()
        rest = b""
        while chunk := await self._next_chunk():
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > LINE_BYTES_MAX:
                raise InvalidMessageError(f"it is longer than {LINE_BYTES_MAX:,} bytes")
            for line in lines:
                yield line
        if rest and not self._stopped:
            yield rest

    async def _next_chunk(self) -> bytes:
        chunk = await self._chunks.get()
        self._room.release()
        if isinstance(chunk, OSError):
            raise chunk
        return chunk

    def _read(self) -> None:
        try:
            self._read_chunks()
        finally:
            os.close(self._descriptor)

    def _read_chunks(self) -> None:
        while True:
            self._room.acquire()
            try:
                chunk: bytes | OSError = os.read(self._descriptor, CHUNK_BYTES)
            except OSError as error:
                chunk = error
            try:
                self._loop.call_soon_threadsafe(self._chunks.put_nowait, chunk)
            except RuntimeError:  # the loop is closed: nobody wants lines any more
                return
            if not chunk or isinstance(chunk, OSError):
                return
