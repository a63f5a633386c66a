"""What all pubends of an SHB share: its subscriptions, its consumers, and the way out."""

from __future__ import annotations

from dataclasses import dataclass

from gapless.core.outbox import Outbox
from gapless.core.stream.ticks import ShbId
from gapless.selectors.index import BatchMatcher
from gapless_shb.core.consumers import Channel, Consumer
from gapless_shb.core.subscriptions import Registry


@dataclass(frozen=True, slots=True)
class CatchUp:
    """What readers may use, and what they find."""

    kept_bytes: int = 48 << 20
    """Of what they share, for each pubend."""
    turn_events: int = 16_384
    """How many events they send in one turn of the node, about: live deliveries wait no longer than that takes."""
    imprecise: bool = False
    """Whether the PFS says only, of many ticks together, who matched any of them."""


class BrokerState:
    """See the module."""

    def __init__(self, shb: ShbId, registry: Registry) -> None:
        self.shb = shb
        self.registry = registry
        self.outbox = Outbox()
        self.matcher = BatchMatcher()
        for subscription in registry:
            self.matcher.add(subscription.sid, subscription.filter)
        self.consumers: dict[int, Consumer] = {}
        """By subscription."""
        self.channels: dict[int, Channel] = {}
        """By session."""
        self.catch_up = CatchUp()
        self.unsaved = False
        """A mark of the turn: something is to be made durable with the next checkpoint, which is due soon."""
