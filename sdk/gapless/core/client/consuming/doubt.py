"""Where a consumer is in doubt: the first event of a pubend may have been handed out before (protocol: committing)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gapless.core.stream.ticks import PubendId


@dataclass(frozen=True, slots=True)
class Doubt:
    """The pubends that are in doubt: of all that there are, or of none, but for the exceptions."""

    everywhere: bool = False
    exceptions: frozenset[PubendId] = frozenset()

    def __bool__(self) -> bool:
        return self.everywhere or bool(self.exceptions)

    def concerns(self, pubend: PubendId) -> bool:
        """Whether a pubend is in doubt."""
        return self.everywhere != (pubend in self.exceptions)

    def without(self, pubends: Iterable[PubendId]) -> Doubt:
        """Returns the doubt where these pubends are not in doubt."""
        return self._with(pubends, exceptions=self.everywhere)

    def and_at(self, pubends: Iterable[PubendId]) -> Doubt:
        """Returns the doubt where these pubends are in doubt as well."""
        return self._with(pubends, exceptions=not self.everywhere)

    def _with(self, pubends: Iterable[PubendId], *, exceptions: bool) -> Doubt:
        now = self.exceptions.union(pubends) if exceptions else self.exceptions.difference(pubends)
        return Doubt(self.everywhere, now)
