"""One subscription of an SHB: its record, and the one thing that it is doing (protocol: phases).

    FREE ──a client comes back──▶ RETURNING ──▶ FREE
    FREE ──a consumer attaches──▶ ATTACHING ──▶ CONSUMED ──it leaves──▶ FREE
    FREE ──another filter──▶ CHANGING ──▶ FREE          a new one begins as CREATING ──▶ FREE
    FREE ──a reader by ranges has it alone──▶ LOCKED ──▶ FREE

It does one thing after the other: whatever comes next begins where it is FREE. `Registry.become` asserts that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gapless_shb.core.state.registry import SubscriptionRecord


class Phase(Enum):
    """What a subscription is doing; each value says that to an operator."""

    CREATING = "being created"
    """Its record, its enrolments or its holds are not durable yet. Whoever wants it waits, or asks again."""
    FREE = "free"
    """Nobody has it. Whoever wants it may have it."""
    RETURNING = "returning"
    """The note that nobody has it is being deleted. Whoever wants it waits for that."""
    ATTACHING = "being attached"
    """A consumer is chosen. Its commit record, or what it claims of pubends, is not durable yet."""
    CONSUMED = "consumed"
    """A consumer has it, here or at another SHB."""
    CHANGING = "being changed"
    """Another filter is being made durable. Whoever wants it waits, or asks again."""
    LOCKED = "read by ranges"
    """A session reads it by ranges, and nobody else may."""
    REMOVED = "removed"
    """It is gone."""


PREPARING: Final = frozenset({Phase.CREATING, Phase.CHANGING})
"""Its record is being made durable, and is answered to nobody before."""

BEFORE: Final[Mapping[Phase, frozenset[Phase]]] = {
    Phase.CREATING: frozenset({Phase.FREE}),
    Phase.FREE: frozenset(Phase) - {Phase.FREE, Phase.REMOVED},
    Phase.RETURNING: frozenset({Phase.FREE}),
    Phase.ATTACHING: frozenset({Phase.FREE}),
    Phase.CONSUMED: frozenset({Phase.FREE, Phase.ATTACHING, Phase.RETURNING}),  # at another SHB, which was not heard
    Phase.CHANGING: frozenset({Phase.FREE}),
    Phase.LOCKED: frozenset({Phase.FREE}),
    Phase.REMOVED: frozenset(Phase) - {Phase.REMOVED},
}
"""Which phases may come directly before each."""


@dataclass(slots=True, eq=False)
class Subscription:
    """See the module."""

    record: SubscriptionRecord
    phase: Phase

    def become(self, phase: Phase) -> None:
        """Goes over to another phase."""
        assert self.phase in BEFORE[phase], f"a subscription that is {self.phase.value} cannot become {phase.value}"
        self.phase = phase
