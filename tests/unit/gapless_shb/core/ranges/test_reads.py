"""Range reads of clients: credit, frames, several at a time, and their end."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gapless.core.ports import ClientSession, SessionEnded
from gapless.core.principals import NOBODY
from gapless.core.stream.knowledge import Knowledge, KnowledgeConflict
from gapless.core.wire import messages as m
from gapless_shb.core.ranges import reads
from gapless_shb.core.ranges.heads import FirstTicks
from gapless_shb.core.ranges.reads import FOUND_AGAIN, READS_MAX
from gapless_shb.core.state.broker_state import CatchUp
from unit.gapless_shb.core.harness import FORGETFUL, PUBEND
from unit.gapless_shb.core.ranges.harness import RangeWorld, Reading
from unit.gapless_shb.core.ranges.test_acknowledging import attached


def parts(world: RangeWorld) -> int:
    """How many reads are under way."""
    return len(world.ranges.reads)


def test_it_goes_as_far_as_the_credit_and_on_with_more() -> None:
    world = attached()
    number = world.read_range(world.start, world.stable, 7)
    world.calm()
    assert len(world.readings[number].ticks) == 7

    world.readings[number].credit += 100
    world.say(m.ReadOn(number, 100, 1 << 20))
    world.calm()
    assert number not in world.readings


def test_a_read_with_credit_waits_for_room_on_its_link(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads, "FRAME_EVENTS", 3)
    world = attached(CatchUp(0, link_bytes=300))
    number = world.read_range(world.start, world.stable)
    for _ in range(3):
        world.calm()
    read = len(world.readings[number].ticks)
    assert 0 < read < 20
    assert [ask.session for ask in world.room_asked] == [world.client.number]

    while number in world.readings:
        world.has_room(world.client)
        world.calm()


def test_an_event_larger_than_the_credit_is_not_stuck() -> None:
    world = attached()
    number = world.number()
    reading = world.readings[number] = world.readings[world.read_range(world.start, world.stable, 1)]
    world.say(m.ReadRange(number, world.target, PUBEND, world.start, world.stable, 10, 1))
    reading.credit = 10
    world.calm()

    assert len(reading.ticks) >= 1


def test_a_pubend_that_was_found_just_before_a_crash_is_waited_for() -> None:
    """Its heads were told before it was durable that it had been found; soon it is found once more."""
    world = attached()
    world.hosting.started_at = world.now
    number = world.number()
    world.readings[number] = Reading(0, 10, 0, 0, 10)

    world.say(m.ReadRange(number, world.target, "found-lately@1", 0, 10, 10, 1 << 20))

    assert number not in world.answers, "that would be an error of another kind"
    assert number not in world.readings, "it was told to ask again"


def test_a_range_beyond_the_head_waits_for_it() -> None:
    world = attached()
    end = world.stable + (1 << 24)
    number = world.read_range(world.start, end)
    world.calm()
    assert len(world.readings[number].ticks) == 20

    world.stable = end
    world.calm()
    assert number not in world.readings


def test_many_read_at_a_time_but_not_too_many() -> None:
    world = attached()
    for _ in range(READS_MAX):
        world.read_range(world.start, world.stable, 1)
    assert parts(world) == READS_MAX
    world.read_range(world.start, world.stable, 1)
    assert parts(world) == READS_MAX, "this one is put off"

    world.feed(SessionEnded(world.client))
    assert parts(world) == 0


def test_who_wants_no_more_is_not_sent_any() -> None:
    world = attached()
    number = world.read_range(world.start, world.stable, 3)
    world.say(m.EndRead(number))
    world.calm()

    assert parts(world) == 0


def test_what_cannot_be_read_is_refused() -> None:
    world = attached()
    world.hosting.started_at = world.now - FOUND_AGAIN
    target, start, end = world.target, world.start, world.stable

    def code(target: m.Target, pubend: str, lo: int = start) -> m.Code:
        return m.Code(world.ask(m.ReadRange(world.number(), target, pubend, lo, end, 1, 1)).code)

    assert code(m.Target("nobody"), PUBEND) is m.Code.NOT_FOUND
    assert code(m.Target("ranges", 99, 1), PUBEND) is m.Code.NOT_FOUND
    assert code(target, "p@2") is m.Code.TOKEN_MISMATCH
    assert code(target, "q@1") is m.Code.TOKEN_MISMATCH


def test_a_subscription_that_is_removed_ends_its_reads() -> None:
    world = attached()
    number = world.read_range(world.start, world.stable, 1)
    world.say(m.Unsubscribe(world.number(), "ranges", "c"))
    world.calm(3)

    assert world.answers[number].code is m.Code.NOT_FOUND


def test_a_subscription_that_gets_another_filter_ends_its_reads() -> None:
    """The rest would be of another selector, and a repetition would have other events."""
    world = attached()
    number = world.read_range(world.start, world.stable, 1)
    request = m.Subscribe(
        world.number(), "ranges", ("#",), "w = 2", m.StartAt.LATEST, 0, None, 0, 0, b"", [], m.InUse.ERROR, 9, 999
    )
    world.say(replace(request, on_change=m.OnChange.KEEP_POSITION), ClientSession(1, "c", "consumer", NOBODY))
    world.calm(3)

    assert world.answers[number].code is m.Code.MISMATCH


def test_reading_changes_nothing() -> None:
    world = attached()
    position = world.stream.positions[1]
    before = (
        position.acked,
        position.acked_event,
        position.nothing_upto,
        position.sent,
        position.since,
        position.last_tick,
    )
    world.take(world.start, world.stable)

    assert before == (
        position.acked,
        position.acked_event,
        position.nothing_upto,
        position.sent,
        position.since,
        position.last_tick,
    )


def test_an_expired_event_is_read_all_the_same() -> None:
    """A range that is read again must not have shrunk; expiry acts at a consumer's session only."""
    from gapless.core.stream.events import Extras, encode_event

    world = attached()
    world.publish()
    tick, properties, _ = world.log[-1]
    world.log[-1] = tick, properties, encode_event("t", properties, Extras(expiration=1), b"x")
    world.calm()

    assert world.take(world.start, world.stable).ticks[-1] == tick


