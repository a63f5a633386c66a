"""Random histories find what single tests may miss, and the model is the contract's."""

from __future__ import annotations

import pytest

from conformance import broken_storages as broken
from conformance.storages import MemoryHarness
from gapless_storage._memory import Records, Rows
from gapless_storage.memory import MemoryDisk, MemoryTable, MemoryVolume
from gapless_testing.storage.machine import ModelStream, PropertyTests


def model(*indexes: int) -> ModelStream:
    stream = ModelStream()
    for index in indexes:
        stream.put(index, bytes(10))
    return stream


def test_the_model_reads_as_the_contract_says() -> None:
    stream = model(10, 20, 30)

    assert [index for index, _ in stream.read(0, 11, 999)] == [10, 20]
    assert [index for index, _ in stream.read(10, 20, 999)] == [20]
    assert [index for index, _ in stream.read(0, 99, 11)] == [10, 20]
    assert [index for index, _ in stream.read(0, 99, 0)] == [10]
    assert stream.read(10, 10, 999) == []


def test_the_model_chops_as_the_contract_says() -> None:
    stream = model(10, 20, 30)
    stream.chop(15)
    stream.chop(5)

    assert (stream.first, stream.last, sorted(stream.records)) == (15, 30, [20, 30])
    stream.chop(99)
    assert (stream.first, stream.last, stream.records) == (30, 30, {})


def crash_with_a_hole(disk: MemoryDisk, keep: int = 0) -> None:
    """The last batch is kept, the one before it is not."""
    if len(disk._batches) > 1:
        for undo, argument in reversed(disk._batches[-2].undos):
            undo(argument)
    disk._batches.clear()
    disk._volume = None


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("owner", "name", "replacement"),
    [
        (Records, "read", broken.read_exclusive),
        (Records, "read", broken.read_all),
        (Records, "chop", broken.chop_and_forget_last),
        (Records, "reclaim", broken.reclaim_too_much),
        (Rows, "scan", broken.scan_to_a_bound),
        (MemoryTable, "delete", broken.delete_what_is_there),
        (MemoryVolume, "close", broken.close_and_write),
        (MemoryDisk, "crash", broken.crash_with_staged),
        (MemoryDisk, "crash", crash_with_a_hole),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_breach_is_found_by_a_history(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, replacement: object
) -> None:
    suite = PropertyTests()
    suite.history_examples = 300
    suite.history_shrinks = False
    monkeypatch.setattr(owner, name, replacement)

    with pytest.raises((AssertionError, IndexError, ValueError)):
        suite.test_any_history_agrees_with_the_model(MemoryHarness())


def test_one_long_history_finds_something_too(monkeypatch: pytest.MonkeyPatch) -> None:
    PropertyTests().test_one_long_history(MemoryHarness())
    monkeypatch.setattr(Records, "reclaim", broken.reclaim_too_much)

    with pytest.raises(AssertionError):
        PropertyTests().test_one_long_history(MemoryHarness())
