"""Storage scenarios of one broker, S01 to S23, on real processes and files (protocol: storage-scenarios).

Which test covers which; those that are not in this file are named by their file below `tests`.

====  ==================================================================================================
S01   power/test_scenarios.py::test_s01_…; power/test_quick.py::test_no_power_cut_takes_what_was_promised
S02   test_s02_…; integration/test_durability.py::test_an_event_killed_before_its_receipt_is_logged_once
S03   power/test_scenarios.py::test_s03_…; unit …/test_wal.py::test_any_flipped_byte_of_any_log_ends_the_chain
S04   test_s04_…; unit …/test_opening.py::test_a_torn_unsynced_tail_is_cut_off, …garbage_behind…
S05   test_s05_…; unit …/test_opening.py::test_a_log_cut_between_records_is_refused
S06   test_s06_…; unit …/test_opening.py::test_a_deleted_log_is_refused, test_a_log_of_another_volume_…
S07   test_s07_…; power/test_scenarios.py::test_s07_…; unit …/test_opening.py::test_any_flipped_byte_of_the_manifest_…
S08   test_s08_…; conformance (gapless_testing.storage): test_a_spoilt_record_is_never_left_out
S09   test_s09_…; integration/test_durability.py::test_after_eio_no_receipt_leaves_until_…
S10   test_s09_… (every sync after the one that failed succeeds); conformance: test_a_failed_sync_is_final
S11   integration/test_durability.py::test_a_full_disk_blocks_publishers_…, test_publishers_wait_for_space_…
S12   test_s12_…
S13   test_s13_…
S14   conformance and simulator (memory_disk: test_a_lying_disk_loses_what_it_said_was_synced); what one broker can
      see of it: integration/test_durability.py::test_a_token_newer_than_a_restored_directory_is_refused
S15   test_s15_…; unit gapless_phb …/test_records.py (a record written for another tick or pubend)
S16   integration/test_durability.py::test_an_old_copy_of_the_database_is_refused_…, …restored_directory…
S17   test_s17_…; integration/test_startup_errors.py::test_a_directory_in_use_is_refused_and_its_broker_goes_on
S18   test_s18_…; integration/test_startup_errors.py::test_the_directory_of_another_node_is_refused
S19   power/test_scenarios.py::test_s19_…
S20   power/test_scenarios.py::test_s20_…
S21   power/test_scenarios.py::test_s21_…
S22   test_s22_…
S23   test_s09_…, test_s12_…: after any single error it serves again, by itself or when it is started again
====  ==================================================================================================
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import signal
import sys
import time
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import pytest

import gapless
from gapless_storage._rocksdb import wal
from gapless_storage._rocksdb.logformat import intact_records
from integration.broker_process import BrokerProcess, bounded, until
from integration.io_shim import Shim
from integration.ledger import Ledger, Plug, body, everything, next_of, publish, refusal, waiting

pytestmark = [
    pytest.mark.timeout(90),
    pytest.mark.skipif(sys.platform != "linux", reason="the I/O shim needs LD_PRELOAD and /proc"),
]

SECONDS_MOST = 10.0
"""INV19: an opening serves or refuses within that; not counted is what it takes to start Python on a busy machine."""
SMALL = {"write_buffer_bytes": 64 << 10}


@pytest.fixture
async def plug(library: Path, tmp_path: Path) -> AsyncIterator[Plug]:
    """A broker whose power can be cut."""
    plug = Plug(library, tmp_path)
    yield plug
    await plug.close()


@pytest.fixture
def ledger() -> Ledger:
    """What is published."""
    return Ledger()


async def killed(directory: Path, ledger: Ledger, count: int = 10) -> BrokerProcess:
    """A broker that was killed with acknowledged events in its log."""
    broker = BrokerProcess(directory)
    async with broker:
        await publish(broker.url, ledger, count)
    return broker


def log_of(broker: BrokerProcess) -> Path:
    """The only log with something in it."""
    [log] = [path for path in wal.log_files(broker.volume / "rocksdb") if path.stat().st_size]
    return log


def ends_of(log: Path) -> list[int]:
    """Where each record of a log ends."""
    return [end for _, end in intact_records(log, 0)]


# ------------------------------------------------------------------------------------------ power cuts


@pytest.mark.parametrize("cut", ["least", "all", "tails"])
async def test_s02_a_power_cut_before_the_sync_leaves_one_event_or_none(plug: Plug, ledger: Ledger, cut: str) -> None:
    """Its publisher tries again by itself, and it is there once."""
    async with plug.broker:
        async with gapless.connect(plug.broker.url) as connection, connection.session() as session:
            publisher = session.publisher("t", name="p")
            await bounded(ledger.publish(publisher, 3))
            written = len(plug.shim.calls())
            plug.shim.hold_syncs(hold=True)
            sending = await waiting(publisher, ledger, 2)
            await until(lambda: any(ledger.bodies[-1][:24] in call.data for call in plug.shim.calls()[written:]), "it")
            await plug.pull(cut, seed=7)
            assert not any(task.done() for task in sending)
            await plug.broker.start()
            await bounded(asyncio.gather(*sending))
            await bounded(ledger.publish(publisher, 1))
            assert (await publisher.recover()).sequence == 6
        await ledger.check(plug.broker.url)


@pytest.mark.parametrize("tail", [b"\0" * 700, b"garbage " * 90], ids=["zeros", "garbage"])
async def test_s04_a_torn_end_that_was_never_synced_is_dropped(tmp_path: Path, ledger: Ledger, tail: bytes) -> None:
    broker = await killed(tmp_path, ledger)
    log = log_of(broker)
    with log.open("ab") as file:
        file.write(log.read_bytes()[: ends_of(log)[0] - 5] + tail)
    began = time.monotonic()

    async with broker:
        seconds = time.monotonic() - began
        await ledger.check(broker.url)

    assert "cutting off" in broker.log
    assert seconds < SECONDS_MOST


# ------------------------------------------------------------------------------- what was durable is gone


async def test_s05_a_log_that_ends_between_two_records_is_refused(tmp_path: Path, ledger: Ledger) -> None:
    broker = await killed(tmp_path, ledger)
    log = log_of(broker)
    whole = log.read_bytes()
    log.write_bytes(whole[: ends_of(log)[-4]])

    last = await refusal(broker)
    log.write_bytes(whole)
    async with broker:
        await ledger.check(broker.url)

    assert "they were durable" in last
    assert "Bring back a copy" in last


@pytest.mark.parametrize("how", ["removed", "of another volume", "of an earlier time"])
async def test_s06_without_its_log_a_volume_is_refused(tmp_path: Path, ledger: Ledger, how: str) -> None:
    broker = await killed(tmp_path / "broker", ledger)
    log = log_of(broker)
    whole = log.read_bytes()
    if how == "removed":
        log.unlink()
    elif how == "of another volume":
        shutil.copy(log_of(await killed(tmp_path / "other", Ledger(), 12)), log)
    else:
        log.write_bytes(whole[: ends_of(log)[2]])

    last = await refusal(broker)
    log.write_bytes(whole)
    async with broker:
        await ledger.check(broker.url)

    assert "durable" in last or "is not this volume's" in last


async def test_s07_a_manifest_on_which_rocksdb_hangs_is_refused_in_time(tmp_path: Path, ledger: Ledger) -> None:
    """One bit in the type of a record: RocksDB would never come back, with the GIL held."""
    broker = await killed(tmp_path, ledger)
    manifest = broker.volume / "rocksdb" / (broker.volume / "rocksdb" / "CURRENT").read_text().strip()
    content = bytearray(manifest.read_bytes())
    content[ends_of(manifest)[1] + 6] ^= 4
    manifest.write_bytes(content)
    broker.sections["storage"] = {"path": str(broker.volume), "watchdog_seconds": 3.0}
    began = time.monotonic()

    last = await refusal(broker)

    assert "hangs" in last
    assert time.monotonic() - began < SECONDS_MOST


async def test_s08_an_event_that_cannot_be_read_is_never_skipped(tmp_path: Path, ledger: Ledger) -> None:
    """Who gets that far stays there, with everything before it; the broker says so, and others are served."""
    async with BrokerProcess(tmp_path, phb={"checkpoint_bytes": 1024}) as broker:
        async with gapless.connect(broker.url) as connection, connection.session() as session:
            await session.subscribe("t", name="s")
            await bounded(ledger.publish(session.publisher("t", name="p"), 60, size=1000))
        assert await broker.stop() == 0
        spoilt = 30
        spoil(broker.volume / "rocksdb", ledger.bodies[spoilt])
        await broker.start()

        async with gapless.connect(broker.url) as connection, connection.session() as session:
            async with session.subscribe("t", name="s") as subscription:
                seen = []
                while True:
                    getting = asyncio.ensure_future(next_of(subscription))
                    done, _ = await asyncio.wait([getting], timeout=4.0)
                    if not done:
                        getting.cancel()
                        break
                    seen.append(getting.result())
                position = max(subscription.token.ticks.values())
            receipt = await bounded(session.publisher("t", name="p").send(b"later"))

    bodies = [event.body for event in seen]
    assert bodies == ledger.bodies[: len(bodies)]
    assert len(bodies) <= spoilt
    assert position < ledger.ticks[ledger.bodies[spoilt]], "no silence was told where nobody can know"
    assert receipt.tick > ledger.ticks[ledger.bodies[-1]]
    assert "damaged" in broker.log or "Corruption" in broker.log or "cannot be read" in broker.log


def spoil(database: Path, content: bytes) -> None:
    """Turns a bit in the middle of a body in a data file."""
    for path in database.glob("*.sst"):
        data = bytearray(path.read_bytes())
        if (place := data.find(content[100:200])) >= 0:
            data[place + 50] ^= 1
            path.write_bytes(data)
            return
    raise AssertionError("no data file has that event")


async def test_s15_a_well_formed_record_in_another_ones_place_is_refused(tmp_path: Path, ledger: Ledger) -> None:
    """An older record of the same length, where the disk has put it instead of a newer one."""
    broker = await killed(tmp_path, ledger, 12)
    log = log_of(broker)
    ends = ends_of(log)
    spans = list(pairwise(ends))
    length = max({end - start for start, end in spans}, key=[end - start for start, end in spans].count)
    alike = [span for span in spans if span[1] - span[0] == length]
    (newer, newer_end), (older, older_end) = alike[-1], alike[-3]
    content = bytearray(log.read_bytes())
    content[newer:newer_end] = content[older:older_end]
    log.write_bytes(content)

    last = await refusal(broker)

    assert "durable" in last


# --------------------------------------------------------------------------------------- failing calls


@pytest.mark.parametrize("after", [0, *(pytest.param(n, marks=pytest.mark.long) for n in (2, 5, 9, 12, 15, 18)), 23])
async def test_s09_whichever_sync_fails_nothing_is_lost_and_it_serves_again(
    tmp_path: Path, shim: Shim, ledger: Ledger, after: int
) -> None:
    """S09, S10, S23: the syncs after it succeed, and nobody trusts them; no lock stays, no event is doubled."""
    broker = BrokerProcess(tmp_path, environment=shim.environment)
    shim.fail_syncs(1, "", after=after)
    try:
        await broker.start()
    except AssertionError:  # it was one of those that make a volume
        assert "Input/output error" in broker.log
        await broker.start()
    async with broker_running(broker):
        async with gapless.connect(broker.url) as connection, connection.session() as session:
            publisher = session.publisher("t", name="p")
            await bounded(ledger.publish(publisher, 12))
            assert (await publisher.recover()).sequence == 12
        assert shim.syncs_to_fail == 0
        await broker.restart()
        await ledger.check(broker.url)


class broker_running:  # noqa: N801 - reads like the context manager that it is
    """A broker that was started before, ended with the block."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker

    async def __aenter__(self) -> BrokerProcess:
        return self._broker

    async def __aexit__(self, *_: object) -> None:
        await self._broker.kill()


