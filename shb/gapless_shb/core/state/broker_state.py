"""The state that all pubends of an SHB share: subscriptions, consumers, and the outbox."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gapless.core.outbox import Outbox
from gapless.core.stream.intervals import Ranges
from gapless.core.stream.ticks import FOREVER, PubendId, ShbId, Tick
from gapless.selectors.index import BatchMatcher
from gapless.selectors.parser import SelectorLimits
from gapless_shb.core.state.consumers import Channel, Consumer
from gapless_shb.core.state.counts import Counts
from gapless_shb.core.state.memory import Memory
from gapless_shb.core.state.registry import Registry
from gapless_shb.core.state.turns import Turns


@dataclass(frozen=True, slots=True)
class HomeSays:
    """What the home of a guest says of lost ticks: none of those in `silent` concerns the subscription."""

    silent: Ranges
    upto: Tick
    """So far the home has looked. What is lost above that is another question."""


ALL_IS_SAID = HomeSays((), FOREVER)
"""Nobody knows more of what is lost than its reader does: it is at home, or its home cannot say."""


@dataclass(frozen=True, slots=True)
class CatchUp:
    """The limits of what is delivered, and the form of the PFS."""

    kept_bytes: int = 48 << 20
    """How many bytes the page cache of a pubend keeps."""
    turn_events: int = 16_384
    """About how many events readers examine in one turn of the node. Live deliveries wait no longer than that takes."""
    imprecise: bool = False
    """Whether a PFS block has only which subscriptions matched any of its ticks, and not which ticks."""
    link_bytes: int = 16 << 20
    """How many bytes of events may wait on the link of a client."""
    memory_bytes: int = 128 << 20
    """How many bytes may be held of all that is read for clients or waits for them."""
    subscriptions_named: int = 100
    """Of how many subscriptions that are behind it is told by name."""


class BrokerState:
    """The state of an SHB that its pubends may read and change."""

    def __init__(self, shb: ShbId, registry: Registry) -> None:
        self.shb = shb
        self.registry = registry
        self.outbox = Outbox()
        self.matcher = BatchMatcher()
        for subscription in registry:
            self.matcher.add(subscription.sid, subscription.filter)
        self.consumers: dict[int, Consumer] = {}
        """The consumers, by the id of their subscription."""
        self.channels: dict[int, Channel] = {}
        """The channels, by the number of their session."""
        self.catch_up = CatchUp()
        self.memory = Memory(self.catch_up.memory_bytes)
        """Of all that is read for clients, or waits for them."""
        self.counts = Counts()
        self.turns = Turns()
        """What readers may do in a turn."""
        self.selector_limits = SelectorLimits()
        self.payload_max = 0
        """The limit of a delivery's payload."""
        self.ask_home: Callable[[int, PubendId, Tick, Tick, int], HomeSays | None] = lambda *_: ALL_IS_SAID
        """What the home of a guest says of lost ticks; see `Guests.ask_home`."""
        self.traces = 0.0
        """`RoleContext.traces`."""
        self.unsaved = False
        """A mark of the turn: something has to be made durable with the next checkpoint, which is due soon."""
