"""For which networks routers are made, and who judges them there."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from gapless import plugins
from gapless.core.network.seam import Router, RouterBase
from gapless.errors import ConfigurationError
from gapless_sim.oracles import all_oracles
from gapless_sim.recording.trace import Trace
from gapless_sim.world.choices import Choices
from gapless_sim.world.options import Options
from gapless_sim.world.routers import networks_of
from gapless_sim.world.topology import SINGLES, TREE, with_topology
from gapless_sim.world.world_builder import build

OF_CELLS = {"K3", "K5", "K7", "K8"}
OF_TREES = {"V4", "C5", "K6", "K9", "K10", "K11"}


def add(name: str, networks: str) -> None:
    """A router that is made for such networks, and does nothing."""

    def open_routing(options: Mapping[str, Any]) -> Router:
        router = RouterBase()
        router.networks = networks
        return router

    plugins.add("routing", name, SimpleNamespace(open_routing=plugins.hookimpl(open_routing)))


def judges(router: str, topology: str) -> set[str]:
    """The names of the oracles that look at a network of single nodes."""
    cells = "phb1:phb ib1<phb1 shb1:shb<ib1"
    options = Options(1, router=router, topology=topology, cells=cells, link_cores=True)
    return {getattr(oracle, "name", "") for oracle in all_oracles(build(options, Choices(1), Trace()))}


def test_a_router_says_for_which_networks_it_is_made() -> None:
    add("of single nodes", "nodes")

    routers = ("local", "hostile", "knowledge", "of single nodes")
    assert [networks_of(router) for router in routers] == ["one", "mesh", "cells", "nodes"]
    assert with_topology(Options(1, router="of single nodes"), Choices(1), None).topology == SINGLES


def test_networks_that_there_are_not_are_refused() -> None:
    add("of rings", "rings")

    with pytest.raises(ConfigurationError, match="made for networks 'rings'; there are one, mesh, cells, nodes"):
        networks_of("of rings")


def test_who_speaks_of_cells_judges_routers_that_are_made_for_them() -> None:
    add("of single nodes", "nodes")

    assert judges("knowledge", TREE) >= OF_CELLS | OF_TREES
    assert judges("knowledge", SINGLES) >= OF_CELLS | OF_TREES
    assert judges("of single nodes", SINGLES) >= OF_TREES
    assert not judges("of single nodes", SINGLES) & OF_CELLS
