"""`gapless subscribe`: prints, keeps the token, acknowledges."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, cast

import pytest

from gapless import Batch, CheckpointToken, ConfigurationError, Event, Gap, InvalidTokenError, Subscription
from gapless.cli.subscribe import EventPrinter, read_token, start_of
from unit.gapless.cli.conftest import Gapless

EVENTS = [{"body": f"{number}", "properties": {"number": number}} for number in range(10)]


@pytest.fixture
def consume(gapless: Gapless, url: str, write_events: Callable[..., Path]) -> Callable[..., list[str]]:
    """Runs `subscribe` where ten events were published; returns the bodies that it printed."""
    gapless("publish", "numbers.small", write_events(*EVENTS), "--url", url)

    def run(*options: str | Path) -> list[str]:
        common = ["--topic", "numbers.*", "--start", "earliest", "--json", "--url", url]
        printed = gapless("subscribe", "reader", *common, *options).stdout.splitlines()
        return [json.loads(line)["body"] for line in printed]

    return run


def test_it_goes_on_where_it_has_acknowledged(consume: Callable[..., list[str]]) -> None:
    """Although the broker, which is in the command's own process, ends with it."""
    assert consume("--count", "3") == ["0", "1", "2"]
    assert consume("--count", "4") == ["3", "4", "5", "6"]


def test_it_goes_on_where_the_token_file_says(consume: Callable[..., list[str]], tmp_path: Path) -> None:
    """Also when the broker was never told."""
    token_file = tmp_path / "position"

    assert consume("--count", "3", "--no-ack", "--token-file", token_file) == ["0", "1", "2"]
    assert consume("--count", "2", "--no-ack", "--token-file", token_file) == ["3", "4"]
    token_file.unlink()
    assert consume("--count", "1") == ["0"]


def test_it_selects(consume: Callable[..., list[str]]) -> None:
    assert consume("--count", "2", "--selector", "number > 6") == ["7", "8"]


def test_people_get_readable_lines(gapless: Gapless, url: str, write_events: Callable[..., Path]) -> None:
    gapless("publish", "numbers", write_events(*EVENTS), "--url", url)

    options = ["--topic", "numbers", "--start", "earliest", "--count", "1", "--url", url]
    printed = gapless("subscribe", "reader", *options).stdout

    assert printed.endswith("  numbers  number=0  0\n")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--selector", "a ="], "a =\n     ^"),
        (["--topic", "a..b"], "empty level"),
        (["--start", "noon"], "--start: 'noon'"),
        (["--start", "2026-01-31T12:00:00"], "a time with its zone"),
        (["--start", "gl1.garbage"], "token"),
    ],
)
def test_what_was_not_understood_is_said(gapless: Gapless, url: str, options: list[str], reason: str) -> None:
    result = gapless("subscribe", "reader", "--topic", "a", "--count", "1", *options, "--url", url, status=2)

    assert reason in result.stderr


def test_a_token_file_with_something_else_in_it_is_left_alone(gapless: Gapless, url: str, tmp_path: Path) -> None:
    path = tmp_path / "diary"
    path.write_text("dear diary", "utf-8")

    result = gapless("subscribe", "reader", "--topic", "a", "--token-file", path, "--url", url, status=2)

    assert "diary holds no token" in result.stderr
    assert path.read_text("utf-8") == "dear diary"


def test_a_start_is_a_word_a_time_or_a_token() -> None:
    token = CheckpointToken("here", {"default@1": 7})

    assert start_of("latest") == "latest"
    assert start_of("earliest") == "earliest"
    assert start_of("2026-01-31T12:00:00Z") == datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
    assert start_of(str(token)) == token
    with pytest.raises(ConfigurationError):
        start_of("yesterday")
    with pytest.raises(InvalidTokenError):
        start_of("gl1.")


class FakeSubscription:
    """Hands out what it is given, and notes what it is told."""

    def __init__(self, items: Sequence[Batch | Gap]) -> None:
        self.items: Iterator[Batch | Gap] = iter(items)
        self.token = CheckpointToken("here", {})
        self.calls: list[Any] = []

    def batches(self, max_events: int) -> FakeSubscription:
        self.calls.append(max_events)
        return self

    def __aiter__(self) -> FakeSubscription:
        return self

    async def __anext__(self) -> Batch | Gap:
        for item in self.items:
            position = item.end if isinstance(item, Gap) else item[-1].tick
            self.token = CheckpointToken("here", {item.pubend: position})
            return item
        raise StopAsyncIteration

    async def acknowledge(self, token: CheckpointToken) -> None:
        self.calls.append(token)


def batch(*ticks: int) -> Batch:
    events = [Event("t", {}, None, b"%d" % tick, tick, "default@1") for tick in ticks]
    return Batch("default@1", events, CheckpointToken("here", {"default@1": ticks[-1]}))


async def consume_all(consumer: EventPrinter, *items: Batch | Gap) -> FakeSubscription:
    subscription = FakeSubscription(items)
    await consumer.consume(cast("Subscription[Any, Any]", subscription))
    return subscription


