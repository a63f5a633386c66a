"""What applications do in a simulated world: generators that know nothing of each other.

An oracle sees only what somebody does; what one generator never comes to, the other one may.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from gapless_sim.workloads import (
    churn,
    committing,
    kafka,
    ranges,
    roaming,
    scenarios,
    sharing,
    transactions,
    transforms,
)
from gapless_sim.workloads.churn import Churn
from gapless_sim.workloads.committing import CommittingApplications
from gapless_sim.workloads.kafka import KafkaApplications
from gapless_sim.workloads.ranges import Ranges
from gapless_sim.workloads.roaming import RoamingApplications
from gapless_sim.workloads.scenarios import Scenarios
from gapless_sim.workloads.sharing import Sharing
from gapless_sim.workloads.transactions import Transactions
from gapless_sim.workloads.transforms import Transforms

if TYPE_CHECKING:
    from gapless_sim.world.world import World


class Workload(Protocol):
    """The applications of one world."""

    def begin(self) -> None:
        """They start; brokers may come later."""

    def begin_liveness(self) -> None:
        """Nothing goes wrong any more: they bring to an end what they have begun."""


WORKLOADS: dict[str, Callable[[World], Workload]] = {
    "churn": Churn,
    "scenarios": Scenarios,
    "ranges": Ranges,
    "roaming": RoamingApplications,
    "transforms": Transforms,
    "committing": CommittingApplications,
    "transactions": Transactions,
    "kafka": KafkaApplications,
    "sharing": Sharing,
}
"""By the name that options have for them."""

SOMETIMES: tuple[str, ...] = (*churn.SOMETIMES, *scenarios.SOMETIMES)
"""What should happen sometimes in the one or the other of the two that are drawn."""
RANGES_SOMETIMES: tuple[str, ...] = ranges.SOMETIMES
"""What should happen sometimes in the third, which is run by its name alone."""
ROAMING_SOMETIMES: tuple[str, ...] = roaming.SOMETIMES
"""Likewise in the fourth."""
TRANSFORMS_SOMETIMES: tuple[str, ...] = transforms.SOMETIMES
"""Likewise in the fifth."""
COMMITTING_SOMETIMES: tuple[str, ...] = committing.SOMETIMES
"""Likewise in the sixth."""
TRANSACTIONS_SOMETIMES: tuple[str, ...] = transactions.SOMETIMES
"""Likewise in the seventh."""
KAFKA_SOMETIMES: tuple[str, ...] = kafka.SOMETIMES
"""Likewise in the eighth."""
SHARING_SOMETIMES: tuple[str, ...] = sharing.SOMETIMES
"""Likewise in the ninth."""
