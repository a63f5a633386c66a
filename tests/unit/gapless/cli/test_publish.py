"""`gapless publish`: a file of lines becomes events, up to the first line that is wrong."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gapless.cli.connecting import run
from gapless.cli.publish import stopping_on_interrupt
from unit.gapless.cli.conftest import Gapless


def consumed(gapless: Gapless, url: str, count: int) -> list[str]:
    """The bodies of the first events."""
    result = gapless(
        "subscribe", "reader", "--topic", "#", "--start", "earliest", "--count", count, "--json", "--url", url
    )
    return [json.loads(line)["body"] for line in result.stdout.splitlines()]


def test_each_line_is_an_event(gapless: Gapless, url: str, write_events: Callable[..., Path]) -> None:
    events = write_events({"body": "a"}, "", {"body": "b", "properties": {"x": 1}})

    result = gapless("publish", "flights", events, "--url", url)

    assert result.stdout == "published 2 events to flights\n"
    assert consumed(gapless, url, 2) == ["a", "b"]


def test_it_says_where_the_last_event_is(gapless: Gapless, url: str, write_events: Callable[..., Path]) -> None:
    result = gapless("publish", "flights", write_events({"body": "a"}), "--url", url, "--json")

    said = json.loads(result.stdout)
    assert said["published"] == 1
    assert said["durable"] is True
    assert said["error"] is None
    assert said["tick"] > 0


def test_a_wrong_line_is_named_and_nothing_behind_it_is_sent(
    gapless: Gapless, url: str, write_events: Callable[..., Path]
) -> None:
    events = write_events({"body": "a"}, {"body": "b"}, '{"body": ', {"body": "d"})

    result = gapless("publish", "flights", events, "--url", url, status=1)
    gapless("publish", "flights", write_events({"body": "next"}), "--url", url)

    assert result.stdout == "published 2 events to flights\n"
    assert "line 3: it is not JSON" in result.stderr
    assert consumed(gapless, url, 3) == ["a", "b", "next"]


def test_an_event_that_is_not_allowed_is_refused(gapless: Gapless, url: str, write_events: Callable[..., Path]) -> None:
    """Said by the SDK, behind the receipts of what came before."""
    events = write_events({"body": "a"}, {"body": "x" * (1 << 21)}, {"body": "c"})

    result = gapless("publish", "flights", events, "--url", url, "--json", status=1)

    assert json.loads(result.stdout)["published"] == 1
    assert "line 2: an event of" in result.stderr
    assert "at most 1048576" in result.stderr


def test_a_property_that_is_not_allowed_is_refused_with_its_line(
    gapless: Gapless, url: str, write_events: Callable[..., Path]
) -> None:
    events = write_events({"body": "a"}, "", {"body": "b", "properties": {"x": [1]}}, {"body": "c"})

    result = gapless("publish", "flights", events, "--url", url, status=1)

    assert "line 3: property 'x' is a list" in result.stderr
    assert "nothing from there on was sent" in result.stderr
    assert consumed(gapless, url, 1) == ["a"]


def test_an_empty_file_is_no_event(gapless: Gapless, url: str, write_events: Callable[..., Path]) -> None:
    assert gapless("publish", "flights", write_events(), "--url", url).stdout == "published 0 events to flights\n"


def test_one_event_is_published_from_its_text_and_properties(gapless: Gapless, url: str) -> None:
    properties = ["-p", "origin=JFK", "-p", "dep_delay=75", "--property", "route=JFK=BOS"]

    said = gapless("publish", "flights", "-m", "B6 1016", *properties, "--url", url)

    options = ["--topic", "flights", "--start", "earliest", "--count", 1, "--json", "--url", url]
    [line] = gapless("subscribe", "reader", *options, "--selector", "dep_delay > 60").stdout.splitlines()
    assert said.stdout == "published 1 event to flights\n"
    assert json.loads(line)["body"] == "B6 1016"
    assert json.loads(line)["properties"] == {"origin": "JFK", "dep_delay": 75, "route": "JFK=BOS"}


def test_the_standard_input_is_not_read_for_one_event(url: str) -> None:
    """It is open, and nobody writes there."""
    command = [sys.executable, "-m", "gapless.cli", "publish", "flights", "-m", "a", "--url", url, "--json"]

    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.wait(30) == 0
        assert process.stdout is not None
        assert json.loads(process.stdout.read())["published"] == 1


@pytest.mark.parametrize(
    ("arguments", "status", "reason"),
    [
        (["-m", "a", "-"], 2, "nothing to be read from a file"),
        (["-p", "x=1"], 2, "-p is for the event of -m TEXT"),
        (["-m", "a", "-p", "x"], 2, "'x' is not NAME=VALUE"),
        (["-m", "a", "-p", "=1"], 2, "'=1' is not NAME=VALUE"),
        (["-m", "a", "-p", "x=1", "-p", "x=2"], 2, "the property 'x' is given twice"),
        (["-m", "a", "-p", f"x={1 << 64}"], 1, "property 'x'"),
        (["-m", "a" * (1 << 21)], 1, "at most 1048576"),
    ],
    ids=str,
)
def test_one_event_that_is_wrong_is_refused(
    gapless: Gapless, url: str, arguments: list[str], status: int, reason: str
) -> None:
    assert reason in gapless("publish", "flights", *arguments, "--url", url, status=status).stderr


@pytest.mark.parametrize(
    ("topic", "reason"), [("flights.*", "wildcard"), ("a..b", "empty level"), ("", "topic"), ("x" * 256, "255")]
)
def test_a_topic_must_be_one(
    gapless: Gapless, url: str, write_events: Callable[..., Path], topic: str, reason: str
) -> None:
    result = gapless("publish", topic, write_events({"body": "a"}), "--url", url, status=2)

    assert reason in result.stderr


def test_a_file_that_is_not_there_is_named(gapless: Gapless, url: str, tmp_path: Path) -> None:
    result = gapless("publish", "flights", tmp_path / "nothing.jsonl", "--url", url, status=2)

    assert "nothing.jsonl: cannot be read: No such file or directory" in result.stderr


@pytest.fixture
def heeding_interrupts() -> Iterator[None]:
    """Whoever starts the tests in the background of a shell has Ctrl-C ignored in them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeding_interrupts")
def test_the_first_interrupt_ends_well_and_the_second_at_once() -> None:
    """The second one cancels what runs: as a KeyboardInterrupt in any callback it would be a traceback."""
    seen: list[str] = []

    async def work() -> None:
        stopped = asyncio.Event()
        with stopping_on_interrupt(stopped.set):
            os.kill(os.getpid(), signal.SIGINT)
            await stopped.wait()
            seen.append("stopped")
            os.kill(os.getpid(), signal.SIGINT)
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                seen.append("cancelled")
                raise

    with pytest.raises(KeyboardInterrupt):
        run(work())
    assert seen[0] == "stopped"
    assert seen[1:] == ["cancelled"] or sys.version_info < (3, 11)
