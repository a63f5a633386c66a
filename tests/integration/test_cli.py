"""The command line against a broker in a process of its own, as a user has it in a shell."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gapless.cli.connecting import INTERRUPTED
from integration.command_line import SECONDS_MAX, Shell, line_of

pytestmark = pytest.mark.timeout(180)  # each command is a process of its own


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """A directory of its own."""
    shell = Shell(tmp_path)
    yield shell
    shell.close()


def lines(*bodies: str) -> str:
    return "".join(json.dumps({"body": body, "properties": {"origin": body[0]}}) + "\n" for body in bodies)


def listed(shell: Shell, listing: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(shell.run(listing, "--json").stdout)
    return rows


def test_publish_subscribe_list_and_unsubscribe(shell: Shell) -> None:
    shell.start_broker()
    (shell.directory / "events.jsonl").write_text(lines("a1", "b2", "a3", "a4"), "utf-8")
    subscribe = ["subscribe", "desk", "--topic", "flights.#", "--selector", "origin = 'a'", "--json", "--count"]

    assert shell.run("publish", "flights.x", "events.jsonl").stdout == "published 4 events to flights.x\n"
    first = shell.run(*subscribe, "2", "--start", "earliest").stdout.splitlines()
    assert [json.loads(line)["body"] for line in first] == ["a1", "a3"]

    [row] = listed(shell, "subscriptions")
    assert (row["name"], row["selector"], row["connected"]) == ("desk", "origin = 'a'", False)
    shell.run("publish", "flights.y", stdin=lines("a5"))
    second = shell.run(*subscribe, "2").stdout.splitlines()
    assert [json.loads(line)["body"] for line in second] == ["a4", "a5"]
    [pubend] = listed(shell, "pubends")
    assert pubend["publishers"] == 0, "those without a name are forgotten when they are closed"

    shell.run("unsubscribe", "desk")
    assert listed(shell, "subscriptions") == []
    assert "there is no subscription 'desk'" in shell.run("unsubscribe", "desk", status=1).stderr


def test_a_bad_line_ends_a_publish_behind_what_was_published(shell: Shell) -> None:
    shell.start_broker()

    done = shell.run("publish", "flights", stdin=lines("a", "b") + "{}\n" + lines("c"), status=1)

    assert done.stdout == "published 2 events to flights\n"
    assert "line 3: it has no body" in done.stderr


def test_a_subscriber_goes_on_after_its_broker_was_killed(shell: Shell) -> None:
    """And Ctrl-C ends it in order, with the token of what it has printed."""
    broker = shell.start_broker()
    subscriber = shell.start(
        "subscribe", "desk", "--topic", "flights", "--start", "earliest", "--json", "--token-file", "position"
    )
    shell.run("publish", "flights", stdin=lines("a"))
    assert json.loads(line_of(subscriber))["body"] == "a"

    broker.kill()
    broker.wait(timeout=SECONDS_MAX)
    address = shell.environment["GAPLESS_URL"].partition("://")[2]
    shell.environment["GAPLESS_LISTEN__0__ADDRESS"] = address
    shell.start_broker()
    shell.run("publish", "flights", stdin=lines("b"))
    assert json.loads(line_of(subscriber))["body"] == "b"

    subscriber.send_signal(signal.SIGINT)
    assert subscriber.wait(timeout=SECONDS_MAX) == 0
    shell.run("publish", "flights", stdin=lines("c"))
    again = shell.run("subscribe", "desk", "--topic", "flights", "--json", "--count", "1", "--token-file", "position")
    assert json.loads(again.stdout)["body"] == "c"


def test_a_tail_prints_what_came_last_and_then_what_comes(shell: Shell) -> None:
    """Also when its broker was killed in between; and Ctrl-C ends it in order."""
    broker = shell.start_broker()
    shell.run("publish", "flights", stdin=lines("a", "b", "c"))
    watcher = shell.start("tail", "flights", "--last", "2", "--json")
    printed = [json.loads(line_of(watcher))["body"] for _ in range(2)]

    shell.run("publish", "flights", stdin=lines("d"))
    printed.append(json.loads(line_of(watcher))["body"])
    broker.kill()
    broker.wait(timeout=SECONDS_MAX)
    shell.environment["GAPLESS_LISTEN__0__ADDRESS"] = shell.environment["GAPLESS_URL"].partition("://")[2]
    shell.start_broker()
    shell.run("publish", "flights", stdin=lines("e"))
    printed.append(json.loads(line_of(watcher))["body"])
    left = json.loads(shell.run("subscriptions", "--json").stdout)
    watcher.send_signal(signal.SIGINT)

    assert watcher.wait(timeout=SECONDS_MAX) == 0
    assert printed == ["b", "c", "d", "e"]
    assert left == []


@pytest.mark.skipif(sys.version_info < (3, 11), reason="asyncio.run of Python 3.10 leaves Ctrl-C to Python")
def test_a_second_interrupt_is_no_traceback(shell: Shell) -> None:
    """A person's Ctrl-C comes twice, or what ends a job signals the process and then its group."""
    shell.start_broker()
    shell.run("publish", "flights", stdin=lines("a"))
    for _ in range(3):
        subscriber = shell.start("subscribe", "desk", "--topic", "flights", "--start", "earliest", "--no-ack")
        line_of(subscriber)
        subscriber.send_signal(signal.SIGINT)
        time.sleep(0.001)
        subscriber.send_signal(signal.SIGINT)
        assert subscriber.wait(timeout=SECONDS_MAX) in {0, INTERRUPTED}
        assert subscriber.stderr is not None
        assert subscriber.stderr.read() == ""


