"""Heads and the earliest: how far there is something to read, and from where on."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gapless.core.ports import Action
from gapless.core.principals import Principal
from gapless.core.resources import AnyTopic, Resource
from gapless.core.stream.ticks import STEP
from gapless.core.wire import messages as m
from unit.gapless_shb.core.harness import PUBEND
from unit.gapless_shb.core.ranges.harness import RangeWorld
from unit.gapless_shb.core.ranges.test_acknowledging import attached


def heads(world: RangeWorld, after: int | None, wait_ms: int = 0, *, own: bool = True) -> int:
    """The number of a question."""
    positions = None if after is None else [m.Position(PUBEND, after)]
    return world.say(m.AskHeads(world.number(), world.target if own else None, positions, wait_ms))


def tick(world: RangeWorld, number: int) -> int:
    """Its answer."""
    answer = world.answers.pop(number)
    assert isinstance(answer, m.Ticks)
    return answer.positions[0].tick


def test_heads_are_where_everything_is_decided() -> None:
    world = attached()

    assert tick(world, heads(world, world.start)) == world.stable
    assert tick(world, heads(world, None)) == world.stable
    assert tick(world, heads(world, None, own=False)) == world.stable


def test_silence_alone_moves_no_head_of_a_subscription() -> None:
    """Else every second of an idle stream would be worth a batch."""
    world = attached()
    before = world.stable
    world.stable += 1 << 30
    world.calm()

    assert tick(world, heads(world, before)) == before
    assert tick(world, heads(world, before, own=False)) == world.stable
    assert tick(world, heads(world, before - 1)) == world.stable


def test_who_waits_is_answered_by_the_next_event() -> None:
    world = attached(selector="w = 1")
    before = world.stable
    number = heads(world, before, 60_000)
    assert number not in world.answers

    while not world.matching(before, world.stable):
        world.calm(1)
    assert tick(world, number) > before


def test_who_waits_in_vain_is_answered_when_the_time_is_up() -> None:
    world = attached()
    number = heads(world, world.stable, 500)
    deadline = world.role.deadline()
    assert deadline is not None
    assert deadline <= world.now + 500_000_000
    world.pause(499)
    assert number not in world.answers
    world.pause(1)

    assert tick(world, number) == world.stable


def test_after_a_crash_no_head_is_below_what_was_asked_behind() -> None:
    world = attached()
    world.unsynced.clear()
    world.publish()
    world.deliver(world.knowledge(world.start, world.stable, raw=True, reply=False))
    after = tick(world, heads(world, world.start))
    assert after == world.stable
    world.crash()
    behind, plain = heads(world, after), heads(world, None)
    assert {behind, plain}.isdisjoint(world.answers), "nothing was heard of the pubend yet"
    world.pause(1000)

    assert tick(world, behind) == after
    assert tick(world, plain) <= after


def test_the_head_has_come_to_where_the_pubend_was_when_it_was_asked() -> None:
    """What was published before, whoever asks may know of, and would miss."""
    world = attached()
    before = world.stable
    world.publish()
    world.see()
    world.pump()
    number = heads(world, before)
    assert number not in world.answers
    world.answer_wants()

    assert tick(world, number) == world.stable


def test_a_pubend_that_cannot_be_reached_is_not_waited_for_long() -> None:
    world = attached()
    before = world.stable
    world.publish()
    world.see()
    world.pump()
    number = heads(world, before)
    world.pause(1000)

    assert tick(world, number) == before


def test_a_subscription_that_is_removed_ends_the_waiting() -> None:
    world = attached()
    number = heads(world, world.stable, 60_000)
    world.say(m.Unsubscribe(world.number(), "ranges", "c"))

    assert world.answers[number].code is m.Code.NOT_FOUND
    missing = world.ask(m.AskHeads(world.number(), world.target, None, 0))
    assert missing.code is m.Code.NOT_FOUND


def test_the_earliest_is_what_the_pubend_still_has() -> None:
    world = attached()
    number = world.say(m.AskEarliest(world.number(), None))
    assert number not in world.answers, "only the pubend knows"
    world.answer_wants()
    assert tick(world, number) < world.log[0][0]

    world.forget(world.log[9][0])
    number = world.say(m.AskEarliest(world.number(), None))
    world.answer_wants()
    assert tick(world, number) == world.lost


def test_the_earliest_of_a_log_that_numbers_its_records_is_what_the_log_has() -> None:
    """`created` is where a gateway has found it: the log is older, and a subscription from the earliest gets all."""
    world = attached()
    stream = world.stream
    stream.meta = replace(stream.meta, grain=1, created=stream.head)
    number = world.say(m.AskEarliest(world.number(), None))
    assert number not in world.answers, "only the log knows"
    world.answer_wants()
    assert tick(world, number) < world.log[0][0]

    world.forget(world.log[9][0])
    number = world.say(m.AskEarliest(world.number(), None))
    world.answer_wants()
    assert tick(world, number) == world.lost == stream.beginning(world.lost)


def test_of_a_pubend_that_does_not_answer_the_earliest_is_what_was_heard() -> None:
    world = attached()
    number = world.say(m.AskEarliest(world.number(), None))
    world.wants.clear()
    world.pause(1000)

    assert tick(world, number) < world.log[0][0]


def test_from_the_earliest_on_a_subscription_meets_no_gap() -> None:
    """What it is done with is silence to it, although the pubend has lost more."""
    world = attached()
    world.acknowledge(world.log[9][0])
    world.calm()
    world.stable += 1 << 30
    world.calm()
    world.acknowledge(world.stable)
    world.calm()
    world.forget(world.stable)

    number = world.say(m.AskEarliest(world.number(), world.target))
    world.answer_wants()
    earliest = tick(world, number)
    assert earliest == world.log[-1][0] < world.lost
    assert world.take(earliest, world.stable).gaps == []


def test_the_earliest_is_a_position_that_may_be_asked_behind() -> None:
    """A log may be chopped where an event could stand: who goes on from there would seem to come from lost data."""
    world = attached()
    world.forget(world.log[9][0])
    stream = world.stream
    stream.learn(replace(stream.meta, voids=((world.lost - 1, world.lost + 5),), residue=world.lost % STEP))
    number = world.say(m.AskEarliest(world.number(), None))
    world.answer_wants()

    assert tick(world, number) == world.lost + 1


class Rules:
    """Lets be subscribed to these topics alone, and knows of no other question."""

    asks = True

    def __init__(self, *topics: str) -> None:
        self.topics = topics

    def refusal(self, _principal: Principal, action: Action, resource: Resource) -> str:
        assert action is Action.SUBSCRIBE
        topic = resource.pattern if isinstance(resource, AnyTopic) else resource
        return "" if topic in self.topics else "no"


@pytest.mark.parametrize("question", [m.AskHeads(1, None, None, 0), m.AskEarliest(1, None)])
def test_of_pubends_of_whose_topics_one_may_have_none_nothing_is_told(question: m.AskHeads | m.AskEarliest) -> None:
    world = attached()
    for topics, told in (((), []), (("#",), [PUBEND])):
        world.hosting.authorizer = Rules(*topics)
        number = world.say(replace(question, request=world.number()))
        world.answer_wants()
        world.pause(1_100)
        answer = world.answers.pop(number)
        assert isinstance(answer, m.Ticks)
        assert [position.pubend for position in answer.positions] == told


def test_who_waits_for_heads_is_judged_when_he_is_answered() -> None:
    """Nor is he answered sooner because of what he is not told."""
    world = attached()
    number = heads(world, world.stable, 60_000, own=False)
    world.hosting.authorizer = Rules()
    world.calm(1)
    assert number not in world.answers
    world.pause(61_000)
    assert world.answers.pop(number) == m.Ticks(number, [])
