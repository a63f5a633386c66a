"""`gapless.sync.connect`, as an application calls it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import gapless
from gapless.core.wire import messages as m
from gapless.loggers import HANDLES
from unit.gapless.client.conftest import ADDRESS, is_connected
from unit.gapless.client.fake_broker import BASE, PUBEND
from unit.gapless.client.fake_network import FakeNetwork

others: set[threading.Thread] = set()
"""What was running before the test: another test's connection may not be collected yet."""


@pytest.fixture(autouse=True)
def _before() -> None:
    others.clear()
    others.update(threading.enumerate())


def threads() -> list[str]:
    """The threads of this test's connections. The one that hands over what they log is the process's."""
    names = [thread.name for thread in threading.enumerate() if thread not in others]
    return [name for name in names if name.startswith("gapless") and name != HANDLES]


def test_a_connection_is_a_block_or_not(network: FakeNetwork) -> None:
    connection = gapless.sync.connect(ADDRESS, client_id="c")
    assert is_connected(connection)
    assert (connection.client_id, connection.network) == ("c", "net")
    assert "connected" in repr(connection)
    assert len(threads()) == 1
    connection.close()
    connection.close()
    assert not is_connected(connection)
    assert threads() == []
    with pytest.raises(gapless.ConnectionClosedError):
        connection.pubends()
    with pytest.raises(gapless.ConnectionClosedError):
        connection.session()

    with gapless.sync.connect(ADDRESS) as connection:
        assert is_connected(connection)
    assert threads() == []
    assert len(network.broker.messages(m.Goodbye)) == 2


def test_nobody_answers(network: FakeNetwork) -> None:
    network.unreachable = True
    with pytest.raises(gapless.ConnectionClosedError, match="nobody there"):
        gapless.sync.connect(ADDRESS)
    with pytest.raises(TimeoutError):
        gapless.sync.connect(ADDRESS, wait=True, timeout=0.1)

    assert threads() == []


@pytest.mark.parametrize("arguments", [{"address": "nowhere"}, {"address": ADDRESS, "client_id": "x" * 300}])
def test_wrong_arguments_are_refused_without_a_thread(arguments: Any) -> None:
    with pytest.raises(gapless.ConfigurationError):
        gapless.sync.connect(**arguments)

    assert threads() == []


def test_the_listings(network: FakeNetwork) -> None:
    with gapless.sync.connect(ADDRESS, client_id="c") as connection, connection.session() as session:
        session.subscribe("t", name="s").close()
        assert [(info.name, info.pinned_bytes) for info in connection.subscriptions(timeout=5)] == [("s", None)]
        network.broker.pinned_bytes = 700
        assert [info.pinned_bytes for info in connection.subscriptions()] == [700]
        assert [info.pubend for info in connection.pubends(timeout=5)] == [PUBEND]
        connection.unsubscribe("s", timeout=5)
        assert connection.subscriptions() == []
        with pytest.raises(gapless.SubscriptionNotFoundError):
            connection.unsubscribe("s")
        assert not connection.retire("away", only_look=True, timeout=5).before
        assert not connection.retire("away", timeout=5).before
        assert connection.retire("away").before


def test_a_call_that_times_out_goes_on(network: FakeNetwork) -> None:
    with gapless.sync.connect(ADDRESS) as connection, connection.session() as session:
        publisher = session.publisher("t")
        publisher.recover(timeout=5)
        network.stalled = True
        with pytest.raises(TimeoutError, match=r"not done within 0\.05 s"):
            publisher.send(b"a", timeout=0.05)
        assert network.broker.streams[PUBEND].ticks == []
        network.do(network.flow)
        publisher.flush(timeout=5)

    assert len(network.broker.streams[PUBEND].ticks) == 1


def test_leaving_by_an_exception_does_not_wait(network: FakeNetwork) -> None:
    began = time.monotonic()
    with pytest.raises(ZeroDivisionError):
        with gapless.sync.connect(ADDRESS) as connection, connection.session() as session:
            publisher = session.publisher("t")
            publisher.recover()
            network.stalled = True
            with pytest.raises(TimeoutError):
                publisher.send(b"a", timeout=0.01)
            raise ZeroDivisionError

    assert time.monotonic() - began < 5


def test_several_threads_use_one_connection(network: FakeNetwork) -> None:
    with gapless.sync.connect(ADDRESS) as connection, connection.session() as session:
        publisher = session.publisher("t")
        subscription = session.subscribe("t", name="s")

        def publish(number: int) -> None:
            for i in range(50):
                publisher.send(b"%d.%d" % (number, i))

        workers = [threading.Thread(target=publish, args=(number,)) for number in range(4)]
        for worker in workers:
            worker.start()
        bodies = [next(subscription).body for _ in range(200)]
        for worker in workers:
            worker.join()

    assert len(set(bodies)) == 200
    for number in range(4):
        assert [b for b in bodies if b.startswith(b"%d." % number)] == [b"%d.%d" % (number, i) for i in range(50)]


