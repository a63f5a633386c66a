"""The suite's tests of frames and their limits notice each broken promise."""

from __future__ import annotations

import pytest

from conformance import broken_transports as broken
from conformance.broken_transports import Breach, covers
from gapless_testing.transport.frames import FrameTests as Suite
from gapless_testing.transport.frames import LimitTests
from gapless_transport import memory_link
from gapless_transport.links import SendQueue
from gapless_transport.memory_link import MemoryLink

BREACHES = [
    Breach(memory_link, "_whole", broken.whole_cut, Suite.test_frames_of_every_size_arrive_whole),
    Breach(memory_link, "_whole", broken.whole_cut, Suite.test_large_frames_arrive_whole),
    Breach(memory_link, "_whole", broken.whole_as_bytearray, Suite.test_payloads_are_bytes),
    Breach(memory_link, "_whole", broken.whole_first, Suite.test_a_pair_is_one_payload),
    Breach(SendQueue, "put", broken.put_first, Suite.test_calls_keep_their_order),
    Breach(memory_link, "_whole", broken.whole_backwards, Suite.test_both_directions_at_once),
    Breach(MemoryLink, "send", broken.send_once_accepted, Suite.test_a_handler_may_send_from_accept),
    Breach(memory_link, "_size", broken.size_unchecked, Suite.test_an_empty_payload_is_refused_and_nothing_sent),
    Breach(MemoryLink, "pending", property(broken.pending_something), Suite.test_nothing_stays_pending_on_an_idle_link),
    Breach(
        MemoryLink, "_within_limit", broken.within_any_limit, LimitTests.test_a_frame_above_the_limit_closes_the_link
    ),
    Breach(MemoryLink, "_within_limit", broken.within_limit_or_none, LimitTests.test_frames_before_it_are_handed_over),
    Breach(MemoryLink, "raise_limit", broken.nothing, LimitTests.test_a_raised_limit_holds_for_the_frame_right_behind),
    Breach(MemoryLink, "raise_limit", broken.raise_limit_far, LimitTests.test_a_raised_limit_is_a_limit),
]


@pytest.mark.parametrize("breach", BREACHES, ids=str)
def test_a_breach_is_noticed(monkeypatch: pytest.MonkeyPatch, breach: Breach) -> None:
    breach.check(monkeypatch)


def test_every_test_can_fail() -> None:
    covers(BREACHES, Suite, LimitTests)
