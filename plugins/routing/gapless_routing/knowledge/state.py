"""What all parts of one router share, and its options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from hashlib import blake2b
from typing import Any, Final

from gapless.core.network.facts import BrokerId, Save
from gapless.core.network.seam import Effect
from gapless.core.network.timer_queue import TimerQueue
from gapless.core.stream.ticks import FOREVER, PubendId
from gapless.errors import ConfigurationError

LIFE_BITS: Final = 24
LIFE: Final = "life"
"""Where this router's life is saved, for the next one to surpass."""
CORE: Final = ""
"""The direction of the SHB of this very broker; every other direction is a neighbouring cell."""


@dataclass(slots=True)
class Sizes:
    """The options of the router."""

    cache_bytes: int = 64 << 20
    """So much memory is for events of all pubends together."""
    turn_bytes: int = 8 << 10
    """So much of interests is read in one turn, or one frame: its filters have to be parsed, at some 40 µs each."""
    turn_subscriptions: int = 400
    """The interest of so many subscriptions is said to a broker in one turn, or one part. More than that is large."""


@dataclass(slots=True)
class State:
    """What all parts of one router share."""

    broker: BrokerId
    seed: int
    sizes: Sizes
    life: int
    """Names this life of the router; see `new_life`."""
    now: int = 0
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
        """A time up to a span from now, another one each time: brokers that do the same do not do it at once."""
        self._draws += 1
        drawn = blake2b(f"{self.seed}/{self.broker}/{self._draws}".encode(), digest_size=8).digest()
        return self.now + 1 + int.from_bytes(drawn, "big") % span

    def save_life(self) -> None:
        """Has it saved; `Saved` names it."""
        self.life_is_durable = False
        self.effects.append(Save(LIFE, str(self.life).encode(), self.life))

    def take_effects(self) -> list[Effect]:
        """All effects so far; emptied by the call."""
        effects = self.effects.copy()
        self.effects.clear()
        return effects


def new_life(broker: BrokerId, seed: int, above: int) -> int:
    """Names a life of a router: no two lives have the same name, and a later one has a higher one if `above` is.

    `above` is the time of its start, or the life that it has to surpass. Where that one is lost with its volume, a
    clock that begins anew puts lives out of order. Their last bits, drawn from the seed, still tell them apart.
    """
    drawn = blake2b(f"{seed}/{broker}".encode(), digest_size=4).digest()
    life = ((above >> LIFE_BITS) + 1) << LIFE_BITS | int.from_bytes(drawn, "big") % (1 << LIFE_BITS)
    return min(life, FOREVER)  # whoever was told of a life that no router can have had lives on at the end of them


def sizes_of(config: Mapping[str, Any]) -> Sizes:
    """The options. Raises ConfigurationError when one makes no sense, or there is another one."""
    options = {option.name: option.default for option in fields(Sizes)}
    unknown = sorted(set(config) - set(options))
    if unknown:
        raise ConfigurationError(f"the router 'knowledge' has no option {unknown[0]!r}; it has {', '.join(options)}")
    for name, size in config.items():
        least = 0 if name == "cache_bytes" else 1
        if type(size) is not int or size < least:
            raise ConfigurationError(f"routing.options.{name} is a number from {least} on, not {size!r}")
    return Sizes(**config)
