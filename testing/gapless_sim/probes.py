"""What should happen sometimes: every probe that is declared, from wherever it is counted.

A probe that never fires over many seeds is a finding: something is not tested that seems to be.
"""

from __future__ import annotations

from gapless_sim import administering, faults
from gapless_sim.oracles import PROBES as OF_ORACLES
from gapless_sim.workloads import PROBES as OF_WORKLOADS

DECLARED: tuple[str, ...] = (*faults.PROBES, *administering.PROBES, *OF_ORACLES, *OF_WORKLOADS)
