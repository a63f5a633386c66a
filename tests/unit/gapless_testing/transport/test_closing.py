"""The suite's tests of closing notice each broken promise."""

from __future__ import annotations

import pytest

from conformance import broken_transports as broken
from conformance.broken_transports import Breach, covers
from gapless_testing.transport.closing import CloseTests as Suite
from gapless_transport.memory_link import MemoryLink

BREACHES = [
    Breach(MemoryLink, "close", broken.close_at_once, Suite.test_closing_sends_what_is_pending),
    Breach(MemoryLink, "close", broken.close_at_once, Suite.test_closing_a_clogged_link_sends_what_is_pending),
    Breach(
        MemoryLink,
        "close",
        broken.close_in_its_own_time,
        Suite.test_closing_does_not_wait_for_ever,
        says="on_closed did not come within",
        seconds=broken.CLOSING,
    ),
    Breach(
        MemoryLink,
        "close",
        broken.close_and_tell,
        Suite.test_closing_sends_what_is_pending,
        says=r"on_closed came from within a call of close\(\)",
    ),
    Breach(
        MemoryLink,
        "close",
        broken.close_and_wait,
        Suite.test_both_ends_may_close,
        says="stood still for 0.5 s, in wait .*called by close_and_wait",
    ),
    Breach(
        MemoryLink,
        "_break",
        broken.vanish_with_a_goodbye,
        Suite.test_a_lost_connection_is_no_ordinary_end,
        says="the dialer vanished, and on_closed said that it just closed",
    ),
    Breach(
        MemoryLink,
        "_break",
        broken.vanish_with_a_goodbye,
        Suite.test_a_peer_that_vanishes_while_much_is_pending,
        says="lost with much pending",
    ),
    Breach(MemoryLink, "close", broken.close_with_the_last_reason, Suite.test_a_closed_link_does_nothing_more),
    Breach(MemoryLink, "take", broken.take_after_closing, Suite.test_nothing_is_handed_over_after_closing),
    Breach(
        MemoryLink,
        "close",
        broken.close_at_once,
        Suite.test_what_was_sent_just_before_closing_arrives_although_more_comes_in,
    ),
    Breach(MemoryLink, "close", broken.nothing, Suite.test_a_link_can_be_closed_in_accept),
    Breach(MemoryLink, "close", broken.nothing, Suite.test_both_ends_may_close),
    Breach(MemoryLink, "close", broken.nothing, Suite.test_a_paused_link_can_be_closed),
    Breach(MemoryLink, "_break", broken.break_in_silence, Suite.test_a_peer_that_vanishes),
    Breach(MemoryLink, "_break", broken.break_in_silence, Suite.test_a_peer_that_vanishes_while_much_is_pending),
]


@pytest.mark.parametrize("breach", BREACHES, ids=str)
def test_a_breach_is_noticed(monkeypatch: pytest.MonkeyPatch, breach: Breach) -> None:
    breach.check(monkeypatch)


def test_every_test_can_fail() -> None:
    covers(BREACHES, Suite)
