"""The positions of a transform: which go with a batch, which wait, which may be acknowledged (protocol: transforms).

A transform stores its position with its outputs. Where an input has none, the position is stored alone, but only when
nothing else is on its way: the next batch carries a later position, and most inputs of a filter have no outputs.
"""

from __future__ import annotations

from collections import deque

from gapless.core.wire.tokens import CheckpointToken


class TransformPositions:
    """The positions of one transform since it began."""

    def __init__(self, begin: CheckpointToken) -> None:
        """`begin`: where its input was attached."""
        self.token = begin
        """Behind the last batch that was published or moved over."""
        self.owes = False
        """Whether `token` is not on its way."""
        self._sent: deque[CheckpointToken] = deque()

    def __len__(self) -> int:
        """How many batches are on their way."""
        return len(self._sent)

    def sent(self, token: CheckpointToken) -> None:
        """A batch is on its way with this position, with outputs or without."""
        self.token, self.owes = token, False
        self._sent.append(token)

    def moved(self, token: CheckpointToken) -> bool:
        """An input without outputs is done. Returns whether its position has to be sent now."""
        self.token = token
        self.owes = bool(self._sent)
        return not self.owes

    def receipted(self) -> CheckpointToken:
        """The oldest batch on its way is durable. Returns the position up to which the input may be acknowledged."""
        return self._sent.popleft()

    def owed(self) -> CheckpointToken | None:
        """Returns the position that has to be sent alone now; None if there is none, or others are on their way."""
        return self.token if self.owes and not self._sent else None
