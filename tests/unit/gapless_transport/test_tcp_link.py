"""What a link over a socket does beyond the conformance suite."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.core.wire.framing import encode_frame
from gapless_testing.running import settle
from gapless_testing.transport.ends import End
from gapless_transport import tcp_link
from gapless_transport.options import LinkOptions
from gapless_transport.tcp_link import TcpLink, cut
from unit.gapless_transport.conftest import Listen, Open


@given(st.lists(st.binary(max_size=50), max_size=8), st.integers(1, 40))
def test_cutting_changes_no_byte(pieces: list[bytes], size: int) -> None:
    chunks = [bytes(chunk) for chunk in cut(pieces, size)]

    assert b"".join(chunks) == b"".join(pieces)
    assert [len(chunk) for chunk in chunks[:-1]] == [size] * (len(chunks) - 1)
    assert all(0 < len(chunk) <= size for chunk in chunks)


def test_a_large_piece_is_not_copied() -> None:
    large = bytes(1000)
    chunks = cut([b"header", large], 100)

    inside = chunks[1:-1]
    assert len(inside) == 9
    assert all(isinstance(chunk, memoryview) and chunk.obj is large for chunk in inside)


class NoSocket:
    def setsockopt(self, *_: int) -> None: ...


class FakeTransport(asyncio.Transport):
    """A socket that takes `room` bytes, and then nothing until it is given room again."""

    def __init__(self, link: TcpLink, room: int) -> None:
        super().__init__()
        self.link = link
        self.room = room
        self.buffered = 0
        self.given: list[bytes | bytearray | memoryview] = []
        self.ended = self.closing = False
        self.paused = False

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def get_extra_info(self, name: str, default: object = None) -> object:
        return NoSocket() if name == "socket" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert (high, low) == (1, 0)

    def get_write_buffer_size(self) -> int:
        return self.buffered

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.given.append(data)
        taken = min(self.room, len(data))
        self.room -= taken
        self.buffered += len(data) - taken
        if self.buffered:
            self.link.pause_writing()

    @property
    def written(self) -> list[bytes]:
        return [bytes(data) for data in self.given]

    def make_room(self, room: int) -> None:
        """The network has taken so much."""
        taken = min(room, self.buffered)
        self.buffered -= taken
        self.room = room - taken
        if not self.buffered:
            self.link.resume_writing()

    def is_closing(self) -> bool:
        return self.closing

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended = True

    def close(self) -> None:
        self.ended = self.closing = True

    def abort(self) -> None:
        self.ended = self.closing = True


def linked(room: int, **options: int) -> tuple[TcpLink, FakeTransport, End]:
    end = End()
    link = TcpLink(end.accept, LinkOptions(**options), lambda _: None, peer="peer", secure=False, room=None)
    transport = FakeTransport(link, room)
    link.connection_made(transport)
    return link, transport, end


async def test_a_call_is_one_write() -> None:
    """Small things are joined, header and payload too."""
    link, transport, _ = linked(room=1 << 20)
    link.send([b"one", (b"t", b"wo"), b"three"])

    assert transport.written == [b"".join(map(encode_frame, [b"one", b"two", b"three"]))]


async def test_the_socket_is_given_no_more_than_a_chunk_that_it_may_not_take() -> None:
    link, transport, _ = linked(room=0)
    for _ in range(100):
        link.send([bytes(10_000)])

    assert transport.buffered <= tcp_link.CHUNK_BYTES
    assert link.pending == 100 * 10_008


async def test_urgent_frames_wait_for_one_chunk_at_most() -> None:
    link, transport, _ = linked(room=0)
    data = [bytes([index]) * 100_000 for index in range(10)]
    link.send(data)
    link.send([b"urgent"], urgent=True)
    while link.pending:
        transport.make_room(1 << 30)
        await asyncio.sleep(0)
    everything = b"".join(transport.written)

    assert everything.index(encode_frame(b"urgent")) <= tcp_link.CHUNK_BYTES
    assert everything.replace(encode_frame(b"urgent"), b"") == b"".join(map(encode_frame, data))


async def test_a_frame_once_begun_is_finished_before_urgent_ones() -> None:
    link, transport, _ = linked(room=0)
    large = bytes(3 * tcp_link.CHUNK_BYTES)
    link.send([large])
    link.send([b"urgent"], urgent=True)
    while link.pending:
        transport.make_room(1 << 30)

    assert b"".join(transport.written) == encode_frame(large) + encode_frame(b"urgent")


async def test_a_shared_part_is_never_joined_to_anything_but_its_beginning() -> None:
    """Nine tenths of a large part go to the socket from where they are."""
    link, transport, _ = linked(room=1 << 30)
    shared = bytes(40 * tcp_link.CHUNK_BYTES)
    link.send([(b"head", shared)])

    views = [data for data in transport.given if isinstance(data, memoryview) and data.obj is shared]
    assert sum(map(len, views)) > 0.9 * len(shared)


@pytest.mark.parametrize("error", [OSError("not connected"), RuntimeError("the handler is closed")])
async def test_a_socket_that_has_gone_before_the_goodbye_is_let_go(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its transport says so only afterwards; the loop would log a traceback."""
    link, transport, _ = linked(room=1 << 20)

    def gone() -> None:
        raise error

    monkeypatch.setattr(transport, "write_eof", gone)
    loop_errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: loop_errors.append(context))
    link.close()
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert transport.closing
    assert loop_errors == []