def test_events_that_were_cut_off_are_a_gap_to_whoever_reads_a_range() -> None:
    """As they are to a subscription's consumer: otherwise the read would wait for them for ever."""
    world = attached(CatchUp(0))
    stream = world.stream
    reading = world.readings[world.read_range(world.start, world.stable)]
    world.read()
    assert world.wants
    stream.meta = replace(stream.meta, grain=1)
    world.lost = world.acked = world.stable  # so that this world takes a gap

    world.deliver(Knowledge(PUBEND, world.start, world.stable, reply=True))

    assert not world.readings
    [(lo, hi)] = reading.gaps
    assert lo < world.log[0][0]
    assert world.log[-1][0] <= hi


def test_what_contradicts_what_came_before_is_an_alarm_and_no_crash() -> None:
    """Of a log that is cut, brokers on the way may say both for a while: what they contradict is asked for again."""
    world = attached(FORGETFUL)
    stream = world.stream
    fetch = FirstTicks(PUBEND, world.start, world.stable)
    stream.scheduler.join(fetch)
    stream.meta = replace(stream.meta, grain=1)
    first = world.log[0][0]
    world.deliver(Knowledge(PUBEND, first - 1, world.stable, reply=True))
    world.wants.clear()

    world.deliver(world.knowledge(world.start, world.stable, raw=True, reply=True))
    world.pause(300)

    assert [alarm for alarm in world.alarms if "contradict" in alarm]
    assert any(lo < first <= hi for want in world.wants for lo, hi in want.ranges)


def test_what_contradicts_one_of_them_reaches_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    world = attached(FORGETFUL)
    scheduler = world.stream.scheduler
    contradicted, other = (FirstTicks(PUBEND, world.start, world.stable) for _ in range(2))
    for each in (contradicted, other):
        scheduler.join(each)

    def offer(_knowledge: Knowledge, _cut: object) -> None:
        raise KnowledgeConflict("an event is told as silence")

    monkeypatch.setattr(contradicted, "offer", offer)
    world.deliver(world.knowledge(world.start, world.stable, raw=True, reply=True))

    assert other.is_known
    assert [alarm for alarm in world.alarms if "contradict" in alarm]


def test_whoever_is_done_is_told_of_nothing_any_more() -> None:
    world = attached()
    scheduler = world.stream.scheduler
    for _ in range(3):
        world.read_range(world.start, world.stable, 7)
    world.say(m.AskBound(world.number(), world.target, [], 10, None))
    world.say(m.AskEarliest(world.number(), world.target))
    assert scheduler.is_listening

    world.feed(SessionEnded(world.client))

    assert not scheduler.is_listening
