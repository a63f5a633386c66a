"""Worlds with rules: drawn now and then, and their nodes learn of changes one after the other, and never backwards."""

from __future__ import annotations

from gapless.core.ports import Action
from gapless.core.principals import Principal
from gapless.core.resources import Durable
from gapless_sim.search.campaign import Plan
from gapless_sim.search.run import run_seed
from gapless_sim.world.choices import Choices
from gapless_sim.world.options import Options, with_rules
from gapless_sim.world.rules import SimRules

ROUTER = "knowledge"


def of(seed: int) -> Options:
    return Plan((ROUTER,), "roaming").options(seed, ROUTER)


def test_some_worlds_with_applications_that_roam_have_rules() -> None:
    drawn = [of(seed) for seed in range(60)]

    assert 5 <= sum(options.rule_changes > 0 for options in drawn) <= 30
    assert not any(options.rule_changes and options.replacements for options in drawn)
    assert not any(with_rules(Options(seed), Choices(seed).stream("rules")).rule_changes for seed in range(50))


def test_rules_are_about_durable_subscriptions_of_a_client() -> None:
    rules, who = SimRules(1, frozenset({"ada"})), Principal("anonymous")

    assert "rules 1 forbid client 'ada'" in rules.refusal(who, Action.CONSUME, Durable("ada", "late"))
    assert rules.refusal(who, Action.CONSUME, Durable("bob", "late")) == ""
    assert rules.refusal(who, Action.SUBSCRIBE, "flights.#") == ""


def test_in_such_a_world_somebody_loses_what_he_had_and_all_comes_right() -> None:
    seed = next(seed for seed in range(100) if of(seed).rule_changes)

    result = run_seed(of(seed))

    assert result.violation is None
    assert result.hits["rules.taken away"] > 0
