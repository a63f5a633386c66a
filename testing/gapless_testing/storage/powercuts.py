"""What a volume promises when it is killed or its power is cut, seen from outside: in another process, call by call.

`crashes` has what an author's own `StorageHarness.crash` can show as well; this is what only the shim can.
"""

# ruff: noqa: D102 — a test says with its name what it claims
from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing, suppress

import pytest

from gapless.errors import VolumeLockedError
from gapless.spi import LogVolume
from gapless_testing.storage.crashes import newest_whole_batch, survived, write_batch
from gapless_testing.storage.harness import IDENTITY, StorageHarness, need_files, same
from gapless_testing.storage.power import (
    CUT_AT_SYNC,
    CUT_AT_WRITE,
    HELD,
    HOLD,
    SYNCS,
    WRITES,
    PowerFixtures,
    PowerHarness,
    another_process,
)
from gapless_testing.storage.remote import PATIENCE, ProcessEndedError, RemoteVolume

SYNCS_MOST = 12
"""A sync of the volume is cut at so many syncs of its files at most."""
WRITES_MOST = 16
"""A batch is cut at so many of its write calls."""
RECLAIMS_MOST = 3
"""A reclaim is cut at so many syncs of its files, and once after it."""


class PowerTests(PowerFixtures):
    """Needs Linux and a C compiler, and a storage that keeps files; `need_files` and `power_harness` say so."""

    def test_another_process_cannot_have_it(self, harness: StorageHarness) -> None:
        need_files(harness)
        with closing(harness.open()) as volume:
            write_batch(volume, 1)
            process = another_process(harness)
            try:
                with pytest.raises(VolumeLockedError):
                    RemoteVolume(process, "open", volume.identity)
            finally:
                process.kill()
            write_batch(volume, 2)
            volume.sync()

            assert newest_whole_batch(volume) == 2

    def test_a_killed_process_lets_go_of_it(self, harness: StorageHarness) -> None:
        """No lock of it is left, and what was synced is."""
        need_files(harness)
        process = another_process(harness)
        try:
            theirs = RemoteVolume(process, "open", IDENTITY)
            write_batch(theirs, 1)
            theirs.sync()
            write_batch(theirs, 2)
            with pytest.raises(VolumeLockedError):
                harness.open()
        finally:
            process.kill()

        with closing(harness.open()) as volume:
            survived(volume, 1, 2, "after kill -9")

    def test_no_sync_is_forgotten(self, power: PowerHarness) -> None:
        """Whenever within a sync the power is cut: what the sync before had returned for is there."""
        volume = power.open()
        synced = 0
        for at in range(1, SYNCS_MOST + 1):
            write_batch(volume, synced + 1)
            volume.sync()
            write_batch(volume, synced + 2)
            is_over = _ends(power, volume, CUT_AT_SYNC, at, volume.sync)
            power.crash(volume)
            volume = power.open()
            least = synced + (2 if is_over else 1)
            what = "after a power cut" + ("" if is_over else f" within sync(), before the {at}. sync of a file in it")
            synced = survived(volume, least, synced + 2, what)
            if is_over:
                break
        volume.close()

    def test_no_kill_leaves_a_part_of_a_batch(self, power: PowerHarness) -> None:
        """Records and rows of one `write` are there together, wherever within it the process is killed."""
        volume = power.open()
        write_batch(volume, 1)
        volume.sync()
        before = power.ask(volume, WRITES)
        write_batch(volume, 2)
        volume.sync()
        count = power.ask(volume, WRITES) - before
        if not count:
            pytest.skip("not one write call was seen in write() and sync(): the storage writes through a memory map")
        synced = 2
        for at in _spread(count, WRITES_MOST):

            def write_and_sync(volume: LogVolume = volume, number: int = synced + 1) -> None:
                write_batch(volume, number)
                volume.sync()

            is_over = _ends(power, volume, CUT_AT_WRITE, at, write_and_sync)
            power.kill(volume)
            volume = power.open()
            what = f"after kill -9 within the {at}. of about {count} write calls of a write() and its sync()"
            synced = survived(volume, synced + is_over, synced + 1, what)
        write_batch(volume, synced + 1)
        volume.close()

        with closing(power.open()) as volume:
            survived(volume, synced + 1, synced + 1, "after a batch that was written behind what a killed process left")

    def test_what_an_opening_shows_stays(self, power: PowerHarness) -> None:
        """What a killed process had written may be there, synced or not; whoever was shown it relies on it."""
        volume = power.open()
        write_batch(volume, 1)
        volume.sync()
        write_batch(volume, 2)
        power.kill(volume)
        volume = power.open()
        shown = survived(volume, 1, 2, "after kill -9")
        power.crash(volume)

        with closing(power.open()) as volume:
            survived(volume, shown, shown, f"after kill -9, an opening that showed 1 to {shown}, and a power cut")

    def test_reclaim_undoes_no_sync(self, power: PowerHarness) -> None:
        """Wherever within it the power is cut, and right after it."""
        volume = power.open()
        synced = _chopped(volume, 0)
        before = power.ask(volume, SYNCS)
        volume.reclaim()
        count = power.ask(volume, SYNCS) - before
        for at in [*_spread(count, RECLAIMS_MOST), 0]:
            synced = _chopped(volume, synced)
            is_over = _ends(power, volume, CUT_AT_SYNC, at, volume.reclaim)
            power.crash(volume)
            volume = power.open()
            where = "right after" if is_over else f"before the {at}. of about {count} syncs of files within"
            what = f"after a power cut {where} reclaim()"
            survived(volume, synced, synced, what)
            found = [index for index, _ in volume.stream("s").read(0, synced)]
            same(found, [synced - 1, synced], f"{what}, the records that were not chopped")
        volume.close()

    def test_a_power_cut_after_closing_takes_nothing(self, power: PowerHarness) -> None:
        volume = power.open()
        write_batch(volume, 1)
        volume.close()
        power.crash(volume)

        with closing(power.open()) as volume:
            survived(volume, 1, 1, "after close(), which syncs, and a power cut")

    def test_closing_keeps_the_lock_until_it_has_synced(self, power: PowerHarness, harness: StorageHarness) -> None:
        """Or the next one opens what is not all there."""
        volume = power.open()
        write_batch(volume, 1)
        power.tell(volume, HOLD, 1)
        closing_it, failures = _beside(lambda: volume.process.ask("volume", "", "close"))
        _wait_until_held(power, volume, closing_it)
        process = another_process(harness)
        try:
            with pytest.raises(VolumeLockedError):
                RemoteVolume(process, "open", IDENTITY)
        finally:
            process.kill()
            power.tell(volume, HOLD, 0)
            closing_it.join(PATIENCE)

        assert failures == []
        assert not closing_it.is_alive(), f"close() had not returned {PATIENCE:.0f} s after the disk had"

    def test_the_names_of_its_files_are_synced_too(self, power: PowerHarness) -> None:
        """A file that was made is certain to be found when its directory was synced, and not before."""
        volume = power.open()
        for number in range(1, 4):
            write_batch(volume, number)
        volume.sync()
        power.cut(volume, "synced")

        volume = power.open()
        what = (
            "after a power cut that left no name whose directory was not synced (fsync it when you make a file in it)"
        )
        survived(volume, 3, 3, what)
        volume.stream("left").chop(2)
        volume.write()
        volume.sync()
        volume.reclaim()
        volume.table("newest").put(b"other", b"x")
        volume.write()
        volume.sync()
        power.cut(volume, "synced")

        with closing(power.open()) as volume:
            assert volume.table("newest").get(b"other") == b"x", (
                f"{what}: a row that was synced after reclaim() is gone"
            )

    def test_a_write_does_not_wait_for_a_sync(self, power: PowerHarness) -> None:
        """The event loop calls `write`; and what it writes beside a sync is covered by the next one."""
        volume = power.open()
        table = volume.table("t")
        for key in (b"changed", b"deleted", b"kept"):
            table.put(key, b"old")
        write_batch(volume, 1)
        power.tell(volume, HOLD, 1)
        syncing, failures = _beside(volume.sync)
        _wait_until_held(power, volume, syncing)

        table.put(b"changed", b"new")
        table.delete(b"deleted")
        table.put(b"made", b"new")
        try:
            write_batch(volume, 2)
        except AssertionError as error:
            raise AssertionError(f"while a sync was running in another thread, {error}") from None
        assert syncing.is_alive(), "the sync has returned while what it syncs with had not"
        seen = dict(table.scan())
        power.tell(volume, HOLD, 0)
        syncing.join(PATIENCE)
        assert failures == []
        assert not syncing.is_alive(), f"sync() had not returned {PATIENCE:.0f} s after the disk had"
        volume.sync()
        power.crash(volume)

        with closing(power.open()) as volume:
            expected = {b"changed": b"new", b"kept": b"old", b"made": b"new"}
            what = "what was written while a sync was running, and synced by the next one"
            assert seen == expected, f"{what}, is not seen: {seen}, expected {expected}"
            found = dict(volume.table("t").scan())
            assert found == expected, f"after a power cut, {what}, is {found}, expected {expected}"
            survived(volume, 2, 2, f"after a power cut, {what}")


