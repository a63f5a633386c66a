"""Applications of the workload `churn` whose position the broker keeps."""

from __future__ import annotations

from collections import Counter

import pytest

from gapless.core.client import Delivery, Item
from gapless_sim.recording.observation import Oracle
from gapless_sim.search.campaign import Plan, run_one
from gapless_sim.workloads.churn_commits import SOMETIMES
from gapless_sim.workloads.churn_consumers import ChurnGatherer, Habits
from gapless_sim.workloads.churn_subscriptions import AppSubscription
from gapless_sim.world.consumer import Consumer
from gapless_sim.world.producer import key_of
from unit.gapless_sim.workloads.churn_fixture import ChurnFixture, publish


def test_nothing_breaks_and_everything_happens() -> None:
    hits = Counter[str]()
    for seed in (1, 3):
        run = run_one(Plan(("local",), "churn"), seed, "local")
        assert run.failure is None, (seed, run.failure)
        hits.update(run.hits)

    assert [name for name in SOMETIMES if not hits[name]] == []


class Taken(Oracle):
    """The keys of what was handed out, and how often each says that it was."""

    def __init__(self, fixture: ChurnFixture) -> None:
        super().__init__(fixture.world)
        self.events: list[tuple[int, int]] = []
        fixture.world.observe.add(self)

    def handed_out(self, consumer: Consumer, item: Item) -> None:
        if isinstance(item, Delivery):
            self.events += [(key_of(event.body), event.delivery_count) for event in item.events()]


def consuming(fixture: ChurnFixture, mode: str, every: int) -> AppSubscription:
    """A subscription that is consumed in a mode, event by event."""
    subscription = fixture.hold(habits=Habits(portion=1, commit_every=every))
    subscription.depart(subscription.consumers[0])
    subscription.mode, subscription.row.keeps_token = mode, False
    subscription.consume(fixture.first)
    fixture.run(1)
    return subscription


@pytest.mark.parametrize(
    ("mode", "every", "again"), [("auto", 1, []), ("client", 1, []), ("client", 2, [(3, 2)]), ("client", 4, [(1, 2)])]
)
def test_what_was_committed_does_not_come_again_and_what_comes_again_is_marked(
    mode: str, every: int, again: list[tuple[int, int]]
) -> None:
    fixture = ChurnFixture()
    subscription, taken = consuming(fixture, mode, every), Taken(fixture)
    publish(fixture, 3)
    fixture.run(1)
    fixture.first.crash()
    fixture.first.start()
    subscription.consume(fixture.first)
    fixture.run(3)

    assert taken.events[:3] == [(1, 1), (2, 1), (3, 1)]
    assert taken.events[3:4] == again


def test_what_was_handed_out_comes_again_in_one_process() -> None:
    fixture = ChurnFixture()
    subscription, taken = consuming(fixture, "client", 10), Taken(fixture)
    publish(fixture, 2)
    fixture.run(1)
    (consumer,) = subscription.alive()
    assert isinstance(consumer, ChurnGatherer)
    subscription.recover(consumer)
    fixture.run(1)

    assert taken.events == [(1, 1), (2, 1), (1, 2), (2, 2)]


def test_in_the_end_everything_is_acknowledged() -> None:
    fixture = ChurnFixture()
    subscription = consuming(fixture, "client", 10)
    publish(fixture, 2)
    fixture.run(1)
    subscription.begin_liveness()
    fixture.run(1)
    (consumer,) = subscription.alive()

    assert isinstance(consumer, ChurnGatherer)
    assert consumer.core.committing is not None
    assert consumer.core.committing.is_idle
