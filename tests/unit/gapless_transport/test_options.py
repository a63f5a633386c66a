from __future__ import annotations

import pytest

from gapless.errors import ConfigurationError
from gapless_transport.options import LinkOptions, checked


def test_options_have_defaults() -> None:
    options = checked(LinkOptions, {}, "any")

    assert options.frame_limit == 4096
    assert options.low_water < options.high_water < options.pending_max


def test_an_unknown_option_is_named_with_those_that_are_known() -> None:
    with pytest.raises(ConfigurationError, match="transport 'tcp': there is no option 'hihg_water'") as error:
        checked(LinkOptions, {"hihg_water": 1}, "tcp")
    assert "high_water" in str(error.value)


@pytest.mark.parametrize(
    "options",
    [
        {"frame_limit": 0},
        {"frame_limit": 2**31},
        {"high_water": "much"},
        {"close_timeout": 0},
        {"close_timeout": float("inf")},
        {"pending_max": None},
    ],
)
def test_a_wrong_value_is_named(options: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match=f"option '{next(iter(options))}'"):
        checked(LinkOptions, options, "tcp")


def test_marks_that_are_out_of_order_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"transport 'tcp': low_water <= high_water <= pending_max"):
        checked(LinkOptions, {"low_water": 11, "high_water": 10}, "tcp")


def test_every_problem_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"'frame_limit'.*'nonsense'"):
        checked(LinkOptions, {"frame_limit": 0, "nonsense": 1}, "tcp")
