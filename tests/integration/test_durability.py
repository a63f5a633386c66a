"""A receipt means durable: seen between a broker process and its kernel.

INV7, INV12, INV13, S02, S09, S10, S11, S16.
"""

from __future__ import annotations

import asyncio
import secrets
import shutil
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import gapless
from gapless.core.wire.codec import decode_server
from gapless.core.wire.framing import FrameDecoder
from gapless.core.wire.messages import Published, PublisherOpened
from integration.broker_process import BrokerProcess, bounded, until
from integration.io_shim import Call, Kind, Shim, compile_shim

pytestmark = [
    pytest.mark.timeout(60),
    pytest.mark.skipif(sys.platform != "linux", reason="the I/O shim needs LD_PRELOAD and /proc"),
]

MAGIC = b"gapless fence 1\n"
VOLUME_BYTES = 16


@pytest.fixture
async def broker(shim: Shim, tmp_path: Path) -> AsyncIterator[BrokerProcess]:
    """A broker process under the shim."""
    async with BrokerProcess(tmp_path, environment=shim.environment) as broker:
        yield broker


def body() -> bytes:
    """A body that nothing else looks like, not even compressed; twice in a row, as a log is cut into blocks."""
    unique = secrets.token_bytes(24)
    return unique + secrets.token_bytes(40) + unique


async def everything(url: str, count: int) -> list[gapless.Event]:
    """All events that a broker has; fails if there are not `count`, exactly."""
    async with gapless.connect(url) as connection, connection.session() as session:
        async with session.subscribe("#", start="earliest") as subscription:
            marker = await session.publisher("the.end").send(b"")
            events = []
            async for event in subscription:
                if event.tick == marker.tick:
                    break
                events.append(event)
    assert len(events) == count, [event.body for event in events]
    return events


# ------------------------------------------------------------------------------------ reading the journal


@dataclass(frozen=True)
class Told:
    """A client was told that events are logged."""

    began: int
    """Where in the journal the sending began."""
    ticks: frozenset[int]
    sequence: int


def told(calls: Sequence[Call]) -> list[Told]:
    """Everything by which clients were told that something is logged."""
    decoders: dict[str, FrameDecoder] = {}
    begun: dict[str, int] = {}
    found = []
    for call in calls:
        if call.kind is not Kind.SEND or not call.worked:
            continue
        decoder = decoders.setdefault(call.target, FrameDecoder(1 << 26))
        began = begun.get(call.target, call.began) if decoder.inside_frame else call.began
        for message in map(decode_server, decoder.feed(call.data)):
            if isinstance(message, Published):
                ticks = {run.first + run.step * n for run in message.ticks for n in range(run.count)}
                found.append(Told(began, frozenset(ticks), message.sequence))
            elif isinstance(message, PublisherOpened):
                found.append(Told(began, frozenset({message.tick}), message.sequence))
            began = call.began
        begun[call.target] = began
    return found


def counter(data: bytes, volume: bytes) -> int:
    """The number of the newest batch in what was written to a log or to the fence."""
    at = data.rindex(volume) + VOLUME_BYTES + 16
    return int.from_bytes(data[at : at + 8], "big")


def unproven(calls: Sequence[Call], receipts: dict[bytes, int]) -> list[bytes]:
    """The bodies whose receipt left before RocksDB's log and then the fence were synced with them in it.

    `receipts`: the tick of each body.
    """
    answers = told(calls)
    return [body for body, tick in receipts.items() if not _is_proven(calls, body, tick, answers)]


def _is_proven(calls: Sequence[Call], body: bytes, tick: int, answers: Sequence[Told]) -> bool:
    answered = min(answer.began for answer in answers if tick in answer.ticks)
    unique = body[:24]
    [*_, written] = [call for call in calls if call.target.endswith(".log") and unique in call.data]
    synced = [
        call.ended
        for call in calls
        if call.kind is Kind.SYNC and call.target == written.target and call.worked and call.began > written.ended
    ]
    if not synced:
        return False
    fence = [
        call
        for call in calls
        if call.kind is Kind.WRITE and call.target == "fence" and call.worked and call.began > synced[0]
    ]
    volume = fence[0].data[len(MAGIC) : len(MAGIC) + VOLUME_BYTES] if fence else b""
    proofs = [call for call in fence if counter(call.data, volume) >= counter(written.data, volume)]
    return any(
        call.kind is Kind.SYNC
        and call.target == "fence"
        and call.worked
        and call.began > proofs[0].ended
        and call.ended < answered
        for call in calls
        if proofs
    )


# --------------------------------------------------------------------------------------------- the promise


