"""The papers' experiments run, in a size that shows no more than that: `python -m bench papers NAME --quick`."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from itertools import pairwise
from types import ModuleType
from typing import Any

import pytest

from documents import ROOT

BROKERS = {
    "bypass": {"latest_3_s_defaults", "ratio_latest_3_to_allowed_defaults", "ratio_back_to_usual_paper", "lost_paper"},
    "many-dead": {"ratio_connected_random_0", "ratio_pushed_fan_out_11_4", "ratio_healed_fan_out_3"},
    "recovery": {"recovery_3_s", "ratio_recovery_highest_to_lowest", "ratio_hop_to_ring_wait_high"},
    "reports": {"ratio_reports_to_confirmations_160", "ratio_cpu_reporting_to_unreported"},
    "bypass-load": {"ratio_sent", "ratio_received_two_dead_everywhere", "ratio_cpu"},
    "away": {"brokers_that_kept", "events_from_elsewhere", "complete_default"},
    "primary-backup": {"ratio_frames", "ratio_matches", "ratio_received_to_before"},
}
"""Each experiment of paper 000, and some of the figures that it must have."""
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
"""The same of the other papers.

Without those of which each starts a dozen nodes, with what `overhead` starts its nodes with: of them see below.
"""


@pytest.mark.long
@pytest.mark.timeout(240)
@pytest.mark.parametrize("experiments", [BROKERS, EXPERIMENTS], ids=["000", "001 and 002"])
def test_every_experiment_runs_and_has_its_figures(experiments: Mapping[str, set[str]]) -> None:
    command = [sys.executable, "-m", "bench", "papers", *experiments, "--quick", "--json"]

    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=230, check=False, cwd=ROOT, env=env)

    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)["experiments"]
    assert list(said) == list(experiments)
    for name, figures in experiments.items():
        assert said[name]["figures"].keys() >= figures, name
        assert said[name]["bars"].keys() <= said[name]["figures"].keys(), name
    if experiments is BROKERS:
        check_promises({name: experiment["figures"] for name, experiment in said.items()})


def check_promises(figures: Mapping[str, Mapping[str, float]]) -> None:
    """What is so in a network of any size."""
    bypass = figures["bypass"]
    for row in ("paper", "defaults"):
        assert not bypass[f"lost_{row}"]
        assert not bypass[f"wants_{row}"]
        assert not bypass[f"interests_{row}"]
    many_dead = figures["many-dead"]
    for shape in ("random", "fan_out_3", "fan_out_11"):
        assert many_dead[f"ratio_pushed_to_connected_{shape}"] == 1
        assert many_dead[f"ratio_healed_{shape}"] == 1
        assert not many_dead[f"ratio_missed_{shape}"]


def papers(module: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module of the benchmark, which is not installed."""
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module(f"bench.papers.{module}")


def test_no_experiment_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    catalogue = papers("catalogue", monkeypatch)

    assert BROKERS.keys() | EXPERIMENTS.keys() | {"hops", "scaling"} == catalogue.EXPERIMENTS.keys()


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


def test_the_trees_of_paper_000_are_as_large_as_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """86 brokers, of which three in a chain have eleven neighbours each; and as many around one."""
    brokers = papers("brokers", monkeypatch)

    for links in (brokers.chain_of_three(11, 86), brokers.star_of_chains(17, 5)):
        assert len(links) == 85
        assert len({name for link in links for name in link}) == 86
    plan = brokers.Plan(links=brokers.chain_of_three(11, 86), publishing=[], subscribing={}, delta=3)
    assert [len(plan.neighbours[name]) for name in ("b1", "b2", "b3")] == [11, 11, 11]
    assert len(brokers.rim_of(plan.links)) == 54


def test_subscriptions_are_spread_and_no_two_want_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = papers("brokers", monkeypatch)

    spread = brokers.subscriptions(10, ["a", "b", "c"])

    assert [len(wanted) for wanted in spread.values()] == [4, 3, 3]
    assert len({wanted.selector for each in spread.values() for wanted in each}) == 10


def test_who_is_connected_is_told_by_the_longest_row_of_dead_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    many_dead = papers("many_dead", monkeypatch)
    links = [*pairwise("abcdefg"), ("d", "x"), ("x", "y")]
    plan = many_dead.Plan(links=links, publishing=(), subscribing={}, delta=1)

    rows = many_dead.reached(plan, {"b", "c", "f", "x"}, "a")

    assert {name: rows[name] for name in "adegy"} == {"a": 0, "d": 2, "e": 2, "g": 2, "y": 2}
    assert many_dead.reached(plan, {"f", "x"}, "y") == {
        "y": 0, "x": 1, "d": 1, "c": 1, "b": 1, "a": 1, "e": 1, "f": 1, "g": 1
    }  # fmt: skip


def test_a_network_of_brokers_tells_what_came_late_and_what_did_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain of four, of which the third dies, and is bypassed after the detector and 0.25 s; two are too many."""
    module = papers("brokers", monkeypatch)
    links = [*pairwise(["p", "i", "j", "s"])]
    plan = module.Plan(links=links, publishing=["p"], subscribing={"s": module.EVERYTHING}, delta=1)
    brokers = module.Brokers(plan)
    brokers.start(7)
    (pubend,) = brokers.pubends
    brokers.ask(asks=False)
    usual, dead, cut = brokers.now, 0, 0

    brokers.publish(pubend, 1)
    brokers.wait(1)
    brokers.crash(["j"])
    dead = brokers.now
    brokers.publish(pubend, 2)
    with brokers.counting(["i"]) as traffic:
        brokers.wait(4)
    brokers.crash(["i"])
    cut = brokers.now
    brokers.publish(pubend, 3)
    brokers.wait(4)

    (soon,), (late,) = brokers.latencies(usual, dead), brokers.latencies(dead, cut)
    assert soon < 50 * module.MS < module.DETECTOR < late < module.DETECTOR + module.RING_WAIT + 100 * module.MS
    assert brokers.latencies(cut, brokers.now) == []
    assert (brokers.has_all("s", pubend, usual), brokers.wants) == (False, 0)
    assert (traffic.events_to("i"), traffic.events_from("i")) == (1, 1)
    assert traffic.frames_to("i", "status") > 3

    brokers.boot(["i"])
    brokers.wait(4)
    assert brokers.has_all("s", pubend, usual)
    assert brokers.recovered["i"] < module.SECOND
