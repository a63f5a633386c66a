"""A failure as one HTML page that needs nothing else: what was wrong, in which run, and how it came to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING

from gapless_sim.lanes import speaks_for_itself
from gapless_sim.page_parts import SCRIPT, STYLE
from gapless_sim.picture import BEGINS, ENDS, QUIET, Picture, picture
from gapless_sim.short_names import with_short_ticks
from gapless_sim.shrink import draws
from gapless_sim.trace_recorder import LOST

if TYPE_CHECKING:
    from gapless_sim.result import Result
    from gapless_sim.trace import Line

ROWS_MAX = 2_000
_PITCH_MOST, _PITCH_LEAST, _ROOM, _MIDDLE = 132, 70, 680, 14
_PAUSE = 1_000_000_000

_LOOKS = {
    "publish": ("publish", "publishes", "receipt"),
    "deliver": ("deliver", "takes", "commits", "acknowledge", "attached", "subscribe"),
    "routing": ("knowledge", "want", "interest", "progress", "enrol", "hold", "probe", "mail"),
    "silence": ("silence", *QUIET),
    "gap": ("gap",),
    "fault": (*ENDS, LOST, "cut", "pause", "refused", "not published", "subscription over", "alarm", "garbled"),
    "good": ("boot", "heal"),
}
_LOOK_OF = {kind: look for look, kinds in _LOOKS.items() for kind in kinds}
"""The colour of a kind."""


def page_html(
    result: Result,
    *,
    command: str = "",
    left_out: Sequence[str] = (),
    about: Iterable[str] = (),
    hide: Collection[str] = QUIET,
) -> str:
    """The page of a run that was kept. `command` repeats it; `left_out` is what shrinking found not to matter.

    What does not concern the failure, and the kinds to `hide`, are in the page, but shown only when asked for.
    """
    close = picture(result.lines, result.violation, about=about, limit=None, hide=hide)
    wide = picture(result.lines, limit=ROWS_MAX, hide=())
    title = str(result.violation) if result.violation else f"seed {result.options.seed}: nothing was wrong"
    return "\n".join(
        (
            '<!doctype html><html lang="en"><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title><style>{STYLE}</style><body><main>",
            *_summary(result, command, left_out),
            *_strip(result, wide),
            *_filters(close, wide),
            *_chart(close, wide),
            f'</main><div id="detail" role="status"></div><script>{SCRIPT}</script></body></html>\n',
        )
    )


# ---------------------------------------------------------------------------------------- the summary


def _summary(result: Result, command: str, left_out: Sequence[str]) -> Iterator[str]:
    failure, options = result.violation, result.options
    if failure is None:
        yield f"<h1>Nothing was wrong</h1><p class=when>in {result.now / 1e9:.3f} s</p>"
    else:
        yield f"<h1><b>{escape(failure.oracle)}</b>{escape(with_short_ticks(failure.what))}</h1>"
        when = f"{failure.at / 1e9:.3f} s after the beginning"
        yield f'<p class="when">{when}, <a href="#failure">down there</a></p>'
    facts = {
        "run": f"seed {options.seed}, router {options.router}, workload {options.workload}",
        "options": options.describe() or "all plain",
        "size": f"{result.steps:,} steps, {draws(result.choice_sequences):,} draws that were not benign",
        "digest": result.digest,
    }
    rows = [f"<dt>{name}</dt><dd>{escape(value)}</dd>" for name, value in facts.items()]
    if command:
        rows.insert(0, f"<dt>again</dt><dd><code>{escape(command)}</code></dd>")
    yield f"<dl>{''.join(rows)}</dl>"
    if left_out:
        items = "".join(f"<li>{escape(what)}</li>" for what in left_out)
        yield f"<details><summary>What does not matter to it ({len(left_out)})</summary><ul>{items}</ul></details>"


def _strip(result: Result, wide: Picture) -> Iterator[str]:
    """All of the run's time at one glance: where much happened, and where what went wrong."""
    end = max(result.now, 1)
    yield '<svg class="strip" viewBox="0 0 1000 46" preserveAspectRatio="none">'
    yield '<line class="axis" x1="0" y1="28" x2="1000" y2="28"/>'
    places = Counter(_place(line.at, end) for line in wide.lines)
    most = max(places.values(), default=1)
    for x, count in sorted(places.items()):
        yield f'<line class="any" x1="{x}" x2="{x}" y1="28" y2="{25 - 17 * count / most:.1f}"/>'
    for number, line in enumerate(wide.lines):
        if _look(line) in {"fault", "gap"}:
            x, tip = _place(line.at, end), escape(f"{line.at / 1e9:.3f} {line.lane} {line.kind}: {line.text}")
            mark = f'<line class="fault" x1="{x}" x2="{x}" y1="14" y2="34"/>'
            yield f'<a href="#row{number}"><title>{tip}</title>{mark}</a>'
    if result.violation is not None:
        x = _place(result.violation.at, end)
        yield f'<path class="end" d="M{x - 6},44 L{x + 6},44 L{x},32 Z"/>'
    yield f'</svg><p class="when">0 s … {end / 1e9:.1f} s: grey is where something happened, red what went wrong</p>'


def _place(at: int, end: int) -> int:
    """Where a time is on the strip, which is 1000 wide."""
    return 6 + at * 988 // end


