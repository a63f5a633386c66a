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
_COUNTS: Final = _COLUMNS.keys() - {"subscription", "selector"}
_WIDE: Final = 120
"""Characters of a terminal on which the table has room for all columns."""
NAMED_MAX: Final = 20
"""So many that are wrong are named."""
SHOWN_MAX: Final = 8
"""More subscriptions are shown together."""


class Report(Protocol):
    """Hears how a run goes."""

    def say(self, text: str) -> None:
        """Something that takes a while is being done."""

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

    def say(self, text: str) -> None:
        """Writes a line, above the bars if there are any yet."""
        self._bars.console.print(text, highlight=False, soft_wrap=True)

    def started(self, run: DemoRun, expected: Mapping[str, int]) -> None:
        """Draws the bars."""
        totals = {_PUBLISHED: len(run.flights), **_together(expected)}
        self._tasks = {name: self._bars.add_task(name, total=total, kills="") for name, total in totals.items()}
        self._bars.start()

    def progress(self, progress: DemoProgress, kills: Mapping[str, int]) -> None:
        """Moves the bars."""
        for name, count in {_PUBLISHED: progress.published, **_together(progress.consumed)}.items():
            times = kills.get("publisher" if name == _PUBLISHED else name, 0)
            self._bars.update(self._tasks[name], completed=count, kills=f"killed {times} ×" if times else "")

    def killed(self, victim: str, progress: DemoProgress) -> None:
        """Writes a line above the bars."""
        self.say(_killed(victim, progress))

    def close(self) -> None:
        """Leaves the bars as they are."""
        self._bars.stop()


class LineReport:
    """A line now and then, and one for each kill."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._due = 0.0

    def say(self, text: str) -> None:
        """Says it."""
        self._console.print(text, highlight=False, soft_wrap=True)

    def started(self, run: DemoRun, expected: Mapping[str, int]) -> None:
        """Says what is going to be done."""
        self.say(run.introduction)
        self._due = monotonic() + EVERY

    def progress(self, progress: DemoProgress, kills: Mapping[str, int]) -> None:
        """Says how far it is, if that was not said just now."""
        if monotonic() >= self._due:
            self._due = monotonic() + EVERY
            consumed = ", ".join(f"{name} {count:,}" for name, count in _together(progress.consumed).items())
            self.say(f"published {progress.published:,}; consumed: {consumed}")

    def killed(self, victim: str, progress: DemoProgress) -> None:
        """Says who was killed."""
        self.say(_killed(victim, progress))

    def close(self) -> None:
        """Nothing is left to say."""


def print_outcome(console: Console, outcome: DemoOutcome) -> None:
    """Prints the final table, and what it means."""
    rows: list[dict[str, Any]] = [
        {name: getattr(verdict, name) for name in _COLUMNS if name != "kills"}
        | {"selector": verdict.selector or "(everything)", "kills": outcome.kills.get(verdict.subscription, 0)}
        for verdict in outcome.verdicts
    ]
    many = len(rows) > SHOWN_MAX
    if many:
        rest = {name: sum(row[name] for row in rows[SHOWN_MAX:]) for name in _COUNTS}
        rows[SHOWN_MAX:] = [rest | {"subscription": f"{len(rows) - SHOWN_MAX:,} more", "selector": "one each"}]
    if not console.is_terminal:
        console = Console(file=console.file, width=200)
    hidden = (_COLUMNS_IF_WIDE if console.width < _WIDE else set()) | ({"kills"} if many else set())
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
    lines += [f"WRONG: {verdict.subscription}: {_wrong_rows(verdict)}" for verdict in wrong[:NAMED_MAX]]
    if len(wrong) > NAMED_MAX:
        lines.append(f"WRONG: and {len(wrong) - NAMED_MAX:,} more")
    return [*lines, f"--seed {outcome.seed} draws the same kills again."]


def _together(counts: Mapping[str, int]) -> Mapping[str, int]:
    """Counts by subscription, if there is room for them; else their sum."""
    return counts if len(counts) <= SHOWN_MAX else {f"by {len(counts):,} subscribers": sum(counts.values())}


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
