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
    Breach(MemoryLink, "_hand_over", broken.hand_over_while_paused, Suite.test_pausing_while_frames_are_handed_over),
    Breach(MemoryLink, "resume", broken.nothing, Suite.test_pausing_and_resuming_in_one_turn),
    Breach(MemoryLink, "_note_sent", broken.note_sent_always, Suite.test_drained_is_said_once_when_the_clog_is_gone),
    Breach(MemoryLink, "_note_sent", broken.nothing, Suite.test_drained_is_said_once_when_the_clog_is_gone),
    Breach(SendQueue, "take", broken.take_backwards, Suite.test_who_sends_when_drained_can_send_without_end),
    Breach(MemoryLink, "_note_pending", broken.note_pending_without_limit, Suite.test_what_is_pending_has_a_hard_limit),
]


@pytest.mark.parametrize("breach", BREACHES, ids=str)
def test_a_breach_is_noticed(monkeypatch: pytest.MonkeyPatch, breach: Breach) -> None:
    breach.check(monkeypatch)


def test_every_test_can_fail() -> None:
    covers(BREACHES, UrgentTests, Suite)
