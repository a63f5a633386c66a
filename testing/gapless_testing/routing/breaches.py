"""What is raised when a router breaks its contract."""

from __future__ import annotations

from enum import Enum

from gapless.core.network.facts import BrokerId


class Clause(Enum):
    """The clauses of the routing contract (protocol: contract), and what the cores around a router owe it."""

    TRUTH = "C1 truth"
    ANSWER = "C2 answer"
    PUSH = "C3 push"
    MINIMA = "C4 minima"
    ENROL = "C5 enrol"
    PURE = "C6 sans-IO"
    SOFT = "C7 soft"
    BOUNDED = "C8 bounded"
    PLACE = "C9 place"
    MAIL = "C10 mail"
    HOLD = "hold"
    """A row of holds is answered as the PHB said, and is asked of it as the SHB said."""
    SEAM = "seam"
    """It takes every fact, and answers each with effects that there are."""
    OPERATOR = "operator"
    """Figures that monitoring can take, and alarms when something is wrong."""
    CORES = "cores"
    """Not the router's: a core at the seam contradicted itself."""


class ContractError(AssertionError):
    """A clause of the contract was broken, in the step in which this is raised."""

    def __init__(self, clause: Clause, what: str, broker: BrokerId = "", now: int = 0) -> None:
        super().__init__(f"{clause.value}: {what}" + (f" [broker {broker!r} at {now / 1e9:.3f} s]" if broker else ""))
        self.clause = clause
        self.what = what
        self.broker = broker
        self.now = now

    def at(self, broker: BrokerId, now: int) -> ContractError:
        """The same breach, with the place where it was noticed."""
        return ContractError(self.clause, self.what, broker, now)