@pytest.mark.parametrize(
    ("file", "error"),
    [
        (".sst", "EIO in a sync"),
        pytest.param(".sst", "ENOSPC in a write", marks=pytest.mark.long),
        pytest.param("MANIFEST*", "EIO in a sync", marks=pytest.mark.long),
        ("MANIFEST*", "ENOSPC in a write"),
        ("dbtmp", "EIO in a write"),
    ],
)
async def test_s12_an_error_while_memory_is_flushed_loses_nothing(
    tmp_path: Path, shim: Shim, ledger: Ledger, file: str, error: str
) -> None:
    """INV12: no receipt that was not kept; it serves again by itself, and as well when it is started again."""
    async with BrokerProcess(tmp_path, environment=shim.environment) as broker:
        broker.sections["storage"] = {"path": str(broker.volume), **SMALL}
        await broker.restart()
        if error == "EIO in a sync":
            shim.fail_syncs(1, file)
        else:
            shim.fail_writes(errno.ENOSPC if "ENOSPC" in error else errno.EIO, file, count=1)
        await publish(broker.url, ledger, 60, size=4000, name="p")
        if file != "dbtmp":  # which is written at an opening alone
            assert shim.syncs_to_fail + shim.writes_to_fail == 0, "nothing was flushed"
        await broker.kill()
        await broker_starts(broker)
        assert shim.syncs_to_fail + shim.writes_to_fail == 0
        await ledger.check(broker.url)


