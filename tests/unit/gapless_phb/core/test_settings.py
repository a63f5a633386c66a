"""What follows from settings."""

from __future__ import annotations

from gapless.core.ports import OpenLogs
from gapless.core.stream.ticks import SECOND
from gapless_phb.core.settings import PubendSettings, Settings


def test_several_pubends_are_numbered_and_one_is_not() -> None:
    assert PubendSettings("a").names == ["a"]
    assert PubendSettings("a", count=3).names == ["a-0", "a-1", "a-2"]


def test_retention_in_ticks() -> None:
    assert PubendSettings().min_retain == 3600 * SECOND
    assert PubendSettings(min_retain_seconds=2.5).min_retain == 5 * SECOND // 2


def test_each_own_pubend_is_a_place_for_publishers_and_each_topic_of_logs() -> None:
    """The network is told how many there are: a log that is not found yet is among them."""
    logs = (OpenLogs("kafka", {}, ("k", "j"), {}), OpenLogs("kafka", {}, ("k",), {}))

    assert Settings().places == 1
    assert Settings((PubendSettings("a", count=3), PubendSettings("b"))).places == 4
    assert Settings((PubendSettings("a"),), logs).places == 3
