"""The plugin `limits`: found by name, made by its hook."""

from __future__ import annotations

import pytest

from gapless.errors import ConfigurationError
from gapless.plugins import load
from gapless_phb.policies import Limits


def test_hook_open_release_makes_the_policy_that_ships() -> None:
    open_release = load("release", "limits")

    assert open_release(options={}) == Limits()
    assert open_release(options={"max_retain_seconds": 5, "max_retain_bytes": 7}) == Limits(5.0, 7)


def test_every_option_that_is_wrong_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"^max_retain_bytes: .*; days: "):
        load("release", "limits")(options={"max_retain_bytes": -1, "days": 3})