async def publish_at_once(url: str, publishers: int, events: int) -> dict[bytes, int]:
    """Publishers that do not wait for each other, each for its own receipts; returns the tick of each body."""
    receipts: dict[bytes, int] = {}

    async def publish(session: gapless.Session, number: int) -> None:
        publisher = session.publisher(f"t.{number}")
        for _ in range(events):
            content = body()
            receipts[content] = (await publisher.send(content)).tick

    async with gapless.connect(url) as connection, connection.session() as session:
        await bounded(asyncio.gather(*(publish(session, number) for number in range(publishers))))
    return receipts


@pytest.mark.parametrize("publishers", [1, 16])
async def test_both_syncs_lie_between_an_event_and_its_receipt(
    broker: BrokerProcess, shim: Shim, publishers: int
) -> None:
    """One event at a time, and with syncs that overlap: the log, then the fence, then the receipt (INV7)."""
    receipts = await publish_at_once(broker.url, publishers, events=20)

    assert len(receipts) == 20 * publishers
    assert unproven(shim.calls(), receipts) == []


EARLY = {
    "without any sync": "volume.sync = lambda self: None",
    "without the fence": "volume._sync_fence = lambda self: None",
    "without the log": "Database.sync_log = lambda self: None",
    "with the fence first": "volume.sync = lambda self: (self._sync_fence(), self._sync_log())",
}
"""What would make a broker lie, as a line of Python."""


@pytest.mark.parametrize("lie", EARLY.values(), ids=EARLY)
async def test_the_journal_convicts_a_broker_that_answers_early(tmp_path: Path, shim: Shim, lie: str) -> None:
    """The proof above is one that can fail."""
    program = (
        "from gapless_storage.rocksdb import RocksdbVolume as volume\n"
        "from gapless_storage._rocksdb.engine import Database\n"
        f"{lie}\n"
        "from gapless.cli import main\nmain()"
    )
    async with BrokerProcess(tmp_path, environment=shim.environment, program=["-c", program]) as broker:
        receipts = await publish_at_once(broker.url, 1, events=5)

    assert len(unproven(shim.calls(), receipts)) >= 4  # the last one of a lie may be covered by chance


# ---------------------------------------------------------------------------------------- a failing disk


@pytest.mark.parametrize("file", [".log", "fence"], ids=["log", "fence"])
async def test_after_eio_no_receipt_leaves_until_the_event_was_synced_anew(
    broker: BrokerProcess, shim: Shim, caplog: pytest.LogCaptureFixture, file: str
) -> None:
    """S09: what a failed sync covered counts as lost, though it can be read; and is logged once in the end."""
    bodies = [body(), body(), body()]
    async with gapless.connect(broker.url) as connection, connection.session() as session:
        publisher = session.publisher("t")
        receipts = [await bounded(publisher.send(bodies[0]))]
        shim.fail_syncs(0, file)
        shim.hold_syncs(hold=True)
        sending = asyncio.ensure_future(publisher.send(bodies[1]))
        await until(lambda: shim.held and is_written(shim, bodies[1]), "the event in the log")
        shim.fail_syncs(1, file)
        shim.hold_syncs(hold=False)
        receipts.append(await bounded(sending))
        receipts.append(await bounded(publisher.send(bodies[2])))
    calls = shim.calls()
    events = await everything(broker.url, 3)

    assert [event.body for event in events] == bodies
    assert [event.tick for event in events] == [receipt.tick for receipt in receipts]
    [failed] = [call for call in calls if call.kind is Kind.SYNC and call.error]
    [log] = [line for line in broker.log.splitlines() if "the storage has failed" in line]
    assert "Input/output error" in log
    assert "serves again" in broker.log
    assert "the broker has failed and recovers" in caplog.text
    answered = min(answer.began for answer in told(calls) if answer.sequence >= 2)
    assert failed.ended < answered
    assert is_synced_between(calls, bodies[1], failed, answered)


def is_written(shim: Shim, content: bytes) -> bool:
    """Whether an event is in the log, synced or not."""
    return any(call.kind is Kind.WRITE and call.worked and content[:24] in call.data for call in shim.calls())


def is_synced_between(calls: Sequence[Call], content: bytes, failed: Call, before: int) -> bool:
    """Whether an event was written, once more if the failed sync was of its file, and synced, then the fence.

    A kernel calls pages clean whose sync has failed: they can be read, and are nowhere.
    """
    copies = [
        (call, synced)
        for call in calls
        if call.kind is Kind.WRITE and content[:24] in call.data and call.worked
        for synced in calls
        if synced.kind is Kind.SYNC and synced.target == call.target and synced.worked
        if call.ended < synced.began and synced.ended < before
        if call.began > failed.ended or call.target != failed.target
    ]
    return any(
        synced.ended < fence.began and failed.ended < fence.began and fence.ended < before
        for _, synced in copies
        for fence in calls
        if fence.kind is Kind.SYNC and fence.target == "fence" and fence.worked
    )


