"""Short names for what has long ones."""

from __future__ import annotations

from gapless.core.stream.ticks import FOREVER, MILLISECOND, STEP, tick_at
from gapless_sim.recording.short_names import Names, tick_text, with_short_ticks
from gapless_sim.world.clocks import WALL_BEGIN

ONE = tick_at(WALL_BEGIN + 1_000)
"""The first tick of second 1 of a run."""
TWO = tick_at(WALL_BEGIN + 2_000)


def test_a_tick_is_shown_as_seconds_of_the_run() -> None:
    assert tick_text(ONE) == "1.000"
    assert tick_text(ONE + 3 * STEP + 7) == "1.000+3"
    assert tick_text(ONE - 1) == "1.000-1"
    assert tick_text(ONE - 2500 * MILLISECOND) == "-1.500"
    assert tick_text(0) == "0"
    assert tick_text(FOREVER) == "∞"


def test_ticks_in_a_text_are_shown_as_seconds() -> None:
    assert (
        with_short_ticks(f"publication 3 at {ONE + STEP} of 1700000000000")
        == "publication 3 at 1.000+1 of 1700000000000"
    )


def test_shown_roughly_a_millisecond_is_a_point() -> None:
    rough, exact = Names(rough=True), Names()

    assert rough.range(ONE, ONE + 3 * STEP) == "at 1.000"
    assert rough.range(ONE - 1, TWO) == "(1.000, 2.000]"
    assert exact.range(ONE, ONE + 3 * STEP) == "(1.000, 1.000+3]"
    assert rough.events([7, 8], [ONE, TWO]) == "#7 #8"
    assert exact.events([7, 8], [ONE, TWO]) == "#7@1.000 #8@2.000"


def test_of_many_the_first_and_the_last_are_shown() -> None:
    names = Names(rough=True)

    assert names.events(range(1, 9)) == "8 events #1 … #8"
    assert names.ranges([(ONE, TWO)] * 6).endswith("and 2 more")


def test_another_epoch_is_another_pubend() -> None:
    names = Names({"phb1": "flights"})

    assert [names.pubend(pubend) for pubend in ("phb1@a", "phb1@b", "phb1@a", "b@a")] == [
        "flights",
        "flights(2)",
        "flights",
        "b",
    ]
    assert names.shb("b@z") == "b", "an SHB may be called like a pubend"
