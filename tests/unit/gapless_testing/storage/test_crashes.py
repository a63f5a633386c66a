"""The suite's tests of power cuts notice each broken promise."""

from __future__ import annotations

import pytest

from conformance import broken_storages as broken
from conformance.broken_storages import Breach, notices
from gapless_storage._memory import Records
from gapless_storage.memory import MemoryDisk, MemoryVolume
from gapless_testing.storage.crashes import CrashTests as Suite

BREACHES = [
    Breach(MemoryDisk, "crash", broken.crash_losing_one, Suite.test_what_was_synced_is_there, {"unsynced": 0}),
    Breach(MemoryDisk, "crash", broken.crash_losing_one, Suite.test_it_goes_on_where_it_ended),
    Breach(MemoryDisk, "crash", broken.crash_losing_one, Suite.test_closing_syncs),
    Breach(MemoryDisk, "crash", broken.crash_keeping_half, Suite.test_what_was_synced_is_there, {"unsynced": 2}),
    Breach(MemoryDisk, "crash", broken.crash_keeping_half, Suite.test_large_batches_are_whole_or_absent),
    Breach(MemoryDisk, "crash", broken.crash_with_staged, Suite.test_what_was_only_staged_is_not_there),
    Breach(MemoryVolume, "close", broken.close_without_sync, Suite.test_closing_syncs),
    Breach(MemoryVolume, "sync", broken.sync_too_little, Suite.test_a_synced_chop_stays),
    Breach(MemoryVolume, "sync", broken.sync_too_little, Suite.test_reclaimed_space_stays_reclaimed),
    Breach(Records, "reclaim", broken.reclaim_unsettled, Suite.test_a_chop_that_is_lost_brings_its_records_back),
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

    assert notices(Suite.test_a_crash_after_nothing_takes_nothing)
