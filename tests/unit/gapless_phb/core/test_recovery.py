"""A log that lost something is not served (INV13); one that is whole goes on exactly where it was."""

from __future__ import annotations

import pytest

from gapless.core.effects import Set, Write
from gapless.errors import VolumeCorruptError
from gapless_phb.core import rows
from gapless_phb.core.recovery import created
from unit.gapless_phb.harness import Harness, Stream, at, lines


def written(batches: int = 5, **settings: int) -> Harness:
    harness = Harness(**settings)
    harness.sync()
    publisher = harness.publisher()
    for _ in range(batches):
        publisher.send(2)
        harness.sync()
    return harness


def durable(harness: Harness) -> Stream:
    return harness.volume.durable.streams[f"phb.{harness.pubend}"]


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
    del durable(harness).records[position]

    with pytest.raises(VolumeCorruptError, match=r"lacks what was|events are lost"):
        harness.crash()


def test_a_missing_tail_is_noticed() -> None:
    harness = written()
    del durable(harness).records[2:]

    with pytest.raises(VolumeCorruptError, match="events are lost"):
        harness.crash()


def test_a_log_that_ends_below_its_checkpoint_is_noticed() -> None:
    harness = written(100, checkpoint_bytes=1)
    assert harness.row(rows.CHECKPOINTS) is not None
    stream = durable(harness)
    stream.records, stream.last = [], 0

    with pytest.raises(VolumeCorruptError, match="events are lost"):
        harness.crash()


def test_a_damaged_record_is_noticed() -> None:
    harness = written()
    index, raw = durable(harness).records[1]
    durable(harness).records[1] = index, raw[:-1] + b"?"

    with pytest.raises(VolumeCorruptError, match="damaged"):
        harness.crash()


def test_events_of_a_publisher_that_are_missing_are_noticed() -> None:
    harness = written()
    row = rows.PublisherRow(1, "i1", 1, 0, 0, 0, b"")
    key = rows.key(0, "ann")
    harness.volume.durable.apply(Write([Set(rows.PUBLISHERS, key, rows.encode(row))]))
    first, *_ = durable(harness).records
    checkpoint = rows.Checkpoint(first[0], 1, [(first[0], 0)])
    harness.volume.durable.apply(Write([Set(rows.CHECKPOINTS, rows.key(0), rows.encode(checkpoint))]))

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
    assert harness.stream().records == []

    harness.crash()
    assert lines(harness.sync())[0].startswith("opened")
    publisher.epoch = 0
    publisher.open()
    assert lines(harness.sync())[-1] == "ann: ok epoch 1.1 sequence 1"


def test_what_is_created_has_a_past_that_is_used() -> None:
    row = rows.PubendRow("default@1", at(7), ("#",))

    assert created(rows.SavedPubend(0, row)).last == at(7)
