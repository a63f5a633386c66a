"""LogReader to wants: what is read, what is said, and what is left unsaid."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from gapless.core.alarms import Alarm
from gapless.core.ports import ReadResult
from gapless.core.stream.columns import EventBatch
from gapless.core.stream.intervals import IntervalSet
from gapless.core.stream.ticks import FOREVER, STEP
from gapless_phb.core.retention import log_reader
from unit.gapless_phb.harness import Harness, at, bodies, knows, lines


def written(batches: int = 6, *, count: int = 2, every_ms: int = 100) -> Harness:
    """A log with a batch at 1010, 1110, 1210, …, and silence up to the next."""
    harness = Harness(max_pending_bytes=1 << 30)
    harness.sync()
    publisher = harness.publisher()
    for _ in range(batches):
        publisher.send(count)
        harness.sync()
        harness.advance(every_ms)
    harness.ask((0, FOREVER))
    harness.read()
    harness.said.clear()
    return harness


def test_everything_is_answered_up_to_what_is_stable() -> None:
    harness = written(2)
    harness.advance(100)

    said = lines([*harness.ask((0, FOREVER)), *harness.read()])

    assert said == [
        "know (1210, 1310] silence",
        "answer shb: (0, 1310] 1010=ann/1 1010.1=ann/2 1110=ann/3 1110.1=ann/4",
    ]


def test_beyond_the_newest_event_no_read_is_needed() -> None:
    harness = written(2)

    said = lines(harness.ask((at(1150), at(1200)), (at(1201), at(1210))))

    assert harness.reads == []
    assert said == ["answer shb: (1150, 1200] silence", "answer shb: (1201, 1210] silence"]


def test_a_thousand_ticks_that_lie_together_cost_one_read_and_one_answer() -> None:
    harness = written(10, count=100)
    ticks = [at(1010 + 100 * batch, counter) for batch in range(10) for counter in range(100)]

    harness.ask(*((tick - 1, tick) for tick in ticks))

    assert len(harness.reads) == 1
    (answer,) = knows(harness.read())
    assert list(answer.knowledge.data.ticks) == ticks


def test_ranges_with_much_between_them_are_answered_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one read: nobody is sent much that he did not ask for."""
    harness = written(10, count=100)
    monkeypatch.setattr(log_reader, "LITTLE_BYTES", harness_bytes(harness, 50))

    harness.ask((at(1009), at(1010, 9)), (at(1010, 50), at(1010, 59)), (at(1110, 10), at(1110, 19)))

    assert len(harness.reads) == 1
    assert [len(know.knowledge.data) for know in knows(harness.read())] == [60, 9]


def harness_bytes(harness: Harness, count: int) -> int:
    """The bytes of so many events of the log."""
    (whole,) = knows([*harness.ask((0, FOREVER)), *harness.read()])
    harness.said.clear()
    return whole.knowledge.data.slice(0, count).size


def test_ranges_far_apart_are_read_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reader, "NEAR_BYTES", 300)
    monkeypatch.setattr(log_reader, "LITTLE_BYTES", 0)
    harness = written(20)

    harness.ask((at(1009), at(1010)), (at(1110) - 1, at(1110)), (at(2809), at(2810)))
    harness.read()

    assert [bodies(know.knowledge.data) for know in knows(harness.said)] == [
        "1010=ann/1",
        "1110=ann/3",
        "2810=ann/37",
    ]


def test_a_long_range_is_answered_in_chunks_that_end_at_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = written(6)
    records = [len(raw) for _, raw in harness.logged]
    harness.ask((0, FOREVER))

    answers, reads = [], 0
    while harness.reads:
        read = harness.reads.pop(0)
        reads += 1
        smaller = harness.volume.stream(read.stream).read(read.after, read.upto, 2 * records[0])
        answers += knows(harness.answer(ReadResult(read.cookie, smaller, 0)))

    assert reads == 3
    assert [(know.knowledge.lo, know.knowledge.hi) for know in answers] == [
        (0, at(1110, 1)),
        (at(1110, 1), at(1310, 1)),
        (at(1310, 1), at(1610)),
    ]
    whole = EventBatch.concatenate([know.knowledge.data for know in answers])
    assert len(whole) == 12


def test_a_want_under_way_is_not_read_twice() -> None:
    harness = written(2)

    harness.ask((0, at(1110)))
    harness.ask((0, at(1110)))
    harness.ask((0, at(1110)), reply_to="other")

    assert len(harness.reads) == 2
    assert harness.status()["waiting_reads"] == 2
    harness.read()
    assert harness.status()["waiting_reads"] == 0


