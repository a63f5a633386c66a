from __future__ import annotations

import pytest

from gapless.selectors.columns import ColumnBatch
from gapless.selectors.compile import MaskCompiler
from gapless.selectors.group import FEW_MAX, Bucket, Entry, Filed
from gapless.selectors.selector import Selector

COMPILER = MaskCompiler()


def entry(expression: str) -> Entry:
    return Entry((expression,), COMPILER.acquire(Selector(expression).normal))


def test_an_entry_has_its_keys_in_the_order_in_which_they_came() -> None:
    one = Entry(("a",), None)
    seen = []
    for key in (7, 3, 5):
        one.add(key)
        seen.append(list(one.keys))
    for key in (3, 7, 5):
        one.remove(key)
        seen.append(list(one.keys))
    one.add(9)
    seen.append(list(one.keys))

    assert seen == [[7], [7, 3], [7, 3, 5], [7, 5], [5], [], [9]]


def test_an_entry_whose_only_key_went_takes_another() -> None:
    one = Entry(("a",), None)
    one.add(7)
    one.remove(7)
    assert not one.keys

    one.add(8)
    assert list(one.keys) == [8]


@pytest.mark.parametrize("count", [FEW_MAX, FEW_MAX + 1, 40])
def test_few_and_many_find_the_same(count: int) -> None:
    entries = [entry(f"a > {n}") for n in range(count)]
    bucket = Bucket()
    for one in entries:
        bucket.add(Filed(one, one.node))
    bucket.remove(entries[2])
    batch = ColumnBatch([{"a": 0}, {"a": 2}, {"a": 4}], [{}] * 3)
    found: dict[Entry, int] = {}
    finds = bucket.match(batch, 0b110, found)
    alone: list[Entry] = []
    bucket.find({"a": 4}, {}, alone)

    assert found == {entries[0]: 0b110, entries[1]: 0b110, entries[3]: 0b100}
    assert finds == 5
    assert set(alone) == {entries[0], entries[1], entries[3]}
    assert len(bucket) == count - 1


def test_one_event_of_a_batch_is_asked_about_alone() -> None:
    """A mask would be of the whole batch; both say the same."""
    one = entry("a > 1 AND JMSPriority = 7 OR b")
    bucket = Bucket()
    bucket.add(Filed(one, one.node))
    batch = ColumnBatch([{"a": 2}, {"a": 2}, {"b": True}], [{"JMSPriority": 7}, {}, {}])
    alone = []
    for mask in (1, 2, 4):
        found: dict[Entry, int] = {}
        bucket.match(batch, mask, found)
        alone.append(found.get(one, 0))
    together: dict[Entry, int] = {}
    bucket.match(batch, 7, together)

    assert alone == [1, 0, 4]
    assert together == {one: 0b101}
