"""Those who publish: everything is logged once, in order, whoever crashes or comes back."""

from __future__ import annotations

from gapless_sim.options import SECOND, DiskFaults
from gapless_sim.producer import Producer
from gapless_sim.workloads.scenario_publishing import ROOM, Meters, OrderService, Twins, Visitors, Workers
from unit.gapless_sim.workloads.staging import Stage, play_until

SLOW_DISK = DiskFaults(sync_time=SECOND // 4)


def in_order_of_publishing(stage: Stage) -> list[list[int]]:
    """The keys in the log, outbox by outbox."""
    return [
        [key for key in stage.log.keys if key in {letter.key for letter in desk.outbox.letters}]
        for desk in stage.book.desks
    ]


def test_an_order_service_crashes_and_publishes_everything_once() -> None:
    stages = play_until(
        "orders.crashed with letters unanswered",
        "orders.closed with letters unanswered",
        "orders.published again after a crash",
        "orders.nothing to publish again",
        kinds=(OrderService,),
        disk=SLOW_DISK,
    )
    for stage in stages:
        assert sorted(stage.log.keys) == sorted(stage.letters())
        for desk, keys in zip(stage.book.desks, in_order_of_publishing(stage), strict=True):
            assert keys == [letter.key for letter in desk.outbox.letters]
        assert any(stage.letters())


def test_it_waits_for_room() -> None:
    stages = play_until("orders.waited for room", kinds=(OrderService,), rate=40.0, disk=DiskFaults(sync_time=SECOND))
    most = max(producer.waiting for stage in stages for producer in stage.book.producers)

    assert most <= 2 * ROOM


def test_twins_fence_each_other_and_publish_nothing_twice() -> None:
    stages = play_until("twins.went over", "twins.stood still", "twins.fenced", kinds=(Twins,), rate=20.0)
    for stage in stages:
        assert sorted(stage.log.keys) == sorted(stage.letters())
        assert len(stage.log.keys) > 20
        owners = {producer.client.name for producer in stage.book.producers}
        assert len(owners) == 2 or not stage.probes.get("twins.went over")


def test_meters_sleep_and_burst() -> None:
    stages = play_until(
        "meters.burst after idling",
        "meters.burst in one batch",
        "meters.nameless",
        "meters.batch of many",
        kinds=(Meters,),
    )
    for stage in stages:
        assert sorted(stage.log.keys) == stage.letters()
        assert len(stage.letters()) % stage.scenarios.scenarios[0].burst == 0  # type: ignore[attr-defined]


def test_workers_of_one_name_take_it_from_each_other_and_each_event_is_one_sending() -> None:
    """Their events are equal: the oracles count them."""
    stages = play_until("workers.fenced", "workers.took the name back", kinds=(Workers,), rate=20.0)
    for stage in stages:
        assert len(stage.log.keys) > 10
        assert len(set(stage.log.keys)) == 1


def test_visitors_come_and_go_and_are_forgotten() -> None:
    stages = play_until(
        "visitors.closed in order",
        "visitors.closed with letters unanswered",
        "visitors.killed",
        kinds=(Visitors,),
        disk=SLOW_DISK,
        publisher_lease_seconds=0.5,
    )
    for stage in stages:
        assert len(stage.log.keys) == len(set(stage.log.keys)) > 0


def test_a_publisher_that_ends_for_no_reason_is_a_failure() -> None:
    from gapless.errors import PublisherFencedError

    stage = Stage(OrderService).begin().rest(2)
    (scenario,) = stage.scenarios.scenarios
    producer: Producer = stage.book.producers[0]
    assert isinstance(scenario, OrderService)
    try:
        scenario.on_over(producer, PublisherFencedError("x"))
    except AssertionError as error:
        assert "PublisherFencedError" in str(error)
    else:
        raise AssertionError("nobody fences an order service")