async def test_a_full_disk_blocks_publishers_and_loses_and_doubles_nothing(
    broker: BrokerProcess, shim: Shim, caplog: pytest.LogCaptureFixture
) -> None:
    """S11, when the disk is really full: no receipt, a reason, and all goes on by itself when there is room."""
    async with gapless.connect(broker.url) as connection, connection.session() as session:
        publisher = session.publisher("t")
        async with session.subscribe("t", name="s") as subscription:
            for n in range(5):
                await bounded(publisher.send(b"%d" % n))
            full = len(shim.calls())
            shim.fill_disk(full=True)
            sending = [asyncio.ensure_future(publisher.send(b"%d" % n)) for n in range(5, 8)]
            await broker.until_logged("No space left on device", times=3)
            answers = [answer for answer in told(shim.calls()[full:]) if answer.sequence > 5]
            waiting = [not task.done() for task in sending]
            warned = caplog.text
            shim.fill_disk(full=False)
            receipts = await bounded(asyncio.gather(*sending))
            seen = [await bounded(anext_of(subscription)) for _ in range(8)]
    events = await everything(broker.url, 8)

    assert all(waiting)
    assert answers == []
    assert "disk is full" in warned
    assert [event.body for event in seen] == [b"%d" % n for n in range(8)]
    assert [(event.body, event.tick) for event in events] == [(event.body, event.tick) for event in seen]
    assert [event.tick for event in events[5:]] == [receipt.tick for receipt in receipts]
    assert "serves again" in broker.log


async def anext_of(subscription: gapless.Subscription[gapless.Event, Any]) -> gapless.Event:
    """The next event."""
    async for event in subscription:
        return event
    raise AssertionError("the subscription has ended")


async def test_publishers_wait_for_space_while_deliveries_and_acknowledgements_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """S11, as it should come: the broker sees that little is left, and stops taking events before it must."""
    async with BrokerProcess(tmp_path) as broker:
        async with gapless.connect(broker.url) as connection, connection.session() as session:
            publisher = session.publisher("t")
            for name in ("s", "away"):  # what nobody is owed would give way to the publisher
                await session.subscribe("t", name=name)
            for n in range(10):
                await bounded(publisher.send(b"%d" % n))
            assert await broker.stop() == 0
            broker.sections["node"] = {"min_free_bytes": 1 << 62}
            await broker.start()

            sending = asyncio.ensure_future(publisher.send(b"10"))
            await until(lambda: "nothing can be published until there is room" in caplog.text, "the reason")
            seen = await consume_and_acknowledge(broker.url, 6)
            seen += await consume_and_acknowledge(broker.url, 4)
            assert not sending.done()

            assert await broker.stop() == 0
            del broker.sections["node"]
            await broker.start()
            receipt = await bounded(sending)
        events = await everything(broker.url, 11)

    assert [event.body for event in seen] == [b"%d" % n for n in range(10)]
    assert events[10].body == b"10"
    assert events[10].tick == receipt.tick
    assert "bytes are left on the disk: publishers have to wait" in broker.log


async def consume_and_acknowledge(url: str, count: int) -> list[gapless.Event]:
    """The next events of the durable subscription; who comes next begins behind them."""
    async with gapless.connect(url) as connection, connection.session() as session:
        async with session.subscribe("t", name="s", in_use="takeover") as subscription:
            events = [await bounded(anext_of(subscription)) for _ in range(count)]
            await subscription.acknowledge()
    return events


# ------------------------------------------------------------------------------------------------ kill -9


@pytest.mark.parametrize("moment", ["before the sync", "before the receipt"])
async def test_an_event_killed_before_its_receipt_is_logged_once(
    broker: BrokerProcess, shim: Shim, moment: str
) -> None:
    """S02: the publisher tries again by itself, and the broker knows the sequence."""
    bodies = [body(), body(), body()]
    async with gapless.connect(broker.url) as connection, connection.session() as session:
        publisher = session.publisher("t")
        receipts = [await bounded(publisher.send(bodies[0]))]
        if moment == "before the sync":
            shim.hold_syncs(hold=True)
        else:
            shim.hold_sends(hold=True)
        sending = asyncio.ensure_future(publisher.send(bodies[1]))
        await until(lambda: shim.held and is_written(shim, bodies[1]), "the event in the log")
        written = [call for call in shim.calls() if bodies[1][:24] in call.data]
        await broker.kill()
        before = told(shim.calls())
        shim.reset()
        assert not sending.done()
        await broker.start()
        receipts.append(await bounded(sending))
        receipts.append(await bounded(publisher.send(bodies[2])))
    events = await everything(broker.url, 3)

    assert written
    assert max(answer.sequence for answer in before) == 1
    assert [event.body for event in events] == bodies
    assert [event.tick for event in events] == [receipt.tick for receipt in receipts]