async def test_a_gap_is_printed_in_its_place(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    consumer = EventPrinter(tmp_path / "position", None, ack=True, as_json=True)

    await consume_all(consumer, batch(1, 2), Gap("default@1", 2, 8, "released"), batch(9))

    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line.get("tick") or line["gap"]["end"] for line in lines] == [1, 2, 8, 9]
    assert [gap.end for gap in consumer.gaps] == [8]
    assert read_token(tmp_path / "position") == CheckpointToken("here", {"default@1": 9})


async def test_the_token_is_kept_before_it_is_acknowledged(tmp_path: Path) -> None:
    """And both after printing: what is killed in between comes again."""
    consumer = EventPrinter(tmp_path / "position", None, ack=True, as_json=False)
    seen: list[CheckpointToken | None] = []

    class Watched(FakeSubscription):
        async def acknowledge(self, token: CheckpointToken) -> None:
            seen.append(read_token(tmp_path / "position"))
            assert seen[-1] == token

    await consumer.consume(cast("Subscription[Any, Any]", Watched([batch(1), batch(2)])))

    assert [token and token.ticks["default@1"] for token in seen] == [1, 2]


async def test_it_asks_for_no_more_than_it_was_told_to(tmp_path: Path) -> None:
    consumer = EventPrinter(None, 3, ack=False, as_json=True)

    subscription = await consume_all(consumer, batch(1, 2), batch(3), batch(4))

    assert subscription.calls == [3, 1]
    assert next(subscription.items)[0].tick == 4  # type: ignore[index]


@pytest.mark.usefixtures("consume")
def test_total_order_is_asked_for_and_needs_a_group(gapless: Gapless, url: str) -> None:
    common = ["--topic", "numbers.*", "--url", url, "--order"]

    refused = gapless("subscribe", "ordered", *common, "total", status=2)

    assert "order='total' needs a group of pubends: none is configured here" in refused.output
    gapless("subscribe", "plain", *common, "pubend", "--start", "earliest", "--count", "1")


class Pipe:
    """A standard output whose reader goes away after so many characters."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.text = ""

    def write(self, text: str) -> None:
        if len(text) > self.room:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")
        self.room -= len(text)
        self.text += text

    def flush(self) -> None:
        pass


@pytest.mark.parametrize("as_json", [True, False])
async def test_what_was_written_before_the_reader_went_counts_as_printed_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, as_json: bool
) -> None:
    """As with `| head`: the broker, and the token file, are told of these events."""
    pipe = Pipe(20_000)
    monkeypatch.setattr(sys, "stdout", pipe)
    consumer = EventPrinter(tmp_path / "position", None, ack=True, as_json=as_json)
    subscription = FakeSubscription([batch(*range(1, 101)), batch(*range(101, 1001))])

    with pytest.raises(BrokenPipeError):
        await consumer.consume(cast("Subscription[Any, Any]", subscription))

    written = pipe.text.count("\n")
    acknowledged = [call.ticks["default@1"] for call in subscription.calls if isinstance(call, CheckpointToken)]
    kept = read_token(tmp_path / "position")
    assert 100 < written < 1000
    assert acknowledged == [100, written]
    assert kept is not None
    assert kept.ticks == {"default@1": written}


async def test_where_nothing_of_it_was_written_nothing_is_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Pipe(0))
    subscription = FakeSubscription([batch(1, 2)])

    with pytest.raises(BrokenPipeError):
        await EventPrinter(None, None, ack=True, as_json=True).consume(cast("Subscription[Any, Any]", subscription))

    assert subscription.calls == [1024]


@pytest.mark.parametrize("as_json", [[], ["--json"]], ids=["people", "json"])
@pytest.mark.parametrize("command", [["subscribe", "reader", "--topic", "t", "--count", "2"], ["tail", "t"]], ids=str)
def test_what_cannot_be_shown_is_shown_escaped_and_the_position_is_right(
    gapless: Gapless, url: str, write_events: Callable[..., Path], command: list[str], as_json: list[str]
) -> None:
    """Whatever prints events, on a terminal or into a pipe that knows no more than ASCII."""
    gapless("publish", "t", write_events({"body": "größer 😀", "properties": {"é": "ü"}}, {"body": "2"}), "--url", url)
    more = ["--start", "earliest"] if command[0] == "subscribe" else ["--last", "2", "--no-follow"]
    done = subprocess.run(
        [sys.executable, "-m", "gapless", *command, *more, *as_json, "--url", url, "--wait", "60"],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.decode("ascii").splitlines()

    if as_json:
        said = json.loads(first)
        assert (said["body"], said["properties"]) == ("größer 😀", {"é": "ü"})
    else:
        assert first.endswith(r"\u00e9=\u00fc  gr\u00f6\u00dfer \ud83d\ude00")
    if command[0] == "subscribe":
        gapless("publish", "t", write_events({"body": "3"}), "--url", url)
        printed = gapless("subscribe", "reader", "--topic", "t", "--count", "1", "--url", url).stdout
        assert printed.endswith("  3\n")
    else:
        assert "2" in second
