"""The suite's tests of threads notice what two threads can break."""

from __future__ import annotations

import pytest

from conformance import broken_storages as broken
from conformance.broken_storages import notices
from gapless_storage._memory import Records
from gapless_storage.memory import MemoryVolume
from gapless_testing.storage.threads import ThreadTests as Suite
from gapless_testing.storage.threads import in_threads


def test_what_a_thread_raises_is_raised() -> None:
    def fail() -> None:
        raise RuntimeError("in the thread")

    with pytest.raises(RuntimeError, match="in the thread"), in_threads(fail, lambda: None):
        pass


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_sync_that_covers_too_little_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not notices(Suite.test_what_a_sync_returned_for_is_durable)

    def sync_nothing(volume: MemoryVolume, upto: int | None = None) -> None:
        volume._raise_if_failed()

    monkeypatch.setattr(MemoryVolume, "sync", sync_nothing)

    assert notices(Suite.test_what_a_sync_returned_for_is_durable)


def test_a_reclaim_that_takes_too_much_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not notices(Suite.test_reclaim_beside_writes_and_syncs)

    monkeypatch.setattr(Records, "reclaim", broken.reclaim_too_much)

    assert notices(Suite.test_reclaim_beside_writes_and_syncs)


def test_a_sync_beside_a_sync_that_is_not_allowed_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not notices(Suite.test_two_threads_sync_while_one_writes)
    sync = MemoryVolume.sync
    inside: list[int] = []

    def sync_alone(volume: MemoryVolume, upto: int | None = None) -> None:
        assert inside == []
        inside.append(1)
        for _ in range(100):  # long enough for the other thread to come
            sync(volume, upto)
        inside.pop()

    monkeypatch.setattr(MemoryVolume, "sync", sync_alone)

    assert notices(Suite.test_two_threads_sync_while_one_writes)


def test_a_close_that_does_not_end_syncs_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not notices(Suite.test_closing_waits_for_a_sync)

    monkeypatch.setattr(MemoryVolume, "close", broken.close_without_sync)

    assert notices(Suite.test_closing_waits_for_a_sync)
