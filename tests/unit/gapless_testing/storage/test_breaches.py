"""The suite of storages notices each broken promise."""

from __future__ import annotations

import pytest

from conformance import broken_storages as broken
from conformance.broken_storages import Breach, notices
from gapless_storage._memory import Records, Rows
from gapless_storage.memory import MemoryDisk, MemoryStream, MemoryTable, MemoryVolume
from gapless_testing.storage.crashes import CrashTests
from gapless_testing.storage.failures import FailureTests
from gapless_testing.storage.streams import StreamTests
from gapless_testing.storage.tables import TableTests
from gapless_testing.storage.volumes import VolumeTests

BREACHES = [
    Breach(MemoryDisk, "crash", broken.crash_losing_one, CrashTests.test_what_was_synced_is_there, {"unsynced": 0}),
    Breach(MemoryDisk, "crash", broken.crash_losing_one, CrashTests.test_it_goes_on_where_it_ended),
    Breach(MemoryDisk, "crash", broken.crash_losing_one, CrashTests.test_closing_syncs),
    Breach(MemoryDisk, "crash", broken.crash_keeping_half, CrashTests.test_what_was_synced_is_there, {"unsynced": 2}),
    Breach(MemoryDisk, "crash", broken.crash_keeping_half, CrashTests.test_large_batches_are_whole_or_absent),
    Breach(MemoryDisk, "crash", broken.crash_with_staged, CrashTests.test_what_was_only_staged_is_not_there),
    Breach(MemoryVolume, "close", broken.close_without_sync, CrashTests.test_closing_syncs),
    Breach(MemoryVolume, "sync", broken.sync_too_little, CrashTests.test_a_synced_chop_stays),
    Breach(MemoryVolume, "sync", broken.sync_too_little, CrashTests.test_reclaimed_space_stays_reclaimed),
    Breach(Records, "reclaim", broken.reclaim_unsettled, CrashTests.test_a_chop_that_is_lost_brings_its_records_back),
    Breach(MemoryVolume, "_raise_if_failed", broken.forgiving, FailureTests.test_a_failed_sync_is_final),
    Breach(MemoryVolume, "stream", broken.read_only_when_well, FailureTests.test_reads_go_on_after_a_failure),
    Breach(MemoryVolume, "close", broken.close_raising, FailureTests.test_a_failed_volume_closes_and_opens_again),
    Breach(MemoryVolume, "close", lambda _: None, FailureTests.test_a_failed_volume_closes_and_opens_again),
    Breach(MemoryVolume, "close", lambda _: None, FailureTests.test_it_can_fail_again_and_again),
    Breach(MemoryDisk, "write", broken.write_failing_plainly, FailureTests.test_a_full_disk_says_so),
    Breach(
        MemoryStream, "read", broken.read_leaving_out, FailureTests.test_a_spoilt_record_is_never_left_out, {"where": 0}
    ),
    Breach(
        MemoryStream,
        "read",
        broken.read_ending_early,
        FailureTests.test_a_spoilt_record_is_never_left_out,
        {"where": 0},
    ),
    Breach(MemoryVolume, "close", lambda _: None, FailureTests.test_a_spoilt_record_does_not_keep_a_volume_open),
    Breach(MemoryStream, "put", broken.put_at_once, StreamTests.test_a_record_is_seen_once_it_is_written),
    Breach(MemoryStream, "put", broken.put_anything, StreamTests.test_an_index_that_does_not_increase_is_refused),
    Breach(MemoryStream, "put", broken.put_anything, StreamTests.test_an_index_out_of_bounds_is_refused),
    Breach(MemoryStream, "put", broken.put_with_last_of_yesterday, StreamTests.test_last_counts_what_is_staged),
    Breach(
        MemoryStream,
        "put",
        broken.put_with_last_of_yesterday,
        StreamTests.test_an_index_that_does_not_increase_is_refused,
    ),
    Breach(Records, "put", broken.put_truncated, StreamTests.test_a_record_comes_back_as_it_was, {"size": 100_000}),
    Breach(Records, "read", broken.read_exclusive, StreamTests.test_a_read_returns_what_overlaps),
    Breach(Records, "read", broken.read_inclusive, StreamTests.test_a_read_returns_what_overlaps),
    Breach(MemoryStream, "read", broken.read_beyond, StreamTests.test_a_read_returns_what_overlaps),
    Breach(Records, "read", broken.read_all, StreamTests.test_a_read_ends_once_max_bytes_are_reached),
    Breach(Records, "read", broken.read_at_most, StreamTests.test_a_read_ends_once_max_bytes_are_reached),
    Breach(MemoryStream, "chop", broken.chop_at_once, StreamTests.test_a_chop_takes_effect_once_it_is_written),
    Breach(MemoryStream, "chop", broken.chop_beyond, StreamTests.test_a_chop_ends_at_the_last_record),
    Breach(MemoryStream, "chop", broken.chop_beyond, StreamTests.test_chopping_an_empty_stream_does_nothing),
    Breach(Records, "chop", broken.chop_back, StreamTests.test_a_chop_never_goes_back),
    Breach(Records, "chop", lambda *_: None, StreamTests.test_a_chop_may_fall_between_records),
    Breach(Records, "chop", lambda *_: None, StreamTests.test_a_record_and_its_chop_in_one_batch),
    Breach(Records, "chop", lambda *_: None, StreamTests.test_size_follows_puts_and_chops),
    Breach(MemoryStream, "last", broken.last_of_what_is_there, StreamTests.test_last_outlives_the_record),
    Breach(MemoryVolume, "stream", broken.one_stream, StreamTests.test_streams_do_not_mix),
    Breach(MemoryVolume, "stream", broken.new_stream, StreamTests.test_one_name_is_one_object),
    Breach(MemoryTable, "put", broken.put_row_at_once, TableTests.test_a_row_is_seen_once_it_is_written),
    Breach(MemoryTable, "delete", broken.delete_nothing, TableTests.test_a_row_is_gone_once_that_is_written),
    Breach(MemoryTable, "delete", broken.delete_what_is_there, TableTests.test_the_last_word_of_a_batch_counts),
    Breach(MemoryTable, "get", broken.get_without_empty, TableTests.test_a_value_is_replaced),
    Breach(Rows, "scan", broken.scan_unsorted, TableTests.test_keys_come_in_order),
    Breach(Rows, "scan", broken.scan_everything, TableTests.test_a_scan_keeps_to_its_prefix),
    Breach(Rows, "scan", broken.scan_to_a_bound, TableTests.test_a_scan_keeps_to_its_prefix),
    Breach(MemoryTable, "scan", broken.scan_live, TableTests.test_a_scan_shows_the_table_as_of_the_call),
    Breach(MemoryVolume, "table", broken.one_table, TableTests.test_tables_do_not_mix),
    Breach(MemoryVolume, "table", broken.one_table, TableTests.test_one_name_is_one_object),
    Breach(Rows, "scan", lambda self, _: sorted(self.values.items())[:1000], TableTests.test_many_and_large_rows),
    Breach(MemoryStream, "put", broken.put_at_once, VolumeTests.test_one_write_shows_all_of_a_batch),
    Breach(MemoryDisk, "open", broken.open_for_all, VolumeTests.test_two_cannot_have_it),
    Breach(MemoryDisk, "open", broken.open_for_strangers, VolumeTests.test_a_stranger_cannot_have_it),
    Breach(MemoryDisk, "open", broken.open_for_strangers, VolumeTests.test_what_is_not_asked_is_not_checked),
    Breach(MemoryDisk, "open", broken.open_created, VolumeTests.test_only_the_first_opening_creates),
    Breach(MemoryVolume, "close", broken.close_without_sync, VolumeTests.test_closing_keeps_what_was_written),
    Breach(MemoryVolume, "close", broken.close_and_write, VolumeTests.test_closing_drops_what_was_only_staged),
    Breach(MemoryDisk, "owned_by", broken.owned_by_anyone, VolumeTests.test_a_closed_volume_takes_nothing),
    Breach(Records, "chop", broken.chop_and_forget_last, VolumeTests.test_first_and_last_outlive_records_and_closings),
    Breach(MemoryVolume, "stream", broken.one_stream, VolumeTests.test_names_keep_their_contents),
    Breach(MemoryStream, "size", property(lambda _: 7), VolumeTests.test_size_is_known_after_reopening),
    Breach(MemoryVolume, "free_bytes", property(lambda _: -1), VolumeTests.test_free_bytes),
    Breach(Records, "reclaim", broken.reclaim_too_much, VolumeTests.test_reclaim_keeps_what_is_live),
    Breach(Records, "reclaim", broken.reclaim_nothing, VolumeTests.test_reclaim_keeps_what_is_live),
    Breach(Records, "reclaim", broken.reclaim_too_much, VolumeTests.test_reclaiming_again_and_again),
    Breach(MemoryVolume, "reclaim", lambda _: 7, VolumeTests.test_nothing_staged_is_nothing_to_do),
    Breach(MemoryVolume, "identity", property(lambda _: None, lambda *_: None), VolumeTests.test_it_is_a_volume),
]


@pytest.mark.parametrize("breach", BREACHES, ids=str)
def test_a_breach_is_noticed(monkeypatch: pytest.MonkeyPatch, breach: Breach) -> None:
    breach.check(monkeypatch)


def test_what_an_opening_showed_must_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that keeps what was unsynced through one crash, and loses it in the next."""
    crash, calls = MemoryDisk.crash, []

    def crash_late(disk: MemoryDisk, keep: int = 0) -> None:
        calls.append(disk)
        crash(disk, keep=99 if len(calls) == 1 else 0)

    monkeypatch.setattr(MemoryDisk, "crash", crash_late)
    monkeypatch.setattr(MemoryDisk, "_settle", lambda *_: None)

    assert notices(CrashTests.test_a_crash_after_nothing_takes_nothing)


def test_a_failure_that_spreads_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    volumes = []

    def raise_if_any_failed(volume: MemoryVolume) -> None:
        volumes.append(volume)
        for other in volumes:
            if other._failure is not None:
                raise other._failure

    monkeypatch.setattr(MemoryVolume, "_raise_if_failed", raise_if_any_failed)

    assert notices(FailureTests.test_a_failure_concerns_no_other_volume)
