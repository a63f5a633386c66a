"""The suite's tests of whole volumes notice each broken promise."""

from __future__ import annotations

import pytest

from conformance import broken_storages as broken
from conformance.broken_storages import Breach
from gapless_storage._memory import Records
from gapless_storage.memory import MemoryDisk, MemoryStream, MemoryVolume
from gapless_testing.storage.volumes import VolumeTests as Suite

BREACHES = [
    Breach(MemoryStream, "put", broken.put_at_once, Suite.test_one_write_shows_all_of_a_batch),
    Breach(MemoryDisk, "open", broken.open_for_all, Suite.test_two_cannot_have_it),
    Breach(
        MemoryDisk,
        "open",
        broken.open_for_strangers,
        Suite.test_a_stranger_cannot_have_it,
    ),
    Breach(
        MemoryDisk,
        "open",
        broken.open_for_strangers,
        Suite.test_what_is_not_asked_is_not_checked,
    ),
    Breach(MemoryDisk, "open", broken.open_created, Suite.test_only_the_first_opening_creates),
    Breach(MemoryVolume, "close", broken.close_without_sync, Suite.test_closing_keeps_what_was_written),
    Breach(MemoryVolume, "close", broken.close_and_write, Suite.test_closing_drops_what_was_only_staged),
    Breach(MemoryDisk, "owned_by", broken.owned_by_anyone, Suite.test_a_closed_volume_takes_nothing),
    Breach(Records, "chop", broken.chop_and_forget_last, Suite.test_first_and_last_outlive_records_and_closings),
    Breach(MemoryVolume, "stream", broken.one_stream, Suite.test_names_keep_their_contents),
    Breach(MemoryStream, "size", property(lambda _: 7), Suite.test_size_is_known_after_reopening),
    Breach(MemoryVolume, "free_bytes", property(lambda _: -1), Suite.test_free_bytes),
    Breach(Records, "reclaim", broken.reclaim_too_much, Suite.test_reclaim_keeps_what_is_live),
    Breach(Records, "reclaim", broken.reclaim_nothing, Suite.test_reclaim_keeps_what_is_live),
    Breach(Records, "reclaim", broken.reclaim_too_much, Suite.test_reclaiming_again_and_again),
    Breach(MemoryVolume, "reclaim", lambda _: 7, Suite.test_nothing_staged_is_nothing_to_do),
    Breach(MemoryVolume, "identity", property(lambda _: None, lambda *_: None), Suite.test_it_is_a_volume),
]


@pytest.mark.parametrize("breach", BREACHES, ids=str)
def test_a_breach_is_noticed(monkeypatch: pytest.MonkeyPatch, breach: Breach) -> None:
    breach.check(monkeypatch)
