"""An operator changes who may consume, and the nodes learn it one after the other, as they look at their files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless_sim.world.options import SECOND
from gapless_sim.world.rules import ALL_MAY, SimRules

if TYPE_CHECKING:
    from gapless_sim.world.world import World

SOMETIMES = ("rules.taken away", "rules.given back", "rules.somebody lost what he had")
"""What should happen sometimes in worlds with rules."""
LATE = 3 * SECOND
"""So long after the first of them the last node may see a change."""


class RuleChanges:
    """The changes of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._draws = world.choices.stream("rules/changes")
        self._rules = ALL_MAY

    def strike(self) -> None:
        """Some client may not consume any more; or one may again."""
        clients = sorted(client.name for client in self._world.clients_of["roaming"])
        client = self._draws.pick(clients)
        back = client in self._rules.forbidden
        self._world.sometimes("rules.given back" if back else "rules.taken away")
        forbidden = self._rules.forbidden ^ {client}
        self._rules = SimRules(self._rules.number + 1, forbidden)
        who = ", ".join(sorted(forbidden)) or "nobody"
        self._world.note("world", "rules", f"{self._rules.name}: {who} may not consume")
        for broker in self._world.brokers.values():
            self._world.after(self._draws.draw(LATE), broker.name, "rules", broker.take_rules, self._rules)

    def finish(self) -> None:
        """Everybody may again, at once: what was taken away must come right, too."""
        self._rules = SimRules(self._rules.number + 1, frozenset())
        for broker in self._world.brokers.values():
            broker.take_rules(self._rules)
