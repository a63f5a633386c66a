"""Options of the source: each as Spark hands it over, and what is wrong with one is said with its name."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime, timezone
from typing import Any

import pytest

from gapless.errors import ConfigurationError
from gapless_spark.options import LOGIN, OPTIONS, SourceOptions, source_options

LEAST = {"brokers": "h:1", "subscription": "s"}


def stream(**given: str) -> SourceOptions:
    """The options of a stream that says these as well."""
    return source_options({**LEAST, **given}, streaming=True)


def test_each_option_is_a_field_and_each_field_an_option() -> None:
    assert {field for field, _ in OPTIONS.values()} - {*LOGIN} == {field.name for field in fields(SourceOptions)}


def test_what_is_not_said_has_its_default() -> None:
    assert stream() == SourceOptions("gapless://h:1", "s")
    assert source_options({"brokers": "h:1"}, streaming=False).starting_offsets == "earliest"


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        ("brokers", "a:1,b:2", "brokers", "gapless://a:1,b:2"),
        ("brokers", "gapless+tls://a:1", "brokers", "gapless+tls://a:1"),
        ("topics", "a.*, b.#", "topics", ("a.*", "b.#")),
        ("selector", "n > 3", "selector", "n > 3"),
        (
            "startingtimestamp",
            "2026-03-01T12:00:00Z",
            "starting_timestamp",
            datetime(2026, 3, 1, 12, tzinfo=timezone.utc),
        ),
        ("failongap", "False", "fail_on_gap", False),
        ("failondataloss", "false", "fail_on_gap", False),
        ("MAXEVENTSPERTRIGGER", "500", "max_events", 500),
        ("polltimeout", "50", "poll_timeout", 0.05),
        ("polltimeout", "1.5s", "poll_timeout", 1.5),
        ("brokertimeout", "2m", "broker_timeout", 120.0),
        ("acktiming", "eager", "ack_timing", "eager"),
        ("gapless.acklag", "3", "ack_lag", 3),
        ("arrowbatchrows", "16000", "arrow_batch_rows", 16_000),
        ("pushdown", "true", "pushdown", True),
    ],
)
def test_an_option_is_taken_in_any_case(name: str, text: str, field: str, value: Any) -> None:
    given = {key: value for key, value in LEAST.items() if key != name} | {name: text}

    assert getattr(source_options(given, streaming=True), field) == value


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"maxeventspertrigger": "0"}, "maxEventsPerTrigger is an integer, at least 1; '0' is not"),
        ({"minpartitions": "-1"}, "minPartitions is an integer"),
        ({"failongap": "maybe"}, "failOnGap is true or false; 'maybe'"),
        ({"polltimeout": "soon"}, "pollTimeout is a time like"),
        ({"acktiming": "late"}, "ackTiming is auto or eager"),
        ({"startingtimestamp": "2026-03-01"}, "startingTimestamp is a time with its zone"),
        ({"startingtimestamp": "yesterday"}, "startingTimestamp is a time with its zone"),
        ({"topics": "a..b"}, "option topics:"),
        ({"selector": "n >"}, "option selector:"),
        ({"subscription": ""}, "option subscription:"),
        ({"brokers": " "}, "brokers names at least one"),
        ({"failongap": "true", "failondataloss": "true"}, "say one of them"),
        ({"startingtimestamp": "2026-03-01T12:00:00Z", "startingoffsets": "latest"}, "say one of them"),
        ({"gapless.maxeventpertrigger": "5"}, "did you mean maxEventsPerTrigger"),
        ({"gapless.zzz": "5"}, "there are brokers"),
        ({"maxEventPerTrigger": "5"}, "no option maxEventPerTrigger; did you mean maxEventsPerTrigger"),
        ({"topic": "t"}, "did you mean topics"),
        ({"startingoffset": "earliest"}, "did you mean startingOffsets"),
        ({"maxFilesPerTrigger": "5"}, "no option maxFilesPerTrigger; did you mean"),
    ],
)
def test_what_is_wrong_is_said(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        source_options({**LEAST, **given}, streaming=True)


def test_what_is_missing_is_said() -> None:
    with pytest.raises(ConfigurationError, match="option brokers is missing"):
        source_options({}, streaming=False)
    with pytest.raises(ConfigurationError, match="option subscription is missing"):
        source_options({"brokers": "h:1"}, streaming=True)
    with pytest.raises(ConfigurationError, match="option startingOffsets: there is no option subscription"):
        source_options({"brokers": "h:1", "startingOffsets": "subscription"}, streaming=False)
    assert source_options({"brokers": "h:1"}, streaming=False).subscription is None


def test_options_of_others_are_passed_over() -> None:
    """Spark passes its own along, and what file sources have."""
    assert stream(basepath="x", pathglobfilter="*", recursivefilelookup="true", mergeschema="true") == stream()
    assert stream(path="x", provider="gapless", checkpointLocation="y", owner="me") == stream()


@pytest.mark.parametrize(
    ("given", "brokers"),
    [
        ({"user": "ann", "passwordFile": "/run/pw"}, "gapless://ann@h:1?password_file=/run/pw"),
        ({"tokenFile": "/run/t"}, "gapless://h:1?token_file=/run/t"),
        ({"brokers": "gapless+tls://h:1?ca=/c", "tokenFile": "/t"}, "gapless+tls://h:1?ca=/c&token_file=/t"),
        ({"user": "ann"}, "gapless://ann@h:1?password_file=/run/env"),
        ({"brokers": "gapless://ann@h:1"}, "gapless://ann@h:1"),
        ({}, "gapless://h:1"),
    ],
)
def test_who_reads_goes_to_the_workers_in_the_address_and_no_secret_does(
    given: dict[str, str], brokers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GAPLESS_PASSWORD_FILE", "/run/env")

    assert stream(**given).brokers == brokers


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"brokers": "gapless://ann@h:1", "user": "bob"}, "names one of its own"),
        ({"user": "ann", "tokenFile": "/t"}, "a token says itself"),
        ({"passwordFile": "/t"}, "needs a user"),
        ({"password": "S3CRET"}, "there is no option password; did you mean passwordFile"),
        ({"gapless.token": "S3CRET"}, "there is no option gapless.token; did you mean tokenFile"),
        ({"brokers": "ann:S3CRET@h:1", "user": "bob"}, "with a password or a token in it is not taken"),
    ],
)
def test_who_reads_is_said_once_and_without_a_secret(
    given: dict[str, str], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GAPLESS_PASSWORD_FILE", raising=False)
    with pytest.raises(ConfigurationError, match=problem) as error:
        stream(**given)

    assert "S3CRET" not in str(error.value)
