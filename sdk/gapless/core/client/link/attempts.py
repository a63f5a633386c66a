"""Counts the requests of a process to have a subscription (protocol: exclusive-consumers)."""

from __future__ import annotations

from itertools import count


class Attempts:
    """One for all connections of a process: of two requests, which may come over two brokers, the later one holds."""

    def __init__(self, process: str) -> None:
        """`process` names the process: no other one has that name."""
        self.process = process
        self._count = count(1)

    def next(self) -> int:
        """Returns the number of one more request. It may be called in several threads."""
        return next(self._count)
