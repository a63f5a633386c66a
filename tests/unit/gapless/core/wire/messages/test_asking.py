"""Rows of listings, as brokers of other versions say them."""

from __future__ import annotations

import msgspec

from gapless.core.wire.messages import ListedSubscription


def test_a_row_of_an_older_broker_says_nothing_of_what_is_held_back() -> None:
    row = ListedSubscription(1, "c", "s", ("t",), "", False, [], 0, 0.0, True, waiting=("somebody",), pinned_bytes=7)
    *older, _, _ = msgspec.to_builtins(row)

    assert msgspec.convert(older, ListedSubscription) == msgspec.structs.replace(row, pinned_bytes=None)


def test_a_row_of_a_newer_broker_can_be_read() -> None:
    row = ListedSubscription(1, "c", "s", ("t",), "", False, [], 0, 0.0, True, pinned_bytes=7)

    assert msgspec.convert([*msgspec.to_builtins(row), "more"], ListedSubscription) == row
