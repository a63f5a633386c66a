"""Breaks the connections of a client in every way there is. It knows of gapless only how long a frame says it is."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from random import Random
from struct import unpack_from
from typing import Final

from typing_extensions import Self

from gapless_testing.fault_proxy import Direction, FaultProxy, Filter, Passing

HEADER: Final = 8
"""A frame's length stands in its first four bytes, little-endian; eight come before what it is long."""
KINDS: Final = ("cut", "stall", "truncate", "corrupt", "refuse", "dribble", "lose")
"""`cut`: both ends are reset. `stall`: for some time nothing passes. `truncate`: of what comes next a part passes and
no more. `corrupt`: a bit of what comes next is turned. `refuse`: for some time nobody gets through. `dribble`: for some
time it passes in small pieces. `lose`: the next frame is left out, as no TCP would, but as a middlebox may."""


class Striker:
    """Strikes the connections that go through a proxy of its own."""

    def __init__(self, target: str, random: Random) -> None:
        """`target`: `HOST:PORT`."""
        self.done: Counter[str] = Counter()
        """What was really done, by kind: where nothing flows, nothing can be corrupted."""
        self._proxy = FaultProxy(target, self._filter_of)
        self._random = random
        self._spoil = ""
        """What is to happen to the next that comes."""
        self._dribbles_until = 0.0
        self._ends: dict[str, asyncio.TimerHandle] = {}
        """When what lasts is over, by kind."""

    async def __aenter__(self) -> Self:
        await self._proxy.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.heal()
        await self._proxy.__aexit__()

    @property
    def url(self) -> str:
        """What clients connect to."""
        return f"gapless://{self._proxy.address}"

    def strike(self, kind: str, seconds: float) -> None:
        """Does one of `KINDS`; those that last do so for `seconds`."""
        now = asyncio.get_running_loop().time()
        if kind == "cut":
            self.done[kind] += self._proxy.is_used
            self._proxy.cut()
        elif kind == "stall":
            self.done[kind] += 1
            self._proxy.stall()
            self._until(kind, now + seconds, self._proxy.go_on)
        elif kind == "refuse":
            self.done[kind] += 1
            self._proxy.refuses = True
            self._proxy.cut()
            self._until(kind, now + seconds, self._refuse_no_more)
        elif kind == "dribble":
            self.done[kind] += 1
            self._dribbles_until = now + seconds
        else:
            assert kind in KINDS, kind
            self._spoil = kind

    def heal(self) -> None:
        """From now on what comes is passed on."""
        self._spoil = ""
        self._dribbles_until = 0.0
        for end in self._ends.values():
            end.cancel()
        self._ends.clear()
        self._proxy.heal()

    def _until(self, kind: str, at: float, end: Callable[[], None]) -> None:
        if kind in self._ends:
            self._ends[kind].cancel()
        self._ends[kind] = asyncio.get_running_loop().call_at(at, end)

    def _refuse_no_more(self) -> None:
        self._proxy.refuses = False

    def _filter_of(self, _direction: Direction) -> Filter:
        frames = Frames()

        def judge(data: bytes) -> Passing:
            data, is_end = self._spoiled(data, frames)
            dribbles = asyncio.get_running_loop().time() < self._dribbles_until
            return Passing(self._dribbled(data) if dribbles else [data], is_end)

        return judge

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

    def _dribbled(self, data: bytes) -> list[bytes]:
        """In pieces of a few bytes; a large rest at once, or it would take for ever."""
        pieces, at = [], 0
        for _ in range(20):
            step = self._random.randrange(1, 12)
            pieces.append(data[at : at + step])
            at += step
        return [*pieces, data[at:]]


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
