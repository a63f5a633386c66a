"""The suite's tests of listening notice each broken promise."""

from __future__ import annotations

import pytest

from conformance import broken_transports as broken
from conformance.broken_transports import Breach, covers
from conformance.transports import TcpHarness
from gapless_testing.transport.listening import ListenTests as Suite
from gapless_transport import addresses, memory_link
from gapless_transport.memory import MemoryListener, MemoryTransport
from gapless_transport.tcp import TcpTransport

BREACHES = [
    Breach(MemoryTransport, "dial", broken.dial_the_first, Suite.test_the_address_is_the_one_to_dial),
    Breach(memory_link, "_whole", broken.whole_blank, Suite.test_many_links),
    Breach(MemoryListener, "close", broken.close_nothing, Suite.test_closing_a_listener_keeps_its_links),
    Breach(
        MemoryListener, "close", broken.close_once, Suite.test_a_closed_listener_can_be_closed_and_its_address_taken
    ),
    Breach(MemoryListener, "close", broken.close_nothing, Suite.test_dialing_nobody),
    Breach(MemoryTransport, "listen", broken.listen_anyway, Suite.test_an_address_that_is_taken),
    Breach(addresses, "_is_host", broken.is_any_host, Suite.test_malformed_addresses, TcpHarness),
    Breach(
        TcpTransport, "dial", broken.dial_although_cancelled, Suite.test_a_cancelled_dial_leaves_no_link, TcpHarness
    ),
    Breach(
        MemoryTransport,
        "dial",
        broken.dial_and_block,
        Suite.test_the_address_is_the_one_to_dial,
        says="stood still for 0.5 s, in wait .*called by dial_and_block",
    ),
    Breach(
        TcpTransport,
        "is_loopback",
        broken.is_loopback_everywhere,
        Suite.test_only_loopback_is_loopback,
        TcpHarness,
        says=r"is_loopback\('0.0.0.0:7400'\) is true",
    ),
    Breach(
        TcpTransport,
        "is_loopback",
        broken.is_loopback_by_its_beginning,
        Suite.test_only_loopback_is_loopback,
        TcpHarness,
        says=r"is_loopback\('127.example:7400'\) is true",
    ),
    Breach(
        TcpTransport,
        "is_loopback",
        broken.is_loopback_nowhere,
        Suite.test_only_loopback_is_loopback,
        TcpHarness,
        says="is loopback, and is_loopback says no",
    ),
    Breach(MemoryTransport, "_pair", broken.pair_of_strangers, Suite.test_what_links_say_of_themselves),
]


@pytest.mark.parametrize("breach", BREACHES, ids=str)
def test_a_breach_is_noticed(monkeypatch: pytest.MonkeyPatch, breach: Breach) -> None:
    breach.check(monkeypatch)


def test_every_test_can_fail() -> None:
    covers(BREACHES, Suite)
