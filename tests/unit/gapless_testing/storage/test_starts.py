"""The suite's tests of openings notice what is lost or garbled between two of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.broken_storages import JournalBreach, journal_fails
from conformance.journal_storage import JournalHarness
from gapless_testing.storage.failures import FailureTests
from gapless_testing.storage.starts import StartTests as Suite
from gapless_testing.storage.volumes import VolumeTests

BREACHES = [
    JournalBreach("index of 32 bits", Suite.test_indexes_outlive_closing, {}, "missing 4294967296"),
    JournalBreach(
        "last of what is there", Suite.test_the_end_of_a_stream_outlives_its_records, {}, "after a reopening"
    ),
    JournalBreach("size since opening", Suite.test_sizes_outlive_closing, {}, "sizes before and after"),
    JournalBreach(
        "record of 16 MiB", Suite.test_the_largest_record_outlives_closing, {}, "67109888 bytes is one of 16777216"
    ),
    JournalBreach("key of 511 bytes", Suite.test_long_names_and_keys_outlive_closing, {}, "0 of 4 are there"),
    JournalBreach("name of 255 bytes", Suite.test_long_names_and_keys_outlive_closing),
    JournalBreach("deletes are lost", Suite.test_rows_outlive_closing, {}, "not expected"),
    JournalBreach("empty is nothing", Suite.test_rows_outlive_closing, {}, "missing .b.empty"),
    JournalBreach("puts before deletes", Suite.test_rows_outlive_closing, {}, "missing"),
    JournalBreach(
        "engine's error", Suite.test_a_damaged_file_is_a_storage_error, {"damage": "garbled"}, "no StorageError"
    ),
    JournalBreach("garbage is new", Suite.test_somebody_elses_files_are_no_volume, {}, "opened as a new volume"),
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
