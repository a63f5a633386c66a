"""The conformance suite for routers: what `gapless.core.network.seam.Router` promises, as pytest classes.

    from gapless_testing.routing import RouterHarness, RouterSuite

    class MyHarness(RouterHarness):
        def make(self):
            return MyRouter()

    class TestMyRouter(RouterSuite):
        @pytest.fixture
        def harness(self):
            return MyHarness()

The suite brings its own little network, in one thread and without a clock, and puts stand-ins for the
PHB's and the SHB's cores around every router. A `Contract` looks on at every call and every effect, and
raises `ContractError`, which names the clause, in the step in which it is broken. `Contract` needs no
pytest, and can look on elsewhere: in a simulator, say.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gapless_testing.routing.breaches import Clause, ContractError
from gapless_testing.routing.contract import Contract
from gapless_testing.routing.topology import (
    ALL,
    ALONE,
    BRANCH,
    CHAIN,
    DIAMOND,
    HUB,
    INNER,
    LEVELS,
    PAIR,
    SEVEN,
    Topology,
)

if TYPE_CHECKING:
    from gapless_testing.routing.harness import RouterHarness
    from gapless_testing.routing.suite import RouterSuite

__all__ = [
    "ALL",
    "ALONE",
    "BRANCH",
    "CHAIN",
    "DIAMOND",
    "HUB",
    "INNER",
    "LEVELS",
    "PAIR",
    "SEVEN",
    "Clause",
    "Contract",
    "ContractError",
    "RouterHarness",
    "RouterSuite",
    "Topology",
]

_NEED_PYTEST = {"RouterHarness": "harness", "RouterSuite": "suite"}


def __getattr__(name: str) -> Any:
    """What needs pytest is imported when it is asked for, so that `Contract` can do without."""
    module = _NEED_PYTEST.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module}"), name)
