"""The *sometimes* assertions: what must happen now and then, over many seeds.

`World.sometimes(name)` counts that it happened. An assertion that never holds over many seeds is a finding: something
is not tested that seems to be.
"""

from __future__ import annotations

from gapless_sim.faults import administrator, link_faults, map_changes, second_processes
from gapless_sim.faults import schedule as faults
from gapless_sim.oracles import SOMETIMES as OF_ORACLES
from gapless_sim.workloads import SOMETIMES as OF_WORKLOADS
from gapless_sim.world import core_links

DECLARED: tuple[str, ...] = (*faults.SOMETIMES, *administrator.SOMETIMES, *OF_ORACLES, *OF_WORKLOADS)
OF_TREES: tuple[str, ...] = (
    *link_faults.SOMETIMES,
    *core_links.SOMETIMES.values(),
    *map_changes.SOMETIMES,
    *second_processes.SOMETIMES,
)
"""What must happen now and then in trees of cells."""
