"""Tests of ports that a server is told of before it starts."""

from __future__ import annotations

import asyncio
import socket

import pytest

from gapless_testing import ports
from gapless_testing.ports import free_ports


async def test_they_differ_and_servers_can_listen_there_again_and_again() -> None:
    found = free_ports(6)

    assert len(set(found)) == 6
    for port in [*found, *found]:
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", port)
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        server.close()
        await server.wait_closed()


def test_one_that_is_taken_or_was_given_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    given = free_ports(1)[0]
    monkeypatch.setattr(ports, "_PORTS", range(given, given + 40))
    with socket.create_server(("127.0.0.1", free_ports(1)[0])) as taken:
        found = free_ports(5)

        assert given not in found
        assert taken.getsockname()[1] not in found


def test_too_many_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_PORTS", range(20_000, 20_003))

    with pytest.raises(OSError, match="of 9 from 20000 to 20002"):
        free_ports(9)
