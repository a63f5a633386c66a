"""The suite's own power cuts and kills notice what is wrong with a storage that keeps files."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.broken_storages import JournalBreach, journal_fails
from conformance.journal_storage import JournalHarness
from gapless_testing.storage.crashes import CrashTests
from gapless_testing.storage.failures import FailureTests
from gapless_testing.storage.powercuts import PowerTests as Suite

BREACHES = [
    JournalBreach("no sync", CrashTests.test_what_was_synced_is_there, {"unsynced": 0}, "1 to 10 .* found are none"),
    JournalBreach("no sync", Suite.test_no_sync_is_forgotten),
    JournalBreach("every second sync", Suite.test_no_sync_is_forgotten, {}, "sync.. had returned for batches 1 to"),
    JournalBreach("sync of another file", CrashTests.test_what_was_synced_is_there, {"unsynced": 0}),
    JournalBreach("half a sync", Suite.test_no_sync_is_forgotten),
    JournalBreach("two transactions", Suite.test_no_kill_leaves_a_part_of_a_batch, {}, "batches' (records|rows)"),
    JournalBreach("dirty rows", Suite.test_a_write_does_not_wait_for_a_sync, {}, "while a sync was running"),
    JournalBreach("write waits", Suite.test_a_write_does_not_wait_for_a_sync, {}, "while a sync .* after 5 s"),
    JournalBreach("lock in the process", Suite.test_another_process_cannot_have_it, {}, "VolumeLockedError"),
    JournalBreach("lock file", Suite.test_a_killed_process_lets_go_of_it, {}, "is in use"),
    JournalBreach("no close of the lock", Suite.test_closing_keeps_the_lock_until_it_has_synced),
    JournalBreach(
        "directory not synced", Suite.test_the_names_of_its_files_are_synced_too, {}, "directory was not synced"
    ),
    JournalBreach("torn tail stays", Suite.test_no_kill_leaves_a_part_of_a_batch),
    JournalBreach("opening not synced", Suite.test_what_an_opening_shows_stays),
    JournalBreach("close not synced", Suite.test_a_power_cut_after_closing_takes_nothing, {}, "after close"),
    JournalBreach("reclaim in place", Suite.test_reclaim_undoes_no_sync, {}, "reclaim"),
    JournalBreach("reclaim by rename", Suite.test_reclaim_undoes_no_sync, {}, "reclaim"),
    JournalBreach("sync error swallowed", FailureTests.test_a_failed_sync_is_final),
    JournalBreach("failure forgotten", FailureTests.test_a_failed_sync_is_final),
    JournalBreach("write error swallowed", FailureTests.test_a_full_disk_says_so),
    JournalBreach("full is failed", FailureTests.test_a_full_disk_says_so),
]


@pytest.mark.parametrize("breach", BREACHES, ids=str)
def test_a_breach_is_noticed(breach: JournalBreach, tmp_path: Path) -> None:
    breach.check(tmp_path)


@pytest.mark.parametrize("test", {breach.test: None for breach in BREACHES}, ids=lambda test: test.__name__)
def test_a_storage_without_fault_passes(test: object, tmp_path: Path) -> None:
    arguments = next(breach.arguments for breach in BREACHES if breach.test is test)

    assert callable(test)
    assert journal_fails(test, JournalHarness(tmp_path / "volumes"), **arguments) == ""
