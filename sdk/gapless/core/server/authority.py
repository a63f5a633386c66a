"""Who may do what at a node: one object that everybody asks, whichever authorizer counts."""

from __future__ import annotations

from collections.abc import Iterable

from gapless.core.ports import Action, Authorizer
from gapless.core.principals import NOBODY, Principal
from gapless.core.resources import Resource


class Authority:
    """The authorizer of a node, for all who ask it: one object, whichever authorizer counts at a time.

    What the process itself does needs no rule: roles, and clients that run within it, as what they are is said here
    alone (`NOBODY`). An authorizer that fails allows nothing.

    Another one counts at once for whatever is asked from then on. What was allowed before and still goes on is judged
    again: an open publisher with its next batch, what is attached at a role by that role (`RulesReplaced`). When that
    is done, the version *holds*.
    """

    def __init__(self, authorizer: Authorizer) -> None:
        self.authorizer = authorizer
        """The one that counts."""
        self.asks = authorizer.asks
        """As of the authorizer that counts."""
        self.version = 1
        """Counts the authorizers: what was allowed under another one may not be allowed any more."""
        self.held = 1
        """The newest version that holds: nothing that it forbids goes on at this node."""
        self._judging: set[int] = set()
        """Who has not said yet that this version holds there."""

    @property
    def name(self) -> str:
        """Names the rules that count, the same at all nodes that have the same rules; "" if they have no name."""
        return str(getattr(self.authorizer, "name", ""))

    @property
    def holds(self) -> bool:
        """Whether nothing goes on at this node that is forbidden now."""
        return self.held == self.version

    def begin(self) -> None:
        """The node begins, perhaps anew: nothing goes on there yet."""
        self._judging.clear()
        self.held = self.version

    def replace(self, authorizer: Authorizer, judges: Iterable[int]) -> None:
        """Another authorizer counts from now on. `judges`: who has something to judge again, by number."""
        self.authorizer, self.asks = authorizer, authorizer.asks
        self.version += 1
        self._judging = set(judges)
        if not self._judging:
            self.held = self.version

    def on_held(self, judge: int, version: int) -> bool:
        """A version holds at one of the judges. Returns whether it holds at the node by that."""
        if version != self.version or self.holds:
            return False
        self._judging.discard(judge)
        if self._judging:
            return False
        self.held = version
        return True

    def refusal(self, principal: Principal, action: Action, resource: Resource) -> str:
        """As of the authorizer that counts."""
        if principal == NOBODY:
            return ""
        try:
            return self.authorizer.refusal(principal, action, resource)
        except Exception as error:  # noqa: BLE001 - it is foreign code, and must not let anybody pass
            return f"the authorizer of this broker has failed ({type(error).__name__}), so nothing is allowed"
