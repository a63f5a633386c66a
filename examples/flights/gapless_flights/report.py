"""What a person sees of a run: bars on a terminal, a line now and then elsewhere, and the table at the end."""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from gapless.cli.output import table_of

if TYPE_CHECKING:
    from gapless_flights.proof import SubscriptionProof
    from gapless_flights.run import DemoOutcome, DemoRun
    from gapless_flights.supervisor import DemoProgress

EVERY: Final = 5.0
"""Seconds between two plain lines."""
_PUBLISHED: Final = "published"

_COLUMNS: Final = {
    "subscription": "subscription",
    "selector": "selector",
    "expected": "selected",
    "consumed": "consumed",
    "missing": "missing",
    "doubled": "doubled",
    "reordered": "reordered",
    "unselected": "not selected",
    "kills": "killed",
}
_COLUMNS_IF_WIDE: Final = {"selector", "unselected"}
_WIDE: Final = 120
"""Characters of a terminal on which the table has room for all columns."""


class Report(Protocol):
    """Hears how a run goes."""

    def started(self, run: DemoRun, expected: Mapping[str, int]) -> None:
        """The processes are being started; so many rows are expected of each subscription."""

    def progress(self, progress: DemoProgress, kills: Mapping[str, int]) -> None:
        """So far it is."""

    def killed(self, victim: str, progress: DemoProgress) -> None:
        """A process was killed."""

    def close(self) -> None:
        """Nothing more comes."""


def report_for(console: Console) -> Report:
    """Bars for a terminal, lines for anything else."""
    return BarReport(console) if console.is_terminal else LineReport(console)


class BarReport:
    """A bar for the publisher and one for each subscriber."""

    def __init__(self, console: Console) -> None:
        self._bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[kills]}"),
            TimeElapsedColumn(),
            console=console,
        )
        self._tasks: dict[str, TaskID] = {}

    def started(self, run: DemoRun, expected: Mapping[str, int]) -> None:
        """Draws the bars."""
        totals = {_PUBLISHED: len(run.flights), **expected}
        self._tasks = {name: self._bars.add_task(name, total=total, kills="") for name, total in totals.items()}
        self._bars.start()

    def progress(self, progress: DemoProgress, kills: Mapping[str, int]) -> None:
        """Moves the bars."""
        for name, count in {_PUBLISHED: progress.published, **progress.consumed}.items():
            times = kills.get("publisher" if name == _PUBLISHED else name, 0)
            self._bars.update(self._tasks[name], completed=count, kills=f"killed {times} ×" if times else "")

    def killed(self, victim: str, progress: DemoProgress) -> None:
        """Writes a line above the bars."""
        self._bars.console.print(_killed(victim, progress), highlight=False)

    def close(self) -> None:
        """Leaves the bars as they are."""
        self._bars.stop()


class LineReport:
    """A line now and then, and one for each kill."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._due = 0.0

    def started(self, run: DemoRun, expected: Mapping[str, int]) -> None:
        """Says what is going to be done."""
        self._say(
            f"publishing {len(run.flights):,} flights to {len(expected)} subscribers, with {len(run.plan)} kills"
            f" (seed {run.seed})"
        )
        self._due = monotonic() + EVERY

    def progress(self, progress: DemoProgress, kills: Mapping[str, int]) -> None:
        """Says how far it is, if that was not said just now."""
        if monotonic() >= self._due:
            self._due = monotonic() + EVERY
            consumed = ", ".join(f"{name} {count:,}" for name, count in progress.consumed.items())
            self._say(f"published {progress.published:,}; consumed: {consumed}")

    def killed(self, victim: str, progress: DemoProgress) -> None:
        """Says who was killed."""
        self._say(_killed(victim, progress))

    def close(self) -> None:
        """Nothing is left to say."""

    def _say(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True)


def print_outcome(console: Console, outcome: DemoOutcome) -> None:
    """Prints the final table, and what it means."""
    rows: list[dict[str, Any]] = [
        {name: getattr(verdict, name) for name in _COLUMNS if name != "kills"}
        | {"selector": verdict.selector or "(everything)", "kills": outcome.kills.get(verdict.subscription, 0)}
        for verdict in outcome.verdicts
    ]
    if not console.is_terminal:
        console = Console(file=console.file, width=200)
    hidden = _COLUMNS_IF_WIDE if console.width < _WIDE else ()
    columns = {name: title for name, title in _COLUMNS.items() if name not in hidden}
    console.print(table_of(rows, columns))
    for line in conclusion(outcome):
        console.print(line, highlight=False, soft_wrap=True)


def conclusion(outcome: DemoOutcome) -> list[str]:
    """What a run has shown, in sentences."""
    counts = f"{outcome.published:,} flights published, {outcome.consumed:,} consumed in {outcome.seconds:.1f} s"
    lines = [f"{counts}; killed: {_kills(outcome.kills)}."]
    if outcome.is_right:
        return [*lines, "Every subscriber consumed exactly what its selector selects, in order, once."]
    if outcome.stalled:
        lines.append("It was given up because nothing moved any more.")
    wrong = [verdict for verdict in outcome.verdicts if not verdict.is_right]
    lines += [f"WRONG: {verdict.subscription}: {_wrong_rows(verdict)}" for verdict in wrong]
    return [*lines, f"--seed {outcome.seed} draws the same kills again."]


def _wrong_rows(verdict: SubscriptionProof) -> str:
    counts = {
        "missing": verdict.missing,
        "doubled": verdict.doubled,
        "reordered": verdict.reordered,
        "not selected": verdict.unselected,
    }
    rows = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
    return f"{rows}; first at {verdict.first_difference}"


def _kills(kills: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count} ×" for name, count in kills.items() if count) or "nobody"


def _killed(victim: str, progress: DemoProgress) -> str:
    return f"kill -9 {victim} (published {progress.published:,}, consumed {sum(progress.consumed.values()):,})"
