"""The suite's tests of whole volumes notice each broken promise."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from conformance import broken_storages as broken
from conformance.broken_storages import Patch, notices, replaced
from gapless.spi import VolumeIdentity
from gapless.testing.storage.volumes import VolumeTests as Suite
from gapless_storage._memory import Log
from gapless_storage.memory import MemoryDisk, MemoryStream, MemoryVolume

BREACHES: list[tuple[Patch, Callable[..., object], dict[str, object]]] = [
    (replaced(MemoryStream, "put", broken.put_at_once), Suite.test_one_write_shows_all_of_a_batch, {}),
    (replaced(MemoryDisk, "open", broken.open_for_all), Suite.test_two_cannot_have_it, {}),
    (replaced(MemoryDisk, "open", broken.open_for_strangers), Suite.test_a_stranger_cannot_have_it, {"stranger": VolumeIdentity("", "other")}),
    (replaced(MemoryDisk, "open", broken.open_for_strangers), Suite.test_what_is_not_asked_is_not_checked, {"network": "", "node": ""}),
    (replaced(MemoryDisk, "open", broken.open_created), Suite.test_only_the_first_opening_creates, {}),
    (replaced(MemoryVolume, "close", broken.close_without_sync), Suite.test_closing_keeps_what_was_written, {}),
    (replaced(MemoryVolume, "close", broken.close_and_write), Suite.test_closing_drops_what_was_only_staged, {}),
    (replaced(MemoryDisk, "owned_by", broken.owned_by_anyone), Suite.test_a_closed_volume_takes_nothing, {}),
    (replaced(Log, "chop", broken.chop_and_forget_last), Suite.test_first_and_last_outlive_records_and_closings, {}),
    (replaced(MemoryVolume, "stream", broken.one_stream), Suite.test_names_keep_their_contents, {}),
    (lambda patch: patch.setattr(MemoryStream, "size", property(lambda _: 7)), Suite.test_size_is_known_after_reopening, {}),
    (lambda patch: patch.setattr(MemoryVolume, "free_bytes", property(lambda _: -1)), Suite.test_free_bytes, {}),
    (replaced(Log, "reclaim", broken.reclaim_too_much), Suite.test_reclaim_keeps_what_is_live, {}),
    (replaced(Log, "reclaim", broken.reclaim_nothing), Suite.test_reclaim_keeps_what_is_live, {}),
    (replaced(Log, "reclaim", broken.reclaim_too_much), Suite.test_reclaiming_again_and_again, {}),
    (replaced(MemoryVolume, "reclaim", lambda _: 7), Suite.test_nothing_staged_is_nothing_to_do, {}),
    (replaced(MemoryVolume, "identity", property(lambda _: None, lambda *_: None)), Suite.test_it_is_a_volume, {}),
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
