"""What all oracles have in common: they know the model, and say what is wrong in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NoReturn

from gapless_sim.recording.observation import Oracle, Violation

if TYPE_CHECKING:
    from gapless_sim.recording.model import Model


class Judge(Oracle):
    """An oracle over the model."""

    name: ClassVar[str]
    """The invariant, as docs/protocol/invariants.md numbers it."""

    def __init__(self, model: Model) -> None:
        super().__init__(model.world)
        self.model = model

    def fail(self, what: str) -> NoReturn:
        """The invariant does not hold."""
        raise Violation(self.name, what)
