"""The suite of storages notices what is wrong with one that keeps files: in power cuts, and between openings."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.broken_storages import JournalBreach, journal_fails
from conformance.journal_storage import JournalHarness
from gapless_testing.storage.crashes import CrashTests
from gapless_testing.storage.failures import FailureTests
from gapless_testing.storage.powercuts import PowerTests
from gapless_testing.storage.starts import StartTests
from gapless_testing.storage.volumes import VolumeTests

BREACHES = [
    JournalBreach("no sync", CrashTests.test_what_was_synced_is_there, {"unsynced": 0}, "1 to 10 .* found are none"),
    JournalBreach("no sync", PowerTests.test_no_sync_is_forgotten),
    JournalBreach(
        "every second sync", PowerTests.test_no_sync_is_forgotten, {}, "sync.. had returned for batches 1 to"
    ),
    JournalBreach("sync of another file", CrashTests.test_what_was_synced_is_there, {"unsynced": 0}),
    JournalBreach("half a sync", PowerTests.test_no_sync_is_forgotten),
    JournalBreach("two transactions", PowerTests.test_no_kill_leaves_a_part_of_a_batch, {}, "batches' (records|rows)"),
    JournalBreach("dirty rows", PowerTests.test_a_write_does_not_wait_for_a_sync, {}, "while a sync was running"),
    JournalBreach("write waits", PowerTests.test_a_write_does_not_wait_for_a_sync, {}, "while a sync .* after 5 s"),
    JournalBreach("lock in the process", PowerTests.test_another_process_cannot_have_it, {}, "VolumeLockedError"),
    JournalBreach("lock file", PowerTests.test_a_killed_process_lets_go_of_it, {}, "is in use"),
    JournalBreach("no close of the lock", PowerTests.test_closing_keeps_the_lock_until_it_has_synced),
    JournalBreach(
        "directory not synced", PowerTests.test_the_names_of_its_files_are_synced_too, {}, "directory was not synced"
    ),
    JournalBreach("torn tail stays", PowerTests.test_no_kill_leaves_a_part_of_a_batch),
    JournalBreach("opening not synced", PowerTests.test_what_an_opening_shows_stays),
    JournalBreach("close not synced", PowerTests.test_a_power_cut_after_closing_takes_nothing, {}, "after close"),
    JournalBreach("reclaim in place", PowerTests.test_reclaim_undoes_no_sync, {}, "reclaim"),
    JournalBreach("reclaim by rename", PowerTests.test_reclaim_undoes_no_sync, {}, "reclaim"),
    JournalBreach("sync error swallowed", FailureTests.test_a_failed_sync_is_final),
    JournalBreach("failure forgotten", FailureTests.test_a_failed_sync_is_final),
    JournalBreach("write error swallowed", FailureTests.test_a_full_disk_says_so),
    JournalBreach("full is failed", FailureTests.test_a_full_disk_says_so),
    JournalBreach("index of 32 bits", StartTests.test_indexes_outlive_closing, {}, "missing 4294967296"),
    JournalBreach(
        "last of what is there", StartTests.test_the_end_of_a_stream_outlives_its_records, {}, "after a reopening"
    ),
    JournalBreach("size since opening", StartTests.test_sizes_outlive_closing, {}, "sizes before and after"),
    JournalBreach(
        "record of 16 MiB", StartTests.test_the_largest_record_outlives_closing, {}, "67109888 bytes is one of 16777216"
    ),
    JournalBreach("key of 511 bytes", StartTests.test_long_names_and_keys_outlive_closing, {}, "0 of 4 are there"),
    JournalBreach("name of 255 bytes", StartTests.test_long_names_and_keys_outlive_closing),
    JournalBreach("deletes are lost", StartTests.test_rows_outlive_closing, {}, "not expected"),
    JournalBreach("empty is nothing", StartTests.test_rows_outlive_closing, {}, "missing .b.empty"),
    JournalBreach("puts before deletes", StartTests.test_rows_outlive_closing, {}, "missing"),
    JournalBreach(
        "engine's error", StartTests.test_a_damaged_file_is_a_storage_error, {"damage": "garbled"}, "no StorageError"
    ),
    JournalBreach("garbage is new", StartTests.test_somebody_elses_files_are_no_volume, {}, "opened as a new volume"),
    JournalBreach("no checksum", FailureTests.test_a_spoilt_record_is_never_left_out, {"where": 0}),
    JournalBreach(
        "checksum of 64 bytes", FailureTests.test_a_spoilt_record_is_never_left_out, {"where": 69}, "one bit"
    ),
    JournalBreach("given up in memory", FailureTests.test_what_was_given_up_stays_a_hole),
    JournalBreach("chop in memory", VolumeTests.test_first_and_last_outlive_records_and_closings),
    JournalBreach("reclaim drops", VolumeTests.test_reclaim_leaves_what_is_staged),
]


@pytest.mark.parametrize("breach", BREACHES, ids=str)
def test_a_breach_is_noticed(breach: JournalBreach, tmp_path: Path) -> None:
    breach.check(tmp_path)


@pytest.mark.parametrize("test", {breach.test: None for breach in BREACHES}, ids=lambda test: test.__name__)
def test_a_storage_without_fault_passes(test: object, tmp_path: Path) -> None:
    arguments = next(breach.arguments for breach in BREACHES if breach.test is test)

    assert callable(test)
    assert journal_fails(test, JournalHarness(tmp_path / "volumes"), **arguments) == ""
