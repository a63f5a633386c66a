"""Who may do what at a node: one object that everybody asks, whichever authorizer counts."""

from __future__ import annotations

from gapless.core.ports import Action, Authorizer, Resource
from gapless.core.principals import NOBODY, Principal


class Authority:
    """The authorizer of a node, for all who ask it: one object, whichever authorizer counts at a time.

    What the process itself does needs no rule: roles, and clients that run within it, as what they are is said here
    alone (`NOBODY`). An authorizer that fails allows nothing.
    """

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer
        self.asks = authorizer.asks
        """As of the authorizer that counts."""
        self.version = 1
        """Counts the authorizers: what was allowed under another one may not be allowed any more."""

    def replace(self, authorizer: Authorizer) -> None:
        """Another authorizer counts from now on. What was allowed before is not judged again."""
        self._authorizer, self.asks = authorizer, authorizer.asks
        self.version += 1

    def refusal(self, principal: Principal, action: Action, resource: Resource) -> str:
        """As of the authorizer that counts."""
        if principal == NOBODY:
            return ""
        try:
            return self._authorizer.refusal(principal, action, resource)
        except Exception as error:  # noqa: BLE001 - it is foreign code, and must not let anybody pass
            return f"the authorizer of this broker has failed ({type(error).__name__}), so nothing is allowed"
