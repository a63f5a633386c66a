"""What a hostile router does wrong, how often, and by which dice."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from gapless.errors import ConfigurationError

BEHAVIOURS: Mapping[str, str] = {
    # Between routers, and between the two halves of one.
    "lose": "a message is lost",
    "repeat": "a message comes twice",
    "repeat_late": "a message comes again, up to 20 s later",
    "delay": "a message comes up to 2 s late",
    "reorder": "a message is overtaken by the next one",
    # What is pushed.
    "flood": "everything is pushed unfiltered, although the interest is known",
    "over_deliver": "events that nobody wants are pushed along with the others",
    "understate": "silence is stamped with a lower version of the interest than it was filtered with",
    # What is delivered.
    "split": "a piece of knowledge is delivered in two",
    "merge": "a piece of knowledge waits, to be delivered as one with the next",
    "overlap": "a piece of knowledge is delivered together with the one before, again",
    # Interest.
    "drop_interest": "an announcement of interest goes nowhere",
    "delay_interest": "an announcement of interest is sent up to 2 s late",
    "part_interest": "an interest is sent in parts, one for each subscription",
    "ask_interest": "the whole interest is asked for without need (each second)",
    # Wants.
    "drop_want": "a want goes nowhere",
    "late_answer": "a want is asked up to 1 s late",
    "answer_more": "more is asked for, and answered, than was wanted",
    "stale_cache": "a want is answered from a cache as far as that goes",
    "thin_answer": "an answer is filtered, under a stamp that is good enough",
    "twice": "an answer is delivered twice",
    # Progress.
    "drop_progress": "a report of progress goes nowhere",
    "delay_progress": "a report of progress is sent up to 2 s late",
    "probe": "an acknowledgement is asked for without need (each second)",
    # Publishers.
    "unordered": "a batch is submitted although one that was placed before it has not come yet",
    "submit_twice": "a batch or an opening is submitted twice",
    "submit_late": "a batch is submitted again, up to 5 s later, unless it was given up since",
    # All of it.
    "forget": "all soft state is gone (each ten seconds)",
}
"""Each behaviour and what it means. Every one is permitted by the contract of the seam (C1 to C10)."""


class Hostility:
    """Rates between 0 and 1, and the dice."""

    def __init__(self, rates: Mapping[str, Any], random: Random) -> None:
        """Raises ConfigurationError for a behaviour there is not, or a rate that is none."""
        for behaviour, rate in rates.items():
            if behaviour not in BEHAVIOURS:
                raise ConfigurationError(f"the router 'hostile' has no behaviour {behaviour!r}")
            if not isinstance(rate, (int, float)) or not 0 <= rate <= 1:
                raise ConfigurationError(f"{behaviour} = {rate!r}: a rate is a number between 0 and 1")
        self._rates = {behaviour: rate for behaviour, rate in rates.items() if rate}
        self.random = random
        self.quiet = not self._rates
        """Whether nothing is ever done wrong."""

    def stop(self) -> None:
        """Nothing is done wrong any more."""
        self._rates = {}
        self.quiet = True

    def happens(self, behaviour: str, share: float = 1.0) -> bool:
        """Whether it is done this time, at a share of its rate. Without a rate it costs no throw of the dice."""
        rate = self._rates.get(behaviour)
        return rate is not None and self.random.random() < rate * share

    def has(self, behaviour: str) -> bool:
        """Whether it is ever done."""
        return behaviour in self._rates
