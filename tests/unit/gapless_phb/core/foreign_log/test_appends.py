"""Batches on their way into a log that numbers its records: in which order they are handed over, and when again."""

from __future__ import annotations

import pytest

from gapless.core.network.facts import Submitted, Verdict
from gapless.core.ports import Append
from unit.gapless_phb.core.foreign_log.test_publishing import answers, gateway, marks, opened
from unit.gapless_phb.harness import TestPublisher
from unit.gapless_phb.model_log import ModelLog, NumberedRig, at, told


def test_until_a_batch_of_an_epoch_is_met_the_next_one_waits() -> None:
    """It may be a duplicate of one that is fenced itself, and nothing may overtake it."""
    rig = gateway()
    ann, bob = opened(rig), opened(rig, "bob")
    with rig.one_turn():
        ann.send()
        ann.send()
        ann.send()
        bob.send()

    assert [len(append.records) for append in rig.sent(Append)] == [2]
    rig.serve()

    assert [len(append.records) for append in rig.sent(Append)] == [2, 2]
    assert [mark[:2] for mark in marks(rig.log)] == [("ann", 1), ("bob", 1), ("ann", 2), ("ann", 3)]


def test_when_the_end_of_an_idle_log_was_cut_off_it_is_found_again() -> None:
    """Nothing comes that would show it: what was confirmed is looked for, and handed over again."""
    rig = gateway()
    opened(rig).send()
    rig.log.undecided = 1
    rig.serve()
    rig.log.elect(0)
    rig.log.undecided = 0
    rig.find()
    rig.serve()
    assert answers(rig) == []

    rig.advance(6000)
    rig.serve()

    assert answers(rig) == [f"ok 1 {at(1, 0)}×1"]
    assert told(rig.ask((0, at(1, 0)))) == ["(0, 1/1] 1/1=ann/1"]


def test_a_record_of_the_log_takes_only_so_much() -> None:
    rig = gateway(ModelLog(topic="topic", rules=b"topic", record_max=500))
    publisher = opened(rig)
    publisher.send()
    rig.serve()
    with rig.one_turn():
        for _ in range(3):
            publisher.send(text="x" * 200)
    rig.serve()

    assert [len(append.records) for append in rig.sent(Append)] == [1, 1, 1, 1]
    assert len(answers(rig)) == 4


@pytest.mark.parametrize("answered", [False, True])
def test_an_opening_that_waits_when_the_log_ends_is_placed_anew(*, answered: bool) -> None:
    """Whether or not the log still says where its end is."""
    rig = gateway()
    rig.log.add("a stranger's")
    rig.log.undecided = 1
    publisher = TestPublisher(rig, "ann")
    publisher.open("topic")
    rig.sync()
    if answered:
        rig.serve()

    rig.end()

    assert [one.outcome.verdict for one in rig.sent(Submitted)] == [Verdict.RETRY]
    rig.asked.clear()
    rig.sync()
    assert len(rig.sent(Submitted)) == 1


def test_an_opening_that_waits_for_the_past_is_placed_anew_too() -> None:
    log = ModelLog(topic="topic", rules=b"topic")
    log.add("old")
    rig = NumberedRig(log)
    rig._answer(rig.asked.pop(0))
    rig.sync()
    TestPublisher(rig, "ann").open("topic")
    assert rig.sent(Submitted) == []

    rig.end()

    assert [one.outcome.verdict for one in rig.sent(Submitted)] == [Verdict.RETRY]


def test_a_publisher_of_a_log_that_was_made_anew_goes_to_the_new_one() -> None:
    rig = gateway()
    opened(rig).send()
    rig.serve()
    rig.logs["orders.0@new"] = ModelLog("orders.0@new", "new", "topic", rules=b"topic")
    rig.end()
    rig.find("orders.0@new")
    rig.sync()
    rig.serve()

    again = opened(rig, instance="i2")

    assert (again.pubend, again.next) == ("orders.0@new", 1)


def test_batches_on_their_way_when_the_log_ends_are_uncertain() -> None:
    rig = gateway()
    opened(rig).send()

    rig.end()

    assert answers(rig) == ["uncertain 1"]
