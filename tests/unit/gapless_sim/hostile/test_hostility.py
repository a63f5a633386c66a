"""Rates and dice."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from gapless.errors import ConfigurationError
from gapless_sim.hostile.hostility import BEHAVIOURS, Hostility


def test_what_has_a_rate_happens_that_often() -> None:
    hostility = Hostility({"lose": 0.25, "split": 1, "merge": 0}, Random(1))

    assert 400 < sum(hostility.happens("lose") for _ in range(2000)) < 600
    assert 40 < sum(hostility.happens("lose", 0.1) for _ in range(2000)) < 70
    assert all(hostility.happens("split") for _ in range(100))
    assert [hostility.has(name) for name in ("lose", "split", "merge", "delay")] == [True, True, False, False]


def test_without_a_rate_no_dice_are_thrown() -> None:
    random = Random(1)
    before = random.getstate()
    hostility = Hostility({"merge": 0.0}, random)

    assert hostility.quiet
    assert not any(hostility.happens(behaviour) for behaviour in BEHAVIOURS)
    assert random.getstate() == before


def test_once_it_is_stopped_nothing_happens() -> None:
    hostility = Hostility({"lose": 1.0}, Random(1))
    hostility.stop()

    assert hostility.quiet
    assert not hostility.happens("lose")


@pytest.mark.parametrize(
    ("rates", "reason"),
    [({"murder": 0.1}, "no behaviour 'murder'"), ({"lose": 2}, "between 0 and 1"), ({"lose": "x"}, "between 0 and 1")],
)
def test_rates_that_cannot_be(rates: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        Hostility(rates, Random(1))
