"""Those who publish: everything is logged once, in order, whoever crashes or comes back."""

from __future__ import annotations

from gapless_sim.workloads.scenario_publishers import ROOM, Meters, OrderService, SplitBrain, Visitors, Workers
from gapless_sim.world.options import SECOND, DiskFaults
from gapless_sim.world.producer import Producer
from unit.gapless_sim.workloads.scenario_fixture import ScenarioFixture, play_until

SLOW_DISK = DiskFaults(sync_time=SECOND // 4)


def in_order_of_publishing(fixture: ScenarioFixture) -> list[list[int]]:
    """The keys in the log, outbox by outbox."""
    return [
        [key for key in fixture.log.keys if key in {publication.key for publication in assigned.outbox.publications}]
        for assigned in fixture.state.outboxes
    ]


def test_an_order_service_crashes_and_publishes_everything_once() -> None:
    fixtures = play_until(
        "orders.crashed with publications unanswered",
        "orders.closed with publications unanswered",
        "orders.published again after a crash",
        "orders.nothing to publish again",
        kinds=(OrderService,),
        disk=SLOW_DISK,
    )
    for fixture in fixtures:
        assert sorted(fixture.log.keys) == sorted(fixture.publications())
        for assigned, keys in zip(fixture.state.outboxes, in_order_of_publishing(fixture), strict=True):
            assert keys == [publication.key for publication in assigned.outbox.publications]
        assert any(fixture.publications())


def test_it_waits_for_room() -> None:
    fixtures = play_until("orders.waited for room", kinds=(OrderService,), rate=40.0, disk=DiskFaults(sync_time=SECOND))
    most = max(producer.waiting for fixture in fixtures for producer in fixture.state.producers)

    assert most <= 2 * ROOM


def test_in_a_split_brain_both_processes_fence_each_other_and_publish_nothing_twice() -> None:
    fixtures = play_until(
        "split brain.went over", "split brain.stood still", "split brain.fenced", kinds=(SplitBrain,), rate=20.0
    )
    for fixture in fixtures:
        assert sorted(fixture.log.keys) == sorted(fixture.publications())
        assert len(fixture.log.keys) > 20
        owners = {producer.client.name for producer in fixture.state.producers}
        assert len(owners) == 2 or not fixture.hits.get("split brain.went over")


def test_meters_sleep_and_burst() -> None:
    fixtures = play_until(
        "meters.burst after idling",
        "meters.burst in one batch",
        "meters.nameless",
        "meters.batch of many",
        kinds=(Meters,),
    )
    for fixture in fixtures:
        assert sorted(fixture.log.keys) == fixture.publications()
        assert len(fixture.publications()) % fixture.scenarios.scenarios[0].burst == 0  # type: ignore[attr-defined]


def test_workers_of_one_name_take_it_from_each_other_and_each_event_is_one_sending() -> None:
    """Their events are equal: the oracles count them."""
    fixtures = play_until("workers.fenced", "workers.took the name back", kinds=(Workers,), rate=20.0)
    for fixture in fixtures:
        assert len(fixture.log.keys) > 10
        assert len(set(fixture.log.keys)) == 1


def test_visitors_come_and_go_and_are_forgotten() -> None:
    fixtures = play_until(
        "visitors.closed in order",
        "visitors.closed with publications unanswered",
        "visitors.killed",
        kinds=(Visitors,),
        disk=SLOW_DISK,
        publisher_lease_seconds=0.5,
    )
    for fixture in fixtures:
        assert len(fixture.log.keys) == len(set(fixture.log.keys)) > 0


def test_a_publisher_that_ends_for_no_reason_is_a_failure() -> None:
    from gapless.errors import PublisherFencedError

    fixture = ScenarioFixture(OrderService).begin().rest(2)
    (scenario,) = fixture.scenarios.scenarios
    producer: Producer = fixture.state.producers[0]
    assert isinstance(scenario, OrderService)
    try:
        scenario.on_over(producer, PublisherFencedError("x"))
    except AssertionError as error:
        assert "PublisherFencedError" in str(error)
    else:
        raise AssertionError("nobody fences an order service")