def _filters(close: Picture, wide: Picture) -> Iterator[str]:
    kinds = Counter(line.kind for line in wide.lines)
    quiet = {line.kind for line in close.lines}
    chips = [_chip("kind", kind, count) for kind, count in kinds.most_common() if kind in quiet]
    yield f'<div class="filters"><span>kinds</span>{"".join(chips)}</div>'
    lanes = [_chip("lane", lane) for lane in wide.lanes]
    yield f'<div class="filters"><span>lanes</span>{"".join(lanes)}</div>'
    hidden = len(wide.lines) - len(close.lines)
    if hidden > 0:
        more = f'<button id="everything" aria-pressed="false">everything<i>+{hidden:,}</i></button>'
        yield f'<div class="filters"><span>more</span>{more}</div>'


def _chip(by: str, name: str, count: int = 0) -> str:
    shown = f"{escape(name)}<i>{count:,}</i>" if count else escape(name)
    return f'<button data-by="{by}" data-name="{escape(name)}" aria-pressed="true">{shown}</button>'


# ------------------------------------------------------------------------------------------ the chart


def _chart(close: Picture, wide: Picture) -> Iterator[str]:
    lifelines = _Lifelines(wide.lanes)
    matters = set(close.lines)
    yield f'<section class="chart"><div class="row head"><time>seconds</time>{lifelines.heading()}<p></p></div>'
    last: int | None = None
    for number, line in enumerate(wide.lines):
        aside = line not in matters
        if not aside and last is not None and line.at - last > _PAUSE:
            later = f"{(line.at - last) / 1e9:.1f} s later"
            yield f'<div class="row later"><time>⋮</time>{lifelines.svg()}<p>{later}</p></div>'
        last = last if aside else line.at
        yield _row(number, line, lifelines, aside=aside)
    if close.failure is not None:
        time = f"<time>{close.failure.at / 1e9:.3f}</time>"
        what = escape(with_short_ticks(str(close.failure)))
        yield f'<div class="row verdict" id="failure">{time}{lifelines.svg()}<p>✗ {what}</p></div>'
    yield "</section>"


def _row(number: int, line: Line, lifelines: _Lifelines, *, aside: bool) -> str:
    looks = f"row {_look(line)}{' aside' if aside else ''}"
    name = "" if speaks_for_itself(line) else f"<b>{escape(line.kind)}</b>"
    data = {
        "kind": line.kind,
        "lanes": f"{line.lane}|{line.peer}" if line.peer else line.lane,
        "at": f"{line.at / 1e9:.9f}",
        "way": _way(line),
        "text": line.text,
    }
    attributes = " ".join(f'data-{key}="{escape(value)}"' for key, value in data.items())
    time = f"<time>{line.at / 1e9:.3f}</time>"
    content = f"{time}{lifelines.drawn(line)}<p>{name}{escape(line.text)}</p>"
    return f'<div class="{looks}" id="row{number}" tabindex="0" {attributes}>{content}</div>'


def _look(line: Line) -> str:
    return _LOOK_OF.get(line.kind, "other")


def _way(line: Line) -> str:
    if not line.peer:
        return line.lane
    return f"{line.lane} → {line.peer}" if line.kind == LOST else f"{line.peer} → {line.lane}"


class _Lifelines:
    """The lanes, who is there, and what is drawn over them."""

    def __init__(self, lanes: Sequence[str]) -> None:
        pitch = max(_PITCH_LEAST, min(_PITCH_MOST, _ROOM // max(len(lanes), 1)))
        self._places = {lane: pitch // 2 + pitch * place for place, lane in enumerate(lanes)}
        self._width = pitch * len(lanes)
        self._gone: set[str] = set()

    def heading(self) -> str:
        """The lanes' names."""
        names = (
            f'<text x="{place}" y="26" text-anchor="middle">{escape(lane)}</text>'
            for lane, place in self._places.items()
        )
        return f'<svg width="{self._width}" height="42">{"".join(names)}</svg>'

    def svg(self, drawn: str = "") -> str:
        """The lanes, and something over them. They are as high as the row, however much text it has."""
        lives = "".join(
            f'<line class="life{" gone" if lane in self._gone else ""}" x1="{place}" x2="{place}" y1="0" y2="100%"/>'
            for lane, place in self._places.items()
        )
        return f'<div class="lanes" style="width:{self._width}px"><svg>{lives}{drawn}</svg></div>'

    def drawn(self, line: Line) -> str:
        """A line of the run."""
        if line.kind in BEGINS:
            self._gone.discard(line.lane)
        picture_of_it = self.svg(self._over(line))
        if line.kind in ENDS:
            self._gone.add(line.lane)
        return picture_of_it

    def _over(self, line: Line) -> str:
        here, there = self._places.get(line.lane), self._places.get(line.peer)
        if here is None:
            return f'<line class="world" x1="0" x2="{self._width}" y1="{_MIDDLE}" y2="{_MIDDLE}"/>'
        if there is None:
            return _cross(here) if line.kind in ENDS else f'<circle class="dot" cx="{here}" cy="{_MIDDLE}" r="5"/>'
        if line.kind == LOST:
            middle = (here + there) // 2
            return _way_between(here, middle) + _cross(middle)
        step = 1 if here > there else -1
        tip = f"{here - 2 * step},{_MIDDLE} {here - 11 * step},{_MIDDLE - 5} {here - 11 * step},{_MIDDLE + 5}"
        return _way_between(there, here - 8 * step) + f'<polygon class="tip" points="{tip}"/>'


def _way_between(start: int, end: int) -> str:
    return f'<line class="way" x1="{start}" x2="{end}" y1="{_MIDDLE}" y2="{_MIDDLE}"/>'


def _cross(place: int) -> str:
    left, right, top, bottom = place - 6, place + 6, _MIDDLE - 6, _MIDDLE + 6
    return f'<path class="mark" d="M{left},{top} L{right},{bottom} M{left},{bottom} L{right},{top}"/>'
