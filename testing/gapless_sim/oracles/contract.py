"""The contract of routers, as an oracle: what the seam's own watcher finds is a violation like any other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gapless_sim.oracles.judge import Judge
from gapless_sim.recording.observation import Violation
from gapless_sim.recording.pubend_logs import LOG
from gapless_sim.recording.router_tap import FACTS
from gapless_testing.routing import Contract, ContractError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gapless.core.network.seam import Effect
    from gapless_sim.recording.model import Model
    from gapless_sim.world.broker import SimBroker


class Routing(Judge):
    """No router says more than the cores around it did (C1, C4, C5, C9), and no core contradicts itself."""

    name = "C1"
    facts = FACTS

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._contract: Contract | None = Contract()
        self.effects: Sequence[type] = self._contract.effects

    def informed(self, broker: str, now: int, fact: Any) -> None:
        """A router is about to receive a fact."""
        if self._contract is not None:
            try:
                self._contract.informed(broker, now, fact)
            except ContractError as error:
                raise _violation(error) from None

    def said(self, broker: str, now: int, effect: Effect) -> None:
        """A router wants something."""
        if self._contract is not None:
            try:
                self._contract.said(broker, now, effect)
            except ContractError as error:
                raise _violation(error) from None

    def vanished(self, broker: str) -> None:
        """A broker's router is another one."""
        if self._contract is not None:
            self._contract.vanished(broker)

    def crashed(self, broker: SimBroker) -> None:
        """The cores around it are gone as well."""
        if self._contract is not None:
            self._contract.restarted(broker.name)

    def wiped(self, broker: SimBroker) -> None:
        """Nobody knows any more which of its processes came before which."""
        if self._contract is not None:
            self._contract.lost_volume(broker.name)

    def repaired(self, broker: SimBroker, holes: Sequence[tuple[str, int, int]]) -> None:
        """What is given up counts as never sent."""
        if self._contract is not None:
            for stream, after, upto in holes:
                self._contract.given_up(stream.removeprefix(LOG), after, upto)

    def restored(self, broker: SimBroker) -> None:
        """Behind an old copy a core contradicts itself with good reason."""
        self._contract = None

    def copied(self, broker: SimBroker) -> None:
        """Two processes contradict each other with good reason."""
        self._contract = None


def _violation(error: ContractError) -> Violation:
    return Violation(error.clause.value.split()[0], str(error))
