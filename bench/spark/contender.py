"""What a system is to the benchmark. To add one: a module beside this, and a line in `contenders.py`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from bench.spark.work import Sizes, Work


class Serving(Protocol):
    """A system that has all events and waits to be read."""

    def stream(self, spark: Any, work: Work, turn: int) -> Any:
        """A streaming DataFrame of all events from the first on, in batches as `Sizes` says, for one query.

        It has a column `payload`, and `number` where the work wants it. `turn` tells queries of the same work apart.
        """


class Contender(Protocol):
    """A system that can be read by Spark."""

    title: str
    works: Sequence[str]
    """What it can be asked for."""
    filters_in: str
    """Where events that are not wanted are dropped."""

    def missing(self) -> str:
        """Why it cannot run here, and what would help; nothing where it can. May fetch what it needs."""

    def jars(self) -> Sequence[Path]:
        """What Spark needs for it."""

    def serving(self, directory: Path, sizes: Sizes, turns: int) -> AbstractContextManager[Serving]:
        """Starts it, gives it all events, and serves them to so many queries of each work."""