def test_wants_are_bounded_and_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reader, "WANTS_MAX", 10)
    harness = written(2)

    for number in range(15):
        harness.ask((0, at(1110)), reply_to=f"shb{number}")

    assert len(harness.reads) == log_reader.READS_MAX
    answered = {know.reply_to for know in knows(harness.read())}
    assert answered == {f"shb{number}" for number in range(10)}


def test_nothing_is_said_of_what_cannot_be_read() -> None:
    harness = written(3)
    harness.ask((0, FOREVER))
    (read,) = harness.reads

    said = harness.answer(ReadResult(read.cookie, [], 0, "I/O error"))

    assert knows(said) == []
    assert [effect.text for effect in said if isinstance(effect, Alarm)] == [
        f"{harness.pubend}: part of the log cannot be read, and its subscribers wait: I/O error"
    ]
    assert harness.status()["waiting_reads"] == 0


def test_the_operator_is_told_once_a_minute() -> None:
    harness = written(3)
    alarms = 0
    for _ in range(13):
        harness.ask((0, at(1110)))
        read = harness.reads.pop()
        alarms += sum(isinstance(one, Alarm) for one in harness.answer(ReadResult(read.cookie, [], 0, "I/O error")))
        harness.advance(10_000)

    assert alarms == 3


@pytest.mark.parametrize("missing", range(6))
def test_a_record_that_is_missing_is_never_taken_for_silence(missing: int) -> None:
    """T24: persistent Q is an alarm, not an answer. What is before the hole is answered."""
    harness = written(6)
    index, _ = harness.logged[missing]
    harness.change_records(harness.stream, lambda records: records.pop(missing))
    harness.ask((0, FOREVER))

    said = harness.read()

    assert any(isinstance(effect, Alarm) for effect in said)
    assert all(know.knowledge.hi < index for know in knows(said))
    assert sum(len(know.knowledge.data) for know in knows(said)) == 2 * missing


@pytest.mark.parametrize("garbled", [True, False])
def test_of_a_record_that_cannot_be_read_nothing_is_said_and_all_else_is(garbled: bool) -> None:
    harness = written(3)
    records = [index for index, _ in harness.logged]
    index = records[1]
    harness.spoil(index, garbled=garbled)
    harness.ask((0, FOREVER))

    said = harness.read()

    answers = [know.knowledge for know in knows(said)]
    assert [bodies(one.data) for one in answers] == ["1010=ann/1 1010.1=ann/2", "1210=ann/5 1210.1=ann/6"]
    assert answers[0].hi <= at(1110) - 1
    assert answers[1].lo == index
    assert any("damaged" in line or "cannot be read" in line for line in lines(said))
    assert [(hi, bool(why)) for _, hi, why in harness.hosted().listing().damaged] == [
        (records[2] - 1 if not garbled else index, True)
    ]


def test_who_asks_in_the_middle_of_what_cannot_be_read_is_answered_behind_it() -> None:
    harness = written(5)
    records = [index for index, _ in harness.logged]
    harness.spoil(*records[1:3])
    harness.ask((records[1] - 1, records[1]), (records[2] - 1, records[3] - STEP))

    said = harness.read()

    answers = [know.knowledge for know in knows(said)]
    assert [(one.lo, one.hi) for one in answers] == [(records[2], records[3] - STEP)]
    assert [list(one.data.ticks) for one in answers] == [[records[3] - STEP]]


def test_behind_a_tail_that_cannot_be_read_there_is_silence() -> None:
    harness = written(3)
    newest = harness.logged[-1][0]
    harness.spoil(newest)
    harness.ask((0, FOREVER))

    said = harness.read()

    answers = [know.knowledge for know in knows(said)]
    assert [len(one.data) for one in answers] == [4, 0]
    assert answers[1].lo == newest
    assert answers[1].hi > newest


def test_a_read_that_finds_everything_chopped_says_lost() -> None:
    harness = Harness(members=("shb1",))
    harness.sync()
    publisher = harness.publisher()
    for _ in range(3):
        publisher.send()
        harness.sync()
        harness.advance(100)
    harness.ask((0, at(1110)))
    harness.release(at(1210))
    harness.advance(2000)
    harness.said.clear()

    (answer,) = knows(harness.read())

    assert (answer.knowledge.lo, answer.knowledge.hi) == (0, at(1110))
    assert len(answer.knowledge.data) == 0
    assert answer.knowledge.lost == at(1210)