async def broker_starts(broker: BrokerProcess) -> None:
    """Starts it; once more, should it have met the error itself."""
    try:
        await broker.start()
    except AssertionError:
        await broker.start()


async def test_s13_a_disk_that_stands_still_delays_receipts_and_nothing_else(
    tmp_path: Path, shim: Shim, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    """Connections live on for many heartbeats, what is logged is delivered, questions are answered."""
    count = 3000
    async with BrokerProcess(tmp_path, environment=shim.environment, limits={"heartbeat": 0.3}) as broker:
        async with gapless.connect(broker.url) as connection, connection.session() as session:
            publisher = session.publisher("t", name="p")
            async with session.subscribe("t", name="s") as subscription:
                ledger.bodies = [body(500) for _ in range(count)]
                receipts = [receipt async for receipt in publisher.send_all(map(gapless.Message, ledger.bodies))]
                ledger.ticks = {body: receipt.tick for body, receipt in zip(ledger.bodies, receipts, strict=True)}
                shim.hold_syncs(hold=True)
                [sending] = await waiting(publisher, ledger, 1)
                await until(lambda: shim.held, "a sync that is held")
                began = time.monotonic()
                seen = [await bounded(next_of(subscription)) for _ in range(count)]
                while time.monotonic() - began < 3.0:
                    assert len(await bounded(connection.pubends())) == 1
                    await asyncio.sleep(0.1)
                assert not sending.done()
                shim.hold_syncs(hold=False)
                await bounded(sending)
        await ledger.check(broker.url)

    assert [event.body for event in seen] == ledger.bodies[:count]
    assert "lost the connection" not in caplog.text


async def test_s22_a_file_system_that_turns_read_only_resets_nothing(
    tmp_path: Path, shim: Shim, ledger: Ledger
) -> None:
    """INV12, INV5: nothing is acknowledged meanwhile; then all goes on where it was."""
    async with BrokerProcess(tmp_path, environment=shim.environment) as broker:
        async with gapless.connect(broker.url) as connection, connection.session() as session:
            publisher = session.publisher("t", name="p")
            await bounded(ledger.publish(publisher, 5))
            shim.fail_writes(errno.EROFS, "")
            sending = await waiting(publisher, ledger, 3)
            await broker.until_logged("Read-only file system", times=2)
            assert not any(task.done() for task in sending)
            shim.reset()
            await bounded(asyncio.gather(*sending))
            assert (await publisher.recover()).sequence == 8
        await ledger.check(broker.url)


# --------------------------------------------------------------------------------- whose directory it is


async def test_s17_a_broker_that_lost_its_lock_is_stopped_by_the_fence(tmp_path: Path, ledger: Ledger) -> None:
    """Whoever opened the volume last is its owner; the other one, which stood still meanwhile, gives no receipt."""
    first = BrokerProcess(tmp_path / "first")
    second = BrokerProcess(tmp_path / "second")
    second.sections["storage"] = {"path": str(first.volume)}
    async with first:
        async with gapless.connect(first.url) as connection, connection.session() as session:
            publisher = session.publisher("t", name="p")
            await bounded(ledger.publish(publisher, 5))
            os.kill(first.pid, signal.SIGSTOP)
            # A thread in the middle of its look at the directory would find that there is no lock, which ends it, too.
            await until(lambda: _stands_still(first.pid), "the broker to stand still")
            for name in ("lock", "rocksdb/LOCK"):  # as a network file system may lose them
                (first.volume / name).unlink()
            async with second:
                [sending] = await waiting(publisher, ledger, 1)
                os.kill(first.pid, signal.SIGCONT)
                assert await first.wait() == 1
                assert not sending.done()
                await publish(second.url, ledger, 3)
                await ledger.check(second.url)
                assert await second.stop() == 0
                await second.start()
                await ledger.check(second.url)

    with pytest.raises(gapless.PublishUncertainError):
        await sending
    *_, last = first.log.splitlines()
    # Its own look at the directory, once a while, may come before the sync that meets the other's fence.
    assert "this volume has a newer owner" in last or "another file is in the place of its lock" in last


def _stands_still(pid: int) -> bool:
    """Whether all threads of a process are stopped, where that can be seen."""
    threads = Path(f"/proc/{pid}/task").glob("*/stat")
    return all(thread.read_text().rpartition(")")[2].split()[0] == "T" for thread in threads)


@pytest.mark.parametrize("known", ["token", "nothing"])
async def test_s18_a_wiped_directory_does_not_pass_for_the_old_one(tmp_path: Path, ledger: Ledger, known: str) -> None:
    """The same name on an empty disk is another network: who knows the old one is told, nobody is misled."""
    async with BrokerProcess(tmp_path) as broker:
        async with gapless.connect(broker.url) as connection, connection.session() as session:
            async with session.subscribe("t", name="s") as subscription:
                await bounded(ledger.publish(session.publisher("t", name="p"), 5))
                for _ in range(5):
                    await bounded(next_of(subscription))
                token = subscription.token
        await broker.stop()
        broker.lose_volume()
        await broker.start()

        async with gapless.connect(broker.url) as connection, connection.session() as session:
            assert await connection.subscriptions() == []
            if known == "token":
                with pytest.raises(gapless.TokenMismatchError):
                    await bounded(session.subscribe("t", name="s", start=token).__aenter__())
            receipt = await bounded(session.publisher("t", name="p").send(body()))
        events = await everything(broker.url)

    assert [event.tick for event in events] == [receipt.tick]
    assert receipt.tick > max(ledger.ticks.values())
