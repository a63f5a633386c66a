"""What roles read of a volume while they are made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gapless.core.ports import VOLUME_LOG, LogFacts

if TYPE_CHECKING:
    from gapless.spi import LogVolume


class VolumeReader:
    """A `RecoveryReader` over a volume. Reads as it goes, so that a long log is never held in memory."""

    def __init__(self, volume: LogVolume) -> None:
        self._volume = volume

    def scan(self, table: str, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """All pairs of a table whose key starts with `prefix`, in key order."""
        return self._volume.table(table).scan(prefix)

    def records(self, stream: str, after: int = 0) -> Iterator[tuple[int, bytes]]:
        """All records of a stream with an index > after, in order."""
        log = self._volume.stream(stream)
        last = log.last
        while after < last:
            records = log.read(after, last)
            if not records:
                return
            yield from records
            after = records[-1][0]

    def given_up(self, stream: str) -> Sequence[tuple[int, int]]:
        """The ranges (after, upto] of a stream that an operator has given up."""
        return self._volume.stream(stream).given_up

    def facts(self, log: str) -> LogFacts:
        """Where a log begins and ends; what all logs of a volume can do."""
        stream = self._volume.stream(log)
        can = replace(VOLUME_LOG, durable=self._volume.capabilities.durable)
        return LogFacts(log, stream.first, stream.last, can)

    def size(self, stream: str) -> int:
        """About how many bytes a stream's records take."""
        return self._volume.stream(stream).size
