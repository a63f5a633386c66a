"""All experiments, in the papers' order."""

from __future__ import annotations

from bench.papers.away import AWAY
from bench.papers.bypass import BYPASS
from bench.papers.bypass_load import BYPASS_LOAD
from bench.papers.catching_up import CATCHUP
from bench.papers.early_release import EARLY_RELEASE
from bench.papers.experiment import Experiment
from bench.papers.failures import IB_CRASH, LINK_FAILURE, LINK_STALL
from bench.papers.hops import HOPS
from bench.papers.losses import LOSS
from bench.papers.many_dead import MANY_DEAD
from bench.papers.outages import OUTAGE, PHB_RESTART
from bench.papers.overhead import OVERHEAD
from bench.papers.primary_backup import PRIMARY_BACKUP
from bench.papers.recovery import RECOVERY
from bench.papers.reports import REPORTS
from bench.papers.scaling import SCALING
from bench.papers.shb_crash import SHB_CRASH
from bench.papers.total_order import TOTAL_ORDER

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        BYPASS,
        MANY_DEAD,
        RECOVERY,
        REPORTS,
        BYPASS_LOAD,
        PRIMARY_BACKUP,
        AWAY,
        HOPS,
        SCALING,
        CATCHUP,
        SHB_CRASH,
        EARLY_RELEASE,
        OVERHEAD,
        LINK_FAILURE,
        LINK_STALL,
        IB_CRASH,
        OUTAGE,
        PHB_RESTART,
        LOSS,
        TOTAL_ORDER,
    )
}
