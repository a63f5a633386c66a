"""What is said of frames that came otherwise than they should."""

from __future__ import annotations

import pytest

from gapless_testing.comparing import difference
from gapless_testing.transport.ends import numbered

EXPECTED = numbered(0, 8, size=16)


def test_nothing_is_said_of_what_came_as_expected() -> None:
    assert difference(EXPECTED, EXPECTED) == ""


@pytest.mark.parametrize(
    ("came", "said"),
    [
        (EXPECTED[:7], "7 of 8 frames, missing #8"),
        (EXPECTED[:1], "1 of 8 frames, missing #2, #3, #4, #5, #6 and 2 more"),
        ([*EXPECTED, EXPECTED[3]], "8 of 8 frames, more than once #4; out of order: #8 came before #4"),
        ([*EXPECTED[:2], EXPECTED[3], EXPECTED[2], *EXPECTED[4:]], "8 of 8 frames, out of order: #4 came before #3"),
        ([*EXPECTED, b"strange"], "8 of 8 frames, and 1 that nobody sent"),
        ([*EXPECTED[:7], EXPECTED[7][:9]], "7 of 8 frames, #8 came with 9 bytes instead of 16; missing #8"),
        (
            [*EXPECTED[:7], EXPECTED[7][:-1] + b"!"],
            "7 of 8 frames, #8 came with other bytes at 15: 21 instead of 00; missing #8",
        ),
    ],
    ids=["missing", "many missing", "twice", "swapped", "more", "shorter", "altered"],
)
def test_what_is_wrong_is_said(came: list[bytes], said: str) -> None:
    assert difference(came, EXPECTED) == said


def test_payloads_that_are_alike_are_compared_by_their_places() -> None:
    alike = [b"same", b"same", b"same"]

    assert difference(alike[:2], alike) == "2 of 3 frames"
    assert difference([b"same", b"fame", b"same"], alike) == (
        "3 of 3 frames, #2 came with other bytes at 0: 66616d65 instead of 73616d65"
    )
