"""Accepting: limits, exhaustion, and connections that never become links."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import re
import resource
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import uvloop

from gapless_testing.running import settle
from gapless_testing.transport.ends import End, Ends
from gapless_transport import tcp_listener
from unit.gapless_transport.conftest import Listen, Open


async def raw(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = address.split(":")
    return await asyncio.open_connection(host, int(port))


async def test_connections_above_the_limit_are_closed_at_once(
    listen: Listen, open_tcp: Open, caplog: pytest.LogCaptureFixture
) -> None:
    transport = open_tcp(connections_max=2)
    listener, ends = await listen(transport)
    first, second = [await transport.dial(listener.address, End().accept) for _ in range(2)]
    await ends.get(1)

    for _ in range(3):
        reader, writer = await raw(listener.address)
        assert await reader.read() == b""
        writer.close()
    assert len(ends.all) == 2
    refusals = [record for record in caplog.records if "refuses connections" in record.message]
    assert len(refusals) == 1, "one line for a flood of them"
    first.close()
    await ends.all[0].end()
    again = End()
    third = await transport.dial(listener.address, again.accept)
    third.send([b"room again"])
    assert await (await ends.get(2)).frames(1) == [b"room again"]
    second.close()
    third.close()


def test_a_turn_of_the_loop_accepts_all_who_wait(open_tcp: Open) -> None:
    """With turns for each, a broker whose turns are long kept a hundred who came back waiting for a minute."""

    async def turns_for(count: int) -> int:
        ends = Ends()
        listener = await open_tcp().listen("127.0.0.1:0", ends.accept)
        host, port = listener.address.split(":")
        waiting = [socket.create_connection((host, int(port))) for _ in range(count)]
        turns = 0
        while len(ends.all) < count:
            await asyncio.sleep(0)
            turns += 1
        for connection in waiting:
            connection.close()
        for end in ends.all:
            await end.end()
        await listener.close()
        return turns

    assert uvloop.run(turns_for(60)) < 20


async def test_handshakes_count_as_connections_and_end(
    certificates: Mapping[str, Path], listen: Listen, open_tcp: Open
) -> None:
    """Whoever connects and says nothing does not keep others out for longer than the handshake may take."""
    own = {"certificate": certificates["certificate"], "key": certificates["key"]}
    listener, ends = await listen(open_tcp(**own, connections_max=1, handshake_timeout=0.3))
    silent, silent_writer = await raw(listener.address)
    refused, refused_writer = await raw(listener.address)

    assert await refused.read() == b""
    assert await silent.read() == b""
    near = End()
    link = await open_tcp(tls=True, ca=certificates["ca"]).dial(listener.address, near.accept)
    await ends.get(0)
    link.close()
    await near.end()
    for writer in (silent_writer, refused_writer):
        writer.close()


async def test_closing_does_not_wait_for_handshakes(
    certificates: Mapping[str, Path], listen: Listen, open_tcp: Open
) -> None:
    own = {"certificate": certificates["certificate"], "key": certificates["key"]}
    listener, ends = await listen(open_tcp(**own, handshake_timeout=3600))
    reader, writer = await raw(listener.address)
    await settle()
    await listener.close()

    assert await reader.read() == b""
    assert ends.all == []
    writer.close()


@contextlib.contextmanager
def no_files_left() -> Iterator[None]:
    """Takes every file that this process may open, and gives them back."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        assert error.errno == errno.EMFILE
        yield
    finally:
        for number in taken:
            os.close(number)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_listener_survives_that_files_run_out(
    listen: Listen, open_tcp: Open, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It rests, says so once, lets existing links work, and accepts again later (L06)."""
    loop = asyncio.get_running_loop()
    sock_accept = loop.sock_accept
    failures: asyncio.Queue[float] = asyncio.Queue()

    async def noting_failures(sock: socket.socket) -> tuple[socket.socket, object]:
        try:
            return await sock_accept(sock)
        except OSError:
            failures.put_nowait(loop.time())
            raise

    monkeypatch.setattr(loop, "sock_accept", noting_failures)
    monkeypatch.setattr(tcp_listener, "ACCEPT_PAUSE_SECONDS", 0.05)
    transport = open_tcp()
    listener, ends = await listen(transport)
    near = End()
    link = await transport.dial(listener.address, near.accept)
    await ends.get(0)
    waiting = socket.socket()
    waiting.setblocking(False)
    with no_files_left():
        host, port = listener.address.split(":")
        await loop.sock_connect(waiting, (host, int(port)))
        first = await failures.get()
        link.send([b"still here"])
        await ends.all[0].frames(1)
        second = await failures.get()
        assert len(ends.all) == 1

    await ends.get(1)
    assert second - first >= 0.05, "it tries again at once, and so all the time"
    said = [record for record in caplog.records if "cannot accept connections" in record.message]
    assert [record.levelno for record in said] == [logging.WARNING]
    waiting.close()
    link.close()
    await near.end()


async def test_a_refused_link_is_logged_with_its_reason(
    listen: Listen, open_tcp: Open, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_: End) -> None:
        raise LookupError("on purpose")

    listener, ends = await listen(open_tcp(), prepare=refuse)
    reader, writer = await raw(listener.address)

    assert await reader.read() == b""
    assert "was not accepted" in caplog.text
    assert "on purpose" in caplog.text
    ends.all.clear()
    writer.close()


@pytest.mark.parametrize(
    ("dialer", "reason"),
    [
        ("trusts another authority", ".*(does|may) not trust our certificate"),
        ("does not speak TLS", "the other end does not speak TLS"),
        ("hangs up", "it closed the connection during the TLS handshake"),
        ("shows no certificate", "the other end has shown no certificate, and `client_ca` asks for one"),
    ],
)
async def test_the_log_has_a_reason_for_each_link_that_did_not_come_about(
    certificates: Mapping[str, Path],
    other_certificates: Mapping[str, Path],
    listen: Listen,
    open_tcp: Open,
    caplog: pytest.LogCaptureFixture,
    dialer: str,
    reason: str,
) -> None:
    caplog.set_level(logging.INFO)
    asks = {"client_ca": certificates["ca"]} if "no certificate" in dialer else {}
    listener, ends = await listen(open_tcp(certificate=certificates["certificate"], key=certificates["key"], **asks))
    writer: asyncio.StreamWriter | None = None
    if dialer in {"does not speak TLS", "hangs up"}:
        _, writer = await raw(listener.address)
        if dialer == "does not speak TLS":
            writer.write(b"GET / HTTP/1.1\r\n\r\n" * 4)
        else:
            writer.transport.abort()
    else:
        trusted = other_certificates if "another" in dialer else certificates
        with contextlib.suppress(OSError):
            near = End()
            await open_tcp(tls=True, ca=trusted["ca"]).dial(listener.address, near.accept)
            await near.end()

    def said() -> list[str]:
        return [record.message for record in caplog.records if "no link with" in record.message]

    for _ in range(1000):
        if said():
            break
        await asyncio.sleep(0.01)
    assert re.search(rf"no link with 127\.0\.0\.1:\d+: ({reason})", said()[0]), said()
    assert ends.all == []
    if writer is not None:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