def test_a_second_consumer_is_refused_unless_it_takes_over(shell: Shell) -> None:
    shell.start_broker()
    options = ["subscribe", "desk", "--topic", "flights", "--start", "earliest", "--json"]
    first = shell.start(*options)
    shell.run("publish", "flights", stdin=lines("a", "b"))
    line_of(first)

    assert "desk" in shell.run(*options, status=1).stderr
    second = shell.start(*options, "--in-use", "takeover")
    assert first.wait(timeout=SECONDS_MAX) == 1
    shell.run("publish", "flights", stdin=lines("c"))
    while json.loads(line_of(second))["body"] != "c":
        pass


def test_a_broker_takes_over_the_directory_of_an_embedded_one_and_gives_it_back(shell: Shell) -> None:
    """With what is there: the subscription goes on behind its token."""
    shell.environment["GAPLESS_LISTEN__0__ADDRESS"] = "127.0.0.1:0"
    consume = ["subscribe", "desk", "--topic", "flights", "--json", "--count", "1", "--token-file", "position"]
    shell.environment["GAPLESS_URL"] = "embedded:data"
    shell.run("publish", "flights", stdin=lines("a"))
    bodies = [json.loads(shell.run(*consume, "--start", "earliest").stdout)["body"]]

    broker = shell.start("broker", "--data", "data", "--json")
    shell.environment["GAPLESS_URL"] = json.loads(line_of(broker))["url"]
    shell.run("publish", "flights", stdin=lines("b"))
    bodies.append(json.loads(shell.run(*consume).stdout)["body"])
    shell.run("publish", "flights", stdin=lines("c"))
    broker.terminate()
    assert broker.wait(timeout=SECONDS_MAX) == 0
    shell.environment["GAPLESS_URL"] = "embedded:data"
    bodies.append(json.loads(shell.run(*consume).stdout)["body"])

    assert bodies == ["a", "b", "c"]


def test_a_broker_with_a_name_does_not_take_over_a_directory_of_another(shell: Shell) -> None:
    shell.environment |= {"GAPLESS_NODE__NAME": "desk", "GAPLESS_LISTEN__0__ADDRESS": "127.0.0.1:0"}
    shell.run("publish", "flights", "--url", "embedded:data", stdin=lines("a"))

    refused = shell.run("broker", "--data", "data", status=1)

    assert "'embedded'" in refused.stderr


