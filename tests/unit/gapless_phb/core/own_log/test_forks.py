"""Where another process of the node may have logged events: all is lost there, nothing silent, nothing logged anew."""

from __future__ import annotations

from collections.abc import Sequence

from gapless.core.alarms import Alarm, AlarmCode
from gapless.core.network.facts import Opened, RanTwice, Verdict
from gapless.core.network.reach import AHEAD_MAX
from gapless.core.stream.ticks import SECOND, Tick, tick_at
from unit.gapless_phb.harness import Harness, knows, outcomes

FAR = 1 << 60


def with_an_event() -> tuple[Harness, Tick]:
    """A pubend that was found at the start with one event in its log; nothing of this start is durable yet."""
    harness = Harness()
    harness.sync()
    harness.publisher().send()
    harness.sync()
    event = int(harness.status()["newest"])
    harness.crash()
    return harness, event


def forks(effects: Sequence[object]) -> list[tuple[Tick, Tick]]:
    """What the latest description of the pubend says."""
    return list([effect for effect in effects if isinstance(effect, Opened)][-1].meta.forks)


def silences(effects: Sequence[object]) -> list[tuple[Tick, Tick]]:
    return [(know.knowledge.lo, know.knowledge.hi) for know in knows(effects) if not know.knowledge.damaged]


def lost(effects: Sequence[object]) -> list[tuple[Tick, Tick]]:
    return [(know.knowledge.lo, know.knowledge.hi) for know in knows(effects) if know.knowledge.damaged]


def overlap(one: tuple[Tick, Tick], other: tuple[Tick, Tick]) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def test_what_lies_behind_the_last_event_that_was_found_is_lost_and_never_said_to_be_silent() -> None:
    harness, event = with_an_event()

    effects = harness.feed(RanTwice(7))
    effects += harness.sync()
    effects += harness.advance(5000)
    effects += harness.ask((0, FAR))
    effects += harness.read()

    [fork] = forks(effects)
    assert fork[0] == event
    assert lost(effects) == [fork]
    said = silences(effects)
    assert not any(overlap(each, fork) for each in said)
    assert [list(know.knowledge.data.ticks) for know in knows(effects) if know.knowledge.data] == [[event]]
    assert max(hi for _, hi in said) > fork[1], "the log goes on behind it"


def test_it_is_said_once_of_each_process_and_kept_for_ever() -> None:
    harness, _ = with_an_event()
    harness.feed(RanTwice(7))
    first = forks(harness.sync())
    harness.advance(5000)

    harness.crash()
    harness.feed(RanTwice(7))
    assert forks(harness.sync()) == first
    harness.advance(5000)
    assert lost(harness.ask((0, FAR))) == first

    assert forks(harness.feed(RanTwice(8)))[0] == first[0]
    assert len(forks(harness.feed(RanTwice(9)))) > 1


def test_what_this_start_has_logged_stays_and_the_present_is_lost_too() -> None:
    harness, found = with_an_event()
    harness.sync()
    publisher = harness.publisher("bob")
    publisher.send()
    harness.sync()
    own = int(harness.status()["newest"])

    effects = harness.feed(RanTwice(7))
    before, present = forks(effects)
    effects = harness.ask((0, FAR)) + harness.read()

    assert before == (found, own - 1)
    assert present[0] >= own
    events = [tick for know in knows(effects) for tick in know.knowledge.data.ticks]
    assert events == [found, own]
    assert lost(effects) == [before, present]


def test_silence_beside_a_batch_that_is_on_its_way_ends_before_what_is_lost() -> None:
    harness, _ = with_an_event()
    harness.sync()
    publisher = harness.publisher("bob")
    publisher.send()
    effects = harness.feed(RanTwice(7))
    present = forks(effects)[-1]
    harness.advance(3000, sync=False)
    publisher.send()

    effects = harness.sync() + harness.advance(3000)

    assert not any(overlap(each, present) for each in silences(effects))
    events = [tick for know in knows(effects) for tick in know.knowledge.data.ticks]
    assert events[0] <= present[0] < present[1] < events[1]


def test_nothing_is_logged_up_to_where_an_shb_was_told_by_another_process() -> None:
    harness, event = with_an_event()
    harness.sync()
    told = int(harness.status()["stable"]) + 60 * SECOND

    effects = harness.ask((told, FAR))
    [fork] = forks(effects)
    alarms = [effect for effect in effects if isinstance(effect, Alarm)]
    assert fork[0] == event
    assert fork[1] > told, "who was told most comes by, too"
    assert [alarm.code for alarm in alarms] == [AlarmCode.BROKERS_CONTRADICT]

    harness.advance(3000)
    publisher = harness.publisher("bob")
    publisher.send()
    harness.sync()
    assert int(harness.status()["newest"]) > fork[1]


def test_nobody_can_push_a_pubend_further_ahead_than_a_day() -> None:
    """However often it is asked for what is half a day ahead: each time the next could go further."""
    harness, _ = with_an_event()
    harness.sync()
    alarms = []
    for _ in range(40):
        told = int(harness.status()["stable"]) + AHEAD_MAX // 2
        alarms += [effect for effect in harness.ask((told, FAR)) if isinstance(effect, Alarm)]
        harness.advance(3000)
        publisher = harness.publisher("bob")
        publisher.send()
        harness.sync()

    newest = int(harness.status()["newest"])
    assert newest - tick_at(harness.wall) <= AHEAD_MAX + 60 * SECOND
    assert 1 <= len(alarms) <= 3


def test_publishers_wait_until_all_shbs_can_have_said_where_they_are() -> None:
    harness, _ = with_an_event()
    harness.sync()
    publisher = harness.publisher("bob")
    harness.feed(RanTwice(7))

    [refused] = outcomes(publisher.send())
    harness.advance(2100)
    publisher.repeat(1)
    [taken] = outcomes(harness.sync())

    assert refused.verdict is Verdict.RETRY
    assert "another process" in refused.reason
    assert taken.verdict is Verdict.OK


def test_who_asks_for_what_comes_next_was_told_by_this_log() -> None:
    harness, _ = with_an_event()
    harness.sync()
    harness.advance(3000)
    stable = int(harness.status()["stable"])

    effects = harness.ask((stable, FAR), (stable - 5, stable))

    assert not [effect for effect in effects if isinstance(effect, Alarm | Opened)]
    assert lost(effects) == []


def test_a_pubend_that_was_made_by_this_start_was_never_anybody_elses() -> None:
    harness = Harness()
    harness.sync()

    assert harness.feed(RanTwice(7)) == []
