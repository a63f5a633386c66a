"""A request of a client that is refused."""

from __future__ import annotations

from gapless.core.wire.messages import Code, RequestFailed


class RefusedError(Exception):
    """A request is refused, with a code and a reason for the client."""

    def __init__(
        self, code: Code, reason: str, expression: str = "", position: int = 0, node: str = "", confirm: int = 0
    ) -> None:
        """`node`: the node that answers such a request, if it is refused because another one does.

        `confirm`: the number with which whoever still wants it asks again.
        """
        super().__init__(reason)
        self.confirm = confirm
        self.code = code
        self.expression = expression
        self.position = position
        self.node = node

    def answer(self, request: int) -> RequestFailed:
        """Returns the message for the client."""
        return RequestFailed(request, self.code, str(self), self.expression, self.position, self.node, self.confirm)
