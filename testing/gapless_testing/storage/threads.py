"""What may run beside what: `sync` beside everything and itself, `reclaim` beside everything."""

# ruff: noqa: D102 — a test says with its name what it claims
from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from gapless.errors import VolumeFailedError
from gapless.spi import LogVolume
from gapless_testing.storage.crashes import newest_whole_batch, survived, write_batch
from gapless_testing.storage.harness import StorageHarness, indexes, same
from gapless_testing.storage.power import PowerFixtures
from gapless_testing.storage.remote import PATIENCE
from gapless_testing.storage.streams import EVERYTHING

BATCHES = 150
BATCHES_MOST = 20 * BATCHES
"""A thread may have to wait for its first turn while so many are written."""


@contextmanager
def in_threads(*loops: Callable[[], object]) -> Iterator[None]:
    """Calls each again and again in a thread of its own, until the block ends. Raises what they raise."""
    done = threading.Event()
    errors: list[BaseException] = []

    def repeat(act: Callable[[], object]) -> None:
        try:
            while not done.is_set():
                act()
        except BaseException as error:  # noqa: BLE001 — handed to the test's own thread
            errors.append(error)

    threads = [threading.Thread(target=repeat, args=(act,), daemon=True) for act in loops]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join(PATIENCE)
    stuck = [act for act, thread in zip(loops, threads, strict=True) if thread.is_alive()]
    assert not stuck, f"{[getattr(act, '__name__', act) for act in stuck]} had not returned after {PATIENCE:.0f} s"
    if errors:
        raise errors[0]


class ThreadTests(PowerFixtures):
    """One thread writes and reads, others sync and reclaim."""

    def test_two_threads_sync_while_one_writes(self, volume: LogVolume) -> None:
        with in_threads(volume.sync, volume.sync):
            for number in range(1, BATCHES + 1):
                write_batch(volume, number)

        assert newest_whole_batch(volume) == BATCHES

    def test_what_a_sync_returned_for_is_durable(self, crashing: StorageHarness) -> None:
        """Whichever thread it ran in, and however many syncs overlapped."""
        harness = crashing
        volume = harness.open()
        written = 0
        durable = [0, 0]

        def syncing(thread: int) -> Callable[[], None]:
            def sync() -> None:
                before = written
                volume.sync()
                durable[thread] = before

            return sync

        with in_threads(syncing(0), syncing(1)):
            while written < BATCHES or (not all(durable) and written < BATCHES_MOST):
                write_batch(volume, written + 1)
                written += 1
        harness.crash(volume)

        with closing(harness.open()) as volume:
            survived(volume, max(durable), written, "after a power cut, with two threads that synced")

    def test_reclaim_beside_writes_and_syncs(self, volume: LogVolume) -> None:
        stream = volume.stream("s")
        with in_threads(volume.reclaim, volume.sync):
            for number in range(1, BATCHES + 1):
                stream.put(number, b"x" * 3_000)
                stream.chop(number - 20)
                write_batch(volume, number)
                first, records = stream.first, indexes(stream.read(*EVERYTHING))

                same(records, range(first + 1, number + 1), f"the records above {first}, beside reclaim() and sync()")
        volume.sync()
        volume.reclaim()

        assert newest_whole_batch(volume) == BATCHES
        assert indexes(stream.read(*EVERYTHING)) == list(range(BATCHES - 19, BATCHES + 1))

    def test_closing_waits_for_a_sync(self, harness: StorageHarness) -> None:
        """A sync in another thread returns or raises; it never finds a volume that is half gone."""
        for _ in range(10):
            volume = harness.open()
            ended, over = threading.Event(), threading.Event()
            syncer = threading.Thread(target=_sync_until_it_raises, args=(volume, ended, over), daemon=True)
            syncer.start()
            for _ in range(5):
                number = volume.stream("left").last + 1
                write_batch(volume, number)
            volume.close()
            ended.wait(PATIENCE)
            over.set()

            assert ended.is_set(), (
                f"{PATIENCE:.0f} s after close(), sync() in another thread had not raised VolumeFailedError"
            )
        if harness.outlives_close:
            with closing(harness.open()) as volume:
                assert newest_whole_batch(volume) == 50


def _sync_until_it_raises(volume: LogVolume, ended: threading.Event, over: threading.Event) -> None:
    try:
        while not over.is_set():
            volume.sync()
    except VolumeFailedError:
        ended.set()
