"""The suite's tests of streams notice each broken promise."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from conformance import broken_storages as broken
from conformance.broken_storages import Patch, notices, replaced
from gapless.testing.storage.streams import StreamTests as Suite
from gapless_storage._memory import Log
from gapless_storage.memory import MemoryStream

INDEX_MAX = 2**63 - 1

BREACHES: list[tuple[Patch, Callable[..., object], dict[str, object]]] = [
    (replaced(MemoryStream, "put", broken.put_at_once), Suite.test_a_record_is_seen_once_it_is_written, {}),
    (replaced(MemoryStream, "put", broken.put_anything), Suite.test_an_index_that_does_not_increase_is_refused, {"index": 7}),
    (replaced(MemoryStream, "put", broken.put_anything), Suite.test_an_index_out_of_bounds_is_refused, {"index": INDEX_MAX + 1}),
    (replaced(MemoryStream, "put", broken.put_with_last_of_yesterday), Suite.test_last_counts_what_is_staged, {}),
    (replaced(MemoryStream, "put", broken.put_with_last_of_yesterday), Suite.test_an_index_that_does_not_increase_is_refused, {"index": 6}),
    (replaced(Log, "put", broken.put_truncated), Suite.test_a_record_comes_back_as_it_was, {"size": 100_000}),
    (replaced(Log, "read", broken.read_exclusive), Suite.test_a_read_returns_what_overlaps, {"after": 0, "upto": 5, "expected": [10]}),
    (replaced(Log, "read", broken.read_inclusive), Suite.test_a_read_returns_what_overlaps, {"after": 10, "upto": 20, "expected": [20]}),
    (replaced(MemoryStream, "read", broken.read_beyond), Suite.test_a_read_returns_what_overlaps, {"after": 10, "upto": 10, "expected": []}),
    (replaced(Log, "read", broken.read_all), Suite.test_a_read_ends_once_max_bytes_are_reached, {"max_bytes": 200, "count": 2}),
    (replaced(Log, "read", broken.read_at_most), Suite.test_a_read_ends_once_max_bytes_are_reached, {"max_bytes": 1, "count": 1}),
    (replaced(Log, "read", broken.read_at_most), Suite.test_a_read_goes_on_where_the_last_one_ended, {}),
    (replaced(MemoryStream, "chop", broken.chop_at_once), Suite.test_a_chop_takes_effect_once_it_is_written, {}),
    (replaced(MemoryStream, "chop", broken.chop_beyond), Suite.test_a_chop_ends_at_the_last_record, {"upto": 1000}),
    (replaced(MemoryStream, "chop", broken.chop_beyond), Suite.test_chopping_an_empty_stream_does_nothing, {}),
    (replaced(Log, "chop", broken.chop_back), Suite.test_a_chop_never_goes_back, {}),
    (replaced(Log, "chop", lambda *_: None), Suite.test_a_chop_may_fall_between_records, {"upto": 15, "expected": [20]}),
    (replaced(Log, "chop", lambda *_: None), Suite.test_a_record_and_its_chop_in_one_batch, {}),
    (replaced(Log, "chop", lambda *_: None), Suite.test_size_follows_puts_and_chops, {}),
    (replaced(MemoryStream, "last", property(lambda self: self._log._indexes and self._log.last or 0, lambda self, value: None)), Suite.test_last_outlives_the_record, {}),
    (replaced(broken.MemoryVolume, "stream", broken.one_stream), Suite.test_streams_do_not_mix, {}),
    (replaced(broken.MemoryVolume, "_streams", property(lambda self: {}, lambda self, value: None)), Suite.test_one_name_is_one_object, {}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("breach", "test", "arguments"), BREACHES, ids=[f"{number}-{test.__name__}" for number, (_, test, _) in enumerate(BREACHES)]
)
def test_a_breach_is_noticed(
    monkeypatch: pytest.MonkeyPatch, breach: Patch, test: Callable[..., object], arguments: dict[str, object]
) -> None:
    assert not notices(test, **arguments)

    breach(monkeypatch)

    assert notices(test, **arguments)
