"""The diagram in a terminal."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from gapless_sim.recording.lanes import lanes_rich, lanes_text
from gapless_sim.recording.trace import Line
from gapless_sim.recording.trace_recorder import LOST
from gapless_sim.search.result import Failure

MS = 1_000_000
LINES = (
    Line(0, "phb1", "boot", "start 1"),
    Line(0, "shb1", "boot", "start 1"),
    Line(1 * MS, "anna", "publishes", "anna publishes #1"),
    Line(1 * MS, "phb1", "publish", "publish #1", "anna"),
    Line(2 * MS, "bert", "deliver", "deliver #1", "phb1"),
    Line(2 * MS, "phb1", "acknowledge", "acknowledge late", "bert"),
    Line(3 * MS, "phb1", LOST, "p (0, 1] holds #1", "shb1"),
    Line(4 * MS, "shb1", "crash", "1 batch was not synced"),
    Line(5 * MS, "world", "cut", "phb1 can not reach shb1"),
    Line(2500 * MS, "shb1", "boot", "start 2"),
)


def test_the_whole_diagram() -> None:
    expected = """\
  seconds     anna       phb1       shb1       bert
    0.000      │          ○          │          │   boot: start 1
               │          │          ○          │   boot: start 1
    0.001      ●          │          │          │   anna publishes #1
               ├─────────▶│          │          │   publish #1
    0.002      │          ├──────────┼─────────▶│   deliver #1
               │          │◀─────────┼──────────┤   acknowledge late
    0.003      │          ├────✕     │          │   lost: p (0, 1] holds #1
    0.004      │          │          ✖          │   crash: 1 batch was not synced
    0.005 ┄┄┄┄┄│┄┄┄┄┄┄┄┄┄┄│┄┄┄┄┄┄┄┄┄┄┊┄┄┄┄┄┄┄┄┄┄│┄┄ cut: phb1 can not reach shb1
               │          │          ┊          │   ⋮ 2.5 s later
    2.500      │          │          ○          │   boot: start 2
    3.000 ═════════════════════════════════════════ ✗ I3: it came out of order, and twice, and far
                                                    too late
"""

    assert lanes_text(LINES, Failure("I3", "it came out of order, and twice, and far too late", 3000 * MS)) == expected


def test_it_is_never_wider_than_it_may_be() -> None:
    many = [Line(number, f"client{number}", "takes", "something " * 30, "phb1") for number in range(12)]

    for width in (100, 120, 160):
        assert max(map(len, lanes_text(many, width=width).splitlines())) <= width


def test_where_there_is_little_room_the_numbers_of_names_are_kept() -> None:
    many = [Line(number, f"client{number}", "takes", "") for number in range(14)]

    assert "clie cli0 cli1" not in lanes_text(many)
    assert lanes_text(many).split()[1:4] == ["cli0", "cli1", "cl10"]


def test_what_is_not_shown_is_counted() -> None:
    assert "(8 more lines are not shown)" in lanes_text(LINES, limit=2)


def test_what_is_folded_is_said() -> None:
    text = lanes_text([Line(number, "anna", "takes", f"#{number}") for number in range(30)])

    assert "⋮ 28 more rounds of: takes" in text
    assert "#14" not in text


def test_with_colours_it_says_the_same() -> None:
    plain, coloured = StringIO(), StringIO()
    failure = Failure("I3", "wrong", 3000 * MS)
    for to, colours in ((plain, None), (coloured, "standard")):
        console = Console(file=to, width=100, color_system=colours, force_terminal=colours is not None)  # type: ignore[arg-type]
        console.print(lanes_rich(LINES, failure), end="")

    assert plain.getvalue().split() == lanes_text(LINES, failure).split()
    assert "\x1b[" in coloured.getvalue()
    assert "\x1b[" not in plain.getvalue()
