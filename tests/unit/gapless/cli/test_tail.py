"""`gapless tail`: what comes, what came last, and nothing left behind."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from gapless import Event, Gap, PubendInfo
from gapless.cli.tail import FIRST_SPAN, LAST_MAX, SPANS, Newest, starts
from gapless.core.stream.ticks import tick_at_time
from unit.gapless.cli.conftest import Gapless

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)


def event(seconds: float, pubend: str = "p@1") -> Event:
    return Event("t", {}, None, b"x", tick_at_time(NOON + timedelta(seconds=seconds)), pubend)


def bodies(gapless: Gapless, url: str, *options: str | int) -> list[str]:
    result = gapless("tail", "numbers.*", "--no-follow", "--json", "--url", url, *options)
    return [json.loads(line)["body"] for line in result.stdout.splitlines()]


@pytest.fixture
def numbers(gapless: Gapless, url: str, write_events: Callable[..., Path]) -> str:
    """A broker with thirty events on the topic, and others beside."""
    events = [{"body": f"{number}", "properties": {"number": number}} for number in range(30)]
    gapless("publish", "numbers.small", write_events(*events), "--url", url)
    gapless("publish", "letters", write_events({"body": "a"}), "--url", url)
    return url


def test_the_last_events_are_printed_in_order(gapless: Gapless, numbers: str) -> None:
    assert bodies(gapless, numbers, "--last", 3) == ["27", "28", "29"]


def test_the_last_events_are_those_that_are_selected(gapless: Gapless, numbers: str) -> None:
    """There are fewer than were asked for, so it looks back to the earliest."""
    assert bodies(gapless, numbers, "--last", 5, "--selector", "number < 2") == ["0", "1"]
    assert bodies(gapless, numbers, "--last", 1, "--selector", "number < 2") == ["1"]


def test_it_leaves_no_subscription_behind(gapless: Gapless, numbers: str) -> None:
    bodies(gapless, numbers, "--last", 5, "--selector", "number < 2")

    assert json.loads(gapless("subscriptions", "--url", numbers, "--json").stdout) == []


def test_where_nothing_is_it_ends_at_once(gapless: Gapless, url: str) -> None:
    assert bodies(gapless, url, "--last", 3) == []


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--no-follow"], "say how many"),
        (["--last", "-1"], "--last"),
        (["--last", LAST_MAX + 1], "--last"),
        (["--last", 1, "--selector", "a ="], "expected a name"),
    ],
    ids=str,
)
def test_what_is_no_usage_is_refused(gapless: Gapless, url: str, options: list[str | int], reason: str) -> None:
    assert reason in gapless("tail", "t", *options, "--url", url, status=2).output


def test_a_topic_that_is_none_is_refused(gapless: Gapless, url: str) -> None:
    assert "empty level" in gapless("tail", "a..b", "--last", 1, "--url", url, status=2).stderr


def test_the_newest_of_several_pubends_are_kept_by_their_time() -> None:
    """One pubend comes whole before the other."""
    newest = Newest(3)
    first, second = [event(n) for n in (0, 2, 4)], [event(n, "q@1") for n in (1, 3, 5)]
    for each in (*first, *second):
        newest.add(each)

    assert list(newest.runs()) == [[second[1], first[2], second[2]]]
    assert newest.full


def test_each_pubend_keeps_its_own_order_although_its_times_go_back() -> None:
    """As those of a Kafka may, whose producers say them."""
    newest = Newest(3)
    events = [event(n) for n in (9, 1, 2)]
    for each in events:
        newest.add(each)

    assert list(newest.runs()) == [events]


def test_a_gap_is_kept_where_it_is_among_the_newest_and_counts_as_none() -> None:
    newest = Newest(2)
    events, gaps = [event(n) for n in range(4)], [Gap("p@1", n, n + 1, "released") for n in range(4)]
    for one, gap in zip(events, gaps, strict=True):
        newest.add(one)
        newest.add(gap)

    assert list(newest.runs()) == [gaps[1], [events[2]], gaps[2], [events[3]], gaps[3]]


def info(newest: datetime, *, timed: bool = True) -> PubendInfo:
    return PubendInfo("p@1", ("#",), NOON, 0, tick_at_time(newest), 0, 0, 0, 0, timed=timed)


def test_it_looks_back_further_and_further_from_the_newest_event() -> None:
    found = list(starts([info(NOON - timedelta(days=9)), info(NOON)]))

    assert found == [*(NOON - FIRST_SPAN * 10**power for power in range(SPANS)), "earliest"]


def test_from_now_where_events_have_no_times_of_their_own() -> None:
    first, *_ = starts([info(NOON), info(NOON, timed=False)])

    assert isinstance(first, datetime)
    assert abs(datetime.now(timezone.utc) - FIRST_SPAN - first) < timedelta(minutes=1)


def test_there_is_nothing_to_look_back_to_without_events() -> None:
    assert list(starts([])) == ["latest"]
