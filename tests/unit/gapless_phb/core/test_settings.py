"""What follows from settings."""

from __future__ import annotations

from gapless.core.stream.ticks import SECOND
from gapless_phb.core.settings import PubendSettings


def test_several_pubends_are_numbered_and_one_is_not() -> None:
    assert PubendSettings("a").names == ["a"]
    assert PubendSettings("a", count=3).names == ["a-0", "a-1", "a-2"]


def test_retention_in_ticks() -> None:
    assert PubendSettings().min_retain == 3600 * SECOND
    assert PubendSettings(min_retain_seconds=2.5).min_retain == 5 * SECOND // 2
