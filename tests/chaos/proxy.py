"""A TCP proxy that breaks connections in every way there is. It knows of gapless only how long a frame says it is."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from random import Random
from struct import unpack_from
from typing import Final

from typing_extensions import Self

CHUNK: Final = 1 << 16
HEADER: Final = 8
"""A frame's length stands in its first four bytes, little-endian; eight come before what it is long."""
KINDS: Final = ("cut", "stall", "truncate", "corrupt", "refuse", "dribble", "lose")
"""`cut`: both ends are reset. `stall`: for some time nothing passes. `truncate`: of what comes next a part passes and
no more. `corrupt`: a bit of what comes next is turned. `refuse`: for some time nobody gets through. `dribble`: for some
time it passes in small pieces. `lose`: the next frame is left out, as no TCP would, but as a middlebox may."""


class Proxy:
    """Passes on what comes to its port, until it is told to do worse."""

    def __init__(self, target: str, random: Random) -> None:
        """`target`: `HOST:PORT`."""
        self.done: Counter[str] = Counter()
        """What was really done, by kind: where nothing flows, nothing can be corrupted."""
        self.port = 0
        self._target = target
        self._random = random
        self._server: asyncio.Server | None = None
        self._pipes: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._spoil = ""
        """What is to happen to the next that comes."""
        self._stalled_until = self._refuses_until = self._dribbles_until = 0.0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._on_connection, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.heal()
        self._cut()
        for pipe in list(self._pipes):
            pipe.cancel()
        if self._pipes:
            await asyncio.wait(self._pipes)

    @property
    def url(self) -> str:
        """What clients connect to."""
        return f"gapless://127.0.0.1:{self.port}"

    def strike(self, kind: str, seconds: float) -> None:
        """Does one of `KINDS`; those that last do so for `seconds`."""
        until = asyncio.get_running_loop().time() + seconds
        if kind == "cut":
            self.done[kind] += bool(self._writers)
            self._cut()
        elif kind == "stall":
            self.done[kind] += 1
            self._stalled_until = until
        elif kind == "refuse":
            self.done[kind] += 1
            self._refuses_until = until
            self._cut()
        elif kind == "dribble":
            self.done[kind] += 1
            self._dribbles_until = until
        else:
            assert kind in KINDS, kind
            self._spoil = kind

    def heal(self) -> None:
        """From now on it passes on what comes."""
        self._spoil = ""
        self._stalled_until = self._refuses_until = self._dribbles_until = 0.0

    def _cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Somebody connects."""
        task = asyncio.current_task()
        assert task is not None
        self._pipes.add(task)
        self._writers.add(writer)
        host, _, port = self._target.rpartition(":")
        outward: asyncio.StreamWriter | None = None
        try:
            if self._now() < self._refuses_until:
                return
            back, outward = await asyncio.open_connection(host, int(port))
            self._writers.add(outward)
            ways = [asyncio.ensure_future(self._pass_on(*way)) for way in ((reader, outward), (back, writer))]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.wait(ways)
        except OSError:
            pass  # the broker is down: so are we
        finally:
            for end in (writer, outward):
                if end is not None:
                    self._writers.discard(end)
                    end.close()
            self._pipes.discard(task)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One direction of a connection."""
        frames = Frames()
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK):
                await asyncio.sleep(self._stalled_until - self._now())
                if writer.is_closing():
                    return
                data, cut = self._spoiled(data, frames)
                if self._now() < self._dribbles_until:
                    await self._dribble(data, writer)
                else:
                    writer.write(data)
                await writer.drain()
                if cut:
                    writer.close()
                    return

    def _spoiled(self, data: bytes, frames: Frames) -> tuple[bytes, bool]:
        """What passes in the place of what came, and whether that is the end."""
        kind, self._spoil = self._spoil, ""
        if kind == "lose":
            whole = frames.take(data, lose=True)
            if len(whole) == len(data) and not frames.losing:
                self._spoil = kind  # there was no frame to lose
            else:
                self.done[kind] += 1
            return whole, False
        data = frames.take(data, lose=False)
        if not kind or not data:
            self._spoil = kind
            return data, False
        self.done[kind] += 1
        at = self._random.randrange(len(data))
        if kind == "truncate":
            return data[:at], True
        return data[:at] + bytes([data[at] ^ 1 << self._random.randrange(8)]) + data[at + 1 :], False

    async def _dribble(self, data: bytes, writer: asyncio.StreamWriter) -> None:
        """In pieces of a few bytes; a large rest at once, or it would take for ever."""
        at = 0
        for _ in range(20):
            step = self._random.randrange(1, 12)
            if writer.is_closing():
                return
            writer.write(data[at : at + step])
            at += step
            await asyncio.sleep(0.005)
        writer.write(data[at:])

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


class Frames:
    """Where frames begin in a direction, so that a whole one can be left out."""

    def __init__(self) -> None:
        self.losing = 0
        """So many bytes that are still to come are left out."""
        self._left = 0
        """Of the frame that is under way."""
        self._header = b""

    def take(self, data: bytes, *, lose: bool) -> bytes:
        """What passes of what came; with `lose` without the first frame that begins in it."""
        passes = []
        while data:
            count = min(self.losing, len(data))
            if count:
                self.losing -= count
                data = data[count:]
                continue
            if self._left:
                count = min(self._left, len(data))
                self._left -= count
                passes.append(data[:count])
                data = data[count:]
                continue
            if lose and not self._header and len(data) >= HEADER:
                (length,) = unpack_from("<I", data)
                self.losing = HEADER + length
                lose = False
                continue
            missing = HEADER - len(self._header)
            self._header += data[:missing]
            passes.append(data[:missing])
            data = data[missing:]
            if len(self._header) == HEADER:
                (self._left,) = unpack_from("<I", self._header)
                self._header = b""
        return b"".join(passes)
