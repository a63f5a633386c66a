"""The suite's tests of frames and their limits notice each broken promise."""

from __future__ import annotations

import pytest

from conformance import broken_transports as broken
from conformance.broken_transports import Breach, covers
from gapless_testing.transport.frames import FrameTests as Suite
from gapless_testing.transport.frames import LimitTests
from gapless_transport import memory_link
from gapless_transport.links import BaseLink, SendQueue
from gapless_transport.memory import MemoryListener
from gapless_transport.memory_link import MemoryLink

BREACHES = [
    Breach(memory_link, "_whole", broken.whole_cut, Suite.test_frames_of_every_size_arrive_whole),
    Breach(memory_link, "_whole", broken.whole_cut, Suite.test_large_frames_arrive_whole),
    Breach(
        MemoryLink,
        "raise_limit",
        broken.raise_limit_to_two_mebibytes,
        Suite.test_a_very_large_frame_arrives_whole,
        says="0 of 1 frames, missing #1; the link was closed .*8388611 bytes; at most 2097152",
    ),
    Breach(
        memory_link,
        "_whole",
        broken.whole_without_its_end,
        Suite.test_a_very_large_frame_arrives_whole,
        says="#1 came with other bytes at 8388610",
    ),
    Breach(memory_link, "_whole", broken.whole_as_bytearray, Suite.test_payloads_are_bytes, says="bytearray"),
    Breach(
        MemoryLink,
        "take",
        broken.take_without_the_200th,
        Suite.test_calls_keep_their_order,
        says="995 of 1000 frames, missing #200, #400, #600, #800, #1000 within 0.4 s",
    ),
    Breach(
        MemoryLink,
        "take",
        broken.take_the_first_twice,
        Suite.test_calls_keep_their_order,
        says="more than once #1",
    ),
    Breach(
        BaseLink,
        "_tell",
        broken.tell_on_a_thread,
        Suite.test_frames_of_every_size_arrive_whole,
        says="on_frames came on another thread than the loop's",
    ),
    Breach(
        MemoryLink,
        "send",
        broken.send_and_wait,
        Suite.test_frames_of_every_size_arrive_whole,
        says=r"stood still for 0.5 s, in wait .*called by send_and_wait",
    ),
    Breach(
        MemoryListener,
        "__init__",
        broken.new_listener_with_a_task,
        Suite.test_frames_of_every_size_arrive_whole,
        says="1 tasks go on .*look_after",
    ),
    Breach(
        MemoryListener,
        "__init__",
        broken.new_listener_with_a_thread,
        Suite.test_frames_of_every_size_arrive_whole,
        says="1 threads go on .*looks-after",
    ),
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
    Breach(
        MemoryLink,
        "_refuse",
        broken.refuse_in_silence,
        LimitTests.test_a_frame_above_the_limit_closes_the_link,
        says="on_broken is to come once, and came 0 times",
    ),
    Breach(
        MemoryLink,
        "_refuse",
        broken.refuse_and_hang_up,
        LimitTests.test_the_handler_of_a_broken_link_can_say_why,
        says="0 of 1 frames, missing #1",
    ),
    Breach(
        MemoryLink,
        "_refuse",
        broken.refuse_and_stay,
        LimitTests.test_a_broken_link_that_nobody_closes_is_closed,
        says="on_closed did not come within",
        seconds=broken.CLOSING,
    ),
    Breach(MemoryLink, "raise_limit", broken.nothing, LimitTests.test_a_raised_limit_holds_for_the_frame_right_behind),
    Breach(MemoryLink, "raise_limit", broken.raise_limit_far, LimitTests.test_a_raised_limit_is_a_limit),
]


@pytest.mark.parametrize("breach", BREACHES, ids=str)
def test_a_breach_is_noticed(monkeypatch: pytest.MonkeyPatch, breach: Breach) -> None:
    breach.check(monkeypatch)


def test_every_test_can_fail() -> None:
    covers(BREACHES, Suite, LimitTests)
