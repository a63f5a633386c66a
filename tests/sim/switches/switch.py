"""What a switch is: one rule of the protocol, broken on purpose, and who is to notice."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass

from sim.switches.edits import Change, applied


@dataclass(frozen=True, slots=True)
class Switch:
    """A rule that can be switched off.

    A simulation with the switch on must come upon a run that violates one of the invariants `oracle`; then
    the invariant sees. `edits` are the least that break the rule: what is left works as well as before, and
    mostly gets along without faults.
    """

    name: str
    breaks: tuple[str, ...]
    """The traps that it falls into (`T2`), the rows of docs/protocol/persist-before.md that it breaks (`before Hold`),
    or another rule of docs/protocol/traps.md (`header fields`)."""
    wrong: str
    """What is wrong with it, in a sentence."""
    edits: tuple[Change, ...]
    oracle: tuple[str, ...]
    """The invariants of docs/protocol/invariants.md that are meant to find it. Beyond those, `cores`: our cores keep
    their side of the routing seam; `P1`: no two parts of ours break the protocol of a session between them; `L1`: what
    is listed is true; `A1`: what rules forbid
    is given to nobody; `X1`: a subscription has one consumer; `X2`: a name has one subscription; `X3`: a token that
    an application has stored is let in."""
    needs: str
    """What must happen for it to show."""
    workload: str | None = None
    """The workload whose runs show it; None: those that seeds draw."""
    routers: tuple[str, ...] = ("local", "hostile")
    """Under which routers it is looked for."""
    awaits: str = ""
    """What does not exist yet, without which it cannot show; "": it can."""

    def applied(self) -> AbstractContextManager[None]:
        """The rule is broken while this lasts."""
        return applied(self.edits)
