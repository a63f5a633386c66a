"""What comes of several systems that do the same works in rounds, each round beginning with another one."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median

OURS = "gapless"

Figures = dict[str, float]


@dataclass
class Results:
    """The figures of all rounds, and what there are none of."""

    works: list[str]
    systems: list[str] = field(default_factory=list)
    """Those that are there."""
    missing: dict[str, str] = field(default_factory=dict)
    """Why a system did not run at all."""
    failed: dict[tuple[str, str], str] = field(default_factory=dict)
    """By work and system: why there are no figures, or fewer rounds of them."""
    rounds: dict[tuple[str, str], dict[int, Figures]] = field(default_factory=dict)
    """By work and system, then by round."""

    def medians(self, work: str, system: str) -> Figures:
        """The median of each figure over the rounds; nothing when there are none."""
        rounds = list(self.rounds.get((work, system), {}).values())
        return {key: median(figures[key] for figures in rounds) for key in rounds[0]} if rounds else {}

    def beside(self, work: str, system: str) -> list[tuple[Figures, Figures]]:
        """Ours and another system's figures, of each round that both finished."""
        ours, theirs = self.rounds.get((work, OURS), {}), self.rounds.get((work, system), {})
        both = sorted(ours.keys() & theirs.keys()) if system != OURS else []
        return [(ours[number], theirs[number]) for number in both]


def in_turn(systems: list[str], number: int) -> list[str]:
    """All of them, each round beginning with another one."""
    start = number % max(1, len(systems))
    return systems[start:] + systems[:start]
