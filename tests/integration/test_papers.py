"""The papers' experiments run, in a size that shows no more than that: `python -m bench papers all --quick`."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from documents import ROOT

EXPERIMENTS = {
    "hops": {"chain_median_ms", "ratio_logging_to_all", "ratio_hop_to_one_without_a_disk"},
    "catchup": {"catchup_median_s", "ratio_catchup_to_should", "ratio_delivered_to_time"},
    "shb-crash": {"ratio_constream_slope", "catchup_mean_s", "ratio_phb_sent_to_delivered"},
    "early-release": {"gaps_of_the_one_away", "gaps_of_the_others", "ratio_log_without"},
    "link-failure": {"shbs_with_late_events", "ratio_others_p99", "ratio_worst_to_allowed"},
    "link-stall": {"shbs_with_late_events", "ratio_others_p99", "ratio_worst_to_allowed"},
    "ib-crash": {"ratio_worst_to_outage", "ratio_questions_to_phb"},
    "outage": {"ratio_worst_to_outage", "ratio_slope", "ratio_questions", "ratio_sent_again"},
    "phb-restart": {"ratio_standstill_to_outage", "ratio_most_handed_to_published"},
    "loss": {"ratio_again_to_lost_high", "ratio_growth_to_losses"},
    "total-order": {"median_total_20_ms", "median_pubend_1000_ms", "ratio_p99_wait_to_period_200"},
}
"""Each experiment, and some of the figures that it must have."""


@pytest.mark.timeout(180)
def test_every_experiment_runs_and_has_its_figures() -> None:
    command = [sys.executable, "-m", "bench", "papers", "all", "--quick", "--json"]

    done = subprocess.run(command, capture_output=True, text=True, timeout=170, check=False, cwd=ROOT)

    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)["experiments"]
    assert list(said) == list(EXPERIMENTS)
    for name, figures in EXPERIMENTS.items():
        assert said[name]["figures"].keys() >= figures, name
        assert said[name]["bars"].keys() <= said[name]["figures"].keys(), name
