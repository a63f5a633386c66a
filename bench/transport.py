"""What a frame costs over TCP, beside the same bytes sent without frames.

Both ends of a loopback connection live in this process, so the figures are the CPU time of sending *and*
receiving. Each is taken side by side with two floors, which carry the very same bytes in the same
portions: `sockets` (a bare socket pair, no loop at all) and `protocol` (asyncio protocols that only count).
Figures are medians of several rounds.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from statistics import median

import uvloop

from gapless.core.wire.framing import HEADER_BYTES, encode_frame
from gapless.spi import Link
from gapless_transport.tcp import TcpTransport
from gapless_transport.tcp_options import TcpOptions

FRAME_BYTES = (64, 4 << 10, 64 << 10)
PORTION_BYTES = 64 << 10
"""About how much is sent at once, in one call."""
ROUNDS = 5
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


def run(*, json: bool = False) -> dict[str, float]:
    """Measures, prints a table unless `json`, and returns the figures; their keys carry their units."""
    figures: dict[str, float] = {}
    for size in FRAME_BYTES:
        portion = max(1, PORTION_BYTES // size)
        for name, new_loop in LOOPS.items():
            figures |= _figures(f"{name}_{size}B", new_loop, size, portion)
    for name, new_loop in LOOPS.items():
        figures |= _figures(f"{name}_64B_one_per_call", new_loop, 64, 1)
    if not json:
        for key, figure in figures.items():
            print(f"{key:58} {figure:10.3f}")
    return figures


def _figures(name: str, new_loop: Callable[[], asyncio.AbstractEventLoop], size: int, portion: int) -> dict[str, float]:
    portions = min(20_000, (64 << 20) // (portion * size))
    payload = bytes(range(256)) * (size // 256) + bytes(size % 256)
    raw = encode_frame(payload) * portion
    ours, protocol, sockets = [], [], []
    for _ in range(ROUNDS):
        ours.append(_timed(new_loop, lambda: _send_frames([payload] * portion, portions)))
        protocol.append(_timed(new_loop, lambda: _send_bytes(raw, portions)))
        sockets.append(_send_without_loop(raw, portions))
    frames = portions * portion
    return {
        f"{name}_cpu_us_per_frame": median(ours) / frames * 1e6,
        f"{name}_ratio_to_protocol": median(ours) / median(protocol),
        f"{name}_ratio_to_sockets": median(ours) / median(sockets),
    }


def _timed(new_loop: Callable[[], asyncio.AbstractEventLoop], work: Callable[[], Awaitable[float]]) -> float:
    loop = new_loop()
    try:
        return loop.run_until_complete(work())
    finally:
        loop.close()


class _Counter:
    """Counts what arrives, and continues to send when there is room again."""

    def __init__(self, expected: int) -> None:
        self.missing = expected
        self.done = asyncio.get_running_loop().create_future()
        self.room = asyncio.Event()

    def on_frames(self, payloads: Sequence[bytes]) -> None:
        self.missing -= len(payloads)
        if not self.missing:
            self.done.set_result(None)

    def on_broken(self, reason: str) -> None:
        """Nothing breaks here."""
        raise AssertionError(reason)

    def on_drained(self) -> None:
        self.room.set()

    def on_closed(self, reason: str) -> None:
        if not self.done.done():
            self.done.set_exception(ConnectionError(reason))


async def _send_frames(payloads: list[bytes], portions: int) -> float:
    transport = TcpTransport(TcpOptions())
    receiving, sending = _Counter(len(payloads) * portions), _Counter(1)

    def accept(link: Link) -> _Counter:
        link.raise_limit(1 << 20)
        return receiving

    listener = await transport.listen("127.0.0.1:0", accept)
    link = await transport.dial(listener.address, lambda _: sending)
    started = time.process_time()
    for _ in range(portions):
        link.send(payloads)
        if link.pending > 1 << 20:
            sending.room.clear()
            await sending.room.wait()
        elif len(payloads) > 1:
            await asyncio.sleep(0)
    await receiving.done
    spent = time.process_time() - started
    sending.done.cancel()
    link.close()
    await listener.close()
    return spent


class _Sink(asyncio.Protocol):
    def __init__(self, expected: int) -> None:
        self.missing = expected
        self.done = asyncio.get_running_loop().create_future()
        self.room = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.missing -= len(data)
        if not self.missing:
            self.done.set_result(None)

    def pause_writing(self) -> None:
        self.room.clear()

    def resume_writing(self) -> None:
        self.room.set()


async def _send_bytes(raw: bytes, portions: int) -> float:
    loop = asyncio.get_running_loop()
    receiving, sending = _Sink(len(raw) * portions), _Sink(0)
    sending.room.set()
    server = await loop.create_server(lambda: receiving, "127.0.0.1", 0)
    transport, _ = await loop.create_connection(lambda: sending, *server.sockets[0].getsockname())
    started = time.process_time()
    for _ in range(portions):
        transport.write(raw)
        if not sending.room.is_set():
            await sending.room.wait()
        elif len(raw) > 64 + HEADER_BYTES:
            await asyncio.sleep(0)
    await receiving.done
    spent = time.process_time() - started
    transport.abort()
    server.close()
    await asyncio.sleep(0)
    return spent


def _send_without_loop(raw: bytes, portions: int) -> float:
    listening = socket.create_server(("127.0.0.1", 0))
    sender = socket.create_connection(listening.getsockname())
    receiver, _ = listening.accept()
    started = time.process_time()
    for _ in range(portions):
        sender.sendall(raw)
        missing = len(raw)
        while missing:
            missing -= len(receiver.recv(256 << 10))
    spent = time.process_time() - started
    for sock in (sender, receiver, listening):
        sock.close()
    return spent
