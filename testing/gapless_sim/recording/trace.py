"""What happened in a run: a hash over all of it, and the lines of it where somebody wants to read them."""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple


class Line(NamedTuple):
    """One thing that happened."""

    at: int
    """Nanoseconds since the beginning."""
    lane: str
    """Where: a node, a client, or `world`."""
    kind: str
    text: str
    peer: str = ""
    """From or to where, if something travelled."""


class Trace:
    """Every step of a run adds to the hash; notes are kept only when `keep` is set."""

    __slots__ = ("_hash", "_pending", "keep", "lines", "steps")

    def __init__(self, *, keep: bool = False) -> None:
        self.keep = keep
        self.lines: list[Line] = []
        self.steps = 0
        self._hash = blake2b(digest_size=16)
        self._pending: list[str] = []

    def step(self, at: int, lane: str, kind: str, digest: int = 0) -> None:
        """One event of the heap is carried out; `digest` stands for what it carries."""
        self.steps += 1
        self._pending.append(f"{at} {lane} {kind} {digest}\n")
        if not self.steps & 255:
            self._flush()

    def note(self, at: int, lane: str, kind: str, text: str, peer: str = "") -> None:
        """Something a person may want to read."""
        self._pending.append(f"{at} {lane} {kind} {text} {peer}\n")
        if self.keep:
            self.lines.append(Line(at, lane, kind, text, peer))

    def digest(self) -> str:
        """The hash of everything so far: equal for equal runs, on every machine."""
        self._flush()
        return self._hash.hexdigest()

    def _flush(self) -> None:
        self._hash.update("".join(self._pending).encode())
        self._pending.clear()
