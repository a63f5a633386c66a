"""The suite of transports notices each broken promise."""

from __future__ import annotations

import pytest

from conformance import broken_transports as broken
from conformance.broken_transports import Breach, covers
from conformance.transports import TcpHarness
from gapless.core.wire.framing import FrameDecoder
from gapless_testing.transport.certificates import CertificateTests
from gapless_testing.transport.closing import CloseTests
from gapless_testing.transport.flow import FlowTests, UrgentTests
from gapless_testing.transport.frames import FrameTests, LimitTests
from gapless_testing.transport.handlers import HandlerTests
from gapless_testing.transport.isolation import IsolationTests
from gapless_testing.transport.listening import ListenTests
from gapless_testing.transport.raw import ByteTests
from gapless_testing.transport.strangers import StrangerTests
from gapless_transport import addresses, links, memory, memory_link, tcp_link
from gapless_transport.links import BaseLink, SendQueue
from gapless_transport.memory import MemoryListener, MemoryTransport
from gapless_transport.memory_link import MemoryLink
from gapless_transport.tcp import TcpTransport
from gapless_transport.tcp_listener import TcpListener
from gapless_transport.tls_files import TlsFiles

BREACHES = [
    Breach(MemoryLink, "close", broken.close_at_once, CloseTests.test_closing_sends_what_is_pending),
    Breach(MemoryLink, "close", broken.close_at_once, CloseTests.test_closing_a_clogged_link_sends_what_is_pending),
    Breach(
        MemoryLink,
        "close",
        broken.close_in_its_own_time,
        CloseTests.test_closing_does_not_wait_for_ever,
        says="on_closed did not come within",
        seconds=broken.CLOSING,
    ),
    Breach(
        MemoryLink,
        "close",
        broken.close_and_tell,
        CloseTests.test_closing_sends_what_is_pending,
        says=r"on_closed came from within a call of close\(\)",
    ),
    Breach(
        MemoryLink,
        "close",
        broken.close_and_wait,
        CloseTests.test_both_ends_may_close,
        says="stood still for 0.5 s, in wait .*called by close_and_wait",
    ),
    Breach(
        MemoryLink,
        "_break",
        broken.vanish_with_a_goodbye,
        CloseTests.test_a_lost_connection_is_no_ordinary_end,
        says="the dialer vanished, and on_closed said that it just closed",
    ),
    Breach(
        MemoryLink,
        "_break",
        broken.vanish_with_a_goodbye,
        CloseTests.test_a_peer_that_vanishes_while_much_is_pending,
        says="lost with much pending",
    ),
    Breach(MemoryLink, "close", broken.close_with_the_last_reason, CloseTests.test_a_closed_link_does_nothing_more),
    Breach(MemoryLink, "take", broken.take_after_closing, CloseTests.test_nothing_is_handed_over_after_closing),
    Breach(
        MemoryLink,
        "close",
        broken.close_at_once,
        CloseTests.test_what_was_sent_just_before_closing_arrives_although_more_comes_in,
    ),
    Breach(MemoryLink, "close", broken.nothing, CloseTests.test_a_link_can_be_closed_in_accept),
    Breach(MemoryLink, "close", broken.nothing, CloseTests.test_both_ends_may_close),
    Breach(MemoryLink, "close", broken.nothing, CloseTests.test_a_paused_link_can_be_closed),
    Breach(MemoryLink, "_break", broken.break_in_silence, CloseTests.test_a_peer_that_vanishes),
    Breach(MemoryLink, "_break", broken.break_in_silence, CloseTests.test_a_peer_that_vanishes_while_much_is_pending),
    Breach(SendQueue, "put", broken.put_behind, UrgentTests.test_urgent_frames_overtake_what_is_pending),
    Breach(MemoryLink, "send", broken.send_nothing_urgent, UrgentTests.test_urgent_frames_arrive_on_an_idle_link),
    Breach(MemoryLink, "pause", broken.nothing, FlowTests.test_a_paused_end_is_not_given_frames),
    Breach(MemoryLink, "resume", broken.nothing, FlowTests.test_a_paused_end_is_not_given_frames),
    Breach(
        MemoryLink,
        "resume",
        broken.resume_at_once,
        FlowTests.test_pausing_while_frames_are_handed_over,
        says=r"on_frames came from within a call of resume\(\)",
    ),
    Breach(
        MemoryLink,
        "pause",
        broken.pause_with_a_last_frame,
        FlowTests.test_pausing_and_resuming_in_one_turn,
        says=r"on_frames came from within a call of pause\(\)",
    ),
    Breach(
        MemoryLink,
        "pause",
        broken.pause_from_the_next_frame,
        FlowTests.test_a_pause_holds_for_a_link_that_waits_for_its_next_frame,
        says="came with . frames although the link is paused",
    ),
    Breach(MemoryLink, "resume", broken.resume_as_often_as_paused, FlowTests.test_one_resume_ends_every_pause),
    Breach(
        MemoryLink, "_hand_over", broken.hand_over_while_paused, FlowTests.test_pausing_while_frames_are_handed_over
    ),
    Breach(MemoryLink, "resume", broken.nothing, FlowTests.test_pausing_and_resuming_in_one_turn),
    Breach(MemoryLink, "_note_sent", broken.note_sent_always, FlowTests.test_drained_is_said_once_for_each_clog),
    Breach(
        MemoryLink,
        "_note_sent",
        broken.nothing,
        FlowTests.test_drained_is_said_once_for_each_clog,
        says="clog 1 is gone, 0 bytes are pending, and on_drained did not come",
    ),
    Breach(
        MemoryLink,
        "_note_sent",
        broken.note_sent_once,
        FlowTests.test_drained_is_said_once_for_each_clog,
        says="clog 2 is gone, 0 bytes are pending, and on_drained did not come",
    ),
    Breach(
        MemoryLink,
        "pump_soon",
        broken.pump_soon_and_tell,
        FlowTests.test_drained_is_said_once_for_each_clog,
        says="bytes pending, above low water: 32768",
    ),
    Breach(
        MemoryLink,
        "_note_pending",
        broken.note_pending_early,
        FlowTests.test_who_was_never_above_high_water_is_not_drained,
        says="on_drained came, and .* of 131072 bytes were pending",
    ),
    Breach(
        MemoryLink,
        "send",
        broken.send_and_drain,
        FlowTests.test_who_was_never_above_high_water_is_not_drained,
        says=r"on_drained came from within a call of send\(\)",
    ),
    Breach(
        MemoryLink,
        "send",
        broken.send_urgent_without_limit,
        FlowTests.test_urgent_frames_have_the_same_hard_limit,
        says="bytes are pending, more than",
    ),
    Breach(SendQueue, "take", broken.take_backwards, FlowTests.test_who_sends_when_drained_can_send_without_end),
    Breach(
        MemoryLink, "_note_pending", broken.note_pending_without_limit, FlowTests.test_what_is_pending_has_a_hard_limit
    ),
    Breach(memory_link, "_whole", broken.whole_cut, FrameTests.test_frames_of_every_size_arrive_whole),
    Breach(memory_link, "_whole", broken.whole_cut, FrameTests.test_large_frames_arrive_whole),
    Breach(
        MemoryLink,
        "raise_limit",
        broken.raise_limit_to_two_mebibytes,
        FrameTests.test_a_very_large_frame_arrives_whole,
        says="0 of 1 frames, missing #1; the link was closed .*8388611 bytes; at most 2097152",
    ),
    Breach(
        memory_link,
        "_whole",
        broken.whole_without_its_end,
        FrameTests.test_a_very_large_frame_arrives_whole,
        says="#1 came with other bytes at 8388610",
    ),
    Breach(memory_link, "_whole", broken.whole_as_bytearray, FrameTests.test_payloads_are_bytes, says="bytearray"),
    Breach(
        MemoryLink,
        "take",
        broken.take_without_the_200th,
        FrameTests.test_calls_keep_their_order,
        says="995 of 1000 frames, missing #200, #400, #600, #800, #1000 within 0.4 s",
    ),
    Breach(
        MemoryLink,
        "take",
        broken.take_the_first_twice,
        FrameTests.test_calls_keep_their_order,
        says="more than once #1",
    ),
    Breach(
        BaseLink,
        "_tell",
        broken.tell_on_a_thread,
        FrameTests.test_frames_of_every_size_arrive_whole,
        says="on_frames came on another thread than the loop's",
    ),
    Breach(
        MemoryLink,
        "send",
        broken.send_and_wait,
        FrameTests.test_frames_of_every_size_arrive_whole,
        says=r"stood still for 0.5 s, in wait .*called by send_and_wait",
    ),
    Breach(
        MemoryListener,
        "__init__",
        broken.new_listener_with_a_task,
        FrameTests.test_frames_of_every_size_arrive_whole,
        says="1 tasks go on .*look_after",
    ),
    Breach(
        MemoryListener,
        "__init__",
        broken.new_listener_with_a_thread,
        FrameTests.test_frames_of_every_size_arrive_whole,
        says="1 threads go on .*looks-after",
    ),
    Breach(memory_link, "_whole", broken.whole_first, FrameTests.test_a_pair_is_one_payload),
    Breach(SendQueue, "put", broken.put_first, FrameTests.test_calls_keep_their_order),
    Breach(memory_link, "_whole", broken.whole_backwards, FrameTests.test_both_directions_at_once),
    Breach(MemoryLink, "send", broken.send_once_accepted, FrameTests.test_a_handler_may_send_from_accept),
    Breach(memory_link, "_size", broken.size_unchecked, FrameTests.test_an_empty_payload_is_refused_and_nothing_sent),
    Breach(
        MemoryLink, "pending", property(broken.pending_something), FrameTests.test_nothing_stays_pending_on_an_idle_link
    ),
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
    Breach(BaseLink, "_tell", broken.tell_and_forgive, HandlerTests.test_a_handler_that_raises_loses_its_link),
    Breach(
        BaseLink, "_tell", broken.tell_and_forgive, HandlerTests.test_a_handler_that_raises_when_drained_loses_its_link
    ),
    Breach(BaseLink, "_tell", broken.tell_unguarded, HandlerTests.test_a_handler_that_raises_when_closed_harms_nobody),
    Breach(
        links,
        "logger",
        broken.SilentLogger,
        HandlerTests.test_a_handler_that_raises_loses_its_link,
        says="the handler raised, and nothing was logged",
    ),
    Breach(
        memory,
        "logger",
        broken.SilentLogger,
        HandlerTests.test_an_accept_that_raises_refuses_one_link,
        says="accept raised, and nothing was logged",
    ),
    Breach(BaseLink, "begin", broken.begin_unguarded, HandlerTests.test_an_accept_that_raises_refuses_one_link),
    Breach(BaseLink, "begin", broken.begin_in_silence, HandlerTests.test_an_accept_that_raises_makes_dial_raise),
    Breach(
        MemoryLink,
        "__init__",
        broken.new_link_with_a_shared_queue,
        IsolationTests.test_a_clogged_link_clogs_no_other,
        says="one link is clogged, and of another, that sent nothing, .* bytes are pending",
    ),
    Breach(MemoryLink, "raise_limit", broken.raise_limit_of_newcomers, IsolationTests.test_a_raised_limit_is_one_links),
    Breach(
        BaseLink,
        "_end",
        broken.end_with_the_reason_before,
        IsolationTests.test_the_end_of_one_link_is_no_others,
        says="a link ended with the reason of another one",
    ),
    Breach(
        TcpTransport,
        "__init__",
        broken.new_tcp_that_holds_no_link,
        IsolationTests.test_a_link_that_nobody_holds_lives,
        TcpHarness,
        says="was collected, although nobody closed it",
    ),
    Breach(
        BaseLink,
        "begin",
        broken.begin_and_learn_later,
        CertificateTests.test_what_links_say_of_certificates,
        broken.tls_harness,
        says="has changed since its `accept`",
    ),
    Breach(
        TcpListener,
        "_welcome",
        broken.welcome_without_a_word,
        CertificateTests.test_what_links_say_of_certificates,
        broken.tls_harness,
        says="do not name the same certificate",
    ),
    Breach(
        BaseLink,
        "begin",
        broken.begin_with_a_certificate,
        CertificateTests.test_what_links_say_of_certificates,
        TcpHarness,
        says="a link without TLS has a certificate",
    ),
    Breach(
        TcpTransport,
        "troubles",
        broken.troubles_twice,
        CertificateTests.test_troubles_are_told_apart,
        broken.tls_harness,
        says="2 troubles at a time are",
    ),
    Breach(
        TcpTransport,
        "troubles",
        broken.no_troubles,
        CertificateTests.test_files_that_cannot_be_used_disturb_nobody,
        broken.tls_harness,
        says="files were spoilt, and it told nobody within",
    ),
    Breach(
        TlsFiles,
        "look",
        broken.look_and_despair,
        CertificateTests.test_files_that_cannot_be_used_disturb_nobody,
        broken.tls_harness,
        seconds=broken.CLOSING,
    ),
    Breach(MemoryTransport, "dial", broken.dial_the_first, ListenTests.test_the_address_is_the_one_to_dial),
    Breach(memory_link, "_whole", broken.whole_blank, ListenTests.test_many_links),
    Breach(MemoryListener, "close", broken.close_nothing, ListenTests.test_closing_a_listener_keeps_its_links),
    Breach(
        MemoryListener,
        "close",
        broken.close_once,
        ListenTests.test_a_closed_listener_can_be_closed_and_its_address_taken,
    ),
    Breach(MemoryListener, "close", broken.close_nothing, ListenTests.test_dialing_nobody),
    Breach(MemoryTransport, "listen", broken.listen_anyway, ListenTests.test_an_address_that_is_taken),
    Breach(addresses, "_is_host", broken.is_any_host, ListenTests.test_malformed_addresses, TcpHarness),
    Breach(
        TcpTransport,
        "dial",
        broken.dial_although_cancelled,
        ListenTests.test_a_cancelled_dial_leaves_no_link,
        TcpHarness,
    ),
    Breach(
        MemoryTransport,
        "dial",
        broken.dial_and_block,
        ListenTests.test_the_address_is_the_one_to_dial,
        says="stood still for 0.5 s, in wait .*called by dial_and_block",
    ),
    Breach(
        TcpTransport,
        "is_loopback",
        broken.is_loopback_everywhere,
        ListenTests.test_only_loopback_is_loopback,
        TcpHarness,
        says=r"is_loopback\('0.0.0.0:7400'\) is true",
    ),
    Breach(
        TcpTransport,
        "is_loopback",
        broken.is_loopback_by_its_beginning,
        ListenTests.test_only_loopback_is_loopback,
        TcpHarness,
        says=r"is_loopback\('127.example:7400'\) is true",
    ),
    Breach(
        TcpTransport,
        "is_loopback",
        broken.is_loopback_nowhere,
        ListenTests.test_only_loopback_is_loopback,
        TcpHarness,
        says="is loopback, and is_loopback says no",
    ),
    Breach(MemoryTransport, "_pair", broken.pair_of_strangers, ListenTests.test_what_links_say_of_themselves),
    Breach(
        FrameDecoder,
        "feed",
        broken.feed_without_memory,
        ByteTests.test_frames_arrive_however_they_are_chopped,
        TcpHarness,
    ),
    Breach(
        tcp_link, "encode_header", broken.header_backwards, ByteTests.test_a_frame_is_what_the_format_says, TcpHarness
    ),
    Breach(
        FrameDecoder,
        "_cut",
        broken.cut_without_limit,
        ByteTests.test_a_huge_length_is_refused_before_its_bytes_come,
        TcpHarness,
    ),
    Breach(FrameDecoder, "_collect", broken.collect_in_advance, ByteTests.test_a_claim_costs_no_memory, TcpHarness),
    Breach(FrameDecoder, "_cut", broken.cut_without_limit, ByteTests.test_garbage_is_refused, TcpHarness),
    Breach(FrameDecoder, "_cut", broken.cut_without_limit, ByteTests.test_a_flipped_bit_is_refused, TcpHarness),
    Breach(
        FrameDecoder,
        "_hold",
        broken.hold_nothing,
        ByteTests.test_what_came_before_the_garbage_is_handed_over,
        TcpHarness,
    ),
    Breach(
        FrameDecoder,
        "inside_frame",
        broken.never_inside,
        ByteTests.test_an_end_in_the_middle_of_a_frame_is_no_ordinary_end,
        TcpHarness,
    ),
    Breach(
        TcpTransport,
        "dial",
        broken.dial_and_despair,
        StrangerTests.test_dialing_who_speaks_something_else,
        TcpHarness,
        says="raised RuntimeError, no OSError",
    ),
    Breach(
        TcpTransport,
        "dial",
        broken.dial_and_despair,
        StrangerTests.test_dialing_who_hangs_up,
        TcpHarness,
        says="raised RuntimeError, no OSError",
    ),
    Breach(
        TcpTransport,
        "dial",
        broken.dial_and_keep,
        StrangerTests.test_dialing_who_says_nothing_can_be_cancelled,
        TcpHarness,
        says="its connection was not closed",
    ),
    Breach(
        TcpListener,
        "_establish",
        broken.establish_in_its_own_time,
        StrangerTests.test_who_connects_and_says_nothing_is_let_go,
        broken.tls_harness,
        says="is to be let go by a timeout of the handshake",
        seconds=broken.CLOSING,
    ),
]


@pytest.mark.parametrize("breach", BREACHES, ids=str)
def test_a_breach_is_noticed(monkeypatch: pytest.MonkeyPatch, breach: Breach) -> None:
    breach.check(monkeypatch)


def test_every_test_can_fail() -> None:
    covers(
        BREACHES,
        CloseTests,
        UrgentTests,
        FlowTests,
        FrameTests,
        LimitTests,
        HandlerTests,
        IsolationTests,
        ListenTests,
        ByteTests,
        StrangerTests,
        CertificateTests,
    )
