"""The papers' experiments run, in a size that shows no more than that: `python -m bench papers NAME --quick`."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest

from documents import ROOT

EXPERIMENTS = {
    "catchup": {"catchup_median_s", "ratio_catchup_to_should", "ratio_delivered_to_time"},
    "shb-crash": {"ratio_constream_slope", "catchup_mean_s", "ratio_phb_sent_to_delivered"},
    "early-release": {"gaps_of_the_one_away", "gaps_of_the_others", "ratio_log_without"},
    "overhead": {"knowledge_cpu_us_per_event_few", "ratio_cpu_few", "ratio_latency"},
    "link-failure": {"shbs_with_late_events", "ratio_others_p99", "ratio_worst_to_allowed"},
    "link-stall": {"shbs_with_late_events", "ratio_others_p99", "ratio_worst_to_allowed"},
    "ib-crash": {"ratio_worst_to_outage", "ratio_questions_to_phb"},
    "outage": {"ratio_worst_to_outage", "ratio_slope", "ratio_questions", "ratio_sent_again"},
    "phb-restart": {"ratio_standstill_to_outage", "ratio_most_handed_to_published"},
    "loss": {"ratio_again_to_lost_high", "ratio_growth_to_losses"},
    "total-order": {"median_total_20_ms", "median_pubend_1000_ms", "ratio_p99_wait_to_period_200"},
}
"""Each experiment, and some of the figures that it must have.

Without those of which each starts a dozen nodes, with what `overhead` starts its nodes with: of them see below.
"""


@pytest.mark.long
@pytest.mark.timeout(180)
def test_every_experiment_runs_and_has_its_figures() -> None:
    command = [sys.executable, "-m", "bench", "papers", *EXPERIMENTS, "--quick", "--json"]

    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=170, check=False, cwd=ROOT, env=env)

    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)["experiments"]
    assert list(said) == list(EXPERIMENTS)
    for name, figures in EXPERIMENTS.items():
        assert said[name]["figures"].keys() >= figures, name
        assert said[name]["bars"].keys() <= said[name]["figures"].keys(), name


def papers(module: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module of the benchmark, which is not installed."""
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module(f"bench.papers.{module}")


def test_no_experiment_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    catalogue = papers("catalogue", monkeypatch)

    assert EXPERIMENTS.keys() | {"hops", "scaling"} == catalogue.EXPERIMENTS.keys()


def test_hops_tells_what_logging_and_each_hop_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over five brokers 50 ms, of which 44 ms are for logging, as in the paper; in one node logging takes as long."""

    async def took(_: object, pings: int) -> dict[str, list[float]]:
        medians = {"chain": 50.0, "chain_without_a_disk": 6.0, "one": 46.0, "one_without_a_disk": 2.0}
        return {name: [value] * pings for name, value in medians.items()}

    hops = papers("hops", monkeypatch)
    monkeypatch.setattr(hops, "_latencies", took)

    values = hops.HOPS.run(hops.Sizes()).values

    assert values.keys() == hops.HOPS.figures.keys()
    assert values["ratio_logging_to_all"] == 0.88
    assert values["ratio_logging_chain_to_one"] == 1
    assert values["hop_ms"] == 1
    assert values["ratio_hop_to_one_without_a_disk"] == 0.5


def test_scaling_compares_what_all_shbs_would_do_with_a_processor_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each SHB needs 10 ms for 1,000 deliveries, and the PHB a tenth more for four than for one."""
    scaling = papers("scaling", monkeypatch)

    async def measure(layouts: dict[str, object], load: Any) -> dict[str, list[Any]]:
        found = {"one node": scaling.Turn({"both": 0.02}, 100, 1000)}
        for shbs in (1, 2, 4):
            cpu = {"phb": 0.01 if shbs == 1 else 0.011, "ib": 0.001 * shbs}
            cpu |= {f"shb-{number}": 0.01 for number in range(shbs)}
            found[str(shbs)] = scaling.Turn(cpu, 100, 1000 * shbs)
        assert layouts.keys() == found.keys()
        return {name: [turn] * load.turns for name, turn in found.items()}

    monkeypatch.setattr(scaling, "_measure", measure)

    values = scaling.SCALING.run(scaling.Sizes()).values

    assert values.keys() == scaling.SCALING.figures.keys()
    assert values["deliveries_per_cpu_s_1"] == pytest.approx(100_000)
    assert values["deliveries_per_cpu_s_4"] == pytest.approx(400_000)
    assert values["ratio_capacity_to_linear"] == pytest.approx(1)
    assert values["ratio_one_shb_to_one_node"] == pytest.approx(2)
    assert values["ratio_phb_cpu_most_to_one"] == pytest.approx(1.1)
    assert values["ib_cpu_us_per_event_most"] == pytest.approx(40)