def test_a_blocking_call_in_the_loops_own_thread_is_refused(network: FakeNetwork) -> None:
    with gapless.sync.connect(ADDRESS) as connection:
        with pytest.raises(RuntimeError, match="wait for itself"):
            network.do(connection.pubends)


def test_drain_from_another_thread(network: FakeNetwork) -> None:
    with gapless.sync.connect(ADDRESS) as connection, connection.session() as session:
        subscription = session.subscribe("t", name="s")
        timer = threading.Timer(0.05, connection.drain)
        timer.start()
        assert list(subscription) == []
        timer.join()
        assert subscription.receive(timeout=0.1) is None
        assert list(subscription.batches()) == []
        session.drain()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_does_not_hang(network: FakeNetwork) -> None:
    with gapless.sync.connect(ADDRESS) as connection, connection.session() as session:
        subscription = session.subscribe("t", name="s")
        child = os.fork()
        if child == 0:
            try:
                try:
                    connection.pubends(timeout=5)
                except gapless.ConnectionClosedError as error:
                    right = "forked" in str(error)
                subscription.close()
                session.close()
                connection.close()
                assert not is_connected(connection)
                os._exit(0 if right else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert connection.pubends(timeout=5) != []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_is_handed_nothing_that_its_parent_has_at_hand(network: FakeNetwork) -> None:
    with gapless.sync.connect(ADDRESS) as connection, connection.session() as session:
        subscription = session.subscribe("t", name="s")
        batches = subscription.batches(max_events=1)
        publisher = session.publisher("t")
        network.do(lambda: network.log(*(b"%d" % n for n in range(5))))
        assert next(subscription).body == b"0"
        sends = network.sends
        child = os.fork()
        if child == 0:
            refused = 0
            try:
                for call in (
                    subscription.receive,
                    lambda: next(subscription),
                    lambda: next(batches),
                    subscription.wait,
                    subscription.acknowledge,
                    session.recover,
                    lambda: publisher.send(b"x"),
                    lambda: session.subscribe("t"),
                    connection.pubends,
                ):
                    try:
                        call()
                    except gapless.ConnectionClosedError as error:
                        refused += "forked" in str(error)
                assert network.sends == sends
            finally:
                os._exit(refused)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
        assert [event.body for event in (next(subscription), next(subscription))] == [b"1", b"2"]


SCRIPT = """
import sys
sys.path[:0] = {path!r}
import gapless
from gapless import plugins
from unit.gapless.client.fake_network import FakeNetwork
network = FakeNetwork()
plugins.load = lambda kind, name: lambda options: network
connection = gapless.sync.connect("gapless+fake://x")
subscription = connection.session().subscribe("t", name="s")
{rest}
print("done")
"""


@pytest.mark.parametrize(
    "rest",
    [
        "",
        "import atexit; atexit.register(lambda: print([m for m in network.broker.received][-1].__class__.__name__))",
        """
import threading
threading.excepthook = print
threading.Thread(target=subscription.receive, daemon=True).start()
        """,
        "import os; os.fork() or sys.exit()",
    ],
    ids=["plain", "goodbye", "a thread that waits", "fork"],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_interpreter_ends_although_nothing_was_closed(rest: str) -> None:
    tests = str(Path(__file__).parents[3])
    script = SCRIPT.format(path=[tests, *sys.path], rest=rest)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, timeout=30, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert "done" in done.stdout
    assert BASE


def test_one_embedded_broker_serves_all_connections_of_the_process(tmp_path: Path) -> None:
    """Each in its own thread of the application, and with or without a block."""
    address = f"embedded:{tmp_path / 'volume'}"
    with gapless.sync.connect(address, client_id="a") as first, gapless.sync.connect(address, client_id="b") as second:
        with second.session() as theirs, theirs.subscribe("t", name="s", start="earliest") as subscription:
            with first.session() as ours:
                ours.publisher("t").send(b"hello")
            event = subscription.receive(timeout=30)
            assert isinstance(event, gapless.Event)
            assert event.body == b"hello"
        first.close()
        assert [info.client_id for info in second.subscriptions()] == ["b"]


def test_an_embedded_broker_of_another_loop_is_in_use_and_it_is_said_by_whom(tmp_path: Path) -> None:
    address = f"embedded:{tmp_path / 'volume'}"

    async def connect() -> None:
        await gapless.connect(address)

    with gapless.sync.connect(address):
        with pytest.raises(gapless.VolumeLockedError, match="is open on another event loop of this process"):
            asyncio.run(connect())