def test_what_is_lost_is_told_also_where_what_is_behind_it_cannot_be_read() -> None:
    """A log that is chopped within a hole ends at the record before the hole: a read of what is lost meets the hole."""
    harness = Harness(members=("shb1",))
    harness.sync()
    publisher = harness.publisher()
    for _ in range(5):
        publisher.send()
        harness.sync()
        harness.advance(100)
    records = [index for index, _ in harness.logged]
    harness.spoil(*records[2:4])
    harness.give_up((records[1], records[3]))
    harness.crash()
    harness.sync()
    harness.release(records[2])
    harness.advance(2000)
    harness.sync()
    harness.said.clear()

    harness.ask((0, records[1]), (records[1], records[4]))
    harness.read()

    answers = [know.knowledge for know in knows(harness.said) if know.knowledge.reply]
    assert sorted((one.lo, one.hi, one.damaged, len(one.data)) for one in answers) == [
        (0, records[2], False, 0),
        (records[2], records[3], True, 0),
        (records[3], records[4], False, 1),
    ]
    assert {one.lost for one in answers} == {records[2]}


@pytest.mark.parametrize("little", [0, 500, 4096])
def test_answers_agree_with_a_slow_look_at_the_log(monkeypatch: pytest.MonkeyPatch, little: int) -> None:
    monkeypatch.setattr(log_reader, "LITTLE_BYTES", little)
    draw = random.Random(7)
    harness = written(40, count=3, every_ms=10)
    (whole,) = knows([*harness.ask((0, FOREVER)), *harness.read()])
    log = dict(zip(whole.knowledge.data.ticks, whole.knowledge.data.events, strict=True))
    assert len(log) == 120
    for _ in range(200):
        edges = sorted(draw.sample(range(at(1000), at(1410), STEP // 2), 2 * draw.randint(1, 6)))
        ranges = list(zip(edges[::2], edges[1::2], strict=True))
        harness.said.clear()
        harness.ask(*ranges)
        harness.read()
        answers = [know.knowledge for know in knows(harness.said) if know.knowledge.reply]
        for lo, hi in ranges:
            assert any(one.lo <= lo and hi <= one.hi for one in answers), "a range is answered whole"
        for one in answers:
            expected = {tick: event for tick, event in log.items() if one.lo < tick <= one.hi}
            assert dict(zip(one.data.ticks, one.data.events, strict=True)) == expected


@pytest.mark.parametrize("seed", range(60))
def test_however_a_log_is_damaged_nothing_of_it_is_called_silent_and_all_else_is_told(seed: int) -> None:
    """Some records cannot be read, some were given up, and who asks for any ranges is told the truth of each."""
    draw = random.Random(seed)
    harness = written(20, count=3, every_ms=10)
    records = [index for index, _ in harness.logged]
    rotten = {index for index in records if draw.random() < draw.choice([0.05, 0.3, 0.8])}
    garbled = {index for index in rotten if draw.random() < 0.5}  # the storage reads other bytes than were written
    harness.spoil(*garbled, garbled=True)
    harness.spoil(*rotten - garbled)
    given_up = {index for index in rotten if draw.random() < 0.5}
    harness.give_up(*[(after, index) for after, index in pairwise([0, *records]) if index in given_up])
    harness.crash()
    harness.sync()
    unsaid = {index - step * STEP for index in rotten - given_up for step in range(3)}
    gone = {index - step * STEP for index in given_up for step in range(3)}
    # Where a hole ends, the record behind it says. One that cannot be read says nothing: who asks waits for that, too.
    open_ended: set[int] = set()
    for index, behind in reversed([*pairwise(records)]):  # what was given up side by side is one hole
        if index in given_up and (behind in rotten - given_up or behind in open_ended):
            open_ended.add(index)
    certain = {index - step * STEP for index in given_up - open_ended for step in range(3)}
    there = {index - step * STEP for index in set(records) - rotten for step in range(3)}

    for _ in range(30):
        edges = sorted(draw.sample(range(at(1000), at(1230), STEP // 2), 2 * draw.randint(1, 4)))
        ranges = list(zip(edges[::2], edges[1::2], strict=True))
        harness.said.clear()
        harness.ask(*ranges)
        harness.read()

        answers = [know.knowledge for know in knows(harness.said) if know.knowledge.reply]
        told = {tick for one in answers for tick in one.data.ticks}
        covered = IntervalSet((one.lo, one.hi) for one in answers if not one.damaged)
        damaged = IntervalSet((one.lo, one.hi) for one in answers if one.damaged)
        asked = IntervalSet(ranges)
        assert told <= there
        assert not any(tick in covered or tick in damaged for tick in unsaid), "nothing is said of what is unknown"
        assert not any(tick in covered for tick in gone), "what was given up is not silent"
        assert all(tick in damaged for tick in certain if tick in asked), "what was given up is told"
        assert {tick for tick in there if tick in asked} <= told, "whatever is rotten, all else is told"
        assert not any(tick in damaged for tick in there)


def test_an_answer_beyond_what_is_decided_is_noticed() -> None:
    harness = written(3)
    harness.ask((0, FOREVER))
    log = harness.hosted().log
    log.stable = at(1010) - 1

    with pytest.raises(AssertionError, match="not decided"):
        harness.read()
