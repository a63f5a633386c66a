"""The suite's tests of flow notice each broken promise."""

from __future__ import annotations

import pytest

from conformance import broken_transports as broken
from conformance.broken_transports import Breach, covers
from gapless_testing.transport.flow import FlowTests as Suite
from gapless_testing.transport.flow import UrgentTests
from gapless_transport.links import SendQueue
from gapless_transport.memory_link import MemoryLink

BREACHES = [
    Breach(SendQueue, "put", broken.put_behind, UrgentTests.test_urgent_frames_overtake_what_is_pending),
    Breach(MemoryLink, "send", broken.send_nothing_urgent, UrgentTests.test_urgent_frames_arrive_on_an_idle_link),
    Breach(MemoryLink, "pause", broken.nothing, Suite.test_a_paused_end_is_not_given_frames),
    Breach(MemoryLink, "resume", broken.nothing, Suite.test_a_paused_end_is_not_given_frames),
    Breach(
        MemoryLink,
        "resume",
        broken.resume_at_once,
        Suite.test_pausing_while_frames_are_handed_over,
        says=r"on_frames came from within a call of resume\(\)",
    ),
    Breach(
        MemoryLink,
        "pause",
        broken.pause_with_a_last_frame,
        Suite.test_pausing_and_resuming_in_one_turn,
        says=r"on_frames came from within a call of pause\(\)",
    ),
    Breach(
        MemoryLink,
        "pause",
        broken.pause_from_the_next_frame,
        Suite.test_a_pause_holds_for_a_link_that_waits_for_its_next_frame,
        says="came with . frames although the link is paused",
    ),
    Breach(MemoryLink, "resume", broken.resume_as_often_as_paused, Suite.test_one_resume_ends_every_pause),
    Breach(MemoryLink, "_hand_over", broken.hand_over_while_paused, Suite.test_pausing_while_frames_are_handed_over),
    Breach(MemoryLink, "resume", broken.nothing, Suite.test_pausing_and_resuming_in_one_turn),
    Breach(MemoryLink, "_note_sent", broken.note_sent_always, Suite.test_drained_is_said_once_for_each_clog),
    Breach(
        MemoryLink,
        "_note_sent",
        broken.nothing,
        Suite.test_drained_is_said_once_for_each_clog,
        says="clog 1 is gone, 0 bytes are pending, and on_drained did not come",
    ),
    Breach(
        MemoryLink,
        "_note_sent",
        broken.note_sent_once,
        Suite.test_drained_is_said_once_for_each_clog,
        says="clog 2 is gone, 0 bytes are pending, and on_drained did not come",
    ),
    Breach(
        MemoryLink,
        "pump_soon",
        broken.pump_soon_and_tell,
        Suite.test_drained_is_said_once_for_each_clog,
        says="bytes pending, above low water: 32768",
    ),
    Breach(
        MemoryLink,
        "_note_pending",
        broken.note_pending_early,
        Suite.test_who_was_never_above_high_water_is_not_drained,
        says="on_drained came, and .* of 131072 bytes were pending",
    ),
    Breach(
        MemoryLink,
        "send",
        broken.send_and_drain,
        Suite.test_who_was_never_above_high_water_is_not_drained,
        says=r"on_drained came from within a call of send\(\)",
    ),
    Breach(
        MemoryLink,
        "send",
        broken.send_urgent_without_limit,
        Suite.test_urgent_frames_have_the_same_hard_limit,
        says="bytes are pending, more than",
    ),
    Breach(SendQueue, "take", broken.take_backwards, Suite.test_who_sends_when_drained_can_send_without_end),
    Breach(MemoryLink, "_note_pending", broken.note_pending_without_limit, Suite.test_what_is_pending_has_a_hard_limit),
]


@pytest.mark.parametrize("breach", BREACHES, ids=str)
def test_a_breach_is_noticed(monkeypatch: pytest.MonkeyPatch, breach: Breach) -> None:
    breach.check(monkeypatch)


def test_every_test_can_fail() -> None:
    covers(BREACHES, UrgentTests, Suite)
