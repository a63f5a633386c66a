"""Blocking programs as people write them: stopped by Ctrl-C, with time limits at a broker that stands still, forked."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import gapless
from integration.broker_process import PATIENCE, BrokerProcess, bounded, clean_environment
from integration.nodes_in_process import running_node

INTERRUPTED = """
import random, signal, sys, threading, time
import gapless, gapless.sync

url, mode, way, rounds = sys.argv[1], gapless.AckMode[sys.argv[2]], sys.argv[3], int(sys.argv[4])

def interrupt(number, frame):
    # As Ctrl-C, but where gapless has what was asked for: not between its return and our assignment, nor while we read.
    within = frame
    while within is not None and within.f_code is not take.__code__:
        within = within.f_back
    if within is not None and frame is not within:
        raise KeyboardInterrupt
    signal.setitimer(signal.ITIMER_REAL, .0001)

def take(subscription):
    if way == "batches":
        return next(subscription.batches(max_events=3))
    return (subscription.receive() if way == "receive" else next(subscription),)

signal.signal(signal.SIGALRM, interrupt)
connection = gapless.sync.connect(url, client_id=way)
session = connection.session(mode)
topic = f"{way}.{mode.name}"
session.subscribe(topic, name=mode.name).close()
sent, handed, token, is_over = 0, [], None, threading.Event()

def publish():
    global sent
    publisher = session.publisher(topic)
    while not is_over.is_set():
        publisher.send(b"%d" % sent)
        sent += 1
        time.sleep(.0005)

publishing = threading.Thread(target=publish)
publishing.start()
interrupts = 0
for _ in range(rounds):
    with session.subscribe(topic, name=mode.name, start=token) as subscription:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(.001, .01))
        try:
            while True:
                items = take(subscription)
                handed += [int(event.body) for event in items]
        except KeyboardInterrupt:
            interrupts += 1
        if mode in (gapless.AckMode.TOKEN, gapless.AckMode.CLIENT):
            token = subscription.token if mode is gapless.AckMode.TOKEN else None
            session.acknowledge() if mode is gapless.AckMode.CLIENT else subscription.acknowledge(token)
is_over.set()
publishing.join()
with session.subscribe(topic, name=mode.name, start=token) as subscription:
    while len(handed) < sent and (event := subscription.receive(timeout=10)) is not None:
        handed.append(int(event.body))
    assert subscription.receive(timeout=.1) is None
connection.close()
assert handed == list(range(sent)), [pair for pair in zip(handed, range(sent)) if pair[0] != pair[1]][:5]
print(interrupts, "interrupts", sent, "events")
"""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there are no such timers here")
@pytest.mark.timeout(180)
async def test_each_event_is_handed_out_once_however_often_one_is_interrupted(tmp_path: Path) -> None:
    """Hundreds of interrupts at moments of their own, from a real clock."""
    program = tmp_path / "interrupted.py"
    program.write_text(INTERRUPTED, "utf-8")
    async with running_node(tmp_path / "volume") as node:
        for mode, way in [("AUTO", "receive"), ("TOKEN", "iterate"), ("CLIENT", "batches"), ("DUPS_OK", "receive")]:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                str(program),
                node.url,
                mode,
                way,
                "60",
                env=clean_environment(),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            out, error = await bounded(process.communicate(), 120)
            assert process.returncode == 0, (mode, way, error.decode())
            assert int(out.split()[0]) == 60


async def test_what_gave_up_at_a_broker_that_stands_still_can_be_asked_again(tmp_path: Path) -> None:
    """A subscription leaves nothing attached, a recovery is repeated, an event without a receipt is told at close."""
    async with BrokerProcess(tmp_path) as broker:
        pid = broker.pid

        def consume() -> None:
            with gapless.sync.connect(broker.url, client_id="c") as connection:
                session = connection.session(gapless.AckMode.CLIENT)
                for name in ("s", None):
                    os.kill(pid, signal.SIGSTOP)
                    with pytest.raises(TimeoutError):
                        session.subscribe("t", name=name, timeout=0.3)
                    os.kill(pid, signal.SIGCONT)
                    session.subscribe("t", name=name, timeout=PATIENCE).close()
                assert [each.connected for each in connection.subscriptions()] == [False]
                with session.subscribe("t", name="s") as subscription:
                    session.publisher("t").send(b"1")
                    assert subscription.receive(PATIENCE) is not None
                    os.kill(pid, signal.SIGSTOP)
                    with pytest.raises(TimeoutError):
                        session.recover(timeout=0.3)
                    os.kill(pid, signal.SIGCONT)
                    session.recover(timeout=PATIENCE)
                    event = subscription.receive(PATIENCE)
                    assert event is not None
                    assert (event.body, event.redelivered) == (b"1", True)

        await asyncio.to_thread(consume)

        def publish() -> None:
            connection = gapless.sync.connect(broker.url)
            publisher = connection.session().publisher("t")
            publisher.send(b"2")
            os.kill(pid, signal.SIGSTOP)
            with pytest.raises(TimeoutError):
                publisher.send(b"3", timeout=0.3)
            os.kill(pid, signal.SIGKILL)
            with pytest.raises(gapless.PublishUncertainError):
                connection.close()

        await asyncio.to_thread(publish)


FORKED = """
import os, sys
import gapless, gapless.sync

connection = gapless.sync.connect("embedded:volume", client_id="c")
session = connection.session()
publisher, subscription = session.publisher("t"), session.subscribe("t", name="s")
for n in range(10):
    publisher.send(b"%d" % n)
assert subscription.receive(timeout=20).body == b"0"
for status in (0, 3):
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            subscription.receive(timeout=20)
        except gapless.ConnectionClosedError as error:
            print(error)
        try:
            gapless.sync.connect("embedded:volume")
        except gapless.VolumeLockedError as error:
            print("by another process" in str(error))
        sys.exit(status)
    print("ended with", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
publisher.send(b"10", timeout=20)
assert [subscription.receive(timeout=20).body for _ in range(10)] == [b"%d" % n for n in range(1, 11)]
connection.close(timeout=20)
with gapless.sync.connect("embedded:volume") as connection, connection.session() as session:
    with session.subscribe("t", name="all", start="earliest") as subscription:
        print(sum(subscription.receive(timeout=20) is not None for _ in range(11)), "events")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_a_child_that_an_application_with_a_broker_forks_ends_in_peace(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKED],
        cwd=tmp_path,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    refused = "the connection belongs to the process this one was forked from: connect anew"
    assert done.stdout.splitlines() == [
        *(refused, "True", "ended with 0"),
        *(refused, "True", "ended with 3"),
        "11 events",
    ]
