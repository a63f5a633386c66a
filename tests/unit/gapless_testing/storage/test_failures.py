"""The suite's tests of failures notice each broken promise."""

from __future__ import annotations

import pytest

from conformance import broken_storages as broken
from conformance.broken_storages import Breach, notices
from gapless_storage.memory import MemoryDisk, MemoryStream, MemoryVolume
from gapless_testing.storage.failures import FailureTests as Suite

BREACHES = [
    Breach(MemoryVolume, "_raise_if_failed", broken.forgiving, Suite.test_a_failed_sync_is_final),
    Breach(MemoryVolume, "stream", broken.read_only_when_well, Suite.test_reads_go_on_after_a_failure),
    Breach(MemoryVolume, "close", broken.close_raising, Suite.test_a_failed_volume_closes_and_opens_again),
    Breach(MemoryVolume, "close", lambda _: None, Suite.test_a_failed_volume_closes_and_opens_again),
    Breach(MemoryVolume, "close", lambda _: None, Suite.test_it_can_fail_again_and_again),
    Breach(MemoryDisk, "write", broken.write_failing_plainly, Suite.test_a_full_disk_says_so),
    Breach(MemoryStream, "read", broken.read_leaving_out, Suite.test_a_spoilt_record_is_never_left_out, {"where": 0}),
    Breach(MemoryStream, "read", broken.read_ending_early, Suite.test_a_spoilt_record_is_never_left_out, {"where": 0}),
    Breach(MemoryVolume, "close", lambda _: None, Suite.test_a_spoilt_record_does_not_keep_a_volume_open),
]


@pytest.mark.parametrize("breach", BREACHES, ids=str)
def test_a_breach_is_noticed(monkeypatch: pytest.MonkeyPatch, breach: Breach) -> None:
    breach.check(monkeypatch)


def test_a_failure_that_spreads_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    volumes = []

    def raise_if_any_failed(volume: MemoryVolume) -> None:
        volumes.append(volume)
        for other in volumes:
            if other._failure is not None:
                raise other._failure

    monkeypatch.setattr(MemoryVolume, "_raise_if_failed", raise_if_any_failed)

    assert notices(Suite.test_a_failure_concerns_no_other_volume)
