"""The patterns of LIKE, matched in linear time: no pattern can make a match take long.

The `%`s cut a pattern into segments. The first segment must begin the text, and the last must end it. Those between are
found one after the other, each as far to the left as possible. An earlier place leaves more room for the rest, so there
is never a reason to go back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Finder = Callable[[str, int, int], int]
"""(text, start, stop) → where a segment ends that lies in text[start:stop]; -1 if there is none."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Literal text in which any character fits at the offsets in `holes`; the text has `_` there."""

    text: str
    holes: tuple[int, ...] = ()

    def fits(self, text: str, start: int) -> bool:
        """Whether the segment stands at `start` of a text that is long enough."""
        at = 0
        for hole in self.holes:
            if not text.startswith(self.text[at:hole], start + at):
                return False
            at = hole + 1
        return text.startswith(self.text[at:], start + at)

    def finder(self) -> Finder:
        """Returns a function that finds the segment in a text."""
        return _ShiftAnd(self) if self.holes else _Literal(self.text)


@dataclass(frozen=True, slots=True)
class LikePattern:
    """A pattern of LIKE: segments in this order, with any characters between two of them.

    `_` is one character (a code point), and `%` any number of characters, newlines included. Every other character, and
    every character after the escape character, stands for itself. An escape character at the very end stands for
    itself, too. (Jakarta Messaging 3.1 section 3.8.1.1; the last rule is ours.)
    """

    segments: tuple[Segment, ...]

    @classmethod
    def parse(cls, pattern: str, escape: str = "") -> LikePattern:
        """Returns the pattern of a LIKE literal and its ESCAPE literal, if there is one."""
        segments: list[Segment] = []
        characters: list[str] = []
        holes: list[int] = []
        at = 0
        while at < len(pattern):
            character = pattern[at]
            if character == escape and at + 1 < len(pattern):
                at += 1
                characters.append(pattern[at])
            elif character == "%" and character != escape:
                segments.append(Segment("".join(characters), tuple(holes)))
                characters, holes = [], []
            else:
                if character == "_" and character != escape:
                    holes.append(len(characters))
                characters.append(character)
            at += 1
        segments.append(Segment("".join(characters), tuple(holes)))
        # Two `%` in a row mean the same as one: empty segments matter only at the ends.
        inner = [segment for segment in segments[1:-1] if segment.text]
        return cls((*segments[:1], *inner, *segments[1:][-1:]))

    @property
    def literal(self) -> str | None:
        """The only matching text, if there is only one."""
        if len(self.segments) == 1 and not self.segments[0].holes:
            return self.segments[0].text
        return None

    def matcher(self) -> Callable[[str], bool]:
        """Returns a function that tests whether a text matches; make it once and use it often."""
        if len(self.segments) == 1:
            only = self.segments[0]
            return lambda text: len(text) == len(only.text) and only.fits(text, 0)
        first, *inner, last = self.segments
        finders = [segment.finder() for segment in inner]
        return lambda text: _matches(text, first, finders, last)


def _matches(text: str, first: Segment, finders: list[Finder], last: Segment) -> bool:
    start, stop = len(first.text), len(text) - len(last.text)
    if start > stop or not first.fits(text, 0) or not last.fits(text, stop):
        return False
    for find in finders:
        start = find(text, start, stop)
        if start < 0:
            return False
    return True


class _Literal:
    """Finds a segment without holes."""

    def __init__(self, wanted: str) -> None:
        self._wanted = wanted

    def __call__(self, text: str, start: int, stop: int) -> int:
        found = text.find(self._wanted, start, stop)
        return -1 if found < 0 else found + len(self._wanted)


class _ShiftAnd:
    """Finds a segment with holes, testing all possible beginnings at once (Baeza-Yates and Gonnet, 1992).

    Bit i of the state means: the last i + 1 characters are a beginning of the segment. Each character of the text costs
    one shift and one AND, whatever the segment is.
    """

    def __init__(self, segment: Segment) -> None:
        self._anything = sum(1 << hole for hole in segment.holes)
        self._final = 1 << (len(segment.text) - 1)
        self._fits: dict[str, int] = {}
        holes = frozenset(segment.holes)
        for offset, character in enumerate(segment.text):
            if offset not in holes:
                self._fits[character] = self._fits.get(character, self._anything) | 1 << offset

    def __call__(self, text: str, start: int, stop: int) -> int:
        fits, anything, final = self._fits, self._anything, self._final
        state = 0
        for end in range(start, stop):
            state = (state << 1 | 1) & fits.get(text[end], anything)
            if state & final:
                return end + 1
        return -1
