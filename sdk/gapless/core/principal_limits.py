"""What each principal may have and use at a node, and whose limit is which."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from gapless.core.principals import Principal

EVERYBODY: Final = "*"
GROUP: Final = "group:"
"""Stands before the name of a group, where the names of principals may stand."""
WHO_TOLD: Final = 3
"""So many of those for whom a section is are named in errors."""


class OnPin(Enum):
    """What becomes of a principal whose offline subscriptions hold back more of the logs than they may."""

    ALARM = "alarm"
    """The operator is told."""
    REFUSE_NEW = "refuse new"
    """And it creates no durable subscription until they hold back less."""


@dataclass(frozen=True, slots=True)
class Limit:
    """One `[[limit]]`: what each of these principals may have at a node. None: as much as the node has."""

    who: tuple[str, ...]
    connections: int | None = None
    subscriptions: int | None = None
    publishers: int | None = None
    events_per_second_in: int | None = None
    bytes_per_second_in: int | None = None
    events_per_second_out: int | None = None
    bytes_per_second_out: int | None = None
    pinned_bytes: int | None = None
    on_pin: OnPin = OnPin.ALARM

    def reached(self, key: str, principal: Principal, most: int, what: str) -> str:
        """Says to people that a count is reached."""
        return (
            f"principal {principal.name!r} may have {most:,} {what} at this broker"
            f" ({self.called(key)}; the broker's own limits are in [limits])"
        )

    def called(self, key: str) -> str:
        """Says to people which key of which section it is."""
        who = ", ".join(f'"{name}"' for name in self.who[:WHO_TOLD])
        more = ", …" * (len(self.who) > WHO_TOLD)
        return f"{key} in [[limit]] who = [{who}{more}]"


class PrincipalLimits:
    """Which limit is whose: that of the first section that names the principal or a group of it; those of `*` last."""

    def __init__(self, limits: Iterable[Limit]) -> None:
        self._names: dict[str, tuple[int, Limit]] = {}
        self._groups: dict[str, tuple[int, Limit]] = {}
        self._everybody: Limit | None = None
        self.pins = False
        """Whether it matters to anybody how many bytes offline subscriptions hold back."""
        for number, limit in enumerate(limits):
            self.pins |= limit.pinned_bytes is not None
            for who in limit.who:
                if who == EVERYBODY:
                    self._everybody = self._everybody or limit
                elif who.startswith(GROUP):
                    self._groups.setdefault(who.removeprefix(GROUP), (number, limit))
                else:
                    self._names.setdefault(who, (number, limit))

    def of(self, principal: Principal) -> Limit | None:
        """Returns the limit of a principal, or None."""
        found = [self._groups[group] for group in principal.groups if group in self._groups]
        if principal.name in self._names:
            found.append(self._names[principal.name])
        return min(found, key=lambda each: each[0])[1] if found else self._everybody


NO_LIMITS: Final = PrincipalLimits(())
