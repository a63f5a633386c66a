"""`gapless simulate`: many seeds, and what is said of them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from gapless_sim.cli import simulate
from gapless_sim.search import campaign
from gapless_sim.search.campaign import Summary
from gapless_sim.search.result import Failure
from unit.gapless.cli.conftest import Gapless
from unit.gapless_sim.storage_plugins import install


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every third seed breaks a promise."""

    def run_one(_plan: object, seed: int, router: str) -> Summary:
        failure = None if seed % 3 else Failure("I3", "an event is left out", 7)
        return Summary(seed, router, "churn", 100, 5 * 10**9, "digest", Counter({"process.crash": 1}), failure)

    monkeypatch.setattr(campaign, "run_one", run_one)


@pytest.mark.timeout(240)
def test_seeds_are_run_under_both_routers(gapless: Gapless) -> None:
    result = gapless("simulate", "--seeds", "1", "--processes", "1", "--faults", "none", "--json")
    report = json.loads(result.stdout)

    assert report["runs"] == 2
    assert report["failures"] == []
    assert report["node_events"] > 500
    assert report["simulated_s"] > 10
    assert "process.crash" in report["never"]


def test_what_broke_is_named_and_how_to_look_at_it(gapless: Gapless, broken: None) -> None:
    result = gapless("simulate", "--router", "local", "--seeds", "4", "--processes", "1", status=1)

    assert "4 runs, 2 broke a promise." in result.stdout
    assert "I3 seed 0, router local: an event is left out" in result.output
    assert "gapless simulate --router local --seed 3" in result.output
    assert "process.crash 4×" not in result.stdout.split("Rarest:")[1].split(",")[0]


def test_what_broke_in_a_mesh_is_looked_at_in_a_mesh(gapless: Gapless, broken: None) -> None:
    mesh = ("--topology", "mesh", "--processes", "1")
    result = gapless("simulate", "--router", "hostile", *mesh, "--seeds", "1", status=1)

    assert "gapless simulate --router hostile --seed 0 --topology mesh" in result.output


def test_a_run_in_a_mesh_says_which_nodes_there_are(gapless: Gapless) -> None:
    arguments = ("--router", "hostile", "--topology", "mesh", "--seed", "5", "--faults", "none", "--workload", "churn")

    assert "cells=phb1:phb ib1+ib2<phb1" in gapless("simulate", *arguments).output


def test_what_broke_in_a_short_deep_world_is_looked_at_in_one(gapless: Gapless, broken: None) -> None:
    short = ("--seconds", "4", "--levels", "2", "--processes", "1")
    result = gapless("simulate", "--router", "knowledge", *short, "--seeds", "1", status=1)

    assert "gapless simulate --router knowledge --seed 0 --levels 2 --seconds 4" in result.output


def test_the_first_seed_can_be_chosen_and_time_be_the_limit(gapless: Gapless, broken: None) -> None:
    report = json.loads(
        gapless("simulate", "--router", "local", "--seeds", "2", "--first", "4", "--processes", "1", "--json").stdout
    )
    assert report["runs"] == 2

    short = gapless("simulate", "--minutes", "0", "--processes", "1", "--json")
    assert json.loads(short.stdout)["runs"] == 0


