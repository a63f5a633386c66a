"""How many events of a shared subscription may be unsettled, over all its pubends (protocol: shared-subscriptions).

Half of the room is shared out: each pubend is sure of an equal part of that, of one event at the least. The other half
is for whoever comes first. So one pubend whose events are stuck does not stop the others, and one alone has more than a
half. Where there are more pubends than room, each has one event at most, and they take turns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gapless.core.stream.ticks import PubendId
from gapless_shb.core.shared.window import CHUNK, Window

BYTES_MAX: Final = 32 << 20
"""So many bytes may the unsettled events of a subscription have."""


class Room:
    """See the module."""

    def __init__(self, events_max: int, windows: Mapping[PubendId, Window], bytes_max: int = BYTES_MAX) -> None:
        self._events_max = events_max
        self._bytes_max = bytes_max
        self._windows = windows
        self.refused: dict[PubendId, None] = {}
        """The pubends that had to wait since somebody looked, in their order."""

    @property
    def count(self) -> int:
        """How many events are unsettled."""
        return sum(window.count for window in self._windows.values())

    def events(self, pubend: PubendId) -> int:
        """Returns how many more events a pubend may have unsettled; 0: none, and it will be told when it may."""
        room = self._events(pubend)
        if room <= 0:
            self.refused[pubend] = None
        return max(0, room)

    def _events(self, pubend: PubendId) -> int:
        windows, own = self._windows, self._windows[pubend]
        sure = self._events_max // (2 * len(windows)) or int(len(windows) <= self._events_max)
        if not sure:
            return int(not own.count and self.count < self._events_max)
        common = self._events_max - sure * len(windows)
        used = sum(max(0, window.count - sure) for window in windows.values())
        room = max(0, sure - own.count) + max(0, common - used)
        if not own.count:
            return room
        sure_bytes = self._bytes_max // (2 * len(windows))
        used_bytes = sum(max(0, window.size - sure_bytes) for window in windows.values())
        if own.size >= sure_bytes and used_bytes >= self._bytes_max - sure_bytes * len(windows):
            return 0
        one = max(1, own.size // own.count)
        left = max(0, sure_bytes - own.size) + max(0, self._bytes_max - sure_bytes * len(windows) - used_bytes)
        return min(room, max(1, left // one))

    def take_freed(self) -> list[PubendId]:
        """Returns the pubends that had to wait and may go on, in their order: the first of them may leave no room.

        Who has something yet to go out waits until there is room for some: so what is read comes in runs.
        """
        freed = [pubend for pubend in self.refused if self._events(pubend) >= self._enough(self._windows[pubend])]
        for pubend in freed:
            del self.refused[pubend]
        return freed

    def _enough(self, window: Window) -> int:
        return 1 if window.is_drained or not window.count else max(1, min(CHUNK, self._events_max // 4))
