"""What may be given to a link that several share: a broker's consumers, a client's publishers (protocol: credit)."""

from __future__ import annotations


class LinkCredit:
    """Counts what is given to a link. When most of that has left, there is room for as much again."""

    __slots__ = ("_asked", "_given", "_most", "upto")

    def __init__(self, most: int, ask_from: int) -> None:
        """`most`: so many bytes may be given until there is room again; the last piece may go beyond that.

        `ask_from`: once so much is given, it is asked for when no more than that waits; at most half of `most`.
        """
        self._most = most
        self.upto = min(ask_from, most // 2)
        """With at most so many bytes waiting, the link has room."""
        self._given = 0
        self._asked = False

    @property
    def room(self) -> int:
        """How many bytes may be given now; 0 or less: none."""
        return self._most - self._given

    @property
    def given(self) -> int:
        """How many bytes may wait on the link, as far as is known."""
        return self._given

    def charge(self, size: int) -> bool:
        """So much is given to the link. Returns whether to ask now when it has room.

        That is early, and once: a quick link never has to wait for the answer.
        """
        self._given += size
        if self._asked or self._given < self.upto:
            return False
        self._asked = True
        return True

    def on_room(self, left: int) -> None:
        """There is room again: only so many bytes still wait; none, if the link is another one."""
        self._given, self._asked = left, False
