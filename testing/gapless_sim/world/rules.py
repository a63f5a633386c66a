"""Rules of a simulated network: which clients may not consume. They change while nodes run, at one node after another.

Clients come in through a listener in such a world, and are `anonymous`: through none they would be the process itself,
which may do everything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gapless.core.ports import Action
from gapless.core.resources import Durable
from gapless.node.config import ListenSection

if TYPE_CHECKING:
    from gapless.core.principals import Principal
    from gapless.core.resources import Resource

ADDRESS: Final = "127.0.0.1:1"


@dataclass(frozen=True, slots=True)
class SimRules:
    """One version of the rules."""

    number: int
    """Rises with each change."""
    forbidden: frozenset[str]
    """The ids of the clients that may not consume."""
    asks = True

    @property
    def name(self) -> str:
        """Names them."""
        return f"rules {self.number}"

    def refusal(self, _principal: Principal, action: Action, resource: Resource) -> str:
        """Refuses to let a durable subscription of a forbidden client be consumed."""
        if action is Action.CONSUME and isinstance(resource, Durable) and resource.client_id in self.forbidden:
            return f"{self.name} forbid client {resource.client_id!r} to consume"
        return ""


ALL_MAY: Final = SimRules(0, frozenset())


class Door:
    """The transport of a listener that nothing is heard through: what comes in a world comes by its own links."""

    def is_loopback(self, _address: str) -> bool:
        """Clients are on the same machine, for all that rules care."""
        return True


LISTENER: Final = (ListenSection(address=ADDRESS), Door())
"""What makes a machine's first reception one of a listener."""
