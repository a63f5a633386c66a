"""`gapless subscriptions`, `pubends` and `unsubscribe`."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest
import typer

from gapless import CheckpointToken, Listing, MissingAnswer, PubendInfo, SubscriptionInfo
from gapless.cli.listings import (
    PUBEND_COLUMNS,
    pubend_cells,
    pubend_json,
    show,
    subscription_cells,
    subscription_columns,
    subscription_json,
)
from gapless.core.stream.ticks import OFFSET_BITS, tick_at_time
from unit.gapless.cli.conftest import Gapless

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)


@pytest.fixture
def consumed(gapless: Gapless, url: str, write_events: Callable[..., Path]) -> None:
    """One of two events of a subscription is consumed and acknowledged."""
    gapless("publish", "flights", write_events({"body": "a"}), "--url", url)
    options = ["--topic", "flights", "--topic", "trains.#", "--selector", "a IS NULL", "--client-id", "desk"]
    gapless("subscribe", "late", *options, "--start", "earliest", "--count", "1", "--url", url)
    gapless("publish", "flights", write_events({"body": "b"}), "--url", url)


@pytest.mark.usefixtures("consumed")
def test_subscriptions_are_listed(gapless: Gapless, url: str) -> None:
    [row] = json.loads(gapless("subscriptions", "--json", "--url", url).stdout)
    table = gapless("subscriptions", "--url", url).stdout

    assert (row["client_id"], row["name"], row["topics"]) == ("desk", "late", ["flights", "trains.#"])
    assert (row["selector"], row["connected"]) == ("a IS NULL", False)
    assert (row["phase"], row["waiting"]) == ("free", [])
    assert row["pinned_bytes"] is None
    assert "holds back" not in table
    assert len(row["acknowledged"]) == 1
    assert "flights, trains.#" in table


@pytest.mark.usefixtures("consumed")
def test_pubends_are_listed(gapless: Gapless, url: str) -> None:
    [row] = json.loads(gapless("pubends", "--json", "--url", url).stdout)
    table = gapless("pubends", "--url", url).stdout

    assert row["newest"] <= row["stable"]
    assert row["publishers"] == 0  # one without a name is forgotten when it is closed
    assert row["log_bytes"] > 0
    assert len(row["shbs"]) == 1
    assert row["pubend"] in table


def test_where_nothing_is_that_is_said(gapless: Gapless, url: str) -> None:
    assert gapless("subscriptions", "--url", url).stdout == "there is no durable subscription\n"
    assert gapless("subscriptions", "--url", url, "--json").stdout == "[]\n"


@pytest.mark.usefixtures("consumed")
def test_a_subscription_ends_for_good(gapless: Gapless, url: str) -> None:
    gapless("unsubscribe", "late", "--client-id", "desk", "--url", url)

    assert json.loads(gapless("subscriptions", "--json", "--url", url).stdout) == []


@pytest.mark.usefixtures("consumed")
def test_a_subscription_of_another_client_is_another_one(gapless: Gapless, url: str) -> None:
    result = gapless("unsubscribe", "late", "--url", url, status=1)

    assert "there is no subscription 'late'" in result.stderr
    assert len(json.loads(gapless("subscriptions", "--json", "--url", url).stdout)) == 1


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], ["the part of node phb2 is missing: it is away"]),
        ([PubendInfo("p@1", ("#",), NOON, 0, 0, 0, 0, 0, 1, node="phb1")], ["p@1", "the part of node phb2 is missing"]),
    ],
)
def test_a_node_whose_part_is_missing_is_named(
    rows: list[PubendInfo], said: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    found = Listing(rows, [MissingAnswer("phb2", "it is away")])

    for as_json in (False, True):
        with pytest.raises(typer.Exit) as ended:
            show(found, pubend_json if as_json else pubend_cells, PUBEND_COLUMNS, as_json=as_json, empty="nothing")
        assert ended.value.exit_code == 1
    *text, told = capsys.readouterr().out.splitlines()

    assert all(any(word in line for line in text) for word in said)
    assert json.loads(told)[-1] == {"node": "phb2", "missing": "it is away"}
    assert len(json.loads(told)) == len(rows) + 1
    assert "nothing" not in text


def test_a_listing_is_a_list_that_knows_whose_part_is_missing() -> None:
    listing = Listing([1, 2], [MissingAnswer("phb2", "it is away")])

    assert listing == [1, 2]
    assert pickle.loads(pickle.dumps(listing)).missing == listing.missing


def test_a_broker_that_does_not_answer_is_said(gapless: Gapless) -> None:
    """Port 1 of loopback: nobody may listen there but root."""
    result = gapless("subscriptions", "--url", "gapless://127.0.0.1:1", status=1)

    assert "cannot connect to gapless://127.0.0.1:1" in result.stderr
    assert "`gapless broker` starts" in result.stderr


def test_an_address_that_is_none_is_said(gapless: Gapless) -> None:
    assert "'http://here' is no address" in gapless("pubends", "--url", "http://here", status=2).stderr


def test_a_subscription_is_shown_to_people_with_units() -> None:
    info = SubscriptionInfo("desk", "late", ("a",), "", True, CheckpointToken("here", {"p@1": 7}), 1200, 61.0, True)

    assert subscription_json(info)["acknowledged"] == {"p@1": 7}
    assert (subscription_cells(info)["lag_events"], subscription_cells(info)["lag"]) == (1200, "1 min 1 s")


def test_what_was_not_counted_whole_is_at_least() -> None:
    info = SubscriptionInfo("desk", "late", ("a",), "", True, CheckpointToken("here", {"p@1": 7}), 1200, 61.0, False)

    said, cells = subscription_json(info), subscription_cells(info)

    assert (said["lag_events"], said["lag_seconds"], said["lag_complete"]) == (1200, 61.0, False)
    assert (cells["lag_events"], cells["lag"]) == ("at least 1,200", "at least 1 min 1 s")


def test_what_is_held_back_is_shown_where_it_is_known_of_any(capsys: pytest.CaptureFixture[str]) -> None:
    unknown = SubscriptionInfo("desk", "late", ("a",), "", True, CheckpointToken("here", {"p@1": 7}), 0, 0.0, True)
    known = replace(unknown, pinned_bytes=2048)

    assert [subscription_json(each)["pinned_bytes"] for each in (unknown, known)] == [None, 2048]
    assert [subscription_cells(each)["pinned"] for each in (unknown, known, replace(known, pinned_bytes=0))] == [
        None, "2.0 KiB", "0 bytes"
    ]  # fmt: skip
    assert "pinned" not in subscription_columns([unknown])
    columns = subscription_columns([unknown, known])
    show(Listing([unknown, known]), subscription_cells, columns, as_json=False, empty="nothing")
    said = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert [line for line in said if line.endswith("holds back")]
    assert [line.split()[-1] for line in said if "late" in line] == ["-", "KiB"]


@pytest.mark.parametrize(
    ("lost", "since"), [(0, "2026-01-31 12:00:00"), (tick_at_time(NOON.replace(hour=13)), "2026-01-31 13:00:00")]
)
def test_a_pubend_is_shown_to_people_with_times(lost: int, since: str) -> None:
    info = PubendInfo("p@1", ("#",), NOON, lost, 0, 0, 0, 2048, 1)

    assert pubend_json(info)["created"] == "2026-01-31T12:00:00+00:00"
    assert pubend_cells(info)["since"] == since
    assert pubend_cells(info)["newest_time"] is None
    assert pubend_cells(info)["log"] == "2.0 KiB"


@pytest.mark.parametrize(
    ("lost", "newest", "since", "last"),
    [
        (0, 0, "offset 0", None),
        (0, 42, "offset 0", "offset 41"),
        (7, (3 << OFFSET_BITS) + 42, "offset 7", "epoch 3, offset 41"),
        ((2 << OFFSET_BITS) + 10, (3 << OFFSET_BITS) + 42, "epoch 2, offset 10", "epoch 3, offset 41"),
    ],
)
def test_a_log_that_numbers_its_records_is_shown_with_offsets_and_no_times(
    lost: int, newest: int, since: str, last: str | None
) -> None:
    info = PubendInfo("t.0@id", ("t",), None, lost, newest, newest, 0, 0, 0, timed=False)

    cells = pubend_cells(info)
    assert (cells["since"], cells["newest_time"], cells["log"]) == (since, last, None)
    assert (pubend_json(info)["created"], pubend_json(info)["timed"]) == (None, False)
    assert "20" not in f"{cells['since']}{cells['newest_time']}"


def test_what_is_due_of_such_a_log_has_no_age() -> None:
    info = SubscriptionInfo("desk", "late", ("t",), "", False, CheckpointToken("here", {"t.0@id": 5}), 7, 0.0, True)

    assert subscription_cells(info)["lag"] is None
    assert subscription_cells(info)["lag_events"] == 7
