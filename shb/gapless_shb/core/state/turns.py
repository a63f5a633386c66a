"""How much readers may do in one turn of the node, so that what is live never waits long (protocol: readers).

What counts is what readers look at, not what they send: a subscription that matches one event of a thousand has a
thousand of them examined for each that it is sent. All pubends share a turn. If turns that were cut short take long,
because events are large, selectors are slow or the machine is busy, the next ones are allowed less.
"""

from __future__ import annotations

from typing import Final

from gapless.core.stream.ticks import PubendId

LONG: Final = 4_000_000
"""If a turn that was cut short takes so many nanoseconds, the next one is half of it."""
HALVINGS_MAX: Final = 6


class Turns:
    """The allowance of the readers of all pubends."""

    def __init__(self) -> None:
        self._at = -1
        self._cut_short = False
        self._halvings = 0
        self._busy: dict[PubendId, None] = {}
        """The pubends with readers that can go on."""

    def allowance(self, now: int, most: int) -> int:
        """Returns how many events the readers of one pubend may examine in the turn that begins now.

        `most`: what readers of all pubends may in an ordinary turn. Everybody gets something.
        """
        if now != self._at:
            took = now - self._at
            if self._cut_short and took > LONG:
                self._halvings = min(self._halvings + 1, HALVINGS_MAX)
            elif self._cut_short and took < LONG // 2:
                self._halvings = max(self._halvings - 1, 0)
            self._at, self._cut_short = now, False
        return most and max(1, (most >> self._halvings) // max(1, len(self._busy)))

    def end(self, pubend: PubendId, *, left_over: bool) -> None:
        """The readers of a pubend have had their turn. `left_over`: some could go on at once."""
        if left_over:
            self._cut_short = True
            self._busy[pubend] = None
        else:
            self._busy.pop(pubend, None)
