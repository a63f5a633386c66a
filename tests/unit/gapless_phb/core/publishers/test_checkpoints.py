"""Checkpoints bound what a recovery reads, and a chop waits for them (T21)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gapless.core.network.facts import Verdict
from gapless.core.ports import Set, Write
from gapless.node.recovery import VolumeReader
from gapless_phb.core.own_log.source import OwnLogSource
from gapless_phb.core.publishers import checkpoints
from unit.gapless_phb.harness import TABLES, Harness, outcomes


def operations(write: Write, table: str) -> list[bytes]:
    return [one.key for one in write.operations if isinstance(one, Set) and one.table == table]


def test_a_recovery_reads_only_what_is_above_the_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = Harness(checkpoint_bytes=2000)
    harness.sync()
    publisher = harness.publisher()
    for _ in range(100):
        publisher.send()
        harness.sync()
    harness.sync()
    read: list[int] = []
    records = VolumeReader.records

    def counted(reader: VolumeReader, stream: str, after: int = 0) -> Iterator[tuple[int, bytes]]:
        found = list(records(reader, stream, after))
        read.append(len(found))
        return iter(found)

    monkeypatch.setattr(VolumeReader, "records", counted)
    harness.crash()
    harness.sync()

    assert 0 < read[0] < 100
    publisher.epoch = 0
    publisher.open()
    harness.sync()
    (outcome,) = outcomes(publisher.repeat(90))
    assert outcome.verdict is Verdict.OK
    assert outcome.ticks != ()


def test_it_waits_until_the_log_is_large_beside_the_rows() -> None:
    """Rows of a thousand publishers for a thousand small events would write more than the log."""
    harness = Harness(checkpoint_bytes=1000, max_pending_bytes=1 << 30)
    harness.sync()
    publishers = [harness.publisher(f"p{number}") for number in range(20)]
    for publisher in publishers:
        publisher.send()
    harness.sync()

    assert harness.unsynced == []
    assert harness.row(TABLES.checkpoints) is None


def test_many_rows_are_written_in_many_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "ROWS_PER_WRITE", 3)
    monkeypatch.setattr(checkpoints, "ROW_BYTES", 0)
    harness = Harness(checkpoint_bytes=1)
    harness.sync()
    publishers = [harness.publisher(f"p{number}") for number in range(8)]
    harness.sync()
    for publisher in publishers:
        publisher.send()
    harness.sync()

    written = []
    while harness.unsynced:
        write = harness.unsynced[0]
        written.append((len(operations(write, TABLES.publishers)), len(operations(write, TABLES.checkpoints))))
        harness.sync(1)

    assert written == [(3, 0), (3, 0), (2, 1)]


@pytest.mark.parametrize("turns", range(5))
def test_a_crash_between_the_turns_harms_nothing(monkeypatch: pytest.MonkeyPatch, turns: int) -> None:
    monkeypatch.setattr(checkpoints, "ROWS_PER_WRITE", 1)
    monkeypatch.setattr(checkpoints, "ROW_BYTES", 0)
    harness = Harness(checkpoint_bytes=1)
    harness.sync()
    publishers = [harness.publisher(f"p{number}") for number in range(3)]
    for publisher in publishers:
        publisher.send(2)
    harness.sync()
    for _ in range(turns):
        harness.sync(1)
        publishers[0].send()
    harness.crash()
    harness.sync()

    for publisher in publishers:
        publisher.epoch = 0
        publisher.open()
        harness.sync()
        publisher.opened()
        assert outcomes(publisher.repeat(1, 2))[0].verdict is Verdict.OK
        assert publisher.next >= 3


def test_a_checkpoint_that_covers_less_than_the_one_before_is_noticed() -> None:
    harness = Harness()
    harness.sync()
    harness.publisher().send()
    harness.sync()
    source = harness.role._pubends[harness.pubend].source
    assert isinstance(source, OwnLogSource)
    source._checkpoints.tick = source.log.newest + 1

    source._checkpoints.begin(lambda _now, _wall: None)
    harness.pump()
    with pytest.raises(AssertionError, match="covers less"):
        harness.sync()
