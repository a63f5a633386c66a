"""The lane diagram in a terminal: a column for each node and client, time downwards, arrows for what travels.

seconds  publisher     phb1        shb1     subscriber
  2.000      ●──────────│───────────│───────────│      1 event: #1
             ├─────────▶│           │           │      publish #1
  2.001      │          ├─────✕     │           │      lost: knowledge
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING

from gapless_sim.recording.picture import BEGINS, ENDS, FOLDED, QUIET, WORLD, Picture, picture
from gapless_sim.recording.short_names import with_short_ticks
from gapless_sim.recording.trace_recorder import LOST

if TYPE_CHECKING:
    from rich.text import Text

    from gapless_sim.recording.trace import Line
    from gapless_sim.search.result import Failure

WIDTH = 100
_TIME = 10
_TEXT_LEAST = 34
_LANE_MOST, _LANE_LEAST = 11, 5
_PAUSE = 1_000_000_000
"""A longer time in which nothing is shown is said."""

STYLES = {
    "crash": "bold red",
    "kill": "bold red",
    "storage failed": "bold red",
    "refused": "red",
    LOST: "red",
    "gap": "bold magenta",
    "cut": "yellow",
    "heal": "green",
    "boot": "green",
    "publish": "cyan",
    "publishes": "cyan",
    "receipt": "cyan",
    "deliver": "blue",
    "takes": "bold blue",
    "commits": "blue",
    "silence": "dim",
    "violation": "bold white on red",
}
"""How a kind looks where there are colours."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the diagram."""

    time: str
    cells: str
    text: str
    kind: str = ""

    def __str__(self) -> str:
        return f"{self.time:>{_TIME - 1}} {self.cells} {self.text}".rstrip()


def lanes_text(
    lines: Sequence[Line],
    violation: Failure | None = None,
    *,
    about: Iterable[str] = (),
    limit: int | None = 60,
    hide: Collection[str] = QUIET,
    width: int = WIDTH,
) -> str:
    """The diagram as plain text: the lines that matter to the failure (`picture`)."""
    rows = draw(picture(lines, violation, about=about, limit=limit, hide=hide), width)
    return "".join(f"{row}\n" for row in rows)


def lanes_rich(
    lines: Sequence[Line],
    violation: Failure | None = None,
    *,
    about: Iterable[str] = (),
    limit: int | None = 60,
    hide: Collection[str] = QUIET,
    width: int = WIDTH,
) -> Text:
    """The same with colours, for rich's console."""
    from rich.text import Text

    diagram = Text(no_wrap=True)
    for row in draw(picture(lines, violation, about=about, limit=limit, hide=hide), width):
        style = STYLES.get(row.kind, "")
        diagram.append(f"{row.time:>{_TIME - 1}} ", "dim")
        diagram.append(row.cells, style if row.kind in STYLES else "dim")
        diagram.append(f" {row.text}\n", style)
    return diagram


def draw(shown: Picture, width: int = WIDTH) -> Iterator[Row]:
    """The rows of the diagram, from its heading on."""
    chart = Chart(shown.lanes, width)
    yield chart.heading()
    if shown.left_out:
        yield from chart.remark(f"({shown.left_out:,} more lines are not shown)")
    for line in shown.lines:
        yield from chart.rows(line)
    if shown.failure is not None:
        yield from chart.verdict(shown.failure)


def _short(name: str, length: int) -> str:
    """As much of a name as there is room for; the number at its end distinguishes it from the next."""
    number = name[len(name.rstrip("0123456789")) :][-length:]
    return name if len(name) <= length else name[: length - len(number)] + number


def speaks_for_itself(line: Line) -> bool:
    """Whether the text of a line says what happened without the line's kind before it."""
    return (bool(line.peer) and line.kind != LOST) or line.kind in line.text.lower()


def _seconds(at: int) -> str:
    return f"{at / 1e9:.3f}"


