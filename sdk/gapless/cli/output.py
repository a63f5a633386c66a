"""What commands print: tables for people, JSON for programs."""

from __future__ import annotations

import codecs
import json
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeAlias

if TYPE_CHECKING:
    from rich.table import Table

Row: TypeAlias = Mapping[str, Any]

ESCAPING: Final = "gapless.escaping"
"""How a stream handles characters that it cannot show: as JSON writes them, so that JSON stays JSON."""
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


def escape_what_cannot_be_shown() -> None:
    """What is printed from now on never fails for its characters, whatever encoding the terminal or the pipe has.

    Who has chosen how such characters are handled (PYTHONIOENCODING=ascii:replace) keeps that.
    """
    codecs.register_error(ESCAPING, _escape_unencodable)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and stream.errors in {"strict", "surrogateescape", "backslashreplace"}:
            stream.reconfigure(errors=ESCAPING)


def show_warnings_as_sentences() -> None:
    """What Python warns of, for gapless or another library, is for a person who has no program to look at."""
    show = warnings.showwarning

    def as_sentence(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if category is UserWarning:
            print(f"gapless: {some_lines(str(message))}", file=sys.stderr)
        else:
            show(message, category, filename, lineno, file, line)

    warnings.showwarning = as_sentence


def _escape_unencodable(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


def print_json(value: Any) -> None:
    """Prints one JSON value on one line, and sees to it that it leaves at once."""
    sys.stdout.write(json_line(value) + "\n")
    sys.stdout.flush()


def json_line(value: Any) -> str:
    """A value as JSON on one line. Whatever a terminal could obey is escaped, as JSON allows for every character."""
    return one_line(json.dumps(value, ensure_ascii=False, default=str))


def print_listing(rows: Sequence[Row], columns: Mapping[str, str], *, as_json: bool, empty: str) -> None:
    """Prints a listing: as JSON all of every row, as a table the columns that `columns` gives a heading."""
    if as_json:
        print_json(list(rows))
    elif not rows:
        print(empty)
    else:
        print_table(table_of(rows, columns))


def table_of(rows: Iterable[Row], columns: Mapping[str, str]) -> Table:
    """A table of these rows; columns of numbers are set to the right."""
    from rich import box
    from rich.table import Table

    rows = list(rows)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for key, heading in columns.items():
        numbers = all(_is_number(row[key]) for row in rows)
        table.add_column(heading, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_cell(row[key]) for key in columns))
    return table


def print_table(table: Table) -> None:
    """Prints a table: as wide as it needs to be where nobody looks, so that nothing is cut off."""
    from rich.console import Console

    console = Console()
    console.print(table) if console.is_terminal else Console(width=500).print(table)


def shown(value: Any) -> str:
    """A value as a person reads it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.1f}"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(shown, value)) or "-"
    return one_line(str(value)) or "-"


def one_line(text: str) -> str:
    """Text that cannot break out of its line, move the cursor of its reader, or turn the direction of what is read."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _escaped(each) for each in text)


def some_lines(text: str) -> str:
    """The same for text of several lines, which stay."""
    return "\n".join(map(one_line, text.split("\n")))


def _escaped(character: str) -> str:
    escaped = json.dumps(character)[1:-1]
    return escaped if escaped.isprintable() else f"\\u{ord(character):04x}"  # DEL is what JSON leaves as it is


def shown_bytes(count: int) -> str:
    """A number of bytes as a person reads it."""
    power = min((max(count, 1).bit_length() - 1) // 10, len(_UNITS) - 1)
    return f"{count / 1024**power:.1f} {_UNITS[power]}" if power else f"{count} bytes"


def shown_tick(tick: int, *, timed: bool, after: bool = False) -> str:
    """A tick as a person reads it: its time; or, if ticks are no times, which record it is, or which comes after it."""
    from gapless.core.stream.ticks import shown_place, time_at

    return f"{time_at(tick):%Y-%m-%d %H:%M:%S}" if timed else shown_place(tick, after=after)


def shown_lag(events: int, seconds: float, *, complete: bool) -> dict[str, Any]:
    """How far a subscription lags, as a person reads it: cells of a table.

    What is due of a log that numbers its records has no age that a broker knows.
    """
    lag = shown_duration(seconds) if seconds or not events else None
    if complete:
        return {"lag_events": events, "lag": lag}
    return {"lag_events": f"at least {events:,}", "lag": lag and f"at least {lag}"}


def shown_duration(seconds: float) -> str:
    """A duration as a person reads it, in the two largest units that it has."""
    left = round(seconds)
    parts: list[str] = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2]) or "0 s"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _cell(value: Any) -> str:
    from rich.markup import escape

    return escape(shown(value))