# ------------------------------------------------------------------------------------------- an old copy


async def publish(url: str, count: int) -> gapless.CheckpointToken:
    """Publishes events, consumes all there are, and returns the position behind them."""
    async with gapless.connect(url) as connection, connection.session() as session:
        async with session.subscribe("t", name="s") as subscription:
            publisher = session.publisher("t", name="loader")
            receipts = [await bounded(publisher.send(b"%d" % n)) for n in range(count)]
            while (await bounded(anext_of(subscription))).tick < receipts[-1].tick:
                pass
            return subscription.token


async def put_back(broker: BrokerProcess, copy: Path, *parts: str) -> None:
    """Replaces parts of the volume with those of a copy."""
    for part in parts:
        target, source = broker.volume / part, copy / part
        if source.is_dir():
            shutil.rmtree(target)
            shutil.copytree(source, target)
        else:
            shutil.copy2(source, target)


@pytest.mark.parametrize("end", ["stopped", "killed"])
async def test_an_old_copy_of_the_database_is_refused_and_the_way_out_is_named(tmp_path: Path, end: str) -> None:
    """S16: the fence knows what was durable. Nothing is served, nothing changed; the newer copy still works."""
    async with BrokerProcess(tmp_path) as broker:
        await publish(broker.url, 5)
        await broker.stop()
        old, new = tmp_path / "old", tmp_path / "new"
        shutil.copytree(broker.volume, old)
        await broker.start()
        await publish(broker.url, 5)
        await (broker.stop() if end == "stopped" else broker.kill())
        shutil.copytree(broker.volume, new)
        await put_back(broker, old, "rocksdb", "seal")

        with pytest.raises(AssertionError, match="the broker did not start"):
            await broker.start()
        log = broker.log
        await put_back(broker, new, "rocksdb")
        await broker.start()
        events = await everything(broker.url, 10)

    assert "Traceback" not in log
    last = log.splitlines()[-1]
    assert last.startswith("gapless: ")
    assert "Bring back a copy of the whole directory that was made later" in last
    assert str(broker.volume) in last
    assert len({event.tick for event in events}) == 10


SHORT_PROMISES = {"silence_seconds": 0.01, "reservation_seconds": 0.02}
"""Up to a reservation's end a copy may have told silence, so that a token there is none that it must not know."""


async def test_a_token_newer_than_a_restored_directory_is_refused(tmp_path: Path) -> None:
    """S16: with its fence the old copy opens; what it has lost is found by whoever has seen it (S14, INV13)."""
    async with BrokerProcess(tmp_path, phb=SHORT_PROMISES) as broker:
        older = await publish(broker.url, 5)
        await broker.stop()
        shutil.copytree(broker.volume, tmp_path / "old")
        await broker.start()
        newer = await publish(broker.url, 5)
        await broker.stop()
        shutil.rmtree(broker.volume)
        shutil.copytree(tmp_path / "old", broker.volume)
        await broker.start()

        async with gapless.connect(broker.url) as connection, connection.session() as session:
            before = await connection.subscriptions()
            with pytest.raises(gapless.TokenAheadError) as refused:
                await bounded(session.subscribe("t", name="s", start=newer).__aenter__())
            after = await connection.subscriptions()
            publisher = session.publisher("t", name="loader")
            logged = (await publisher.recover()).sequence
            async with session.subscribe("t", name="s", start=older) as subscription:
                receipt = await bounded(publisher.send(b"new"))
                event = await bounded(anext_of(subscription))

    assert "lost" in str(refused.value)
    assert [(info.name, info.acknowledged) for info in after] == [(info.name, info.acknowledged) for info in before]
    assert logged == 5
    assert (event.body, event.tick) == (b"new", receipt.tick)
    assert receipt.tick > max(newer.ticks.values()), "no tick is used twice"


def test_without_a_compiler_the_tests_say_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They fail: a durability that nobody could look at is not proven."""
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(RuntimeError, match="apt-get install gcc"):
        compile_shim(tmp_path)
