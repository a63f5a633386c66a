"""The suite's tests of bytes notice each broken promise."""

from __future__ import annotations

import pytest

from conformance import broken_transports as broken
from conformance.broken_transports import Breach, covers
from conformance.transports import TcpHarness
from gapless.core.wire.framing import FrameDecoder
from gapless_testing.transport.raw import ByteTests as Suite
from gapless_transport import tcp_link

BREACHES = [
    Breach(
        FrameDecoder, "feed", broken.feed_without_memory, Suite.test_frames_arrive_however_they_are_chopped, TcpHarness
    ),
    Breach(tcp_link, "encode_header", broken.header_backwards, Suite.test_a_frame_is_what_the_format_says, TcpHarness),
    Breach(
        FrameDecoder,
        "_cut",
        broken.cut_without_limit,
        Suite.test_a_huge_length_is_refused_before_its_bytes_come,
        TcpHarness,
    ),
    Breach(FrameDecoder, "_collect", broken.collect_in_advance, Suite.test_a_claim_costs_no_memory, TcpHarness),
    Breach(FrameDecoder, "_cut", broken.cut_without_limit, Suite.test_garbage_is_refused, TcpHarness),
    Breach(FrameDecoder, "_cut", broken.cut_without_limit, Suite.test_a_flipped_bit_is_refused, TcpHarness),
    Breach(
        FrameDecoder, "_hold", broken.hold_nothing, Suite.test_what_came_before_the_garbage_is_handed_over, TcpHarness
    ),
    Breach(
        FrameDecoder,
        "inside_frame",
        broken.never_inside,
        Suite.test_an_end_in_the_middle_of_a_frame_is_no_ordinary_end,
        TcpHarness,
    ),
]


@pytest.mark.parametrize("breach", BREACHES, ids=str)
def test_a_breach_is_noticed(monkeypatch: pytest.MonkeyPatch, breach: Breach) -> None:
    breach.check(monkeypatch)


def test_every_test_can_fail() -> None:
    covers(BREACHES, Suite)
