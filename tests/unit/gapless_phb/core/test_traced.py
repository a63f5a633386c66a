"""What a PHB tells of the batches of which spans are made: each that is logged, once, with when it came."""

from __future__ import annotations

from gapless.core.network.facts import Know
from gapless.core.stream.ticks import MILLISECOND
from gapless.core.traces import Logged, Sampler
from unit.gapless_phb.harness import Harness, TestPublisher
from unit.gapless_phb.model_log import ModelLog, NumberedRig


def told(harness: Harness) -> list[Logged]:
    return [said for said in harness.said if isinstance(said, Logged)]


def test_a_batch_is_told_when_it_is_durable_and_once() -> None:
    harness = Harness()
    harness.traces = 1.0
    harness.crash()
    harness.sync()
    publisher = harness.publisher()
    came = harness.now
    publisher.send(3)
    assert told(harness) == []

    harness.now += 20_000_000
    harness.sync()
    publisher.repeat(1, 3)
    harness.sync()

    [logged] = told(harness)
    assert (logged.count, logged.came, logged.is_in_volume) == (3, came, True)
    assert list(logged.first.events) == publisher.batch(1, 3).events.cut()[0][:1]


def test_of_a_share_those_are_told_whose_ticks_are_chosen() -> None:
    harness = Harness()
    harness.traces = 0.3
    harness.crash()
    harness.sync()
    publisher = harness.publisher()
    for _ in range(100):
        harness.now += 1_000_000
        harness.wall += 1
        publisher.send()
        harness.sync()
    ticks = [tick for said in harness.said if isinstance(said, Know) for tick in said.knowledge.data.ticks]
    sampler = Sampler(0.3, MILLISECOND)

    assert [logged.first.ticks[0] for logged in told(harness)] == [
        tick for tick in ticks if sampler.chooses(tick, tick)
    ]
    assert 20 <= len(told(harness)) <= 40


def test_without_a_share_nothing_is_told() -> None:
    harness = Harness()
    harness.sync()
    harness.publisher().send(3)
    harness.sync()

    assert told(harness) == []


def test_on_a_log_of_others_a_batch_is_told_when_it_is_met() -> None:
    rig = NumberedRig(ModelLog(topic="topic", rules=b"topic"))
    rig.traces = 1.0
    rig.crash()
    rig.open()
    publisher = TestPublisher(rig, "ann")
    publisher.open("topic")
    rig.sync()
    rig.serve()
    publisher.opened()
    rig.log.add("of another")
    publisher.send(2)
    rig.serve()

    [logged] = told(rig)
    assert (logged.count, logged.is_in_volume) == (2, False)
