"""The positions of a transform: which go with a batch, which wait, which may be acknowledged (protocol: transforms).

A transform stores its position with its outputs. Where an input has none, the position is stored alone, but only when
nothing else is on its way: the next batch carries a later position, and most inputs of a filter have no outputs.

If another consumer takes its input over, the answers to what is on its way tell whether a rival has opened its
publisher since, which has then fenced it. Otherwise the input is still its own.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from gapless.core.wire.tokens import CheckpointToken
from gapless.errors import SubscriptionInUseError, SubscriptionTakenOverError

TAKEN_OVER: Final = (SubscriptionTakenOverError, SubscriptionInUseError)
"""Another consumer has the input. The second one is what a reconnect meets."""


class TransformPositions:
    """The positions of one transform since it began."""

    def __init__(self, begin: CheckpointToken) -> None:
        """`begin`: where its input was attached."""
        self.token = begin
        """Behind the last batch that was published or moved over."""
        self.owes = False
        """Whether `token` is not on its way."""
        self._sent: deque[CheckpointToken] = deque()
        self._is_lost = False
        """Whether another consumer has taken the input over."""

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

    def lost_input(self) -> bool:
        """Another consumer has taken the input over. Returns whether the position has to be sent now, to be answered.

        The pubend refuses it if a rival has opened the publisher since.
        """
        self._is_lost = True
        return not self._sent

    def takes_back(self) -> bool:
        """Whether the input was lost and is to be attached again: everything was answered, so no rival owns it."""
        return self._is_lost and not self._sent

    def took_back(self) -> None:
        """The input is attached again, behind what was handed out."""
        self._is_lost = False
