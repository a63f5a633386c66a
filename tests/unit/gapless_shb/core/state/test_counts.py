"""What an SHB counts of what it hands to links, and of what comes back."""

from __future__ import annotations

from gapless.core.gauges import value_of, values_by
from gapless.core.wire import messages as m
from gapless_shb.core.state import gauges
from unit.gapless_shb.core.harness import FORGETFUL, Client, World
from unit.gapless_shb.core.live.test_constream import push, world_with


def delivered(world: World) -> dict[str, float]:
    """Events by the way on which they went."""
    return values_by(world.role.gauges(), gauges.DELIVERED, "path")


def count_of(world: World, name: str) -> float:
    """How many values a histogram has."""
    return value_of(world.role.gauges(), f"{name}_count")


def acknowledge(world: World, client: Client) -> None:
    """The application has done with all that it was handed."""
    while client.inbox:
        world.consume(client)
    client.acked = client.last_event
    said = [m.Acknowledged(world.stream.pubend, client.last_event, client.last_event)]
    world.feed(m.Acknowledge(client.sid, said), world.session_of(client))


def test_events_count_once_for_each_consumer_that_gets_them_live() -> None:
    world, client, _ = world_with()
    push(world)
    other = Client("other", "w = 1")
    world.clients.append(other)
    world.attach(other, None)
    push(world, 8)
    world.rest()

    assert delivered(world)["live"] >= len(client.consumed)
    assert sum(delivered(world).values()) == len(client.consumed) + len(other.consumed)


def test_what_a_reader_hands_over_has_caught_up_and_what_was_sent_before_is_sent_again() -> None:
    world, client, _ = world_with()
    push(world, 3)
    acknowledge(world, client)
    push(world, 4)
    world.detach(client)
    push(world, 5)
    world.attach(client, client.acked)
    world.rest()

    assert delivered(world) == {"live": 3 + 4, "caught_up": 4 + 5, "range": 0}
    assert value_of(world.role.gauges(), gauges.REDELIVERED) == 4
    world.check()


def test_another_filter_has_sent_nothing_before() -> None:
    world, client, stream = world_with()
    push(world, 2)
    world.detach(client)
    stream.change(client.sid, world.known_version)
    world.attach(client, client.acked)

    position = stream.positions[client.sid]
    assert position.sent_before == position.start


def test_acknowledgements_count_that_move_a_position() -> None:
    world, client, _ = world_with()
    push(world, 3)
    before = value_of(world.role.gauges(), gauges.ACKNOWLEDGED)
    acknowledge(world, client)
    acknowledge(world, client)

    assert value_of(world.role.gauges(), gauges.ACKNOWLEDGED) == before + 1


def test_silence_and_gaps_count_as_they_are_told() -> None:
    world, client, _ = world_with(catch_up=FORGETFUL)
    push(world, 2)
    acknowledge(world, client)
    world.detach(client)
    push(world, 4)
    world.lost = world.log[-2][0]
    world.attach(client, client.acked)
    world.rest()

    reasons = values_by(world.role.gauges(), gauges.GAPS, "reason")
    assert len(client.gaps) == 1
    assert reasons == {m.GapReason.RELEASED_EARLY.value: 1}
    assert value_of(world.role.gauges(), gauges.SILENCES) > 0


def test_the_age_of_events_is_that_of_the_oldest_of_a_batch() -> None:
    world, _, _ = world_with()
    push(world)
    lo = world.stable
    for _ in range(3):
        world.publish()
    late = world.knowledge(lo, world.stable, raw=True, reply=False)
    world.wall += 2000
    world.deliver(late)

    below = values_by(world.role.gauges(), "gapless_shb_event_age_seconds_bucket", "le")
    assert (below["1.0"], below["2.5"], below["+Inf"]) == (1, 4, 4)


def test_a_consumer_without_credit_counts_when_it_is_granted_some_and_a_reader_when_it_has_caught_up() -> None:
    world, client, stream = world_with()
    push(world)
    world.hosting.consumers[client.sid].credit_events = 2
    push(world, 5)
    assert client.sid in stream.scheduler.readers
    caught_up = count_of(world, "gapless_shb_catch_up_seconds")
    without = value_of(world.role.gauges(), "gapless_shb_without_credit_seconds_sum")

    world.now += 3_000_000_000
    world.grant(client, 100)

    assert value_of(world.role.gauges(), "gapless_shb_without_credit_seconds_sum") == without + 3
    assert client.sid in stream.live
    assert count_of(world, "gapless_shb_catch_up_seconds") == caught_up + 1
