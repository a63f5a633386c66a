"""The suite's tests of streams notice each broken promise."""

from __future__ import annotations

import pytest

from conformance import broken_storages as broken
from conformance.broken_storages import Breach
from gapless_storage._memory import Records
from gapless_storage.memory import MemoryStream, MemoryVolume
from gapless_testing.storage.streams import StreamTests as Suite

INDEX_MAX = 2**63 - 1

BREACHES = [
    Breach(MemoryStream, "put", broken.put_at_once, Suite.test_a_record_is_seen_once_it_is_written),
    Breach(
        MemoryStream,
        "put",
        broken.put_anything,
        Suite.test_an_index_that_does_not_increase_is_refused,
    ),
    Breach(
        MemoryStream,
        "put",
        broken.put_anything,
        Suite.test_an_index_out_of_bounds_is_refused,
    ),
    Breach(MemoryStream, "put", broken.put_with_last_of_yesterday, Suite.test_last_counts_what_is_staged),
    Breach(
        MemoryStream,
        "put",
        broken.put_with_last_of_yesterday,
        Suite.test_an_index_that_does_not_increase_is_refused,
    ),
    Breach(Records, "put", broken.put_truncated, Suite.test_a_record_comes_back_as_it_was, {"size": 100_000}),
    Breach(
        Records,
        "read",
        broken.read_exclusive,
        Suite.test_a_read_returns_what_overlaps,
    ),
    Breach(
        Records,
        "read",
        broken.read_inclusive,
        Suite.test_a_read_returns_what_overlaps,
    ),
    Breach(
        MemoryStream,
        "read",
        broken.read_beyond,
        Suite.test_a_read_returns_what_overlaps,
    ),
    Breach(
        Records,
        "read",
        broken.read_all,
        Suite.test_a_read_ends_once_max_bytes_are_reached,
    ),
    Breach(
        Records,
        "read",
        broken.read_at_most,
        Suite.test_a_read_ends_once_max_bytes_are_reached,
    ),
    Breach(MemoryStream, "chop", broken.chop_at_once, Suite.test_a_chop_takes_effect_once_it_is_written),
    Breach(
        MemoryStream,
        "chop",
        broken.chop_beyond,
        Suite.test_a_chop_ends_at_the_last_record,
    ),
    Breach(MemoryStream, "chop", broken.chop_beyond, Suite.test_chopping_an_empty_stream_does_nothing),
    Breach(Records, "chop", broken.chop_back, Suite.test_a_chop_never_goes_back),
    Breach(Records, "chop", lambda *_: None, Suite.test_a_chop_may_fall_between_records),
    Breach(Records, "chop", lambda *_: None, Suite.test_a_record_and_its_chop_in_one_batch),
    Breach(Records, "chop", lambda *_: None, Suite.test_size_follows_puts_and_chops),
    Breach(MemoryStream, "last", broken.last_of_what_is_there, Suite.test_last_outlives_the_record),
    Breach(MemoryVolume, "stream", broken.one_stream, Suite.test_streams_do_not_mix),
    Breach(MemoryVolume, "stream", broken.new_stream, Suite.test_one_name_is_one_object),
]


@pytest.mark.parametrize("breach", BREACHES, ids=str)
def test_a_breach_is_noticed(monkeypatch: pytest.MonkeyPatch, breach: Breach) -> None:
    breach.check(monkeypatch)
