from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gapless_sim.search.campaign import Plan
from gapless_sim.world.choices import Choices
from gapless_sim.world.options import BESIDE, SCENARIOS, SECOND, Options, draw_options, with_order, with_policies


def drawn(seed: int, **arguments: object) -> Options:
    return draw_options(seed, Choices(seed), router="hostile", **arguments)  # type: ignore[arg-type]


def test_a_seed_has_its_options() -> None:
    assert drawn(5) == drawn(5)
    assert len({drawn(seed) for seed in range(50)}) == 50


def test_each_class_of_faults_is_off_in_some_seeds_and_on_in_others() -> None:
    all_of_them = [drawn(seed) for seed in range(300)]
    for rates in (
        [options.network.loss for options in all_of_them],
        [options.process.crash for options in all_of_them],
        [options.disk.fail_sync for options in all_of_them],
        [float(options.clock.drift_ppm) for options in all_of_them],
        [options.disk.wipe for options in all_of_them],
    ):
        assert min(rates) == 0 < max(rates)


def test_only_the_classes_that_are_asked_for_can_be_on() -> None:
    for seed in range(100):
        options = drawn(seed, faults=("network",))
        assert options.process.crash == options.disk.fail_sync == options.clock.jumps == options.retires == 0


def test_one_node_hosts_both_roles_under_the_local_router() -> None:
    options = draw_options(3, Choices(3), router="local")

    assert (options.phbs, options.shbs, options.together) == (1, 1, True)


def test_benign_choice_sequences_give_a_gentle_run() -> None:
    options = draw_options(3, Choices(3, {}), router="hostile")

    assert options.process.crash == options.network.loss == 0
    assert not any(rate for _, rate in options.hostility)


def test_what_is_on_is_described() -> None:
    assert Options(4).describe() == ""
    described = Options(4, pubends=2, duration=9 * SECOND, hostility=(("lose", 0.1), ("probe", 0.0))).describe()
    assert described == "pubends=2 duration=9s lose=0.1"


def test_some_runs_are_about_one_scenario_and_have_no_other_faults() -> None:
    about = [options for options in map(drawn, range(300)) if options.scenario]

    assert 40 < len(about) < 120
    assert {options.scenario for options in about} == SCENARIOS.keys()
    for options in about:
        assert options.workload == "scenarios"
        assert options.process.crash == options.network.loss == options.disk.fail_sync == options.clock.jumps == 0
        assert not options.hostility
        assert not options.early_release


@pytest.mark.parametrize("fault", ["late", "frames_lost"])
def test_faults_that_came_later_are_drawn_from_streams_of_their_own(fault: str) -> None:
    """So that a seed which does not draw them is what it was before there were any."""
    rates = {seed: getattr(drawn(seed).network, fault) for seed in range(300)}
    struck = [seed for seed, rate in rates.items() if rate]

    assert 30 < len(struck) < 90
    for seed in struck:
        choices = Choices(seed)
        options = draw_options(seed, choices, router="hostile")
        label = f"options/{fault.replace('_', ' ')}"
        choice_sequences = {each: draws for each, draws in choices.choice_sequences().items() if each != label}
        without = draw_options(seed, Choices(seed, choice_sequences), router="hostile")
        without_it: Any = {fault: 0.0}
        assert without == replace(options, network=replace(options.network, **without_it))
        assert f"network.{fault}={rates[seed]:.2g}" in options.describe()
        assert getattr(drawn(seed, faults=("disk",)).network, fault) == 0


def test_one_node_has_only_scenarios_that_need_no_second_one() -> None:
    drawn_here = [draw_options(seed, Choices(seed), router="local") for seed in range(400)]

    assert {options.scenario for options in drawn_here} == {
        "",
        *(name for name, n in SCENARIOS.items() if n["shbs"] == 1),
    }
    assert all(options.together and options.shbs == 1 for options in drawn_here)


def test_nobody_is_told_a_scenario_who_asks_for_something_else() -> None:
    for seed in range(100):
        assert not drawn(seed, workload="churn").scenario
        assert not drawn(seed, faults=("network",)).scenario


def test_policies_are_drawn_apart_and_never_for_scenarios() -> None:
    changed = []
    for seed in range(400):
        before = drawn(seed)
        after = with_policies(before, Choices(seed).stream("policies"))
        if before.workload == "scenarios":
            assert after == before
        elif after != before:
            changed.append(after)

    assert {options.release_policy for options in changed} == {"", "greedy"}
    assert {options.subscription_expiry_seconds for options in changed} == {None, 1.0, 2.0, 5.0}
    assert {options.max_retain_bytes for options in changed} == {None, 500, 2_000, 10_000}
    assert all(options.early_release or options.subscription_expiry_seconds for options in changed)
    assert with_policies(drawn(3, workload="churn"), Choices(3, {}).stream("policies")) == drawn(3, workload="churn")


def test_total_order_is_drawn_where_there_are_several_pubends_and_clocks_are_near() -> None:
    several = Options(1, router="hostile", phbs=2)
    streams = [Choices(seed).stream("order") for seed in range(40)]

    assert {with_order(several, stream).ordered for stream in streams} == {0.0, 0.5, 1.0}
    for other in (
        replace(several, phbs=1),
        replace(several, additions=0.1),
        replace(several, workload="scenarios"),
        replace(several, clock=replace(several.clock, jumps=0.1, jump_ms=7_200_000)),
    ):
        assert all(with_order(other, Choices(seed).stream("order")) == other for seed in range(40))


def test_transforms_and_transactions_live_beside_some_churn_and_meet_no_gap() -> None:
    several = [Plan().options(seed, router) for seed in range(400) for router in ("hostile", "knowledge")]
    beside = [options for options in several if options.beside]

    assert {options.beside for options in beside} == set(BESIDE)
    assert {options.workload for options in beside} == {"churn"}
    for options in beside:
        assert not options.early_release
        assert not options.map_changes
        lost = options.retires, options.replacements, options.disk.wipe, options.disk.restore, options.disk.damage
        assert not any(lost)
        assert options.subscription_expiry_seconds is None
