"""Shows the progress of a pipeline: a bar on a terminal, or a line now and then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Final, TypeAlias

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

EVERY: Final = 5.0
"""How many seconds lie between two plain lines."""

Say: TypeAlias = Callable[[int, "int | None", str], None]
"""Called with how much is done, how much there is (None: there is no end), and further text."""


@contextmanager
def shown(what: str, unit: str, console: Console | None = None) -> Iterator[Say]:
    """Shows the progress on the standard error output."""
    console = Console(stderr=True) if console is None else console
    if not console.is_terminal:
        yield _Lines(what, unit, console)
        return
    bars = Bars(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[more]}"),
        TimeElapsedColumn(),
        console=console,
    )
    task = bars.add_task(what, total=None, more=unit)
    with bars:
        yield lambda done, total, more: bars.update(
            task, completed=done, total=total, more=f"{unit}{', ' if more else ''}{more}"
        )


class _Lines:
    """Prints a line now and then."""

    def __init__(self, what: str, unit: str, console: Console) -> None:
        self._what = what
        self._unit = unit
        self._console = console
        self._due = monotonic()

    def __call__(self, done: int, total: int | None, more: str) -> None:
        """Prints the progress, unless it was printed just now."""
        if monotonic() < self._due and done != total:
            return
        self._due = monotonic() + EVERY
        of = "" if total is None else f" of {total:,}"
        self._console.print(
            f"{self._what}: {done:,}{of} {self._unit}{', ' if more else ''}{more}", highlight=False, soft_wrap=True
        )
