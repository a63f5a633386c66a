"""Process scenarios of one broker, P01 to P12, with real processes (protocol: process-scenarios).

Which test covers which; those that are not in this file are named by their file below `tests`.

====  ==================================================================================================
P01   power/test_scenarios.py::test_p01_… (a kill after every change of the disk); integration/test_kill_loop.py
P02   integration/test_kill_loop.py; integration/test_cli.py::test_a_subscriber_goes_on_after_its_broker_was_killed
P03   simulator (an intermediate broker: not one broker's)
P04   test_p04_…
P05   test_p05_…; power/test_quick.py::test_no_power_cut_during_an_opening_takes_it
P06   test_p06_…
P07   test_p07_…
P08   of a PHB: test_scenarios_storage.py::test_s18_…; the rest in the simulator (not one broker's)
P09   integration/test_bad_input.py::test_a_first_frame_that_is_no_good_hello_…, test_what_is_no_message_ends_…;
      unit …/test_identity.py::test_a_newer_format_asks_for_a_newer_gapless
P10   test_p10_…
P11   simulator (one broker: integration/test_sessions.py::test_a_slow_consumer_misses_nothing)
P12   integration/test_node_failures.py::test_a_bug_in_a_core_is_a_restart_and_nothing_is_lost
====  ==================================================================================================
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from random import Random

import pytest

import gapless
from integration.broker_process import BrokerProcess, bounded, until
from integration.ledger import Ledger, Plug, next_of, publish, waiting

pytestmark = [
    pytest.mark.timeout(90),
    pytest.mark.skipif(sys.platform != "linux", reason="it sends signals, and reads /proc"),
]


@pytest.fixture
def ledger() -> Ledger:
    """What is published."""
    return Ledger()


@pytest.mark.parametrize("heartbeats", [2, 12], ids=["short", "long"])
async def test_p04_a_broker_that_stood_still_goes_on_and_doubles_nothing(
    tmp_path: Path, ledger: Ledger, heartbeats: int, caplog: pytest.LogCaptureFixture
) -> None:
    """SIGSTOP: after a while its clients give the connection up, and what they then repeat is known to it."""
    beat = 0.25
    async with BrokerProcess(tmp_path, limits={"heartbeat": beat}) as broker:
        async with gapless.connect(broker.url) as connection, connection.session() as session:
            publisher = session.publisher("t", name="p")
            async with session.subscribe("t", name="s") as subscription:
                await bounded(ledger.publish(publisher, 5))
                os.kill(broker.pid, signal.SIGSTOP)
                sending = await waiting(publisher, ledger, 5)
                await asyncio.sleep(heartbeats * beat)
                os.kill(broker.pid, signal.SIGCONT)
                await bounded(asyncio.gather(*sending))
                seen = [await bounded(next_of(subscription)) for _ in range(10)]
        await ledger.check(broker.url)

    assert [event.body for event in seen] == ledger.bodies
    assert ("trying again" in caplog.text) >= (heartbeats > 6), "it was long enough to be noticed"


async def test_p04_a_consumer_that_stood_still_finds_its_place_taken(tmp_path: Path, ledger: Ledger) -> None:
    """INV9: what the old owner acknowledges late does not count, and it is told why it ends."""
    async with BrokerProcess(tmp_path) as broker:
        await publish(broker.url, ledger, 5)
        old = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gapless.cli", "subscribe", "s", "--topic", "t", "--start", "earliest", "--json"),
            *("--url", broker.url),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert old.stdout is not None
        for _ in range(5):
            assert await bounded(old.stdout.readline())
        os.kill(old.pid, signal.SIGSTOP)
        async with gapless.connect(broker.url) as connection, connection.session() as session:
            async with session.subscribe("t", name="s", in_use="takeover") as subscription:
                await bounded(ledger.publish(session.publisher("t", name="p"), 5))
                os.kill(old.pid, signal.SIGCONT)
                _, error = await bounded(old.communicate())
                seen: list[gapless.Event] = []
                while not seen or seen[-1].body != ledger.bodies[-1]:
                    seen.append(await bounded(next_of(subscription)))
                [info] = await bounded(connection.subscriptions())

    assert old.returncode == 1
    assert b"taken over by connection" in error
    assert [event.body for event in seen[-5:]] == ledger.bodies[5:]
    assert info.acknowledged <= subscription.token
    assert max(info.acknowledged.ticks.values()) < seen[0].tick, "of what came again nothing counts as acknowledged"


async def test_p05_a_broker_that_is_killed_again_and_again_while_it_starts_comes_up(
    tmp_path: Path, ledger: Ledger
) -> None:
    """Each time a little later, till it serves; what each attempt has done the next one takes as it is."""
    broker = BrokerProcess(tmp_path)
    async with broker:
        await publish(broker.url, ledger, 30, size=2000)
        await broker.kill()
        for attempt in range(8):
            starting = asyncio.ensure_future(broker.start())
            await asyncio.wait([starting], timeout=0.2 + 0.1 * attempt)
            starting.cancel()
            await asyncio.wait([starting])
            await broker.kill()
        await broker.start()
        await ledger.check(broker.url)


@pytest.mark.timeout(150)
async def test_p06_five_power_cuts_in_a_row_take_nothing(library: Path, tmp_path: Path, ledger: Ledger) -> None:
    """In mid-publish, each in another way; publisher and subscriber live on through all of them."""
    cuts = ("least", "tails", "pages", "names", "prefix")
    plug = Plug(library, tmp_path, storage={"path": str(tmp_path / "disk" / "volume"), "write_buffer_bytes": 64 << 10})
    random = Random(6)
    try:
        await plug.broker.start()
        async with gapless.connect(plug.broker.url) as connection, connection.session() as session:
            publisher = session.publisher("t", name="p")
            async with session.subscribe("t", name="s") as subscription:
                for round_ in range(5):
                    sending = await waiting(publisher, ledger, 40)
                    enough = len(ledger.ticks) + random.randint(1, 10)
                    await until(lambda enough=enough: len(ledger.ticks) >= enough, "a few receipts")  # type: ignore[misc]
                    await plug.pull(cuts[round_], seed=round_)
                    await plug.broker.start()
                    await bounded(asyncio.gather(*sending))
                seen = [await bounded(next_of(subscription)) for _ in range(200)]
        await ledger.check(plug.broker.url)
    finally:
        await plug.close()

    assert [event.body for event in seen] == ledger.bodies
    assert [event.tick for event in seen] == [ledger.ticks[body] for body in ledger.bodies]


async def test_p07_a_broker_that_is_killed_in_catch_up_needs_no_more_memory_the_next_time(
    tmp_path: Path, ledger: Ledger
) -> None:
    """INV11: what a broker that ran out of memory was doing it does again, with as much as before."""
    needed = []
    async with BrokerProcess(tmp_path) as broker:
        async with gapless.connect(broker.url) as connection, connection.session() as session:
            await session.subscribe("t", name="s")
            publisher = session.publisher("t", name="p")
            for _ in range(20):
                await bounded(asyncio.gather(*await waiting_large(publisher, ledger)))
        for _ in range(4):
            await broker.restart()
            async with gapless.connect(broker.url) as connection, connection.session() as session:
                async with session.subscribe("t", name="s", in_use="takeover") as subscription:
                    for _ in range(300):
                        await bounded(next_of(subscription))
                    needed.append(memory_most(broker.pid))
                    await broker.kill()

    assert max(needed[1:]) < 1.25 * needed[0], needed


async def waiting_large(publisher: gapless.Publisher, ledger: Ledger) -> list[asyncio.Future[None]]:
    """A MiB of events that are sent."""
    return [asyncio.ensure_future(ledger.publish(publisher, 1, size=32 << 10)) for _ in range(32)]


def memory_most(pid: int) -> int:
    """The most KiB of memory that a process ever had at once."""
    [line] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1])


@pytest.mark.parametrize("seed", range(2))
async def test_p10_a_kill_while_it_stops_in_order_takes_nothing(tmp_path: Path, ledger: Ledger, seed: int) -> None:
    random = Random(seed)
    async with BrokerProcess(tmp_path) as broker:
        async with gapless.connect(broker.url) as connection, connection.session() as session:
            publisher = session.publisher("t", name="p")
            async with session.subscribe("t", name="s") as subscription:
                await bounded(ledger.publish(publisher, 10))
                sending = await waiting(publisher, ledger, 30)
                os.kill(broker.pid, signal.SIGTERM)
                await asyncio.sleep(random.random() * 0.3)
                await broker.kill()
                await broker.start()
                await bounded(asyncio.gather(*sending))
                seen = [await bounded(next_of(subscription)) for _ in range(40)]
            assert (await publisher.recover()).sequence == 40
        await ledger.check(broker.url)

    assert [event.body for event in seen] == ledger.bodies
