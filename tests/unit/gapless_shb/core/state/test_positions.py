"""What a subscription still needs of a pubend (protocol: positions; T47, T49)."""

from __future__ import annotations

from gapless.core.stream.ticks import FOREVER
from gapless_shb.core.state.positions import SubscriptionPosition


def test_who_is_still_joining_pins_its_start() -> None:
    """Nobody knows yet what it matched: an offline one stays where it began."""
    position = SubscriptionPosition(100, acked=100)

    assert not position.is_idle
    assert position.release(500, 600) == 100


def test_who_matched_nothing_pins_nothing() -> None:
    """A quiet subscription follows latestDelivered, connected or not (T47)."""
    position = SubscriptionPosition(100, since=100, acked=100)

    assert position.is_idle
    assert position.release(500, 600) == 500


def test_a_match_above_what_is_acknowledged_ends_the_quiet() -> None:
    """Only a PFS record does; and what was released until then stays released."""
    position = SubscriptionPosition(100, since=100, acked=100)
    position.release(500, 600)
    position.last_tick = 550

    assert not position.is_idle
    assert position.release(900, 900) == 500


def test_acknowledging_the_last_match_makes_it_quiet_again() -> None:
    """So an idle subscriber does not pin the log."""
    position = SubscriptionPosition(100, since=100, acked=100, last_tick=550)
    position.acknowledge(550, 550)

    assert position.is_idle
    assert position.release(900, 900) == 900


def test_released_never_falls() -> None:
    """An acknowledgement below it changes nothing (T49)."""
    position = SubscriptionPosition(0, since=0, acked=0)
    position.release(900, 900)
    position.last_tick = 950
    position.acknowledge(10, 10)

    assert position.release(1000, 1000) == 900


def test_who_starts_in_the_past_is_not_quiet_before_its_reader_has_passed_that() -> None:
    position = SubscriptionPosition(10, since=500, acked=10, held=True)

    assert not position.is_idle
    assert position.release(900, 900) == 10
    position.pass_over(500)
    assert position.release(900, 900) == 900


def test_a_hold_goes_along_with_silence_until_it_can_be_lifted() -> None:
    """Found by the simulator (hostile 7641): retired and counted again ahead of its head, it kept the log for ever."""
    position = SubscriptionPosition(10, since=10, acked=10, held=True)

    assert position.is_idle
    assert position.release(latest_delivered=800, head=900, handed_over=850) == 800
    position.last_tick = 870
    assert position.release(latest_delivered=880, head=900) == 800


def test_quiet_needs_the_constream_to_cover_everything_that_is_not_settled() -> None:
    """T49: with since above what is settled, somebody else's silence would be taken for its own."""
    position = SubscriptionPosition(10, since=50, acked=10)

    assert not position.is_idle
    position.acknowledge(50, 0)
    assert position.is_idle


def test_what_was_released_is_silence_to_its_readers_from_its_last_event_on() -> None:
    """An application back with the token it stored long ago meets no false gap (T47)."""
    position = SubscriptionPosition(0, since=0, acked=0)
    position.acknowledge(300, 250)
    position.release(900, 900)

    assert position.silent() == (250, 900)


def test_what_it_passed_counts_like_an_acknowledgement() -> None:
    """Events that expired, or were filtered away, are not waited for."""
    position = SubscriptionPosition(0, since=0, acked=0, last_tick=70)
    position.nothing_upto = 80

    assert position.is_idle


def test_a_changed_filter_joins_again() -> None:
    """What the PFS holds was matched by another filter (T46)."""
    position = SubscriptionPosition(0, since=0, acked=0)
    position.join_again()

    assert position.since == FOREVER
    assert position.changed


def test_one_that_is_quiet_goes_along_with_what_was_handed_over() -> None:
    """Found by the simulator (churn, local router, seed 151): an event came before that checkpoint was durable.

    Without this its application, coming back, met a gap where there was nothing for it.
    """
    position = SubscriptionPosition(100, since=100, acked=100, acked_event=100)
    assert position.is_idle
    position.release(latest_delivered=500, head=900, handed_over=800)
    position.last_tick = 850

    assert position.silent() == (100, 800)


def test_one_that_is_not_quiet_does_not() -> None:
    position = SubscriptionPosition(100, since=100, acked=100, last_tick=850)

    assert position.release(latest_delivered=500, head=900, handed_over=800) == 100


def test_silence_behind_what_is_settled_leaves_nothing_to_wait_for() -> None:
    """A consumer that comes back further on than it acknowledged was sent nothing there, if the PFS has nothing."""
    position = SubscriptionPosition(100, since=100, acked=100)

    position.attach(200, head=300)
    position.pass_over(300)

    assert position.nothing_upto == 300


def test_what_was_sent_and_not_acknowledged_is_waited_for_when_the_consumer_comes_back() -> None:
    """Silence behind it does not hide it; and what is to be sent once more counts when it is."""
    position = SubscriptionPosition(100, since=100, acked=100, last_tick=150, sent=150)

    position.attach(200, head=300)
    position.pass_over(300)
    assert (position.sent, position.nothing_upto) == (150, 0)

    position.attach(120, head=300)
    assert position.sent == 120


def test_what_an_earlier_life_of_the_broker_may_have_sent_is_waited_for() -> None:
    """The PFS has something between, or cannot know yet: above the head, or before it covers the subscription."""
    unacknowledged = SubscriptionPosition(100, since=100, acked=100, last_tick=150)
    ahead = SubscriptionPosition(100, since=100, acked=100)
    joining = SubscriptionPosition(100, acked=100)

    unacknowledged.attach(200, head=300)
    ahead.attach(400, head=300)
    joining.attach(200, head=300)

    assert (unacknowledged.sent, ahead.sent, joining.sent) == (200, 400, 200)
