"""A log that lost something is not served (INV13); one that is whole goes on exactly where it was."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from gapless.core.network.facts import OpenRequest, SubmitOpen, Verdict
from gapless.core.ports import Set
from gapless.core.stream.intervals import IntervalSet
from gapless.core.stream.ticks import FOREVER, STEP
from gapless.errors import VolumeCorruptError
from gapless_phb.core import rows
from gapless_phb.core.own_log.recovery import created
from unit.gapless_phb.harness import TABLES, Harness, at, knows, lines, outcomes
from unit.rig import disk_with


def written(batches: int = 5, **settings: Any) -> Harness:
    harness = Harness(**settings)
    harness.sync()
    publisher = harness.publisher()
    for _ in range(batches):
        publisher.send(2)
        harness.sync()
    return harness


def indexes(harness: Harness) -> list[int]:
    return [index for index, _ in harness.logged]


def test_a_whole_log_goes_on_where_it_was() -> None:
    harness = written()
    before = harness.status()

    harness.crash()
    harness.sync()

    after = harness.status()
    assert {key: after[key] for key in ("newest", "lost", "log_bytes", "publishers")} == {
        key: before[key] for key in ("newest", "lost", "log_bytes", "publishers")
    }


@pytest.mark.parametrize("position", range(5))
def test_a_record_that_is_missing_anywhere_is_noticed(position: int) -> None:
    harness = written()
    harness.change_records(harness.stream, lambda records: records.pop(position))

    with pytest.raises(VolumeCorruptError, match=r"lacks what was|events are lost"):
        harness.crash()


def test_a_missing_tail_is_noticed() -> None:
    harness = written()
    harness.change_records(harness.stream, lambda records: records.__delitem__(slice(2, None)))

    with pytest.raises(VolumeCorruptError, match="events are lost"):
        harness.crash()


def test_a_log_that_ends_below_its_checkpoint_is_noticed() -> None:
    harness = written(100, checkpoint_bytes=1)
    assert harness.row(TABLES.checkpoints) is not None
    harness.change_records(harness.stream, list.clear, last=0)

    with pytest.raises(VolumeCorruptError, match="events are lost"):
        harness.crash()


@pytest.mark.parametrize("garbled", [False, True])
@pytest.mark.parametrize("spoilt", [(0,), (1, 2), (4,), (0, 2, 4)])
def test_what_cannot_be_read_stops_publishing_and_no_reader(spoilt: tuple[int, ...], garbled: bool) -> None:
    """The pubend is there, with all that can be read; nobody knows what its publishers have sent."""
    harness = written()
    records = indexes(harness)
    harness.spoil(*[records[position] for position in spoilt], garbled=garbled)

    harness.crash()
    harness.sync()
    harness.advance(3_000)
    harness.said.clear()
    harness.ask((0, FOREVER))
    harness.read()

    answers = [know.knowledge for know in knows(harness.said) if know.knowledge.reply]
    lost = [records[position] for position in spoilt]
    found = [tick for one in answers for tick in one.data.ticks]
    assert found == [tick for index in records if index not in lost for tick in (index - STEP, index)]
    assert not any(one.lo < tick <= one.hi for one in answers for index in lost for tick in (index - STEP, index))
    assert not any(one.damaged for one in answers)
    opened = outcomes(harness.feed(SubmitOpen(OpenRequest("bob", "i", 1, None, principal="anonymous"), "bob")))
    assert [one.verdict for one in opened] == [Verdict.REJECTED]
    assert "gapless repair" in opened[0].reason
    assert any("cannot be read" in line for line in lines(harness.said))


def test_nothing_that_is_known_of_publishers_is_written_while_some_is_not() -> None:
    """The checkpoint would be believed when the damage is forgotten."""
    harness = written(checkpoint_bytes=1 << 10)
    before = harness.row(TABLES.checkpoints)
    harness.spoil(indexes(harness)[4])
    harness.crash()
    harness.sync()

    harness.release(FOREVER)
    harness.advance(10_000)
    harness.sync()

    assert harness.row(TABLES.checkpoints) == before


@pytest.mark.parametrize("spoilt", [(0,), (1, 2), (4,), (0, 2, 4)])
def test_what_was_given_up_is_said_to_be_damaged_and_publishing_goes_on(spoilt: tuple[int, ...]) -> None:
    harness = written()
    records = indexes(harness)
    given_up = [(records[position - 1] if position else 0, records[position]) for position in spoilt]
    harness.spoil(*[records[position] for position in spoilt])
    harness.give_up(*given_up)

    harness.crash()
    harness.sync()
    publisher = harness.publisher("bob")
    publisher.send()
    harness.sync()
    harness.said.clear()
    harness.ask((0, FOREVER))
    harness.read()

    answers = sorted((know.knowledge for know in knows(harness.said) if know.knowledge.reply), key=lambda one: one.lo)
    assert answers[0].lo == 0
    assert all(one.hi == two.lo for one, two in pairwise(answers)), "every tick is accounted for"
    damaged = IntervalSet((one.lo, one.hi) for one in answers if one.damaged)
    assert damaged == IntervalSet(given_up)
    assert not any(len(one.data) for one in answers if one.damaged)
    told = {tick for one in answers for tick in one.data.ticks}
    assert all((index in told) == (position not in spoilt) for position, index in enumerate(records))


@pytest.mark.parametrize("garbled", [False, True])
def test_of_what_cannot_be_read_behind_what_was_given_up_nothing_is_said(garbled: bool) -> None:
    """A storage says of a hole no more than that it ends before the index of the next record, its last tick.

    So where that record cannot be read, its first events may stand below the end of what was given up.
    """
    harness = written()
    records = indexes(harness)
    harness.spoil(records[1])
    harness.spoil(records[2], garbled=garbled)
    harness.give_up((records[0], records[2] - 1))

    harness.crash()
    harness.sync()
    harness.said.clear()
    harness.ask((0, FOREVER))
    harness.read()

    answers = [know.knowledge for know in knows(harness.said) if know.knowledge.reply]
    assert {tick for one in answers for tick in one.data.ticks} == {
        tick for index in (records[0], *records[3:]) for tick in (index - STEP, index)
    }
    assert not any(one.lo < records[2] - STEP <= one.hi for one in answers)


def test_what_is_chopped_is_lost_although_a_hole_begins_there() -> None:
    """Hostile 252, damaged twice: who wanted something from before the chop point waited for ever."""
    harness = written(members=("shb1",))
    records = indexes(harness)
    harness.spoil(records[1])
    harness.give_up((records[0], records[2] - 1))
    harness.crash()
    harness.sync()

    harness.release(records[1])
    harness.advance(10_000)
    harness.sync()
    assert harness.chopped == records[1]
    harness.said.clear()
    harness.ask((0, records[0]))
    harness.read()

    (answer,) = [know.knowledge for know in knows(harness.said) if know.knowledge.reply]
    assert (answer.lo, answer.hi, answer.lost) == (0, records[0], records[1])


def test_a_publisher_goes_on_behind_what_was_given_up() -> None:
    """Of what is behind the damage the number is known; what was in it counts as sent, for all that was after it."""
    harness = written()
    records = indexes(harness)
    harness.spoil(*records[1:3])
    harness.give_up((records[0], records[2]))

    harness.crash()
    harness.sync()

    opened = outcomes(
        [*harness.feed(SubmitOpen(OpenRequest("ann", "i2", 1, None, principal="anonymous"), "ann")), *harness.sync()]
    )
    assert [(one.verdict, one.sequence) for one in opened] == [(Verdict.OK, 10)]


def test_events_of_a_publisher_that_are_missing_are_noticed() -> None:
    harness = written()
    row = rows.PublisherRow(1, "i1", 1, 0, 0, 0, b"")
    key = rows.key(0, "ann")
    first, *_ = indexes(harness)
    checkpoint = rows.Checkpoint(first, 1, [(first, 0)])
    harness.change_rows(
        Set(TABLES.publishers, key, rows.encode(row)), Set(TABLES.checkpoints, rows.key(0), rows.encode(checkpoint))
    )

    with pytest.raises(VolumeCorruptError, match="lacks what publisher 'ann' sent before event 3"):
        harness.crash()


def test_a_log_that_was_chopped_to_nothing_is_whole() -> None:
    harness = Harness(members=("shb1",))
    harness.sync()
    publisher = harness.publisher()
    publisher.send()
    harness.sync()
    harness.advance(10)
    harness.release(at(5000))
    harness.advance(2000)
    assert harness.logged == []

    harness.crash()
    assert lines(harness.sync())[0].startswith("opened")
    publisher.epoch = 0
    publisher.open()
    assert lines(harness.sync())[-1] == "ann: ok epoch 1.1 sequence 1"


def test_what_is_created_has_a_past_that_is_used() -> None:
    row = rows.PubendRow("default@1", at(7), ("#",))

    assert created(disk_with(), rows.SavedPubend(0, row)).last == at(7)
