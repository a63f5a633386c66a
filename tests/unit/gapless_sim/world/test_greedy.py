from __future__ import annotations

from typing import Any

import pytest

from gapless.core.stream.ticks import FOREVER
from gapless.errors import ConfigurationError
from gapless.plugins import load


def test_it_wants_everything() -> None:
    state: Any = None

    assert load("release", "greedy")(options={}).release(state) == FOREVER


def test_it_has_no_options() -> None:
    with pytest.raises(ConfigurationError, match="'greedy' has no option 'days'"):
        load("release", "greedy")(options={"days": 3})
