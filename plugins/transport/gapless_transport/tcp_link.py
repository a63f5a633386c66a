"""A link over a socket: an asyncio protocol, with no task and no future per message."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import TypeAlias, cast

from gapless.core.wire.framing import LOOKS_LIKE_HTTP, FrameDecoder, encode_header
from gapless.errors import RemoteProtocolError
from gapless.spi import Link, LinkHandler
from gapless_transport import tls
from gapless_transport.links import BaseLink, LinkState
from gapless_transport.options import LinkOptions
from gapless_transport.room import Room
from gapless_transport.sockets import prepare

CHUNK_BYTES = 256 << 10
"""How much is given to the socket in one piece, and so how much an urgent frame may have to wait for."""

_NO_HTTP = (
    b"This is a native port of gapless, where no HTTP is spoken. If this broker tells anything over HTTP, then at the"
    b" address of [observe] in its configuration, which is 127.0.0.1:7401 by default.\n"
)
TO_HTTP = (
    b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"content-length: %d\r\n\r\n%b" % (len(_NO_HTTP), _NO_HTTP)
)
"""What a client of HTTP is told, in words of its own."""

Frame: TypeAlias = "tuple[bytes, ...]"
"""The header, and the payload in one or two parts."""


class TcpLink(BaseLink[Frame], asyncio.Protocol):
    """One end of a TCP connection, with or without TLS.

    What does not fit into the socket waits in the outbox, not in the transport's own buffer: there an
    urgent frame could no longer overtake it. So the transport is given a chunk only when its buffer is
    empty, and a frame, once begun, is finished before any other.
    """

    def __init__(
        self,
        accept: Callable[[Link], LinkHandler],
        options: LinkOptions,
        on_end: Callable[[TcpLink], None],
        *,
        peer: str,
        secure: bool,
        room: Room | None,
    ) -> None:
        """A link that asks `accept` for its handler once it is up, and tells `on_end` when it is over.

        `room`: for unfinished frames, shared with other links; None: an end that dials, and reads one peer's frames.
        """
        super().__init__(peer, options, secure=secure)
        self.begun = False
        """Whether the connection has been up."""
        self._accept = accept
        self._on_end = on_end
        self._decoder = FrameDecoder(options.frame_limit)
        self._kept = b""
        self._room = room
        self._claimed = False
        self._waits = False
        """Whether nothing is read because there is no room for the frame that has begun."""
        self._is_broken = False
        self._chunks: deque[bytes | memoryview] = deque()
        self._chunk_bytes = 0
        self._blocked = False
        self._timer: asyncio.TimerHandle | None = None

    # ------------------------------------------------------------------------------------ the owner

    @property
    def pending(self) -> int:
        """Bytes accepted by `send` that have not left this process; TLS may hold up to 64 KiB more."""
        if not self.begun or self._phase is LinkState.CLOSED:
            return 0
        return self._queue.size + self._chunk_bytes + self._transport.get_write_buffer_size()

    def send(self, payloads: Sequence[bytes | tuple[bytes, bytes]], *, urgent: bool = False) -> None:
        """Sends each payload as a frame; see `Link.send`."""
        if self._phase is not LinkState.OPEN:
            return
        frames = [_frame(payload) for payload in payloads]
        parts = frames[0] if len(frames) == 1 else [*chain.from_iterable(frames)]
        if not self._blocked and sum(map(len, parts)) <= CHUNK_BYTES:
            # The usual case. Nothing waits, because a link that is not blocked has an empty outbox.
            self._write(b"".join(parts))
        else:
            for frame in frames:
                self._queue.put(frame, sum(map(len, frame)), urgent=urgent)
            self._flush()
        if self._blocked:
            self._note_pending(self.pending)

    def raise_limit(self, limit: int) -> None:
        """Accepts frames of up to `limit` bytes from now on."""
        self._decoder.limit = limit

    def pause(self) -> None:
        """Stops reading."""
        if self._phase is LinkState.OPEN and not self._paused:
            self._paused = True
            # Not at once: within `connection_made`, reading starts afterwards whatever was said before.
            self._loop.call_soon(self._apply_pause)

    def resume(self) -> None:
        """Reads again, and hands over what had been read already."""
        if self._phase is LinkState.OPEN and self._paused:
            self._paused = False
            if not self._waits:
                self._transport.resume_reading()
            self._loop.call_soon(self._hand_over_kept)

    def close(self, reason: str = "") -> None:
        """Sends what is pending within `close_timeout`, then closes."""
        if self._phase is not LinkState.OPEN:
            return
        self._phase = LinkState.CLOSING
        self._reason = reason
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(self._options.close_timeout, self._transport.abort)
        # What still comes in is read, and dropped: a socket that is closed with unread data is reset,
        # and a reset can overtake what we have sent. It is also how we hear that the other end is done.
        self._kept = b""
        if self._paused or self._waits or self._is_broken:
            self._paused = self._waits = False
            self._transport.resume_reading()
        self._leave_room()
        self._loop.call_soon(self._finish_sending)

    # ------------------------------------------------------------------------------------ the room

    def go_on(self) -> None:
        """There is room for the frame that has begun."""
        self._claimed, self._waits = True, False
        if self._phase is LinkState.OPEN and not self._paused:
            self._transport.resume_reading()

    def give_up(self, reason: str) -> None:
        """The frame that has begun is not waited for any more: the handler is told, and closes."""
        self._claimed = self._waits = False
        if self._phase is not LinkState.OPEN or self._is_broken or self._handler is None:
            return
        self._is_broken = True
        self._decoder = FrameDecoder(1)
        self._kept = b""
        self._transport.pause_reading()
        self._timer = self._loop.call_later(self._options.close_timeout, self.fail, reason)
        self._tell(self._handler.on_broken, reason)

    def _mind_room(self, room: Room, *, finished: bool) -> None:
        decoder = self._decoder
        if finished and self._claimed:
            self._leave_room()
        if decoder.begun and not self._claimed and not self._waits:
            self._claimed = room.claim(self, decoder.begun, decoder.collected)
            if not self._claimed and not self._is_broken:
                self._waits = True
                self._transport.pause_reading()

    def _leave_room(self) -> None:
        self._claimed = False
        if self._room is not None:
            self._room.leave(self)

    # ------------------------------------------------------------------------------------ the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is up, and TLS is established."""
        self._loop = asyncio.get_running_loop()
        self._transport = cast("asyncio.Transport", transport)
        # 1, not 0: with TLS, 0 means that the protocol is paused even by an empty buffer.
        self._transport.set_write_buffer_limits(high=1, low=0)
        prepare(transport.get_extra_info("socket"))
        self.certificate = tls.certificate_of(transport.get_extra_info("peercert"))
        self.begun = True
        self.begin(self, self._accept)
        if self._kept:
            self._loop.call_soon(self._hand_over_kept)

    def data_received(self, data: bytes) -> None:
        """Bytes arrived."""
        if self._is_broken:
            return
        if self._paused or self._kept or not self.begun:
            # One more read may come before the pause, and again one before what is kept is handed over.
            # And after a dialer's TLS handshake, data may come before `dial` has told us of it.
            self._kept += data
        elif self._phase is LinkState.OPEN:
            self._hand_over(data)

    def eof_received(self) -> None:
        """The other end has closed: it reads no more, so there is nothing left to do here either."""
        if self.begun:
            self.fail(self._ordinary_end())

    def pause_writing(self) -> None:
        """The socket is full."""
        self._blocked = True

    def resume_writing(self) -> None:
        """The socket has taken everything."""
        self._blocked = False
        if self._phase is LinkState.CLOSING:
            self._loop.call_soon(self._finish_sending)
        else:
            self._flush()
            self._note_sent()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is over."""
        if self._timer is not None:
            self._timer.cancel()
        self._chunks.clear()
        self._chunk_bytes = 0
        self._kept = b""
        self._leave_room()
        if self.begun:
            # Python 3.10 warns of an unclosed transport if only the other end has closed it.
            self._transport.close()
        self._on_end(self)
        self._end(self._ordinary_end() if exc is None else _reason(exc))

    # ------------------------------------------------------------------------------------ inside

    def _ordinary_end(self) -> str:
        return "the other end closed in the middle of a frame" if self._decoder.inside_frame else ""

    def _abort(self) -> None:
        self._chunks.clear()
        self._chunk_bytes = 0
        self._loop.call_soon(self._transport.abort)

    def _apply_pause(self) -> None:
        if self._paused and not self._waits:
            self._transport.pause_reading()

    def _hand_over_kept(self) -> None:
        if self._phase is LinkState.OPEN and not self._paused:
            kept, self._kept = self._kept, b""
            self._hand_over(kept)

    def _hand_over(self, data: bytes) -> None:
        """Gives the handler the frames that `data` completes.

        The handler may raise the limit, pause or close meanwhile: so a frame that the decoder holds back
        is judged after that, and handed over only if the link still stands open.
        """
        while self._handler is not None:
            try:
                payloads = self._decoder.feed(data)
            except RemoteProtocolError as error:
                if self._room is not None and str(error).endswith(LOOKS_LIKE_HTTP):
                    self._write(TO_HTTP)
                self.give_up(str(error))
                return
            if payloads:
                self._tell(self._handler.on_frames, payloads)
            if self._room is not None and (self._decoder.begun or self._claimed):
                self._mind_room(self._room, finished=bool(payloads))
            if not self._decoder.held or self._paused or self._phase is not LinkState.OPEN:
                return
            data = b""

    def _flush(self) -> None:
        """Gives the socket what it takes, urgent frames first."""
        while not self._blocked:
            if not self._chunks:
                waiting = self._queue.size
                pieces = chain.from_iterable(self._queue.take(CHUNK_BYTES))
                self._chunk_bytes = waiting - self._queue.size
                if not self._chunk_bytes:
                    return
                whole = self._chunk_bytes <= CHUNK_BYTES
                self._chunks.extend([b"".join(pieces)] if whole else cut(pieces, CHUNK_BYTES))
            chunk = self._chunks.popleft()
            self._chunk_bytes -= len(chunk)
            self._write(chunk)

    def _write(self, data: bytes | memoryview) -> None:
        # A transport that has failed logs a warning for each write until it tells us; spare people that.
        if not self._transport.is_closing():
            self._transport.write(data)

    def _finish_sending(self) -> None:
        """Says goodbye once everything has been given to the socket.

        This and `abort` are never called at once but by the loop: a transport of asyncio that is ended
        within `resume_writing` ends twice.
        """
        self._flush()
        if self._chunks or self._queue or self._transport.is_closing() or self._phase is LinkState.CLOSED:
            return
        if self._transport.can_write_eof():
            try:
                # The other end reads to here, closes, and we hear of that in `eof_received`.
                self._transport.write_eof()
            except (OSError, RuntimeError):  # the socket is gone, and the transport has not said so yet
                self._transport.abort()
        else:
            self._transport.close()


def cut(pieces: Iterable[bytes], size: int) -> list[bytes | memoryview]:
    """The bytes of `pieces` in chunks of `size`, the last one shorter.

    A chunk that lies within one piece refers to it; only the others are copied. (`writelines` would spare
    that copy too, but it gained nothing when measured, and asyncio joins what it is given before Python
    3.12 and forgets to say that the socket is full in 3.12.0 to 3.12.8.)
    """
    chunks: list[bytes | memoryview] = []
    gathered: list[memoryview] = []
    room = size
    for piece in pieces:
        view = memoryview(piece)
        while view:
            part, view = view[:room], view[room:]
            gathered.append(part)
            room -= len(part)
            if not room:
                chunks.append(gathered[0] if len(gathered) == 1 else b"".join(gathered))
                gathered = []
                room = size
    if gathered:
        chunks.append(b"".join(gathered))
    return chunks


def _frame(payload: bytes | tuple[bytes, bytes]) -> Frame:
    if isinstance(payload, tuple):
        return (encode_header(*payload), *payload)
    return (encode_header(payload), payload)


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
