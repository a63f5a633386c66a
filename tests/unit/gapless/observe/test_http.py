"""HTTP in its thread, over real sockets: whoever asks for too much, or too slowly, costs little and harms nobody."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from gapless.core.principals import NO_CERTIFICATE, Certificate
from gapless.observe import http
from gapless.observe.http import Server
from gapless.observe.pages import SharedResponse

LARGE = b"x" * (32 << 20)


class Lent:
    """No TLS, and nobody shows a certificate."""

    def tls(self) -> None:
        return None

    def certificate_of(self, told: Any) -> Certificate:
        return NO_CERTIFICATE


class Rig:
    """A server, and who is connected to it."""

    def __init__(self) -> None:
        listening = socket.socket()
        listening.bind(("127.0.0.1", 0))
        listening.listen(256)
        listening.setblocking(False)
        self.port: int = listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.looks: list[str] = []
        self._writers: list[asyncio.StreamWriter] = []
        routes = [Route("/", self._small), Route("/large", self._large)]
        self.server = Server([listening], Lent(), Starlette(routes=routes), self._look)
        self.server.start()

    async def _small(self, _: Request) -> Response:
        return PlainTextResponse(threading.current_thread().name)

    async def _large(self, _: Request) -> Response:
        return SharedResponse(LARGE, "text/plain")

    def _look(self) -> None:
        self.looks.append(threading.current_thread().name)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self._writers.append(writer)
        return reader, writer

    async def close(self) -> None:
        for writer in self._writers:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        await asyncio.to_thread(self.server.stop)

    async def answers(self) -> bool:
        async with httpx.AsyncClient() as client:
            return (await client.get(self.url)).status_code == 200


@pytest.fixture
async def rig(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    monkeypatch.setattr(http, "HEAD_SECONDS", 0.3)
    monkeypatch.setattr(http, "ANSWER_SECONDS", 0.5)
    rig = Rig()
    yield rig
    await rig.close()


async def ended(reader: asyncio.StreamReader) -> float:
    """Waits until the server has ended a connection; returns for how long."""
    began = time.monotonic()
    with contextlib.suppress(ConnectionError):
        while await reader.read(1 << 16):
            pass
    return time.monotonic() - began


async def test_it_answers_in_a_thread_of_its_own_and_looks(rig: Rig) -> None:
    async with httpx.AsyncClient() as client:
        assert (await client.get(rig.url)).text == "gapless-observe"
    assert rig.looks[0] == "gapless-observe"


async def test_who_sends_no_whole_head_is_disconnected(rig: Rig) -> None:
    """Also when he sends a byte now and then."""
    silent, _ = await rig.connect()
    slow, writer = await rig.connect()

    async def drip() -> None:
        for byte in b"GET / HTTP/1.1\r\nhost: x" * 10:
            writer.write(bytes([byte]))
            await asyncio.sleep(0.05)

    dripping = asyncio.create_task(drip())
    assert 0.2 < await ended(silent) < 2
    assert await ended(slow) < 2
    assert await rig.answers()
    dripping.cancel()
    await asyncio.wait([dripping])


async def test_who_does_not_read_his_answer_is_disconnected_and_others_are_answered(rig: Rig) -> None:
    reader, writer = await rig.connect()
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    writer.write(b"GET /large HTTP/1.1\r\nhost: x\r\n\r\n")
    await asyncio.sleep(0.1)
    assert await rig.answers()
    await asyncio.sleep(1)
    writer.transport.resume_reading()  # type: ignore[attr-defined]

    got = b""
    with contextlib.suppress(ConnectionError):
        got = await reader.read()
    assert len(got) < len(LARGE)


async def test_a_head_without_an_end_is_refused(rig: Rig) -> None:
    reader, writer = await rig.connect()
    writer.write(b"GET / HTTP/1.1\r\nx: " + b"x" * (1 << 20))
    answer = await reader.read(1 << 16)

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"127.0.0.1:7400" in answer


async def test_a_body_without_an_end_is_not_kept(rig: Rig) -> None:
    reader, writer = await rig.connect()
    writer.write(b"GET / HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000000000\r\n\r\n")
    assert (await reader.read(1 << 16)).startswith(b"HTTP/1.1 200 ")

    async def send() -> None:
        while True:
            writer.write(b"x" * 65_536)
            await writer.drain()

    sending = asyncio.create_task(send())
    assert await ended(reader) < 2
    await asyncio.wait([sending], timeout=2)
    assert isinstance(sending.exception(), ConnectionError)


async def test_only_so_many_may_be_connected(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "CONNECTIONS_MAX", 3)
    there = [await rig.connect() for _ in range(3)]
    await asyncio.sleep(0.05)
    beyond, _ = await rig.connect()

    assert await ended(beyond) < 0.2
    for reader, _ in there:
        await ended(reader)
    assert await rig.answers()


async def test_a_connection_serves_several_requests(rig: Rig) -> None:
    reader, writer = await rig.connect()
    for _ in range(3):
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        assert (await reader.readuntil(b"gapless-observe")).startswith(b"HTTP/1.1 200 ")
        await asyncio.sleep(0.2)


async def test_it_ends_while_somebody_hangs(rig: Rig) -> None:
    await rig.connect()
    began = time.monotonic()
    await asyncio.to_thread(rig.server.stop)

    assert time.monotonic() - began < 3
    with pytest.raises(ConnectionRefusedError):
        await rig.connect()
