"""Failures that are kept as files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gapless_sim.search.regression import (
    Regression,
    parse_regression,
    read_regression,
    regression_text,
    write_regression,
)
from gapless_sim.search.result import Failure, Result
from gapless_sim.search.shrink import sparse
from gapless_sim.world.choices import Choices
from gapless_sim.world.options import NetworkFaults, Options, ProcessFaults, draw_options

OPTIONS = Options(
    7,
    router="hostile",
    network=NetworkFaults(loss=0.2, bytewise=0.0),
    process=ProcessFaults(crash=0.4),
    hostility=(("lose", 0.3),),
)
RESULT = Result(OPTIONS, "0123abcdef", 10, 20, Failure("I3", "twice", 5), {"network": [0, 9, 0], "disk": [0]})


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = write_regression(tmp_path, RESULT, "delivered behind the token")

    assert path.name == "i3-0123abcd.json"
    assert read_regression(path) == Regression("delivered behind the token", "I3: twice", OPTIONS, {"network": [0, 9]})


def test_only_what_matters_is_written() -> None:
    shown = json.loads(regression_text(Regression("", "I3: twice", OPTIONS, RESULT.choice_sequences)))

    assert shown["options"] == {
        "seed": 7,
        "router": "hostile",
        "network": {"loss": 0.2, "bytewise": 0.0},
        "process": {"crash": 0.4},
        "hostility": [["lose", 0.3]],
    }
    assert shown["choice_sequences"] == {"network": {"1": 9}}


@pytest.mark.parametrize("seed", range(20))
def test_the_options_of_any_seed_can_be_written(seed: int) -> None:
    choices = Choices(seed)
    options = draw_options(seed, choices, router="hostile")
    options = replace(options, hostility=tuple(pair for pair in options.hostility))

    read = parse_regression(regression_text(Regression("", "", options, choices.choice_sequences())))

    assert read.options == options
    assert read.choice_sequences == sparse(choices.choice_sequences())


def test_the_exception_of_a_failure_makes_a_name(tmp_path: Path) -> None:
    result = replace(RESULT, violation=Failure("exception KeyError", "9; in model.py", 5))

    assert write_regression(tmp_path, result, "").name == "exception-keyerror-0123abcd.json"


def test_what_does_not_fail_is_no_regression(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no regression"):
        write_regression(tmp_path, replace(RESULT, violation=None), "")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"what": "", "failed": "", "options": {"seed": 1, "weather": 2}, "choice_sequences": {}}', "'weather'"),
        (
            '{"what": "", "failed": "", "options": {"seed": 1, "disk": {"colour": 2}}, "choice_sequences": {}}',
            "'colour'",
        ),
        ('{"what": "", "failed": "", "choice_sequences": {}}', "options"),
        ("{", "Expecting"),
    ],
)
def test_a_file_that_is_none_says_which_and_why(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "i3-x.json"
    path.write_text(text, "utf-8")

    with pytest.raises(ValueError, match=f"i3-x.json: .*{says}"):
        read_regression(path)