@pytest.mark.long
@pytest.mark.timeout(300)  # each worker imports everything anew: a minute on a busy machine
def test_time_is_the_limit_on_several_cores_too(gapless: Gapless) -> None:
    """The first run comes while there is time for more; all seeds were once drawn before it, until memory was full."""
    short = gapless("simulate", "--minutes", "0.03", "--processes", "2", "--faults", "none", "--json")

    assert json.loads(short.stdout)["runs"] > 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--faults", "network,gremlins"), "there is no kind 'gremlins'"),
        (("--workload", "idle"), "there is no 'idle'"),
        (("--router", "teleport"), "teleport"),
        (("--storage", "paper"), "no storage plugin is called 'paper'; installed: memory, rocksdb"),
        (("--storage", "rocksdb", "--faults", "process,disk"), "on the storage 'rocksdb' no disk is simulated"),
        (("--storage", "rocksdb", "--exhaustive", "1"), "--exhaustive: its faults are those of the simulated disk"),
        (("--router", "hostile", "--topology", "ring"), "there is no 'ring'; there are tree, mesh, nodes"),
        (("--router", "hostile", "--topology", "tree"), "the router 'hostile' does not work there"),
        (("--router", "knowledge", "--topology", "mesh"), "the router 'knowledge' does not work there"),
        (("--router", "hostile", "--topology", "nodes"), "the router 'hostile' does not work there"),
        (("--topology", "mesh"), "the router 'local' knows one node alone"),
        (("--router", "knowledge", "--topology", "nodes", "--levels", "2"), "a tree of single nodes has none"),
        (("--levels", "2"), "the router 'local' has a --topology only if you say so"),
    ],
)
def test_what_does_not_exist_is_refused(gapless: Gapless, arguments: tuple[str, ...], said: str) -> None:
    assert said in gapless("simulate", *arguments, status=2).stderr


# Storages.


def test_a_seed_is_run_on_rocksdb(gapless: Gapless) -> None:
    """And shown: what the storage lacks is said to people, and not to programs that read what is printed."""
    arguments = ("simulate", "--storage", "rocksdb", "--router", "local", "--seed", "5", "--faults", "process")

    result = gapless(*arguments, "--json")

    report = json.loads(result.stdout)
    assert (report["storage"], report["violation"]) == ("rocksdb", None)
    assert "process." in report["options"]
    assert "The volumes are on the storage 'rocksdb', in real files. Not simulated:" in result.stderr
    assert "a loss of power leaves the files as they were when the last sync returned" in result.stderr


def test_the_storage_of_somebody_is_run(gapless: Gapless, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "site", monkeypatch)
    arguments = ("simulate", "--storage", "sqlite", "--router", "local", "--processes", "1", "--seeds", "1")

    report = json.loads(gapless(*arguments, "--json").stdout)
    printed = gapless(*arguments).stdout

    assert (report["storage"], report["runs"], report["failures"]) == ("sqlite", 1, [])
    assert len(report["not_simulated"]) == 3
    assert printed.startswith("1 runs on the storage 'sqlite', no promise was broken.")


@pytest.mark.timeout(120)
def test_what_somebodys_storage_breaks_is_named_with_the_storage(
    gapless: Gapless, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", monkeypatch)
    arguments = ("simulate", "--storage", "forgetful", "--router", "local", "--processes", "1", "--faults", "process")

    result = gapless(*arguments, "--first", "5", "--seeds", "1", status=1)

    command = "gapless simulate --router local --seed 5 --storage forgetful --faults process"
    assert f"  to look at it: {command}\n" in result.stderr
    again = gapless(*command.split()[1:], "--no-shrink", status=1)
    assert "on the storage 'forgetful'" in again.stderr


def test_the_simulated_disk_is_said_to_be_nothing_else(gapless: Gapless) -> None:
    result = gapless("simulate", "--seeds", "1", "--router", "local", "--processes", "1", "--json")

    report = json.loads(result.stdout)
    assert (report["storage"], report["not_simulated"]) == ("memory", [])
    assert "real files" not in result.stderr


def test_a_sometimes_assertion_that_never_holds_is_a_finding() -> None:
    total = campaign.Total()
    total.hits["process.crash"] += 1

    assert "process.kill" in simulate.never(total)
    assert "process.crash" not in simulate.never(total)


def test_what_is_about_trees_is_only_missed_where_there_were_some() -> None:
    total = campaign.Total()
    assert "topology.link died" not in simulate.never(total)

    total.hits["topology.link stalled"] += 1
    assert "topology.link died" in simulate.never(total)