def _spread(count: int, most: int) -> list[int]:
    """Of the calls 1 to `count` so many, evenly spread."""
    return sorted({1 + place * (count - 1) // (most - 1) for place in range(most)}) if count else []


def _chopped(volume: LogVolume, after: int) -> int:
    """Eight more batches, and all records but the last two chopped; all of it synced. Returns the last one's number."""
    last = after + 8
    for number in range(after + 1, last + 1):
        volume.stream("s").put(number, bytes(20_000))
        write_batch(volume, number)
    volume.stream("s").chop(last - 2)
    volume.write()
    volume.sync()
    return last


def _ends(power: PowerHarness, volume: LogVolume, field: int, at: int, act: Callable[[], object]) -> bool:
    """Does something that is to be cut at such a call. Whether it came to its end."""
    with suppress(ProcessEndedError):
        power.tell(volume, field, at)  # a thread of the storage itself may come to such a call at once
        act()
        power.tell(volume, field, 0)
        return True
    return False


def _beside(act: Callable[[], object]) -> tuple[threading.Thread, list[BaseException]]:
    """Does something in another thread."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            act()
        except BaseException as error:  # noqa: BLE001 — the test's own thread looks at it
            failures.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, failures


def _wait_until_held(power: PowerHarness, volume: LogVolume, syncing: threading.Thread) -> None:
    tick = threading.Event()
    for _ in range(int(PATIENCE / 0.005)):
        if power.ask(volume, HELD):
            return
        assert syncing.is_alive(), "sync() has returned, and no sync of a file was seen"
        tick.wait(0.005)
    raise AssertionError(f"sync() has not come to a sync of a file within {PATIENCE:.0f} s")