async def test_nothing_is_written_to_a_transport_that_has_failed() -> None:
    link, transport, _ = linked(room=1 << 20)
    transport.closing = True
    link.send([b"late"])

    assert transport.written == []
    assert link.pending == 0


async def test_the_end_of_a_link_has_the_reason_of_the_socket() -> None:
    for error, reason in (
        (ConnectionResetError(104, "Connection reset by peer"), "Connection reset by peer"),
        (TimeoutError("too slow"), "too slow"),
        (RuntimeError(), "RuntimeError"),
        (None, ""),
    ):
        link, _, end = linked(room=0)
        link.connection_lost(error)
        link.connection_lost(error)
        assert end.closed == [reason]


async def test_a_link_lost_in_the_middle_of_a_frame_says_so() -> None:
    link, _, end = linked(room=0)
    link.data_received(encode_frame(b"whole") + encode_frame(b"cut")[:9])
    link.connection_lost(None)

    assert end.received == [b"whole"]
    assert "in the middle of a frame" in end.closed[0]


async def test_data_before_the_link_is_up_is_kept() -> None:
    """As after a dialer's TLS handshake, and after a pause that the loop has not heard of yet."""
    end = End()
    link = TcpLink(end.accept, LinkOptions(), lambda _: None, peer="peer", secure=True, room=None)
    link.data_received(encode_frame(b"early"))
    link.connection_made(FakeTransport(link, room=0))
    link.data_received(encode_frame(b"then"))
    assert end.received == []
    await settle()

    assert end.received == [b"early", b"then"]
    link.connection_lost(None)


async def test_a_link_lost_before_it_was_up_tells_nobody() -> None:
    end = End()
    link = TcpLink(end.accept, LinkOptions(), lambda _: None, peer="peer", secure=True, room=None)
    link.eof_received()
    link.connection_lost(None)

    assert link.ended
    assert (end.received, end.closed, link.pending) == ([], [], 0)


@pytest.mark.parametrize("end_it", [lambda link: link.close(), lambda link: link.fail("why")], ids=["close", "fail"])
async def test_ending_within_a_callback_of_the_transport_is_put_off(end_it: Callable[[TcpLink], None]) -> None:
    """A transport of asyncio that is ended within `resume_writing` ends twice."""
    link, transport, end = linked(room=0, high_water=10, low_water=5)
    end.on_drained_do = lambda: end_it(link)
    link.send([b"long enough to be above the mark"])
    transport.make_room(1 << 20)

    assert (end.drained, transport.ended) == (1, False)
    await settle()
    assert transport.ended
    link.connection_lost(None)


async def test_small_writes_leave_at_once(listen: Listen, open_tcp: Open) -> None:
    """Neither end waits for more before it sends."""
    transport = open_tcp()
    listener, ends = await listen(transport)
    near = End()
    link = await transport.dial(listener.address, near.accept)
    far = await ends.get(0)
    far.on_frames_do = far.link.send
    for index in range(200):
        link.send([bytes([index])])
        await near.frames(index + 1)
    link.close()
    await near.end()

    assert near.received == [bytes([index]) for index in range(200)]


async def test_a_link_that_nobody_holds_lives(listen: Listen, open_tcp: Open) -> None:
    """Also one that neither reads nor writes, which the loop would let go."""
    transport = open_tcp()
    listener, ends = await listen(transport)
    closed: list[str] = []

    class Handler:
        def on_frames(self, payloads: object) -> None: ...

        def on_broken(self, reason: str) -> None: ...

        def on_drained(self) -> None: ...

        def on_closed(self, reason: str) -> None:
            closed.append(reason)

    (await transport.dial(listener.address, lambda _: Handler())).pause()
    far = await ends.get(0)
    await settle()
    gc.collect()
    await settle()

    assert (far.closed, closed) == ([], [])
    (link,) = transport._dialed  # type: ignore[attr-defined]
    link.close()
    await far.end()
    while not closed:
        await settle()
