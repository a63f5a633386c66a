"""The numbers of the frames of a session: they show when a frame is lost, repeated, or out of order.

    payload := session u64, lane and number u32, urgent u32, message

A link has two lanes: urgent frames may overtake ordinary ones, and each lane keeps its order. So each lane has its own
count, from 1 on; the highest bit of the number marks the urgent lane. How each kind of loss is found:

- A lost frame in the middle: by the next frame of its lane.
- The last urgent frames: `urgent` is how many urgent frames were sent before. No ordinary frame overtakes them, so the
  next ordinary frame shows their loss.
- The last ordinary frames: by the next one, which is a heartbeat if there is nothing else to send.

TCP loses nothing; a proxy that cuts frames, a message queue, or a faulty transport may. A frame that came before is
ignored. A hole ends the session: the client connects anew, attaches after what it received, and sends again what has no
answer. So no message of a session needs a repetition of its own.

Hello, Welcome and Refused belong to no session and have no numbers. In a Closing the numbers may be 0: a broker that
failed sends the reason, and may not know any more which frames it had sent.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from gapless.errors import RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterable

SESSION_BYTES = 8
HEAD_BYTES = 16
"""Session, lane, number and urgent: the bytes before every message."""
UNNUMBERED = bytes(HEAD_BYTES - SESSION_BYTES)
_URGENT = 1 << 31
_NUMBERS = _URGENT - 1
"""How many numbers there are. After the last one comes 1 again."""
_HALF = _NUMBERS // 2

_pack = Struct("<II").pack
_unpack = Struct("<II").unpack_from


class FramesLostError(RemoteProtocolError):
    """Frames of a session are missing: not the other end has broken the protocol, but the way from there."""


class Sent:
    """Numbers the frames that one end of a session sends."""

    __slots__ = ("_ordinary", "_urgent")

    def __init__(self) -> None:
        self._ordinary = 0
        self._urgent = 0

    def next(self, *, urgent: bool) -> bytes:
        """Returns the numbers of the next frame, as they stand in its payload."""
        if urgent:
            self._urgent = self._urgent % _NUMBERS + 1
            return _pack(_URGENT | self._urgent, self._urgent)
        self._ordinary = self._ordinary % _NUMBERS + 1
        return _pack(self._ordinary, self._urgent)

    def stamp(self, head: bytes, *, urgent: bool) -> bytes:
        """Puts the next number into a payload, or into the first part of one."""
        return head[:SESSION_BYTES] + self.next(urgent=urgent) + head[HEAD_BYTES:]

    def stamp_pairs(self, payloads: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """Puts the next numbers into ordinary payloads in two parts; the second part may be shared."""
        number, urgent = self._ordinary, self._urgent
        stamped: list[tuple[bytes, bytes]] = []
        for head, rest in payloads:
            number = number % _NUMBERS + 1
            stamped.append((head[:SESSION_BYTES] + _pack(number, urgent) + head[HEAD_BYTES:], rest))
        self._ordinary = number
        return stamped


class Received:
    """Judges the numbers of the frames that the other end of a session sent."""

    __slots__ = ("_ordinary", "_urgent")

    def __init__(self) -> None:
        self._ordinary = 0
        self._urgent = 0

    def is_new(self, payload: bytes) -> bool:
        """Whether a frame of this session is the next of its lane; False if it came before.

        Raises FramesLostError if frames before it are missing, and RemoteProtocolError if it has no number.
        """
        if len(payload) < HEAD_BYTES:
            raise RemoteProtocolError("a frame of a session is too short to have a number")
        number, urgent = _unpack(payload, SESSION_BYTES)
        if number & _URGENT:
            number -= _URGENT
            # Numbers wrap around: less than half of them ahead is a hole, everything else came before.
            missing = (number - self._urgent - 1) % _NUMBERS
            if not missing and number:
                self._urgent = number
                return True
        else:
            missing = (number - self._ordinary - 1) % _NUMBERS
            before = (urgent - self._urgent) % _NUMBERS
            if not missing and number and not 0 < before < _HALF:
                self._ordinary = number
                return True
            missing = missing or before
        if not number:
            raise RemoteProtocolError("a frame of a session has no number")
        if missing < _HALF:
            raise FramesLostError(f"frames were lost on the way: {missing} before this one")
        return False


def is_unnumbered(payload: bytes) -> bool:
    """Whether a frame has a session, but no number."""
    return payload[SESSION_BYTES:HEAD_BYTES] == UNNUMBERED
