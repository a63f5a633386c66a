"""What all parts of one router share: who it is, its time, its timers, and what it is going to do.

A router is a pure core, so each call of it begins with the time and ends with effects. `RouterState` has both for all
parts. It also has the router's *life*: the number of this start, saved before anything is asked in its name, so that
what an earlier process of the same broker has asked is recognised wherever it comes late.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from hashlib import blake2b
from typing import Any, Final, Protocol, TypeVar

from gapless.core.network.facts import BrokerId, Save
from gapless.core.network.frames import Address, Message
from gapless.core.network.seam import Effect
from gapless.core.network.timer_queue import TimerQueue
from gapless.core.stream.ticks import FOREVER, PubendId
from gapless.errors import ConfigurationError

LIFE_BITS: Final = 24
LIFE: Final = "life"
"""Where this router's life is saved, for the next one to surpass."""
CORE: Final = ""
"""The direction of the SHB of this very broker. Every other direction has the name that its router gives it."""
Options = TypeVar("Options")


@dataclass(slots=True)
class RouterState:
    """What all parts of one router share."""

    broker: BrokerId
    seed: int
    life: int
    """Names this life of the router; see `new_life`."""
    now: int = 0
    """The time of this call, monotonic nanoseconds."""
    wall: int = 0
    """The wall clock when the last frame came, in milliseconds since 1970."""
    timers: TimerQueue = field(default_factory=TimerQueue)
    effects: list[Effect] = field(default_factory=list)
    owners: dict[PubendId, BrokerId] = field(default_factory=dict)
    """Where each pubend is, as far as this router knows."""
    life_is_durable: bool = False
    """Whether the next router of this volume will surpass it; before, nothing is asked in its name."""
    _draws: int = 0

    def spread(self, span: int) -> int:
        """Returns a time up to a span from now, another one each time: so brokers do not all do the same at once."""
        return self.now + 1 + self.draw(span)

    def draw(self, count: int) -> int:
        """Returns a number below another one, in no order that anything here could keep step with."""
        self._draws += 1
        drawn = blake2b(f"{self.seed}/{self.broker}/{self._draws}".encode(), digest_size=8).digest()
        return int.from_bytes(drawn, "big") % count

    def save_life(self) -> None:
        """Has it saved; `Saved` names it."""
        self.life_is_durable = False
        self.effects.append(Save(LIFE, str(self.life).encode(), self.life))

    def take_effects(self) -> list[Effect]:
        """Returns all effects so far; they are gone after the call."""
        effects = self.effects.copy()
        self.effects.clear()
        return effects


class Sender(Protocol):
    """What says something to other brokers; `gapless_routing.common.link_table.LinkTable` is one."""

    def is_full(self, broker: BrokerId) -> bool:
        """Whether so much waits on the link to a broker that nothing which can wait is sent there."""

    def send(self, broker: BrokerId, message: Message, address: Address = ()) -> None:
        """Sends a message to a broker that there is a link to."""


def new_life(broker: BrokerId, seed: int, above: int) -> int:
    """Returns a name for a life of a router: no two lives share one, and it is above `above`.

    `above` is the time of its start, or the life that it has to surpass. Where that one is lost with its volume, a
    clock that begins anew puts lives out of order. Their last bits, drawn from the seed, still tell them apart.
    """
    drawn = blake2b(f"{seed}/{broker}".encode(), digest_size=4).digest()
    life = ((above >> LIFE_BITS) + 1) << LIFE_BITS | int.from_bytes(drawn, "big") % (1 << LIFE_BITS)
    return min(life, FOREVER)  # whoever was told of a life that no router can have had lives on at the end of them


def checked_options(router: str, options: type[Options], config: Mapping[str, Any], may_be_0: str = "") -> Options:
    """Returns the options of a router: a dataclass whose fields are whole numbers.

    Raises ConfigurationError when one makes no sense, or there is another one. Each is 1 at least, but `may_be_0`.
    """
    names = [option.name for option in fields(options)]  # type: ignore[arg-type]  # a dataclass
    unknown = sorted(set(config) - set(names))
    if unknown:
        raise ConfigurationError(f"the router {router!r} has no option {unknown[0]!r}; it has {', '.join(names)}")
    for name, value in config.items():
        least = 0 if name == may_be_0 else 1
        if type(value) is not int or value < least:
            raise ConfigurationError(f"routing.options.{name} is a number from {least} on, not {value!r}")
    return options(**config)
