"""What may be given to a link that several share: a broker's consumers, a client's publishers (protocol: credit)."""

from __future__ import annotations


class LinkCredit:
    """Counts what is given to a link. When most of that has left, there is room for as much again."""

    __slots__ = ("_asked", "_given", "_most")

    def __init__(self, most: int) -> None:
        """`most`: so many bytes may be given until there is room again; the last piece may go beyond that."""
        self._most = most
        self._given = 0
        self._asked = False

    @property
    def room(self) -> int:
        """How many bytes may be given now; 0 or less: none."""
        return self._most - self._given

    @property
    def upto(self) -> int:
        """With at most so many bytes waiting, the link has room."""
        return self._most // 2

    def charge(self, size: int) -> bool:
        """So much is given to the link. Returns whether to ask now when it has room.

        That is early, and once: a quick link never has to wait for the answer.
        """
        self._given += size
        if self._asked or 2 * self._given < self._most:
            return False
        self._asked = True
        return True

    def on_room(self) -> None:
        """There is room again; or the link is another one."""
        self._given, self._asked = 0, False
