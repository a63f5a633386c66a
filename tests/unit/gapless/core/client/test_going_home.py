"""A client that reads by ranges goes to the node that answers, if that is behind one of its addresses."""

from __future__ import annotations

from gapless.core.client import SubscribeOptions
from gapless.core.client.link import effects as e
from gapless.core.wire import messages as m
from gapless.errors import ConfigurationError, SubscriptionElsewhereError
from unit.gapless.core.client.talk import Talk

HERE, HOME, THIRD = "here:1", "home:1", "third:1"
TARGET = m.Target("s", 3, 1)


def elsewhere(number: int, node: str = "shb1") -> m.RequestFailed:
    return m.RequestFailed(number, m.Code.CONFIGURATION, f"its home is {node}", node=node)


def attach(talk: Talk) -> int:
    return talk.core.ranges.attach(SubscribeOptions(("t",), "s"), talk.now)


def go_on(talk: Talk) -> str:
    """The client dials once more and is welcomed. Returns where."""
    talk.said.clear()
    talk.wait(6)
    talk.connect()
    return talk.core.address


def refuse(talk: Talk, number: int) -> None:
    """The broker that is asked now says that another node answers."""
    talk.hear(elsewhere(number))


def failures(talk: Talk) -> list[type[Exception]]:
    return [type(failed.error) for failed in talk.all_told(e.Failed)]


def test_it_asks_at_the_next_address_and_is_answered_there() -> None:
    talk = Talk(HERE, HOME)
    number = attach(talk)
    assert talk.core.address == HERE

    refuse(talk, number)
    assert talk.hung_up
    assert talk.core.deadline() == talk.now
    assert go_on(talk) == HOME
    (asked,) = talk.all_said(m.Attach)
    answer = m.AttachedTo(asked.request, 3, 1, b"seal", [])
    talk.hear(answer)

    assert talk.all_told(e.Answered) == [e.Answered(number, answer)]
    assert failures(talk) == []


def test_if_it_is_none_of_the_addresses_the_error_names_the_home() -> None:
    talk = Talk(HERE, THIRD)
    number = attach(talk)
    refuse(talk, number)
    assert go_on(talk) == THIRD
    refuse(talk, number)

    (failed,) = talk.all_told(e.Failed)
    assert isinstance(failed.error, ConfigurationError)
    assert "shb1" in str(failed.error)
    assert talk.core.connected


def test_with_one_address_it_is_told_at_once() -> None:
    talk = Talk()
    refuse(talk, attach(talk))

    assert failures(talk) == [SubscriptionElsewhereError]
    assert not talk.hung_up


def test_while_the_home_is_down_it_tries_each_address_once() -> None:
    talk = Talk(HERE, HOME)
    number = attach(talk)
    refuse(talk, number)
    talk.wait(6)
    assert talk.core.address == HOME
    talk.core.on_link_down(talk.link, "refused", talk.now)
    assert go_on(talk) == HERE
    assert failures(talk) == []

    refuse(talk, number)

    assert failures(talk) == [SubscriptionElsewhereError]
    assert talk.core.connected


def test_a_range_that_was_being_read_goes_on_there() -> None:
    talk = Talk(HERE, HOME)
    number = talk.core.ranges.read(TARGET, "p@1", 0, 9, talk.now)
    talk.hear_events(number, 3)
    talk.core.on_link_down(talk.link, "its home dies", talk.now)
    assert go_on(talk) == HOME
    refuse(talk, number)
    assert go_on(talk) == HERE

    (asked,) = talk.all_said(m.ReadRange)
    assert asked.lo == 3


def test_it_stays_where_it_reads_another_range_or_consumes_or_publishes() -> None:
    reads, consumes, publishes = Talk(HERE, HOME), Talk(HERE, HOME), Talk(HERE, HOME)
    reads.hear_events(reads.core.ranges.read(TARGET, "p@1", 0, 9, reads.now), 3)
    consumes.core.subscribe(SubscribeOptions(("t",), "other"), consumes.now)
    publishes.core.open_publisher("loader", "t", None, publishes.now)

    for talk in (reads, consumes, publishes):
        refuse(talk, attach(talk))

        assert failures(talk) == [SubscriptionElsewhereError]
        assert not talk.hung_up


def test_where_nothing_more_of_a_range_comes_it_is_not_in_the_way() -> None:
    talk = Talk(HERE, HOME)
    number = talk.core.ranges.read(TARGET, "p@1", 0, 9, talk.now)
    talk.hear_events(number, 3)
    talk.hear(m.RangeRead(number))

    refuse(talk, attach(talk))

    assert talk.hung_up
    assert go_on(talk) == HOME
