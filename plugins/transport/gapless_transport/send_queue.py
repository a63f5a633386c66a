"""What waits to be sent on a link. Pure."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

Item = TypeVar("Item")


class SendQueue(Generic[Item]):
    """Two queues of items with sizes: the urgent ones leave first, each queue in its order."""

    def __init__(self) -> None:
        self.size = 0
        """The sum of the sizes of all that waits."""
        self._urgent: deque[tuple[Item, int]] = deque()
        self._data: deque[tuple[Item, int]] = deque()

    def __bool__(self) -> bool:
        return bool(self._data or self._urgent)

    def put(self, item: Item, size: int, *, urgent: bool = False) -> None:
        """Adds an item behind those of its kind."""
        (self._urgent if urgent else self._data).append((item, size))
        self.size += size

    def take(self, room: int) -> list[Item]:
        """Removes the items that leave next: as many as fit into `room`, but one if there is any."""
        taken: list[Item] = []
        for queue in (self._urgent, self._data):
            while queue:
                item, size = queue[0]
                if taken and size > room:
                    return taken
                room -= size
                self.size -= size
                taken.append(item)
                queue.popleft()
        return taken

    def clear(self) -> None:
        """Drops everything."""
        self._urgent.clear()
        self._data.clear()
        self.size = 0
