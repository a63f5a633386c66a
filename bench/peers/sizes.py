"""How much work is done, the same for all systems."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Sizes:
    """The counts of one race."""

    rounds: int
    single_events: int
    pipelined_events: int
    events: int
    """Published to the subscribers of `live` and `catchup`."""
    subscribers: int
    selective_events: int
    selective_subscribers: int
    paced_per_second: int
    paced_seconds: int
    limit_seconds: float
    """For one measurement; what takes longer is stopped."""
    visit_seconds: float
    """About how long a round takes one system: what is guessed until that is known."""

    def portion(self, portion: float) -> Sizes:
        """As many subscribers, and fewer events."""
        return replace(
            self,
            pipelined_events=int(self.pipelined_events * portion),
            events=int(self.events * portion),
            selective_events=int(self.selective_events * portion),
        )


FULL = Sizes(
    rounds=3,
    single_events=1_000,
    pipelined_events=300_000,
    events=40_000,
    subscribers=100,
    selective_events=10_000,
    selective_subscribers=1_000,
    paced_per_second=100,
    paced_seconds=6,
    limit_seconds=120,
    visit_seconds=70,
)
QUICK = Sizes(
    rounds=1,
    single_events=50,
    pipelined_events=2_000,
    events=800,
    subscribers=20,
    selective_events=1_000,
    selective_subscribers=100,
    paced_per_second=100,
    paced_seconds=1,
    limit_seconds=60,
    visit_seconds=15,
)
"""To see that everything runs; the figures mean nothing."""