class Chart:
    """A diagram that is drawn line by line: where the lanes are, who is there, and how late it is."""

    def __init__(self, lanes: Sequence[str], width: int) -> None:
        room = (width - _TIME - _TEXT_LEAST) // max(len(lanes), 1)
        self._pitch = max(_LANE_LEAST, min(_LANE_MOST, room))
        self._lanes = {lane: self._pitch * place + self._pitch // 2 for place, lane in enumerate(lanes)}
        self._width = self._pitch * (len(lanes) - 1) + self._pitch // 2 + 3
        self._text_width = max(width - _TIME - self._width - 1, 16)
        self._gone: set[str] = set()
        self._last: int | None = None

    def heading(self) -> Row:
        """The lanes' names."""
        return Row("seconds", "".join(_short(lane, self._pitch - 1).center(self._pitch) for lane in self._lanes), "")

    def remark(self, text: str) -> Iterator[Row]:
        """Something about the diagram itself."""
        yield from self._with_text("", self._lifelines(), text, "")

    def verdict(self, failure: Failure) -> Iterator[Row]:
        """What was wrong, at the end."""
        bar = ["═"] * self._width
        yield from self._with_text(_seconds(failure.at), bar, f"✗ {with_short_ticks(str(failure))}", "violation")

    def rows(self, line: Line) -> Iterator[Row]:
        """A line of the run, and before it how much time has passed, if that was much."""
        last, self._last = self._last, line.at
        if last is not None and line.at - last > _PAUSE:
            yield from self.remark(f"⋮ {(line.at - last) / 1e9:.1f} s later")
        time = "" if last is not None and _seconds(last) == _seconds(line.at) else _seconds(line.at)
        yield from self._draw(time, line)

    def _draw(self, time: str, line: Line) -> Iterator[Row]:
        if line.kind == FOLDED:
            yield from self.remark(f"⋮ {line.text}")
            return
        if line.kind in BEGINS:
            self._gone.discard(line.lane)
        cells = self._lifelines()
        text = line.text if speaks_for_itself(line) else f"{line.kind}: {line.text}"
        if line.kind == LOST:
            self._lost(cells, line.lane, line.peer)
        elif line.peer:
            self._arrow(cells, line.peer, line.lane)
        elif line.lane == WORLD:
            cells = ["┄" if cell == " " else cell for cell in cells]
        else:
            cells[self._lanes[line.lane]] = "✖" if line.kind in ENDS else "○" if line.kind in BEGINS else "●"
        if line.kind in ENDS:
            self._gone.add(line.lane)
        yield from self._with_text(time, cells, text, line.kind)

    def _lifelines(self) -> list[str]:
        cells = [" "] * self._width
        for lane, place in self._lanes.items():
            cells[place] = "┊" if lane in self._gone else "│"
        return cells

    def _arrow(self, cells: list[str], source: str, target: str) -> None:
        start, end = self._lanes[source], self._lanes[target]
        step = 1 if end > start else -1
        for place in range(start + step, end, step):
            cells[place] = "┼" if cells[place] in "│┊" else "─"
        cells[start] = "├" if step > 0 else "┤"
        cells[end - step] = "▶" if step > 0 else "◀"

    def _lost(self, cells: list[str], source: str, target: str) -> None:
        start, end = self._lanes[source], self._lanes.get(target, 0)
        step = 1 if end > start else -1
        middle = start + (end - start) // 2
        for place in range(start + step, middle, step):
            cells[place] = "┼" if cells[place] in "│┊" else "─"
        cells[start] = "├" if step > 0 else "┤"
        cells[middle] = "✕"

    def _with_text(self, time: str, cells: list[str], text: str, kind: str) -> Iterator[Row]:
        first, *rest = wrap(text, self._text_width) or [""]
        yield Row(time, "".join(cells), first, kind)
        for more in rest:
            yield Row("", "".join(self._lifelines()) if kind != "violation" else " " * self._width, more, kind)
