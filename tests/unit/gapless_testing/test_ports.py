"""Tests of ports that a server is told of before it starts."""

from __future__ import annotations

import socket

import pytest

from gapless_testing import ports
from gapless_testing.ports import free_ports


def test_they_differ_and_can_be_listened_at() -> None:
    found = free_ports(6)

    assert len(set(found)) == 6
    for port in found:
        socket.create_server(("127.0.0.1", port)).close()


def test_one_that_is_taken_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", free_ports(1)[0])) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(ports, "_PORTS", range(port, port + 40))

        assert port not in free_ports(5)


def test_too_many_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_PORTS", range(20_000, 20_003))

    with pytest.raises(OSError, match="of 9 from 20000 to 20002"):
        free_ports(9)