def test_a_broker_makes_the_directory_that_it_is_told_and_comes_back_to_it(shell: Shell) -> None:
    """The command's own word goes before the environment."""
    shell.environment |= {"GAPLESS_STORAGE__PATH": "elsewhere", "GAPLESS_LISTEN__0__ADDRESS": "127.0.0.1:0"}
    for _ in range(2):
        broker = shell.start("broker", "--data", "data", "--json")
        line_of(broker)
        broker.terminate()
        assert broker.wait(timeout=SECONDS_MAX) == 0

    assert [entry.name for entry in shell.directory.iterdir()] == ["data"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_broker_stops_in_order(shell: Shell, number: signal.Signals) -> None:
    shell.environment["GAPLESS_LISTEN__0__ADDRESS"] = "127.0.0.1:0"
    broker = shell.start("broker")
    assert "serving on gapless://127.0.0.1:" in line_of(broker)

    broker.send_signal(number)

    assert broker.wait(timeout=SECONDS_MAX) == 0


def test_a_broker_that_is_told_to_end_before_it_serves_ends_in_order(shell: Shell) -> None:
    shell.environment["GAPLESS_LISTEN__0__ADDRESS"] = "127.0.0.1:0"
    broker = shell.start("broker", "--until-stdin-closes")

    broker.communicate("", timeout=SECONDS_MAX)  # closes its input at once: whoever started it is gone

    assert broker.returncode == 0


def test_a_directory_has_one_broker(shell: Shell) -> None:
    shell.start_broker()

    refused = shell.run("broker", "--config", "gapless.toml", status=1)

    assert "gapless-data is in use" in refused.stderr
    assert listed(shell, "subscriptions") == []


def test_an_address_has_one_broker(shell: Shell) -> None:
    shell.start_broker()
    address = shell.environment["GAPLESS_URL"].partition("://")[2]
    other = f'storage.path = "other"\n[[listen]]\naddress = "{address}"\n'
    (shell.directory / "other.toml").write_text(other, "utf-8")

    assert address in shell.run("broker", "--config", "other.toml", "--create", status=2).stderr
    assert not (shell.directory / "other").exists()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("[storage]\npth = 'x'\n", "'pth'"),
        ("[listne]\n", "there is no section [listne]"),
        ("[[listen]]\naddress = '0.0.0.0:0'\n", "insecure = true"),
    ],
)
def test_a_broker_refuses_what_it_does_not_understand(shell: Shell, content: str, reason: str) -> None:
    (shell.directory / "gapless.toml").write_text(content, "utf-8")

    assert reason in shell.run("broker", "--config", "gapless.toml", status=2).stderr


def test_the_doctor_sees_a_broker_at_work(shell: Shell) -> None:
    shell.start_broker()
    shell.run("publish", "flights", stdin=lines("a", "b", "c"))
    subscribe = ["subscribe", "desk", "--topic", "flights", "--start", "earliest", "--count", "1"]
    shell.run(*subscribe)

    said = json.loads(shell.run("doctor", "--config", "gapless.toml", "--json").stdout)

    assert said["volume"]["state"].startswith("open: ")
    assert said["broker"]["answers"] is True
    assert [pin["name"] for pin in said["pins"]] == ["desk"]


def test_listings_can_be_piped_into_what_reads_one_line(shell: Shell) -> None:
    shell.start_broker()
    command = f"{sys.executable} -m gapless.cli pubends | head -n 0; exit ${{PIPESTATUS[0]}}"

    done = subprocess.run(
        ["bash", "-c", command], env=shell.environment, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )

    assert done.returncode in {0, 1}
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("nonsense:xyz", "'nonsense:xyz' does not end in a port"),
        ("a b:1", "has no valid host"),
        ("[::1", "IPv6 stands in brackets"),
        ("127.0.0.1:0", "nobody can be dialled at port 0"),
    ],
)
def test_a_malformed_address_among_good_ones_is_found_before_any_is_dialled(
    shell: Shell, address: str, reason: str
) -> None:
    """Not after a minute in which the good one did not answer."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        other.settimeout(0)
        good = f"127.0.0.1:{other.getsockname()[1]}"

        ended = shell.run("subscriptions", "--url", f"gapless://{good},{address}", status=2)

        assert reason in ended.stderr
        with pytest.raises(BlockingIOError):
            other.accept()
