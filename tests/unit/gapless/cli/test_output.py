"""Tables, JSON and values as people read them."""

from __future__ import annotations

import json

import pytest

from gapless.cli.output import json_line, one_line, print_listing, shown, shown_bytes, shown_duration, some_lines

ROWS = [{"name": "a", "count": 1_000, "more": [1]}, {"name": "[b]", "count": 7, "more": []}]
COLUMNS = {"name": "who", "count": "how many"}


def test_a_listing_is_a_table_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    print_listing(ROWS, COLUMNS, as_json=False, empty="nobody")

    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert lines[0] == ["who", "how", "many"]
    assert lines[2:] == [["a", "1,000"], ["[b]", "7"]]


def test_a_listing_is_all_of_it_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    print_listing(ROWS, COLUMNS, as_json=True, empty="nobody")

    assert json.loads(capsys.readouterr().out) == ROWS


@pytest.mark.parametrize(("as_json", "printed"), [(False, "nobody\n"), (True, "[]\n")])
def test_an_empty_listing_says_so(capsys: pytest.CaptureFixture[str], as_json: bool, printed: str) -> None:
    print_listing([], COLUMNS, as_json=as_json, empty="nobody")

    assert capsys.readouterr().out == printed


def test_a_table_that_nobody_watches_is_not_cut_off(capsys: pytest.CaptureFixture[str]) -> None:
    print_listing([{"name": "x" * 300, "count": 1}], COLUMNS, as_json=False, empty="")

    assert "x" * 300 in capsys.readouterr().out


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        ("", "-"),
        (True, "yes"),
        (False, "no"),
        (1234567, "1,234,567"),
        (1.25, "1.2"),
        (("a", "b"), "a, b"),
        ((), "-"),
    ],
)
def test_a_value_is_shown(value: object, text: str) -> None:
    assert shown(value) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        ((1 << 20) - 1, "1024.0 KiB"),
        (1 << 20, "1.0 MiB"),
        (5 << 30, "5.0 GiB"),
        (3 << 50, "3072.0 TiB"),
    ],
)
def test_bytes_are_shown_in_their_unit(count: int, text: str) -> None:
    assert shown_bytes(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.4, "0 s"),
        (59, "59 s"),
        (61, "1 min 1 s"),
        (3600, "1 h"),
        (90_061, "1 d 1 h"),
        (86_401, "1 d 1 s"),
    ],
)
def test_a_duration_is_shown_in_its_largest_units(seconds: float, text: str) -> None:
    assert shown_duration(seconds) == text


HOSTILE = "\x1b]0;a\x07\x7f\x9b31m\u202eb\n"


def test_text_that_a_terminal_obeys_is_escaped_and_the_rest_stays() -> None:
    assert one_line(f"Zürich {HOSTILE}") == r"Zürich \u001b]0;a\u0007\u007f\u009b31m\u202eb\n"
    assert some_lines("a\n\x9bb") == "a\n\\u009bb"


def test_json_for_programs_holds_nothing_that_a_terminal_obeys() -> None:
    """And says the same."""
    line = json_line({HOSTILE: "Zürich"})

    assert line.isprintable()
    assert "Zürich" in line
    assert json.loads(line) == {HOSTILE: "Zürich"}
