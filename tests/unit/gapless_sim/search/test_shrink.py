"""Shrinking, tried on toy runs whose smallest failing form is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from gapless_sim.search.result import Failure, Result
from gapless_sim.search.shrink import draws, plain, shrink, sparse
from gapless_sim.world.choices import Choices, ChoiceSequences
from gapless_sim.world.options import SECOND, NetworkFaults, Options, ProcessFaults
from gapless_sim.world.topology import Topology

BUSY = Options(
    7,
    clients=4,
    phbs=2,
    shbs=2,
    subscriptions=8,
    rate=40.0,
    duration=20 * SECOND,
    network=NetworkFaults(loss=0.2, repeat=0.1, cuts=0.4, bytewise=1.0),
    process=ProcessFaults(crash=0.4, kill=0.4),
    hostility=(("lose", 0.3), ("twice", 0.2)),
)


class Toy:
    """A run of 400 steps in two streams, which fails where `fails` says so."""

    def __init__(self, fails: Callable[[Options, int, int, int], str]) -> None:
        """`fails(options, step, draw of the network, draw of the process)` is the oracle, or ""."""
        self._fails = fails
        self.runs = 0

    def __call__(self, options: Options, choice_sequences: ChoiceSequences | None) -> Result:
        self.runs += 1
        choices = Choices(options.seed, choice_sequences)
        failure = None
        step = 0
        for step in range(options.duration * 400 // (20 * SECOND)):
            drawn = choices.stream("network").draw(100), choices.stream("process").draw(100)
            oracle = self._fails(options, step, *drawn)
            if oracle:
                failure = Failure(oracle, f"at step {step}", step * SECOND // 20)
                break
        digest = f"{options} {choices.choice_sequences()}"
        return Result(options, digest, step, step * SECOND // 20, failure, choices.choice_sequences(), 0, Counter())


def shrunk(toy: Toy, **options: object) -> Result:
    """The smallest run found from the busy one."""
    return shrink(toy, toy(BUSY, None), **options).smallest  # type: ignore[arg-type]


def test_of_the_draws_only_the_guilty_ones_remain() -> None:
    toy = Toy(lambda _, step, network, process: "I1" if step >= 30 and network > 80 and process > 60 else "")

    smallest = shrunk(toy)

    assert draws(smallest.choice_sequences) == 2
    assert smallest.violation is not None
    assert smallest.violation.oracle == "I1"


def test_options_that_do_not_matter_are_plain_again() -> None:
    toy = Toy(lambda options, step, *_: "I3" if options.network.loss and options.shbs == 2 and step > 20 else "")

    options = shrunk(toy).options

    expected = replace(plain(BUSY), shbs=2, clients=1, subscriptions=1, rate=options.rate, duration=options.duration)
    assert options == replace(expected, network=replace(expected.network, loss=0.2))
    assert options.rate <= 0.5
    assert options.duration <= 2 * SECOND


def test_a_drawn_topology_loses_whole_nodes_and_stays_a_network() -> None:
    """Counts of it changed alone would name nodes that are not there (simulator, knowledge 30057)."""
    cells = "phb1:phb ib1+ib2+ib3<phb1 phb2:phb<ib1 shb1:shb<ib1 shb2:shb<ib1"
    tree = replace(BUSY, router="knowledge", topology="tree", cells=cells)
    tried: list[Options] = []

    def fails(options: Options, step: int, *_: int) -> str:
        tried.append(options)
        return "I3" if "ib1+ib2" in options.cells and "shb2" in options.cells and step > 20 else ""

    toy = Toy(fails)
    smallest = shrink(toy, toy(tree, None)).smallest.options

    assert smallest.cells == "phb1:phb ib1+ib2<phb1 shb2:shb<ib1"
    assert (smallest.phbs, smallest.shbs) == (1, 1)
    for options in tried:
        topology = Topology.parse(options.cells)
        hosted = [role for roles in topology.roles.values() for role in roles]
        assert (options.phbs, options.shbs) == (hosted.count("phb"), hosted.count("shb"))


def test_of_hostilities_only_the_guilty_one_remains() -> None:
    toy = Toy(lambda options, *_: "I3" if "twice" in dict(options.hostility) else "")

    assert shrunk(toy).options.hostility == (("twice", 0.2),)


def test_another_failure_is_not_the_same() -> None:
    """Without the loss something else fails, and earlier: that is not what is looked for."""
    toy = Toy(lambda options, step, *_: "I5" if not options.network.loss else "I1" if step == 50 else "")

    smallest = shrunk(toy)

    assert smallest.violation is not None
    assert smallest.violation.oracle == "I1"
    assert smallest.options.network.loss == 0.2


def test_a_run_that_takes_much_longer_is_not_smaller() -> None:
    """Without the draw of the network at step 40, the same failure comes at step 399."""

    def fails(_: Options, step: int, network: int, process: int) -> str:
        return "I1" if (step >= 40 and network) or step == 399 else ""

    toy = Toy(fails)
    first = toy(BUSY, None)
    crowded = replace(first, steps=first.steps * 10)

    def run(options: Options, choice_sequences: ChoiceSequences | None) -> Result:
        result = toy(options, choice_sequences)
        return replace(result, steps=result.steps * 10)

    smallest = shrink(run, crowded).smallest

    assert smallest.steps < 500
    assert draws(smallest.choice_sequences) == 1


def test_what_comes_behind_the_failure_is_cut_off() -> None:
    toy = Toy(lambda _, step, *__: "I1" if step == 100 else "")

    assert shrunk(toy).options.duration <= 5_100_000_000


def test_a_run_that_differs_from_itself_is_not_shrunk() -> None:
    toy = Toy(lambda *_: "I1")

    def moody(options: Options, choice_sequences: ChoiceSequences | None) -> Result:
        result = toy(options, choice_sequences)
        return replace(result, digest=f"{result.digest} {toy.runs}")

    outcome = shrink(moody, moody(BUSY, None))

    assert "digests" in outcome.unstable
    assert outcome.smallest is outcome.first
    assert str(outcome).startswith("not deterministic")
    assert toy.runs == 2


def test_a_failure_that_does_not_come_again_is_not_shrunk() -> None:
    toy = Toy(lambda *_: "I1" if toy.runs == 1 else "")

    assert "then nothing" in shrink(toy, toy(BUSY, None)).unstable


def test_the_number_of_runs_is_bounded() -> None:
    toy = Toy(lambda _, step, network, process: "I1" if step >= 30 and network > 80 and process > 60 else "")

    outcome = shrink(toy, toy(BUSY, None), runs_max=9)

    assert outcome.runs == 9
    assert toy.runs == 10
    assert not outcome.complete
    assert "there may be a smaller one" in str(outcome)


def test_what_does_not_fail_can_not_be_shrunk() -> None:
    toy = Toy(lambda *_: "")

    with pytest.raises(ValueError, match="does not fail"):
        shrink(toy, toy(BUSY, None))


def test_sparse_choice_sequences_make_the_same_choices() -> None:
    choice_sequences = {"b": [0, 3, 0, 0], "a": [0, 0], "c": []}

    assert sparse(choice_sequences) == {"b": [0, 3]}
    whole, kept = Choices(1, choice_sequences), Choices(1, sparse(choice_sequences))
    for label in choice_sequences:
        assert [whole.stream(label).draw(9) for _ in range(6)] == [kept.stream(label).draw(9) for _ in range(6)]
