"""The `[phb]` section: what is right becomes settings, what is wrong is named."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any, cast

import pytest

from gapless import plugins
from gapless.core.ports import OpenLogs
from gapless.errors import ConfigurationError
from gapless.plugins import hookimpl
from gapless.spi import LogPlugin
from gapless_phb.config import PhbSection, PubendSection, settings_from
from gapless_phb.core.settings import PubendSettings, Settings
from gapless_phb.policies import Limits

NOT_CONFIGURABLE = {"max_event_bytes", "max_delivery_bytes", "void_limit", "logs"}


def test_nothing_said_is_the_default() -> None:
    assert settings_from({}) == Settings()


def test_every_setting_can_be_configured() -> None:
    assert set(PhbSection.model_fields) == {field.name for field in fields(Settings)} - NOT_CONFIGURABLE
    policy = {"release", "max_retain_seconds", "max_retain_bytes"}
    assert set(PubendSection.model_fields) - policy == {field.name for field in fields(PubendSettings)} - {"policy"}


def test_what_is_said_is_what_is_set() -> None:
    settings = settings_from(
        {
            "members": ["shb1"],
            "max_publishers": 2048,
            "pubends": [
                {"name": "flights", "topics": ["flights.#", "planes.*"], "max_retain_seconds": 2},
                {"name": "rest", "publishers": ["web-*", "ann"], "count": 4, "min_retain_bytes": 0},
            ],
        }
    )

    assert settings == Settings(
        members=("shb1",),
        max_publishers=2048,
        pubends=(
            PubendSettings("flights", ("flights.#", "planes.*"), policy=Limits(2.0)),
            PubendSettings("rest", publishers=("web-*", "ann"), count=4, min_retain_bytes=0),
        ),
    )


@pytest.mark.parametrize(
    ("section", "key"),
    [
        ({"max_publisher": 5}, r"phb\.max_publisher"),
        ({"max_publishers": 0}, r"phb\.max_publishers"),
        ({"max_publishers": "many"}, r"phb\.max_publishers"),
        ({"max_event_bytes": 5}, r"phb\.max_event_bytes"),
        ({"silence_seconds": float("inf")}, r"phb\.silence_seconds"),
        ({"silence_seconds": 1.5}, r"phb: .*reservation_seconds must be at least twice"),
        ({"pubends": []}, r"phb\.pubends: there is none"),
        ({"pubends": [{}]}, r"phb\.pubends\.0\.name"),
        ({"pubends": [{"name": "a@b"}]}, r"phb\.pubends\.0\.name"),
        ({"pubends": [{"name": "a"}, {"name": "b", "topic": "x"}]}, r"phb\.pubends\.1\.topic"),
        ({"pubends": [{"name": "a", "topics": []}]}, r"phb\.pubends\.0\.topics"),
        ({"pubends": [{"name": "a", "topics": ["x.#.y"]}]}, r"phb\.pubends\.0\.topics\.0.*whole last one"),
        ({"pubends": [{"name": "a", "publishers": ["a*b"]}]}, r"phb\.pubends\.0\.publishers\.0"),
        ({"pubends": [{"name": "a", "max_retain_seconds": 0}]}, r"phb\.pubends\.0\.max_retain_seconds"),
        ({"pubends": [{"name": "a", "min_retain_seconds": -1}]}, r"phb\.pubends\.0\.min_retain_seconds"),
        ({"pubends": [{"name": "a"}, {"name": "a"}]}, r"phb: .*a is configured twice"),
        ({"pubends": [{"name": "a-1"}, {"name": "a", "count": 2}]}, r"a-1 is configured twice"),
        ({"pubends": [{"name": "a", "max_retain_bytes": 0}]}, r"^phb\.pubends\.0\.max_retain_bytes: [^;]*$"),
        ({"pubends": [{"name": "a", "release": "limits"}]}, r"phb\.pubends\.0\.release"),
        ({"pubends": [{"name": "a", "release": {"days": 3}}]}, r"phb\.pubends\.0\.release\.plugin"),
        ({"pubends": [{"name": "a", "release": {"plugin": "nobody"}}]}, r"phb\.pubends\.0\.release: no release plugin"),
        ({"pubends": [{"name": "a", "release": {"plugin": "limits", "days": 3}}]}, r"phb\.pubends\.0\.release: days: "),
        (
            {"pubends": [{"name": "a", "max_retain_seconds": 5, "release": {"plugin": "limits"}}]},
            r"phb\.pubends\.0: max_retain_seconds goes with the policy that ships",
        ),
        (
            {"pubends": [{"name": "wide"}, {"name": "narrow", "topics": ["a.#"]}]},
            r"phb: pubends\.1: nothing is ever published to 'narrow', for 'wide' before it .*: put it first",
        ),
    ],
)
def test_what_is_wrong_is_named(section: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigurationError, match=key):
        settings_from(section)


def test_each_pubend_has_a_policy_of_its_own() -> None:
    settings = settings_from(
        {
            "pubends": [
                {"name": "telemetry", "topics": ["telemetry.#"], "max_retain_seconds": 60, "max_retain_bytes": 5000},
                {"name": "audit", "topics": ["audit.#"], "release": {"plugin": "limits", "max_retain_bytes": 7000}},
                {"name": "default"},
            ]
        }
    )

    policies = [pubend.policy for pubend in settings.pubends]
    assert policies == [Limits(60.0, 5000), Limits(None, 7000), None]


def test_all_that_is_wrong_is_named_at_once() -> None:
    with pytest.raises(ConfigurationError, match=r"phb\.members.*; .*phb\.nonsense|phb\.nonsense.*; .*phb\.members"):
        settings_from({"nonsense": 1, "members": [""]})


class LogsPlugin:
    """A log plugin with one option."""

    topics = ("tape",)

    @hookimpl
    def open_log(self, options: Mapping[str, object]) -> LogPlugin:
        if set(options) != {"server"}:
            raise ConfigurationError(f"server: it is needed, and nothing else: {sorted(options)}")
        return cast("LogPlugin", self)


@pytest.fixture
def _tapes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(plugins, "_added", {})
    plugins.add("log", "tapes", LogsPlugin())
    yield
    plugins.load.cache_clear()


@pytest.mark.usefixtures("_tapes")
def test_sections_that_name_a_log_plugin_are_for_it_to_check() -> None:
    settings = settings_from({"members": ["shb1"], "tapes": [{"server": "a"}, {"server": "b"}]})

    assert settings.logs == (
        OpenLogs("tapes", {"server": "a"}, ("tape",), {}),
        OpenLogs("tapes", {"server": "b"}, ("tape",), {}),
    )
    assert settings.members == ("shb1",)


@pytest.mark.usefixtures("_tapes")
@pytest.mark.parametrize(
    ("tapes", "fault"),
    [
        ([{"server": "a"}, {"sever": "b"}], r"phb\.tapes\.1: server: it is needed, and nothing else: \['sever'\]"),
        ({"server": "a"}, r"phb\.tapes: there may be several of these sections: write \[\[phb\.tapes\]\]"),
        (["a"], r"phb\.tapes: there may be several"),
    ],
)
def test_what_a_log_plugin_refuses_is_said_of_its_section(tapes: object, fault: str) -> None:
    with pytest.raises(ConfigurationError, match=fault):
        settings_from({"tapes": tapes})


def test_a_section_for_a_log_plugin_that_is_not_there_is_a_wrong_key() -> None:
    with pytest.raises(ConfigurationError, match=r"phb\.tapes: Extra inputs are not permitted"):
        settings_from({"tapes": [{"server": "a"}]})
