"""What can be done with an open volume, and all that can be seen of it: the same for every kind of volume."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, TypeAlias

from gapless.errors import StorageError
from gapless.spi import LogVolume, VolumeIdentity

STREAMS = ("a", "b")
TABLES = ("t", "u")

Step: TypeAlias = "tuple[Any, ...]"
"""One step of a history: what to do, and with what."""
Outcome: TypeAlias = "tuple[object, object]"
"""What a step said, and what the volume shows after it; None while none is open."""


class Player:
    """One process with at most one volume. Each step is a method."""

    def __init__(self, open_volume: Callable[[VolumeIdentity], LogVolume]) -> None:
        self._open_volume = open_volume
        self.volume: LogVolume | None = None

    def play(self, step: Step) -> Outcome:
        """What the step said: "done", something to tell, or the type of its error."""
        name, *arguments = step
        told = said(lambda: getattr(self, name)(*arguments))
        return told, self.seen()

    def seen(self) -> object:
        """All that the open volume shows; an error's type instead of what cannot be read."""
        if self.volume is None:
            return None
        volume = self.volume
        streams = {name: said(lambda name=name: _stream_seen(volume, name)) for name in STREAMS}  # type: ignore[misc]
        tables = {name: said(lambda name=name: list(volume.table(name).scan())) for name in TABLES}  # type: ignore[misc]
        return streams, tables

    # Opening and closing.

    def open(self, node: str = "node") -> object:
        """Opens the volume, and makes sure of its names, which RocksDB counts as something to write."""
        volume = self._open_volume(VolumeIdentity("network", node))
        self.volume = volume
        for name in STREAMS:
            said(lambda name=name: volume.stream(name))  # type: ignore[misc]
        for name in TABLES:
            volume.table(name)
        volume.write()
        volume.sync()
        return "made" if volume.created else "opened"

    def again(self) -> object:
        """Opens it once more, while it is open."""
        self._open_volume(VolumeIdentity("network", "node")).close()
        return "opened twice"

    def close(self) -> None:
        """Closes it."""
        volume, self.volume = self.the_volume, None
        volume.close()

    # Staging.

    def put(self, stream: str, gap: int, size: int) -> object:
        """A record of that size, and of a content that no other record has."""
        log = self.the_volume.stream(stream)
        index = log.last + gap
        log.put(index, b"%s %d " % (stream.encode(), index) * (1 + size // 4))
        return index

    def chop(self, stream: str, percent: int) -> None:
        """Somewhere between nothing and more than all."""
        log = self.the_volume.stream(stream)
        log.chop(log.last * percent // 100)

    def set(self, table: str, key: bytes, value: bytes) -> None:
        """A row."""
        self.the_volume.table(table).put(key, value)

    def delete(self, table: str, key: bytes) -> None:
        """A row less."""
        self.the_volume.table(table).delete(key)

    # What may fail.

    def read(self, stream: str, after: int, upto: int) -> object:
        """The indexes of what a read returns."""
        return [index for index, _ in self.the_volume.stream(stream).read(after, upto, 1 << 40)]

    def write(self) -> None:
        """Writes what is staged."""
        self.the_volume.write()

    def sync(self) -> None:
        """Syncs."""
        self.the_volume.sync()

    def reclaim(self) -> None:
        """Gives space back. How much is anyone's guess."""
        self.the_volume.reclaim()

    @property
    def the_volume(self) -> LogVolume:
        """The open volume."""
        assert self.volume is not None, "the history has opened no volume"
        return self.volume


def said(act: Callable[[], object]) -> object:
    """What it returned, "done" for nothing, or the type of the storage's error that it raised."""
    try:
        told = act()
    except StorageError as error:
        return type(error).__name__
    return "done" if told is None else told


def _stream_seen(volume: LogVolume, name: str) -> object:
    stream = volume.stream(name)
    records = stream.read(0, 1 << 62, 1 << 40)
    return stream.first, stream.last, [(index, len(record), zlib.crc32(record)) for index, record in records]
