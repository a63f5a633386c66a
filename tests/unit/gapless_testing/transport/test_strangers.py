"""The suite's tests of strangers notice each way not to get over them."""

from __future__ import annotations

import pytest

from conformance import broken_transports as broken
from conformance.broken_transports import Breach, covers
from conformance.transports import TcpHarness
from gapless_testing.transport.strangers import StrangerTests as Suite
from gapless_transport.tcp import TcpTransport
from gapless_transport.tcp_listener import TcpListener

BREACHES = [
    Breach(
        TcpTransport,
        "dial",
        broken.dial_and_despair,
        Suite.test_dialing_who_speaks_something_else,
        TcpHarness,
        says="raised RuntimeError, no OSError",
    ),
    Breach(
        TcpTransport,
        "dial",
        broken.dial_and_despair,
        Suite.test_dialing_who_hangs_up,
        TcpHarness,
        says="raised RuntimeError, no OSError",
    ),
    Breach(
        TcpTransport,
        "dial",
        broken.dial_and_keep,
        Suite.test_dialing_who_says_nothing_can_be_cancelled,
        TcpHarness,
        says="its connection was not closed",
    ),
    Breach(
        TcpListener,
        "_establish",
        broken.establish_in_its_own_time,
        Suite.test_who_connects_and_says_nothing_is_let_go,
        broken.tls_harness,
        says="is to be let go by a timeout of the handshake",
        seconds=broken.CLOSING,
    ),
]


@pytest.mark.parametrize("breach", BREACHES, ids=str)
def test_a_breach_is_noticed(monkeypatch: pytest.MonkeyPatch, breach: Breach) -> None:
    breach.check(monkeypatch)


def test_every_test_can_fail() -> None:
    covers(BREACHES, Suite)
