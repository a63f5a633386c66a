"""A link between two ends in one process and one event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import TypeAlias

from gapless.core.wire.framing import PAYLOAD_BYTES_MAX
from gapless.errors import LocalProtocolError
from gapless_transport.faults import LinkResetError, Wire
from gapless_transport.links import BaseLink, LinkState
from gapless_transport.options import LinkOptions

BATCH_BYTES = 256 << 10
"""About how much is handed over in one turn of the loop."""

Payload: TypeAlias = "bytes | tuple[bytes, bytes]"


class MemoryLink(BaseLink[Payload]):
    """One end of a link in memory.

    Frames wait at the sending end until the other end reads, then cross the wire in batches, one per
    turn of the loop. So whoever does not read lets `pending` rise at the other end, as with a socket.
    """

    other: MemoryLink
    """The other end."""

    def __init__(self, peer: str, options: LinkOptions, wire: Wire) -> None:
        """An end whose frames leave over `wire`. Give it its `other` end before anything else."""
        super().__init__(peer, options, secure=True)
        self._wire = wire
        self._limit = options.frame_limit
        self._inbox: deque[bytes] = deque()
        self._is_broken = False
        self._cut_off: str | None = None
        self._loop = asyncio.get_running_loop()
        self._next_pump: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None

    # ------------------------------------------------------------------------------------ the owner

    @property
    def pending(self) -> int:
        """Bytes accepted by `send` that the other end has not been given."""
        return 0 if self._phase is LinkState.CLOSED else self._queue.size + self._wire.size

    def send(self, payloads: Sequence[Payload], *, urgent: bool = False) -> None:
        """Sends each payload as a frame; see `Link.send`."""
        if self._phase is not LinkState.OPEN:
            return
        sizes = [_size(payload) for payload in payloads]  # all of them are judged before one is taken
        for payload, size in zip(payloads, sizes, strict=True):
            self._queue.put(payload, size, urgent=urgent)
        self._note_pending(self._queue.size + self._wire.size)
        self.pump_soon()

    def raise_limit(self, limit: int) -> None:
        """Accepts frames of up to `limit` bytes from now on."""
        self._limit = limit

    def pause(self) -> None:
        """Stops reading."""
        self._paused = True

    def resume(self) -> None:
        """Reads again."""
        if self._paused:
            self._paused = False
            self._loop.call_soon(self._read_again)

    def close(self, reason: str = "") -> None:
        """Sends what is pending within `close_timeout`, then closes."""
        if self._phase is not LinkState.OPEN:
            return
        self._phase = LinkState.CLOSING
        self._reason = reason
        self._inbox.clear()
        self._fail_later(reason)
        self.pump_soon()
        # What the other end could not hand over may go now: nowhere, because this end drops it.
        self.other.pump_soon()

    # ------------------------------------------------------------------------------------ sending

    def pump_soon(self) -> None:
        """Something may be able to move now: pumps in the next turn of the loop."""
        if isinstance(self._next_pump, asyncio.TimerHandle):
            self._next_pump.cancel()
            self._next_pump = None
        if self._next_pump is None:
            self._next_pump = self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        """Moves what is pending over the wire, if the other end takes it."""
        self._next_pump = None
        if self._phase is LinkState.CLOSED or self.other.is_stalled():
            return
        now = self._loop.time()
        try:
            self._wire.put([_whole(payload) for payload in self._queue.take(BATCH_BYTES)], now)
        except LinkResetError:
            self.fail("the link was reset")
            return
        self.other.take(self._wire.take(now))
        self._note_sent()
        if self._queue.size:
            self.pump_soon()
        elif self._wire.size:
            if self._next_pump is None:
                self._next_pump = self._loop.call_at(self._wire.next_at(), self._pump)
        elif self._phase is LinkState.CLOSING:
            self._leave("")
            self.other.be_cut_off("")

    # ------------------------------------------------------------------------------------ receiving

    def is_stalled(self) -> bool:
        """Whether this end takes nothing at present."""
        return self._phase is LinkState.OPEN and not self._is_broken and (self._paused or bool(self._inbox))

    def take(self, payloads: list[bytes]) -> None:
        """Frames have crossed the wire; a closing end drops them, and so does a broken one."""
        if self._phase is LinkState.OPEN and not self._is_broken:
            self._inbox.extend(payloads)
            self._hand_over()

    def _read_again(self) -> None:
        self._hand_over()
        self.other.pump_soon()

    def _hand_over(self) -> None:
        """Gives the handler what has arrived, as long as it wants it."""
        while self._inbox and not self._paused and self._handler is not None:
            payloads = self._within_limit()
            if not payloads:
                self._refuse(f"a frame announced {len(self._inbox[0])} bytes; at most {self._limit} are allowed here")
                return
            self._tell(self._handler.on_frames, payloads)
        if self._cut_off is not None and not self.is_stalled():
            self._leave(self._cut_off)

    def _refuse(self, reason: str) -> None:
        """What came is more than is taken: tells the handler, which closes."""
        self._is_broken = True
        self._inbox.clear()
        self._fail_later(reason)
        if self._handler is not None:
            self._tell(self._handler.on_broken, reason)
        self.other.pump_soon()

    def _fail_later(self, reason: str) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(self._options.close_timeout, self.fail, reason)

    def _within_limit(self) -> list[bytes]:
        """Removes the frames up to the first one that is too long. It may be allowed when these were handled."""
        payloads = []
        while self._inbox and len(self._inbox[0]) <= self._limit:
            payloads.append(self._inbox.popleft())
        return payloads

    # ------------------------------------------------------------------------------------ the end

    def _abort(self) -> None:
        self._inbox.clear()
        self._loop.call_soon(self._break)

    def _break(self) -> None:
        self._leave("")
        self.other.be_cut_off("the other end broke the link", at_once=True)

    def be_cut_off(self, reason: str, *, at_once: bool = False) -> None:
        """The other end is gone: this one ends too, once it has handed over what had arrived."""
        if at_once:
            self._leave(reason)
        elif self._phase is not LinkState.CLOSED:
            self._cut_off = reason
            self._hand_over()

    def _leave(self, reason: str) -> None:
        for handle in (self._next_pump, self._timer):
            if handle is not None:
                handle.cancel()
        self._inbox.clear()
        self._end(reason)


def _size(payload: Payload) -> int:
    size = len(payload) if isinstance(payload, bytes) else sum(map(len, payload))
    if not 0 < size <= PAYLOAD_BYTES_MAX:
        raise LocalProtocolError(f"a frame's payload has 1 to {PAYLOAD_BYTES_MAX} bytes, not {size}")
    return size


def _whole(payload: Payload) -> bytes:
    """A frame in one piece. Of two parts, one may be shared by many links until here."""
    return payload if isinstance(payload, bytes) else b"".join(payload)
