"""The plugin against the suite that gapless ships for transports."""

from __future__ import annotations

import pytest
from gapless_websocket_transport.link import WebSocketLink

from gapless import plugins
from gapless.spi import Link, Transport
from gapless_testing.transport import TransportHarness, TransportSuite


class WebSocketHarness(TransportHarness):
    """On loopback, with limits that are small enough for quick tests."""

    address = "127.0.0.1:0"
    malformed = ("", "127.0.0.1", ":7480", "127.0.0.1:", "127.0.0.1:65536", "::1:7480", "a b:1", "ws://host:1")
    carries_bytes = False
    frame_limit = 4096
    high_water, low_water, pending_max = 128 << 10, 32 << 10, 16 << 20

    def transport(self) -> Transport:
        open_transport = plugins.load("transport", "ws")
        options = {
            "frame_limit": self.frame_limit,
            "high_water": self.high_water,
            "low_water": self.low_water,
            "pending_max": self.pending_max,
            "handshake_timeout": 1.0,
            "close_timeout": 1.0,
        }
        transport: Transport = open_transport(options=options)
        return transport

    def vanish(self, link: Link) -> None:
        assert isinstance(link, WebSocketLink)
        link.fail("vanished")


class TestWebSocket(TransportSuite):
    """All of it."""

    @pytest.fixture
    def harness(self) -> TransportHarness:
        return WebSocketHarness()
